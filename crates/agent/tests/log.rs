//! The log: an acknowledged line is in the file, whatever happens to the agent.

use allotment_agent::log::{LIMIT, Log, MAX_LINE_BYTES, STEP};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const ROLE: &str = "AGENT_LOG_TEST_FILE";

/// A directory for one test, removed when the value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("agent-log-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("agent.log")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the command that runs this test again, in a child process.
fn child(test: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, file);
    command
}

/// Returns the file's lines without their times. All lines must be whole.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

#[test]
fn a_kill_takes_no_line_that_was_acknowledged() {
    if let Some(file) = std::env::var_os(ROLE) {
        let log = Log::open(file).unwrap();
        let mut out = std::io::stdout();
        for number in 0_u64.. {
            // Of many lengths, so that lines cross pages and steps.
            let length = (number * 37 % 3000) as usize;
            assert!(log.info(format_args!("{number} {}", "x".repeat(length))));
            out.write_all(format!("acknowledged {number}\n").as_bytes()).unwrap();
        }
    }
    let directory = Directory::new();
    for round in 0..5 {
        let file = directory.0.join(format!("{round}.log"));
        let mut child = child("a_kill_takes_no_line_that_was_acknowledged", &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let number = |line: String| line.strip_prefix("acknowledged ")?.parse::<u64>().ok();
        let enough = 200 + 777 * round;
        while told.next().and_then(|line| number(line.unwrap())).is_none_or(|n| n < enough) {}
        child.kill().unwrap();
        let told = told.map_while(Result::ok).filter_map(number);
        let last = told.last().unwrap_or(enough);
        child.wait().unwrap();

        assert_eq!(fs::metadata(&file).unwrap().len() as usize % STEP, 0, "it was not trimmed");
        // The next start trims the file and continues.
        drop(Log::open(&file).unwrap());
        let lines = lines(&file);
        assert!(lines.len() as u64 > last, "{} lines, {last} acknowledged", lines.len());
        for (number, line) in (0_u64..).zip(&lines) {
            assert!(line.starts_with(&format!("info {number} ")));
            assert_eq!(line.len(), format!("info {number} ").len() + (number * 37 % 3000) as usize);
        }
    }
}

#[test]
fn a_line_that_was_being_copied_is_taken_away() {
    let directory = Directory::new();
    let file = directory.file();
    let log = Log::open(&file).unwrap();
    log.info(format_args!("whole"));
    drop(log);
    let whole = fs::read(&file).unwrap();
    // What a kill leaves between a line's copy and its commit, at several positions in the file.
    for before in [0, 1, 4095, STEP - 100, STEP + MAX_LINE_BYTES - 2, 3 * STEP] {
        let mut bytes = Vec::new();
        while bytes.len() < before {
            bytes.extend_from_slice(b"before\n");
        }
        bytes.extend_from_slice(&whole);
        let committed = bytes.len();
        bytes.push(0);
        bytes.extend(std::iter::repeat_n(b'x', MAX_LINE_BYTES - 2));
        bytes.push(b'\n');
        bytes.resize(bytes.len().next_multiple_of(STEP), 0);
        fs::write(&file, &bytes).unwrap();
        let log = Log::open(&file).unwrap();
        assert!(log.error(format_args!("after")));
        drop(log);
        let found = fs::read(&file).unwrap();
        assert_eq!(found[..committed], bytes[..committed]);
        assert!(found[committed..].ends_with(b" error after\n"));
        assert!(found.len() < committed + 100);
    }
}

#[test]
fn a_clean_end_leaves_lines_alone_and_the_next_agent_goes_on() {
    let directory = Directory::new();
    for run in 0..3 {
        let log = Log::open(directory.file()).unwrap();
        assert!(log.info(format_args!("run {run}")));
        assert_eq!(log.lost(), 0);
    }
    assert_eq!(lines(&directory.file()), ["info run 0", "info run 1", "info run 2"]);
}

#[test]
fn many_threads_write_whole_lines() {
    let directory = Directory::new();
    let log = Log::open(directory.file()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..500 {
                    assert!(log.warning(format_args!("{thread} {number} {}", "y".repeat(number))));
                }
            });
        }
    });
    drop(log);
    let lines = lines(&directory.file());
    assert_eq!(lines.len(), 8 * 500);
    for thread in 0..8 {
        let prefix = format!("warning {thread} ");
        let numbers: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let expected: Vec<_> = (0..500).map(|n| format!("{n} {}", "y".repeat(n))).collect();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn a_file_that_is_full_is_renamed_and_a_new_one_begun() {
    let directory = Directory::new();
    let file = directory.file();
    let log = Log::open(&file).unwrap();
    let length = 15_000;
    let count = LIMIT / length + 200;
    for number in 0..count {
        assert!(log.info(format_args!("{number:0length$}")));
    }
    drop(log);
    let old = lines(&directory.0.join("agent.log.1"));
    let new = lines(&file);
    assert!(!new.is_empty() && old.len() + new.len() == count);
    for (number, line) in old.iter().chain(&new).enumerate() {
        assert!(line.ends_with(&format!("{number:0length$}")));
    }
    assert!(fs::metadata(directory.0.join("agent.log.1")).unwrap().len() as usize <= LIMIT);
    // The same with a file that is full when the agent starts.
    fs::write(&file, "line\n".repeat(LIMIT / 5)).unwrap();
    assert!(Log::open(&file).unwrap().info(format_args!("begun anew")));
    assert_eq!(lines(&file), ["info begun anew"]);
}

#[test]
fn after_a_rename_the_log_is_begun_anew_when_it_is_told() {
    let directory = Directory::new();
    let file = directory.file();
    let log = Log::open(&file).unwrap();
    log.info(format_args!("one"));
    log.reopen().unwrap();
    log.info(format_args!("two"));
    let moved = directory.0.join("moved");
    fs::rename(&file, &moved).unwrap();
    log.info(format_args!("three"));
    log.reopen().unwrap();
    log.info(format_args!("four"));
    drop(log);
    assert_eq!(lines(&moved), ["info one", "info two", "info three"]);
    assert_eq!(lines(&file), ["info four"]);
}

#[test]
fn a_file_that_can_not_be_a_log_is_refused_with_a_remedy() {
    let directory = Directory::new();
    let file = directory.file();
    let _log = Log::open(&file).unwrap();
    let refused = |path: &Path| Log::open(path).unwrap_err().to_string();
    assert!(refused(&file).contains("another agent's; end that one"));
    assert!(refused(&directory.0).contains("can't be opened"));
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    assert!(refused(&directory.0.join("none/agent.log")).contains("name a file"));
}

/// Lines are lost while the disk is full, and the loss is reported. The agent continues, and so
/// does the log when there is space again.
#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    if let Some(file) = std::env::var_os(ROLE) {
        let file = PathBuf::from(file);
        let filler = file.with_file_name("filler");
        let log = Log::open(&file).unwrap();
        assert!(log.info(format_args!("first")));
        // The disk has space for the current step, and for no other.
        fs::write(&filler, vec![1; 600 << 10]).unwrap();
        let mut written = 1;
        while log.info(format_args!("{written} {}", "z".repeat(1000))) {
            written += 1;
            assert!(written < 10_000, "the disk never was full");
        }
        for _ in 0..99 {
            assert!(!log.info(format_args!("lost")));
        }
        assert_eq!(log.lost(), 100);
        fs::remove_file(&filler).unwrap();
        // After a failure the log pauses for a while.
        while !log.info(format_args!("room again")) {
            std::thread::yield_now();
        }
        let lost = log.lost();
        drop(log);
        let lines = lines(&file);
        assert_eq!(lines.len(), written + 2);
        assert_eq!(
            lines[written],
            format!("error {lost} lines before this one are lost, because the disk was full")
        );
        assert_eq!(lines[written + 1], "info room again");
        println!("played to the end");
        return;
    }
    let test = "a_full_disk_costs_lines_and_nothing_else";
    let directory = Directory::new();
    let inner = child(test, &directory.file());
    let script = "mount -t tmpfs -o size=2m none \"$0\" || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&directory.0)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(ROLE, directory.file())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("played to the end"));
        }
        Ok(output) if [Some(77), Some(1)].contains(&output.status.code()) => {
            println!("skipped {test}: mounting a tmpfs is not permitted here");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped {test}: no unshare here: {error}"),
    }
}

