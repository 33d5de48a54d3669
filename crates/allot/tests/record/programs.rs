//! Programs for the tests of `allot record`, compiled where there is a compiler, and what was recorded of them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A program, or a library.
pub struct Program(PathBuf);

impl Program {
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Its functions by their addresses.
    pub fn functions(&self) -> BTreeMap<u64, String> {
        let output = Command::new("nm").arg("--defined-only").arg(&self.0).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                matches!(words.next()?, "t" | "T")
                    .then(|| Some((address, words.next()?.to_owned())))?
            })
            .collect()
    }
}

/// What was recorded.
pub struct Recorded {
    pub status: ExitStatus,
    pub errors: String,
    lines: Vec<Value>,
}

fn place(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record");
    let directory = directory.join(format!("{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

/// Compiles a program. `None`, and a word about it, where there is no compiler, or it lacks what the flags ask for.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Option<Program> {
    let program = place(name);
    let file = program.with_extension("c");
    fs::write(&file, crate::with_head(source)).unwrap();
    let output = match Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .args(["-ldl"])
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && flags.contains(&"-static") {
        eprintln!("skipped: no static C library: {errors}");
        return None;
    }
    assert!(output.status.success(), "{name}: {errors}");
    Some(Program(program))
}

/// Records a program without arguments.
pub fn record(program: &Program) -> Recorded {
    record_with(program, &[], |_| {})
}

/// Records a program.
pub fn record_with(
    program: &Program,
    arguments: &[&str],
    change: impl FnOnce(&mut Command),
) -> Recorded {
    run(program.path(), arguments, "", change)
}

/// Records a program that may be installed.
pub fn record_installed(
    name: &str,
    arguments: &[&str],
    input: &str,
    change: impl FnOnce(&mut Command),
) -> Option<Recorded> {
    let found =
        std::env::split_paths(&std::env::var_os("PATH")?).any(|path| path.join(name).is_file());
    found.then(|| run(name, arguments, input, change))
}

fn run(
    program: &str,
    arguments: &[&str],
    input: &str,
    change: impl FnOnce(&mut Command),
) -> Recorded {
    let file = place("recording.allot");
    let allot = env!("CARGO_BIN_EXE_allot");
    let mut command = Command::new(allot);
    command.args(["record", "-o"]).arg(&file).arg("--").arg(program).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    change(&mut command);
    // A limit on files has to hold in the program alone.
    let limit = command.get_envs().find(|(name, _)| *name == "ALLOT_TEST_LIMIT");
    if let Some((_, Some(kib))) = limit {
        let kib = kib.to_str().unwrap().to_owned();
        command = Command::new(allot);
        command.args(["record", "-o"]).arg(&file).arg("--");
        command
            .args(["bash", "-c", &format!("ulimit -f {kib} && exec \"$@\""), "-", program])
            .args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    // A program that doesn't read is no failure.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown =
        Command::new(allot).args(["record", "--json", "--show"]).arg(&file).output().unwrap();
    let problems = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success() && problems.is_empty(), "{problems}\n{errors}");
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "nothing is left beside the recording");
    let lines = String::from_utf8(shown.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Recorded { status: output.status, errors, lines }
}

impl Recorded {
    /// The processes, each with its header and its end.
    pub fn processes(&self) -> Vec<&Value> {
        self.lines.iter().filter(|line| line.get("header").is_some()).collect()
    }

    pub fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(move |line| line["event"] == kind)
    }

    pub fn allocations(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("alloc")
    }

    fn replay(&self, process: u64) -> (BTreeMap<u64, u64>, Vec<u64>, usize) {
        let mut live = BTreeMap::<u64, u64>::new();
        let mut unknown = Vec::new();
        let mut overlaps = 0;
        for event in self.lines.iter().filter(|line| line["process"] == process) {
            let address = event["address"].as_u64();
            match (event["event"].as_str(), address) {
                (Some("alloc"), Some(address)) => {
                    let size = event["size"].as_u64().unwrap();
                    let before = live.range(..address).next_back();
                    let behind = live.range(address..).next();
                    overlaps += usize::from(before.is_some_and(|(at, size)| at + size > address));
                    overlaps += usize::from(
                        behind.is_some_and(|(&at, _)| at == address || at < address + size),
                    );
                    live.insert(address, size);
                }
                (Some("free"), Some(address)) if live.remove(&address).is_none() => {
                    unknown.push(address);
                }
                _ => {}
            }
        }
        (live, unknown, overlaps)
    }

    /// Blocks of a process that are never freed, with their sizes.
    pub fn live(&self, process: u64) -> BTreeMap<u64, u64> {
        self.replay(process).0
    }

    /// Frees of blocks of which nobody knows.
    pub fn unknown_frees(&self, process: u64) -> Vec<u64> {
        self.replay(process).1
    }

    /// Allocations where another live block was.
    pub fn overlaps(&self, process: u64) -> usize {
        self.replay(process).2
    }
}
