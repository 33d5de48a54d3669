//! `allot advise` at a terminal: the question whether to measure, and `--repeat`.

use nix::pty::{OpenptyResult, openpty};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const QUESTION: &str = "[y/N] ";

/// A folder with a program that adds a line to `runs` each time it runs, and a library in place of
/// a malloc, which does nothing. `None`, and a message, without a C compiler.
fn folder(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advise-terminal").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let compiled = |source: &str, file: &str, flags: &[&str]| {
        let path = folder.join("source.c");
        fs::write(&path, source).unwrap();
        let output =
            Command::new("cc").args(flags).arg("-o").arg(folder.join(file)).arg(&path).output();
        let Ok(output) = output else {
            eprintln!("skipped: there is no C compiler");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    };
    let program = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(int count, char **words) {
            FILE *file = fopen("runs", "a");
            fputs("run\n", file);
            fclose(file);
            for (volatile int i = 0; i < 100000; i++) { void *volatile block = malloc(100); free(block); }
            if (count > 1) pause();
            return 3;
        }"#;
    compiled(program, "program", &["-O1"])?;
    compiled("int nothing;", "librpmalloc.so", &["-shared", "-fPIC"])?;
    Some(folder)
}

/// A terminal with `allot advise` in it.
struct Terminal {
    screen: File,
    child: Child,
}

impl Terminal {
    fn with(folder: &Path, arguments: &[&str]) -> Self {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        command
            .args(["advise", "--rounds", "1", "--no-report"])
            .args(arguments)
            .current_dir(folder);
        command.env("NO_COLOR", "1").env("LD_LIBRARY_PATH", folder);
        command.stdin(slave.try_clone().unwrap()).stdout(Stdio::null()).stderr(slave);
        Self { screen: File::from(master), child: command.spawn().unwrap() }
    }

    /// What stands on the screen up to `words`, or to the end.
    fn until(&mut self, words: Option<&str>) -> String {
        let (mut text, mut byte) = (Vec::new(), [0]);
        // A terminal that no process has open any more reads as an error.
        while let Ok(1) = self.screen.read(&mut byte) {
            text.push(byte[0]);
            if words.is_some_and(|words| text.ends_with(words.as_bytes())) {
                break;
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn answer(&mut self, words: &str) -> (String, ExitStatus) {
        self.screen.write_all(words.as_bytes()).unwrap();
        let text = self.until(None);
        (text, self.child.wait().unwrap())
    }
}

fn runs(folder: &Path) -> usize {
    fs::read_to_string(folder.join("runs")).unwrap().lines().count()
}

#[test]
fn a_yes_runs_the_program_as_it_is_and_with_each_malloc() {
    let Some(folder) = folder("yes") else { return };
    let mut terminal = Terminal::with(&folder, &["--", "./program"]);
    let text = terminal.until(Some(QUESTION));
    assert!(text.contains("Measure the program itself?") && text.contains("rpmalloc"), "{text}");
    assert_eq!(runs(&folder), 1);
    // A busy machine has time for fewer runs, but for no less than 6.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = flat.split_once("It would run ").unwrap().1.split_once(" more times").unwrap().0;
    let each: usize = said.parse().unwrap();
    assert!((6..=11).contains(&each), "{text}");
    let (text, status) = terminal.answer("y\n");
    assert!(text.contains(&format!("Measured on the program itself: {each} runs")), "{text}");
    assert!(text.contains("as it is") && text.contains("rpmalloc"), "{text}");
    assert_eq!(status.code(), Some(0));
    // Other mallocs may be installed too, and a change may be tried.
    let runs = runs(&folder);
    assert!(runs > 2 * each, "{runs}");
}

#[test]
fn anything_else_than_a_yes_runs_nothing() {
    let Some(folder) = folder("no") else { return };
    let mut terminal = Terminal::with(&folder, &["--", "./program"]);
    terminal.until(Some(QUESTION));
    let (text, status) = terminal.answer("\n");
    assert!(!text.contains("Measured"), "{text}");
    assert_eq!((runs(&folder), status.code()), (1, Some(0)));
}

#[test]
fn a_program_that_a_signal_ended_is_not_run_again() {
    let Some(folder) = folder("ended") else { return };
    let mut terminal = Terminal::with(&folder, &["--", "./program", "wait"]);
    while !folder.join("runs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The program's first call stands before its wait.
    std::thread::sleep(std::time::Duration::from_millis(300));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(terminal.child.id() as i32),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let text = terminal.until(None);
    assert!(!text.contains(QUESTION), "{text}");
    assert_eq!((runs(&folder), terminal.child.wait().unwrap().code()), (1, Some(0)));
}

#[test]
fn a_file_or_a_pipe_is_not_asked() {
    let Some(folder) = folder("pipe") else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(["advise", "--rounds", "1", "--no-report", "--", "./program"]);
    command.current_dir(&folder).env("LD_LIBRARY_PATH", &folder).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("Measure the program itself?"), "{text}");
    assert_eq!(runs(&folder), 1);
}

#[test]
fn runs_that_are_asked_for_on_the_command_line_need_no_question() {
    let Some(folder) = folder("repeat") else { return };
    let mut terminal = Terminal::with(&folder, &["--repeat", "6", "--", "./program"]);
    let text = terminal.until(None);
    assert!(text.contains("Measured on the program itself: 6 runs"), "{text}");
    assert!(!text.contains(QUESTION), "{text}");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    // Recorded, bare, once in the replay's round, and six with each malloc.
    assert!(runs(&folder) >= 3 + 2 * 6, "{}", runs(&folder));
}
