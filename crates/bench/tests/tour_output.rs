//! The tour where its output can't be written. It measures nothing here.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the short tour in a directory with `limits`, and with standard output in a file.
fn tour(directory: &Path, limits: &str) -> Output {
    let tour = env!("CARGO_BIN_EXE_allotment-tour");
    let script = format!("{limits}; exec \"$0\" --small > output");
    Command::new("sh").args(["-c", &script, tour]).current_dir(directory).output().unwrap()
}

#[test]
fn a_file_that_may_not_be_so_long_is_an_error_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let output = tour(directory.path(), "ulimit -f 0");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let told = "allotment-tour: can't write to standard output: File too large (os error 27)\n";
    assert_eq!(errors, told);
}
