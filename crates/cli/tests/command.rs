//! The command as a user meets it.

#[path = "command/children.rs"]
mod children;
#[path = "command/rows.rs"]
mod rows;
#[path = "command/tour_and_stress.rs"]
mod tour_and_stress;
#[path = "command/variants.rs"]
mod variants;
#[path = "command/words.rs"]
mod words;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn allot(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(arguments).stdin(Stdio::null()).env_remove("CARGO");
    command
}

/// Whether a test that takes half a minute in a debug build is left out, and says so: it runs if
/// `ALLOTMENT_LONG_TESTS` is set.
fn too_long(what: &str) -> bool {
    let left_out = std::env::var_os("ALLOTMENT_LONG_TESTS").is_none();
    if left_out {
        // Not by `eprintln!`, which the harness shows for failing tests alone.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: ALLOTMENT_LONG_TESTS is not set");
    }
    left_out
}

fn run(arguments: &[&str]) -> Output {
    allot(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The quickest bench there is.
const SHORT: [&str; 7] = ["bench", "query-small", "--quick", "--rounds", "1", "--threads", "1"];

fn short(more: &[&'static str]) -> Vec<&'static str> {
    [&SHORT[..], more].concat()
}

fn json_lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
