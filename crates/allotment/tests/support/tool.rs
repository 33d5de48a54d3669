//! Runs a misuse of memory in a child process under a memory tool, and looks for the tool's report.
//!
//! The tool is what `ALLOTMENT_EXPECT_TOOL` names (`asan` or `valgrind`; `.ci/sanitizers` sets it). Without one a case says that it
//! skips. The file that uses this has a test `the_child_runs_its_case`.

use std::hint::black_box;
use std::process::{Command, Output};
use std::ptr::NonNull;

/// The case that a child process runs.
pub const CASE: &str = "ALLOTMENT_SANITIZER_CASE";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    AddressSanitizer,
    Valgrind,
}

pub fn expected_tool() -> Option<Tool> {
    match std::env::var("ALLOTMENT_EXPECT_TOOL").as_deref() {
        Ok("asan") => Some(Tool::AddressSanitizer),
        Ok("valgrind") => Some(Tool::Valgrind),
        _ => None,
    }
}

/// Runs a case in a child, under the tool; nothing if there is no tool.
pub fn run(case: &str) -> Option<(Tool, Output)> {
    let Some(tool) = expected_tool() else {
        println!("skipped: {case}: ALLOTMENT_EXPECT_TOOL names no tool; .ci/sanitizers runs this");
        return None;
    };
    let program = std::env::current_exe().unwrap();
    let mut command = match tool {
        Tool::AddressSanitizer => Command::new(program),
        Tool::Valgrind => {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=99", "--leak-check=no"]).arg(program);
            command
        }
    };
    command.args(["--exact", "the_child_runs_its_case", "--nocapture", "--test-threads=1"]);
    Some((tool, command.env(CASE, case).output().unwrap()))
}

/// The tool must stop the case with a report of this access.
pub fn is_caught(case: &str, access: Access) {
    let Some((tool, output)) = run(case) else { return };
    let report = String::from_utf8_lossy(&output.stderr);
    // The tool's own exit status: a crash of another kind is no catch.
    let stopped = match tool {
        Tool::AddressSanitizer => 1,
        Tool::Valgrind => 99,
    };
    assert_eq!(output.status.code(), Some(stopped), "{case} was not caught:\n{report}");
    let words: &[&str] = match (tool, access) {
        (Tool::AddressSanitizer, Access::Read) => &["use-after-poison", "READ of size"],
        (Tool::AddressSanitizer, Access::Write) => &["use-after-poison", "WRITE of size"],
        (Tool::Valgrind, Access::Read) => &["Invalid read of size"],
        (Tool::Valgrind, Access::Write) => &["Invalid write of size"],
    };
    for word in words {
        assert!(report.contains(word), "{case}: no '{word}' in:\n{report}");
    }
}

#[derive(Clone, Copy)]
pub enum Access {
    Read,
    Write,
}

pub fn write(place: *mut u8) {
    // SAFETY: none; it is the misuse that the tool must catch. The chunk is still mapped in every case.
    unsafe { black_box(place).write_volatile(1) };
}

pub fn read(place: *const u8) {
    // SAFETY: none, as above.
    black_box(unsafe { black_box(place).read_volatile() });
}

pub fn fill(object: NonNull<u8>, size: usize) {
    // SAFETY: the caller's object of this size.
    unsafe {
        object.write_bytes(1, size);
        let bytes = std::slice::from_raw_parts(object.as_ptr(), size);
        assert!(bytes.iter().all(|&byte| byte == 1));
    }
}
