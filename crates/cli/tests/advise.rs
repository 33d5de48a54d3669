//! `allot advise`, with a small C program that does what is wanted of it.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The program, compiled once; `None`, and a word about it, where there is no compiler.
fn program() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("advised", &["-O1", "-g"])).as_deref()
}

fn compiled(name: &str, flags: &[&str]) -> Option<String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advise");
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join(format!("{name}-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/advised.c");
    let output = Command::new("cc").args(flags).arg("-o").arg(&program).arg(source).output();
    let Ok(output) = output else {
        eprintln!("skipped: there is no C compiler");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && flags.contains(&"-static") {
        eprintln!("skipped: no static C library: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(program.into_os_string().into_string().unwrap())
}

macro_rules! program {
    () => {
        match program() {
            Some(program) => program,
            None => return,
        }
    };
}

/// An empty place to run in, with a place for temporary files in it.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("advise/{}-{number}", std::process::id());
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // One of an earlier process with the same number may have left it.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("temporary")).unwrap();
        Self(place)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        // What is tested here is the same whatever the figures are.
        command.args(["advise", "--rounds", "1"]).args(arguments).current_dir(&self.0);
        command.env("TMPDIR", self.0.join("temporary")).env("NO_COLOR", "1");
        command.stdin(Stdio::null());
        command
    }

    fn advise(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().unwrap()
    }

    /// What is there, besides the place for temporary files, which has to be empty.
    fn files(&self) -> Vec<String> {
        let names = |directory: &Path| {
            let names = fs::read_dir(directory).unwrap();
            let mut names: Vec<String> =
                names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(
            names(&self.0.join("temporary")),
            Vec::<String>::new(),
            "temporary files are left"
        );
        names(&self.0).into_iter().filter(|name| name != "temporary").collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command on one processor: a child inherits the processors of the thread that starts it.
fn on_one_processor(command: &mut Command) -> Output {
    let run = || {
        let this_thread = Pid::from_raw(0);
        let allowed = sched_getaffinity(this_thread).unwrap();
        let is_allowed = |processor: &usize| allowed.is_set(*processor) == Ok(true);
        let mut one = CpuSet::new();
        one.set((0..CpuSet::count()).find(is_allowed).unwrap()).unwrap();
        sched_setaffinity(this_thread, &one).unwrap();
        command.output().unwrap()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Text without its line breaks.
fn flat(bytes: &[u8]) -> String {
    text(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn the_program_s_output_is_its_own_and_the_summary_fits_on_one_screen() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--", program]);
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "what the program prints\n");
    let errors = text(&output.stderr);
    let (complaint, summary) = errors.split_once('\n').unwrap();
    assert_eq!(complaint, "what it complains of");
    assert!(summary.lines().count() <= 24, "{summary}");
    assert!(summary.lines().all(|line| line.chars().count() <= 100), "{summary}");
    assert!(summary.trim_start().starts_with(program), "{summary}");
    // 50 rounds of 200, and a few of the C library.
    assert!(summary.contains("10,00") && summary.contains(" allocations of"), "{summary}");
    assert!(summary.contains("Ran "), "{summary}");
}

#[test]
fn the_report_is_named_after_the_program_unless_it_is_said_where_or_not_wanted() {
    let program = program!();
    let own = format!("allot-{}.html", program.rsplit('/').next().unwrap());
    for (arguments, files) in [
        (&[][..], vec![own]),
        (&["--report", "here.html"], vec!["here.html".to_owned()]),
        (&["--no-report"], vec![]),
        (&["--json"], vec![]),
        (&["--json", "--report", "here.html"], vec!["here.html".to_owned()]),
    ] {
        let place = Place::new();
        let output = place.advise(&[arguments, &["--", program, "nothing"]].concat());
        assert_eq!(code(&output), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(place.files(), files, "{arguments:?}");
        if let ([file], false) = (files.as_slice(), arguments.contains(&"--json")) {
            assert!(text(&output.stderr).contains(&format!("Report: {file}")), "{arguments:?}");
        }
        for file in files {
            let page = fs::read_to_string(place.path(&file)).unwrap();
            assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
            assert!(page.contains("</html>"), "{arguments:?}");
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_program_runs() {
    let program = program!();
    let place = Place::new();
    for report in ["no/such/place.html", "temporary", "/proc/report.html"] {
        let output = place.advise(&["--report", report, "--", program, "mark", "marks"]);
        let errors = text(&output.stderr);
        assert_eq!(code(&output), Some(1), "{errors}");
        assert!(errors.lines().count() == 1 && errors.contains(report), "{errors}");
        assert_eq!(place.files(), Vec::<String>::new(), "{report}");
    }
}

#[test]
fn json_has_standard_output_for_itself() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--json", "-o", "run.rec", "--", program]);
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((10_000..10_010).contains(&found["program"]["allocations"].as_u64().unwrap()));
    assert_eq!(found["recording"], "run.rec");
    assert_eq!(found["report"], Value::Null);
    assert!(found["replay"]["rows"].as_array().unwrap().len() >= 2);
    let errors = text(&output.stderr);
    assert!(errors.contains("what the program prints") && errors.contains("what it complains of"));
    assert!(!errors.contains("allocations"), "{errors}");
}

#[test]
fn json_can_be_made_a_report_later() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--json", "--", program]);
    fs::write(place.path("found.json"), &output.stdout).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    let output = command
        .args(["report", &place.path("found.json"), &place.path("later.html")])
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert!(fs::read_to_string(place.path("later.html")).unwrap().contains("</html>"));
}

#[test]
fn the_exit_code_is_ours_and_the_program_s_is_told() {
    let program = program!();
    for (how, told) in [
        ("exit", "Ended with exit code 3 after"),
        ("crash", "Was ended by SIGSEGV (a crash) after"),
    ] {
        let place = Place::new();
        let output = place.advise(&["--no-report", "--", program, how]);
        let errors = text(&output.stderr);
        assert_eq!(code(&output), Some(0), "{errors}");
        assert!(errors.contains(told), "{errors}");
        // What it did until then is all there.
        assert!(errors.contains("10,00"), "{errors}");
    }
}

#[test]
fn a_program_that_allocates_nothing_and_is_over_at_once_is_told_so() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--no-report", "--", program, "nothing"]);
    let errors = flat(&output.stderr);
    assert_eq!(code(&output), Some(0), "{errors}");
    assert!(errors.contains("No allocator would help"), "{errors}");
    assert!(errors.contains("which is mostly its start"), "{errors}");
}

#[test]
fn what_cannot_be_seen_is_not_even_run() {
    let Some(program) = compiled("static", &["-static"]) else { return };
    let place = Place::new();
    let output = place.advise(&["--", &program, "mark", "marks"]);
    let errors = text(&output.stderr);
    assert_eq!(code(&output), Some(1), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("linked statically"), "{errors}");
    assert!(errors.contains("not run"), "{errors}");
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn arguments_that_make_no_sense_are_told_in_one_line() {
    let place = Place::new();
    fs::write(place.path("broken"), "no recording at all, but long enough for its header").unwrap();
    for (arguments, wanted, word) in [
        (&[][..], 2, "PROGRAM"),
        (&["--"], 2, "PROGRAM"),
        (&["--", "no-such-program"], 1, "no-such-program"),
        (&["--", ""], 2, "name is empty"),
        (&["--report", "", "--", "ls"], 2, "--report"),
        (&["-o", "", "--", "ls"], 2, "--output"),
        (&["--recording", ""], 2, "--recording"),
        (&["--recording", "no-such-file"], 1, "no-such-file"),
        (&["--recording", "broken"], 1, "broken"),
        (&["--recording", "broken", "--", "ls"], 2, "--recording"),
        (&["--recording", "broken", "--against-bare"], 2, "--against-bare"),
        (&["--report", "a.html", "--no-report", "--", "ls"], 2, "--no-report"),
        (&["-o", "no/such/file", "--", "ls"], 1, "no/such/file"),
    ] {
        let output = place.advise(arguments);
        let errors = text(&output.stderr);
        assert_eq!(code(&output), Some(wanted), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty() && errors.lines().count() == 1, "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_limit_on_address_space_ends_in_advice_or_in_an_error_that_names_it() {
    let program = program!();
    let place = Place::new();
    for kibibytes in ["1000000", "3000000"] {
        let allot = env!("CARGO_BIN_EXE_allot");
        let line = format!("ulimit -v {kibibytes}; exec {allot} advise --no-report -- {program}");
        let output = Command::new("sh").args(["-c", &line]).current_dir(&place.0).output().unwrap();
        let errors = text(&output.stderr);
        match code(&output) {
            Some(0) => assert!(errors.contains(" allocations of"), "{errors}"),
            Some(1) => {
                assert!(errors.contains("ulimit -v") && errors.lines().count() == 1, "{errors}");
            }
            _ => panic!("{kibibytes}: {:?}: {errors}", output.status),
        }
    }
}

#[test]
fn no_room_for_temporary_files_is_told_with_a_way_out() {
    let program = program!();
    let place = Place::new();
    let mut command = place.command(&["--", program]);
    let output = command.env("TMPDIR", place.path("no-such-directory")).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(code(&output), Some(1), "{errors}");
    assert!(errors.contains("TMPDIR") && errors.contains("-o FILE"), "{errors}");
}

#[test]
fn a_read_only_directory_and_one_processor_are_enough_for_advice() {
    let program = program!();
    let place = Place::new();
    let mut command = place.command(&["--", program]);
    // Not even root makes files in /sys.
    command.current_dir("/sys").env("HOME", "/sys");
    let output = on_one_processor(&mut command);
    let errors = flat(&output.stderr);
    assert_eq!(code(&output), Some(0), "{errors}");
    assert!(errors.contains("The report was not written: can't write 'allot-"), "{errors}");
    assert!(errors.contains("; choose a file with --report."), "{errors}");
}

#[test]
fn the_busiest_process_is_advised_on_and_the_others_are_named() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--no-report", "-o", "run.rec", "--", program, "fork"]);
    let errors = flat(&output.stderr);
    assert_eq!(code(&output), Some(0), "{errors}");
    // The child made 100,000 of them.
    assert!(errors.contains("100,00"), "{errors}");
    assert!(errors.contains("process 1 of those from 0 to 1"), "{errors}");
    assert!(errors.contains("--process N with --recording run.rec"), "{errors}");
    let again = place.advise(&["--no-report", "--recording", "run.rec", "--process", "0"]);
    assert_eq!(code(&again), Some(0), "{}", text(&again.stderr));
    // Nothing runs, so the summary has standard output.
    assert!(text(&again.stdout).contains("10,00"), "{}", text(&again.stdout));
    assert!(flat(&again.stdout).contains("the others: 1 advised"), "{}", text(&again.stdout));
    let none = place.advise(&["--recording", "run.rec", "--process", "2"]);
    assert_eq!(code(&none), Some(2), "{}", text(&none.stderr));
    assert!(text(&none.stderr).contains("no process 2; give --process a number below 2"));
    // A recording that ends within the header of its second process, and one without any.
    let whole = fs::read(place.path("run.rec")).unwrap();
    let second = whole.windows(9).rposition(|bytes| bytes == b"\"forked\":").unwrap();
    for (length, asked, wanted) in [
        (second, "1", (2, "it has process 0 only; the recording was cut off at byte")),
        (20, "0", (1, "the recording has no process; record the program again")),
    ] {
        fs::write(place.path("cut.rec"), &whole[..length]).unwrap();
        let cut = place.advise(&["--recording", "cut.rec", "--process", asked]);
        let errors = text(&cut.stderr);
        assert_eq!(code(&cut), Some(wanted.0), "{errors}");
        assert!(errors.contains(wanted.1) && errors.lines().count() == 1, "{errors}");
    }
    fs::remove_file(place.path("cut.rec")).unwrap();
    assert_eq!(place.files(), ["run.rec"]);
}

#[test]
fn a_program_that_goes_on_in_the_background_is_told() {
    let program = program!();
    let place = Place::new();
    let output = place.advise(&["--no-report", "--", program, "daemon"]);
    let errors = flat(&output.stderr);
    assert_eq!(code(&output), Some(0), "{errors}");
    assert!(
        errors.contains("in the background") && errors.contains("in the foreground"),
        "{errors}"
    );
    let ended = place.advise(&["--no-report", "--", program, "fork"]);
    assert!(!text(&ended.stderr).contains("background"), "{}", text(&ended.stderr));
}

#[test]
fn the_program_runs_once_and_again_only_if_it_is_asked_for() {
    let program = program!();
    let place = Place::new();
    let marks = || fs::read_to_string(place.path("marks")).unwrap().lines().count();
    let command = ["--json", "--", program, "mark", "marks"];
    let found: Value = serde_json::from_slice(&place.advise(&command).stdout).unwrap();
    assert_eq!((marks(), &found["program"]["bare_measured"]), (1, &Value::Bool(false)));
    let command = [&["--against-bare"][..], &command].concat();
    let found: Value = serde_json::from_slice(&place.advise(&command).stdout).unwrap();
    // Recorded, run once before the replay, and once in its only round.
    assert_eq!((marks(), &found["program"]["bare_measured"]), (4, &Value::Bool(true)));
    assert!(found["program"]["bare_cpu_ns"].as_u64() > Some(0));
}

#[test]
fn a_file_as_standard_input_is_given_to_all_runs_from_where_it_stood() {
    use std::io::Seek;
    let program = program!();
    let place = Place::new();
    fs::write(place.path("input"), [b'x'; 5_000]).unwrap();
    let mut input = fs::File::open(place.path("input")).unwrap();
    input.seek(std::io::SeekFrom::Start(1_000)).unwrap();
    let mut command =
        place.command(&["--against-bare", "--no-report", "--", program, "count", "counts"]);
    let output = command.stdin(input).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(place.path("counts")).unwrap(), "4000\n4000\n4000\n");
}

#[test]
fn a_pipe_cannot_be_read_twice_which_is_told_before_the_program_runs() {
    let program = program!();
    let place = Place::new();
    let mut command = place.command(&["--against-bare", "--", program, "mark", "marks"]);
    let output = command.stdin(Stdio::piped()).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(code(&output), Some(2), "{errors}");
    assert!(
        errors.lines().count() == 1 && errors.contains("a pipe can be read only once"),
        "{errors}"
    );
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn whoever_closes_the_pipe_gets_a_quiet_end() {
    let program = program!();
    let place = Place::new();
    let recorded = place.advise(&["--no-report", "-o", "run.rec", "--", program]);
    assert_eq!(code(&recorded), Some(0), "{}", text(&recorded.stderr));
    for arguments in
        [&["--recording", "run.rec", "--no-report"][..], &["--recording", "run.rec", "--json"]]
    {
        let mut child =
            place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (code(&output), text(&output.stderr)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
    let mut child = place.command(&["--no-report", "--", program, "nothing"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Starts a program in a group of its own, as a terminal does, and waits until it says that it is
/// ready.
fn until_ready(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // What a shell runs in the background ignores Ctrl-C, tests too, and what ignores it goes on to
    // while it is recorded. SAFETY: `signal` may be called between fork and exec, and no handler is
    // set.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn interrupt(group: &Child) {
    // SAFETY: it touches no memory.
    assert_eq!(unsafe { libc::kill(-(group.id() as i32), libc::SIGINT) }, 0);
}

#[test]
fn an_interrupt_ends_the_program_and_the_advice_is_on_what_it_did() {
    let program = program!();
    let place = Place::new();
    let child = until_ready(&place, &["--no-report", "--", program, "wait"]);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(code(&output), Some(0), "{errors}");
    assert!(errors.contains("Was ended by Ctrl-C after"), "{errors}");
    assert!(errors.contains("10,00"), "{errors}");
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn further_interrupts_end_all_and_leave_nothing_behind() {
    let program = program!();
    let place = Place::new();
    let mut child = until_ready(&place, &["--", program, "long"]);
    let group = child.id() as i32;
    // The first ends the program, whichever ends us comes when we are at the analysis or the
    // replay.
    let status = loop {
        interrupt(&child);
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(130));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(!errors.contains("allocations of"), "{errors}");
    assert_eq!(place.files(), Vec::<String>::new());
    // No process of the group is left, and those of the replay end with us.
    // SAFETY: it touches no memory.
    assert_eq!(unsafe { libc::kill(-group, 0) }, -1);
}
