//! The advisor's commands where the shell has prepared something nasty.

use serde::de::IgnoredAny;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn allot(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// A recording of a program that has some calls.
fn recording(directory: &Path) -> PathBuf {
    let path = directory.join("recording");
    let done = allot(directory).args(["record", "-o"]).arg(&path).args(["--", "ls", "/"]).output();
    assert!(done.unwrap().status.success());
    path
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn an_error_that_cannot_be_told_has_its_exit_code_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for errors in [Stdio::from(full()), Stdio::from(std::io::pipe().unwrap().1)] {
        let status =
            allot(directory.path()).args(["analyse", "no-such-file"]).stderr(errors).status();
        assert_eq!(status.unwrap().code(), Some(1));
    }
}

#[test]
fn the_programs_exit_code_is_passed_on_whether_or_not_the_summary_can_be_written() {
    let directory = tempfile::tempdir().unwrap();
    for errors in [Stdio::from(full()), Stdio::from(std::io::pipe().unwrap().1)] {
        let status = allot(directory.path())
            .args(["record", "-o", "x", "--", "sh", "-c", "exit 7"])
            .stderr(errors)
            .status();
        assert_eq!(status.unwrap().code(), Some(7));
    }
}

#[test]
fn a_recording_may_lie_wherever_files_may() {
    let directory = tempfile::tempdir().unwrap();
    for name in [&b"a b"[..], b"a:b", b"$ORIGIN", b"a\nb", b"\xff\xfe", b"-", b"\xe2\x82\xac"] {
        let place = directory.path().join(OsStr::from_bytes(name));
        fs::create_dir(&place).unwrap();
        let file = place.join(OsStr::from_bytes(b"of ls\xff"));
        let output = allot(directory.path())
            .args(["record", "--json", "-o"])
            .arg(&file)
            .args(["--", "sh", "-c", "exit 5"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{place:?}: {errors}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(summary["events"].as_u64() > Some(0), "{place:?}: {errors}");
        assert!(errors.is_empty(), "{errors}");
        let left: Vec<_> = fs::read_dir(&place).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let output = allot(&place).args(["analyse", "--json"]).arg(&file).output().unwrap();
        serde_json::from_slice::<IgnoredAny>(&output.stdout).unwrap();
    }
}

/// No file may have more bytes.
fn with_files_of(most: u64, command: &mut Command) -> &mut Command {
    // SAFETY: nothing but a call of the kernel.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    }
}

#[test]
fn a_file_that_may_not_be_so_long_is_an_error_and_the_page_before_stays() {
    let directory = tempfile::tempdir().unwrap();
    let recording = recording(directory.path());
    let findings = allot(directory.path()).args(["analyse", "--json"]).arg(&recording).output();
    fs::write(directory.path().join("findings"), findings.unwrap().stdout).unwrap();
    let page = directory.path().join("page.html");
    fs::write(&page, "what was there").unwrap();
    fs::write(directory.path().join("x"), "what was there").unwrap();
    let report = ["report", "findings", "page.html"];
    let output = with_files_of(8192, allot(directory.path()).args(report)).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("can't write 'page.html': File too large"), "{errors}");
    assert_eq!(fs::read(&page).unwrap(), b"what was there");
    for arguments in [&["replay", "--rounds", "1"][..], &["record", "-o", "x", "--", "ls"]] {
        let mut command = allot(directory.path());
        command.args(arguments);
        if arguments[0] == "replay" {
            command.arg(&recording);
        }
        let output = with_files_of(64, &mut command).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("File too large"), "{arguments:?}: {errors}");
    }
    assert_eq!(fs::read(directory.path().join("x")).unwrap(), b"what was there");
    // Nothing else is left.
    let mut names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["findings", "page.html", "recording", "x"]);
    let output = allot(directory.path()).args(report).output().unwrap();
    assert!(output.status.success());
    assert!(fs::read_to_string(&page).unwrap().trim_end().ends_with("</html>"));
}

#[test]
fn a_page_does_not_take_the_place_of_its_findings() {
    let directory = tempfile::tempdir().unwrap();
    let findings = directory.path().join("findings");
    fs::write(&findings, "{}").unwrap();
    let output = allot(directory.path()).args(["report", "findings", "./findings"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
    assert_eq!(fs::read(&findings).unwrap(), b"{}");
}

#[test]
fn a_pipe_instead_of_a_recording_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for command in [
        &["analyse"][..],
        &["replay", "--json"],
        &["record", "--show"],
        &["advise", "--json", "--recording"],
    ] {
        for place in ["pipe", "/", "/dev/null"] {
            let output = allot(directory.path()).args(command).arg(place).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command:?}: {errors}");
            assert!(errors.contains("no file") && output.stdout.is_empty(), "{errors}");
        }
    }
}