#[test]
fn a_limit_of_a_files_length_costs_lines_and_nothing_else() {
    let test = "a_limit_of_a_files_length_costs_lines_and_nothing_else";
    if let Some(file) = std::env::var_os(ROLE) {
        let log = Log::open(file).unwrap();
        let refused = (0..10_000).any(|_| !log.info(format_args!("{}", "z".repeat(1000))));
        assert!(refused && log.lost() == 1);
        println!("played to the end");
        return;
    }
    let directory = Directory::new();
    let inner = child(test, &directory.file());
    // The shell counts in blocks of 512 or 1024 bytes: enough for one step, and not for twelve.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 5000; exec \"$@\"", "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(ROLE, directory.file())
        .output()
        .unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("played to the end"));
    let lines = lines(&directory.file());
    assert!(lines.len() > 1000 && lines.iter().all(|line| line.len() == "info ".len() + 1000));
}

/// The file takes the space of its lines and one step on the disk, not that of its limit.
#[test]
fn a_log_takes_a_step_beyond_its_lines() {
    let directory = Directory::new();
    let log = Log::open(directory.file()).unwrap();
    log.info(format_args!("little"));
    let metadata = fs::metadata(directory.file()).unwrap();
    assert!(metadata.len() as usize <= STEP && metadata.blocks() * 512 <= 2 * STEP as u64);
    drop(log);
    assert!(fs::metadata(directory.file()).unwrap().len() < 100);
}
