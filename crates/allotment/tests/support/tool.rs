//! Runs a misuse of memory in a child process under a memory tool, and looks for the tool's report.
//!
//! The tool is what `ALLOTMENT_EXPECT_TOOL` names (`asan` or `valgrind`; `.ci/sanitizers` sets it).
//! Without one a case says that it skips. A file that uses [`run`] or [`is_caught`] has a test
//! `the_child_runs_its_case`.

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

/// Whether this process is the child that runs this case.
pub fn is_case(case: &str) -> bool {
    std::env::var_os(CASE).is_some_and(|given| given == case)
}

/// Whether this process is the child of any case.
pub fn is_child() -> bool {
    std::env::var_os(CASE).is_some()
}

/// Runs a case in a child, under the tool; nothing if there is no tool.
pub fn run(case: &str) -> Option<(Tool, Output)> {
    run_in("the_child_runs_its_case", case)
}

/// As above; this test runs the case.
pub fn run_in(test: &str, case: &str) -> Option<(Tool, Output)> {
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
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Some((tool, command.env(CASE, case).output().unwrap()))
}

/// The tool must stop the case with a report of this access.
pub fn is_caught(case: &str, access: Access) {
    is_caught_in("the_child_runs_its_case", case, access);
}

/// As above; this test runs the case.
pub fn is_caught_in(test: &str, case: &str, access: Access) {
    let Some((tool, output)) = run_in(test, case) else { return };
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

/// The case must succeed without a report; this test runs it.
pub fn is_clean_in(test: &str, case: &str) {
    let Some((_, output)) = run_in(test, case) else { return };
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    for word in ["AddressSanitizer", "Invalid", "uninitialised"] {
        assert!(!report.contains(word), "{report}");
    }
}

/// Valgrind must report a branch on bytes that were never written; this test runs the case.
/// AddressSanitizer does not know which bytes were written.
pub fn is_unwritten_in(test: &str, case: &str) {
    if expected_tool() == Some(Tool::AddressSanitizer) {
        return println!("skipped: AddressSanitizer does not know which bytes were written");
    }
    let Some((_, output)) = run_in(test, case) else { return };
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(99), "{report}");
    assert!(report.contains("depends on uninitialised value"), "{report}");
}

/// Branches on a byte that the tool must know to be unwritten.
pub fn branch_on(object: NonNull<u8>) {
    // SAFETY: the object's own byte.
    if black_box(unsafe { object.read_volatile() }) == 7 {
        println!("seven");
    }
}

#[derive(Clone, Copy)]
pub enum Access {
    Read,
    Write,
}

pub fn write(place: *mut u8) {
    // SAFETY: none; it is the misuse that the tool must catch. The chunk is still mapped in every
    // case.
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
