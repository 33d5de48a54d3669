//! The replay of widely installed programs does what they did: the same live bytes after every
//! step, no two live blocks in one place, under glibc and under every plan.
//!
//! A program that isn't installed is named, and left out; `.ci/run` installs them.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replay-golden");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

fn allot() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.stdin(Stdio::null());
    command
}

/// Records a program; returns the recording.
fn recorded(name: &str, program: &[&str]) -> PathBuf {
    let recording = folder().join(format!("{name}.rec"));
    let output =
        allot().args(["record", "-o"]).arg(&recording).arg("--").args(program).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    recording
}

/// Replays it in the recorded order with an eye on every block, and once at full speed.
fn replayed(recording: &Path, more: &[&str]) -> Value {
    let output = allot()
        .arg("replay")
        .arg(recording)
        .args(["--check", "--rounds", "1", "--allocators", "null", "--json"])
        .args(more)
        .output()
        .unwrap();
    let about = format!("{}: {}", recording.display(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{about}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["replay"]["faithful"], true, "{about}");
    assert_eq!(found["replay"]["failed"].as_array().unwrap().len(), 0, "{about}");
    assert!(found["replay"]["steps"].as_u64().unwrap() > 100, "{about}");
    found
}

/// The plan's memory over glibc's.
fn memory(found: &Value, plan: &str) -> f64 {
    let rows = found["replay"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == plan);
    let row = row.unwrap_or_else(|| panic!("no row {plan} of {}", found["replay"]));
    row["memory_ratio"].as_f64().unwrap()
}

/// What is tried in the place of what is advised, one after the other.
const TRIED: [&[&str]; 3] =
    [&["--try", "all=reap"], &["--try", "all=pool"], &["--try", "all=slab"]];

#[test]
fn one_document_fits_an_arena_without_reset_by_the_memory_that_its_replay_takes() {
    if !installed("xmllint") {
        return;
    }
    let mut text = String::from("<list>\n");
    for i in 0..4000 {
        writeln!(text, "<item id=\"{i}\"><title>Title {i}</title><text>some words</text></item>")
            .unwrap();
    }
    text += "</list>\n";
    let file = folder().join("document.xml");
    std::fs::write(&file, text).unwrap();
    let program = ["xmllint", "--noout", file.to_str().unwrap()];
    let recording = recorded("xmllint", &program);
    let found = replayed(&recording, &["--try", "0=arena-without-reset"]);
    let ratio = memory(&found, "arena-without-reset for group 0");
    assert!(ratio > 0.3 && ratio < 1.5, "{ratio}");
}

#[test]
fn jq_and_every_plan_for_it() {
    if !installed("jq") {
        return;
    }
    let mut text = String::from("[0");
    for i in 0..2000 {
        write!(text, ",{{\"id\":{i},\"tags\":[\"a\",\"b\"],\"x\":{{\"y\":[1,2.5]}}}}").unwrap();
    }
    text += "]";
    let file = folder().join("large.json");
    std::fs::write(&file, text).unwrap();
    let recording = recorded("jq", &["jq", "length", file.to_str().unwrap()]);
    for tried in TRIED {
        replayed(&recording, tried);
    }
}

#[test]
fn threads_that_hand_blocks_on_and_every_plan_for_them() {
    if !installed("cc") {
        return;
    }
    let source = format!("{}/tests/programs/producer_consumer.c", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(source).unwrap();
    // The threads take turns at each block where it is checked.
    let fewer = text.replace("MESSAGES = 400000", "MESSAGES = 10000");
    assert_ne!(fewer, text);
    let source = folder().join("producer_consumer.c");
    std::fs::write(&source, fewer).unwrap();
    let program = folder().join("producer_consumer");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let recording = recorded("producer_consumer", &[program.to_str().unwrap()]);
    for tried in TRIED {
        let found = replayed(&recording, tried);
        assert!(found["replay"]["threads"].as_u64().unwrap() > 1);
    }
}

#[test]
fn a_compiler_and_an_interpreter() {
    let source = format!("{}/tests/programs/producer_consumer.c", env!("CARGO_MANIFEST_DIR"));
    let object = folder().join("object.o");
    let object = object.to_str().unwrap();
    let programs: [&[&str]; 2] = [
        &["cc", "-O1", "-c", &source, "-o", object],
        &["perl", "-e", "my %h; $h{$_ % 999} .= \"x$_\" for 1..5000; print scalar keys %h"],
    ];
    for program in programs {
        if installed(program[0]) {
            replayed(&recorded(program[0], program), &["--try", "all=pool"]);
        }
    }
}
