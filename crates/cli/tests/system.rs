//! System calls and waits for locks: what is counted of a program, and what is advised.
//!
//! The programs are in `programs/`; without a C compiler the tests say so and pass. Where the
//! kernel doesn't permit counting, those of exact counts say so too, and the others hold with what
//! `/proc` and `getrusage` tell.

use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("system");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Builds one of the programs beside this file.
fn built(name: &str) -> Option<PathBuf> {
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    // Tests run at the same time, some with the same program.
    let program = folder().join(format!("{name}-{:?}", std::thread::current().id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{name}"),
        Err(error) => {
            eprintln!("SKIPPED: no C compiler: {error}");
            return None;
        }
    }
    Some(program)
}

fn allot() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.stdin(Stdio::null());
    command
}

fn recorded(program: &Path, arguments: &[&str], recording: &Path) {
    let mut command = allot();
    command.args(["record", "-o"]).arg(recording).arg("--").arg(program).args(arguments);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} {arguments:?}: {errors}");
}

fn findings(program: &Path, arguments: &[&str]) -> Value {
    let recording = program.with_extension("allot");
    recorded(program, arguments, &recording);
    let output = allot().args(["analyse", "--json"]).arg(&recording).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The system's findings, or a word on why this test has nothing to look at.
fn counted(findings: &Value) -> Option<&Value> {
    let system = &findings["system"];
    if let Some(why) = system["not_counted"].as_str() {
        eprintln!("SKIPPED: {why}");
        // The reason says why nothing was counted, and what to do.
        assert!(why.len() > 20 && system["calls"].as_array().unwrap().is_empty(), "{system:#}");
        return None;
    }
    Some(system)
}

/// The calls of a name.
fn calls<'s>(system: &'s Value, name: &str) -> Option<&'s Value> {
    system["calls"].as_array().unwrap().iter().find(|call| call["name"] == name)
}

fn kinds(findings: &Value) -> Vec<&str> {
    let advice = findings["system"]["advice"].as_array().unwrap();
    advice.iter().map(|advice| advice["kind"].as_str().unwrap()).collect()
}

fn words(name: &str) -> String {
    let path = folder().join(name);
    std::fs::write(&path, "An Ark of Apes and Ants, ABBA. ".repeat(13_000)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn calls_are_counted_in_threads_children_and_new_programs_and_the_recorder_s_are_not() {
    let Some(program) = built("calls") else { return };
    let findings = findings(&program, &[]);
    let Some(system) = counted(&findings) else { return };
    // 100 at first, 200 in a thread, 1000 in a child, 10000 in the program that it became, 20000 in
    // a thread of that; 2 failed.
    let own = calls(system, "getpgid").unwrap();
    assert_eq!((&own["calls"], &own["failed"]), (&31_302.into(), &2.into()), "{system:#}");
    assert!(own["ns"].as_u64().unwrap() > 0);
    // The recorder needed a chunk for 400,000 events, and `fallocate` for that.
    assert!(calls(system, "fallocate").is_none(), "{system:#}");
    assert!(findings["program"]["processes"].as_u64().unwrap() >= 2);
    // 511 bytes are few, 512 are not.
    let reads = calls(system, "pread64").unwrap();
    assert_eq!((&reads["small"], &reads["small_bytes"]), (&30.into(), &(30 * 511).into()));
    assert!(reads["bytes"].as_u64().unwrap() >= 30 * (511 + 512));
    assert!(own["bytes"].is_null() && own["small"].is_null());
}

#[test]
fn letters_one_byte_at_a_time_are_to_be_buffered() {
    let Some(program) = built("letters") else { return };
    let file = words("letters");
    let findings = findings(&program, &["calls", &file]);
    let size = std::fs::metadata(&file).unwrap().len();
    let advice = &findings["system"]["advice"][0];
    assert_eq!((&advice["kind"], &advice["title"]), (&"reads".into(), &"buffer the reads".into()));
    assert!(advice["calls"].as_u64().unwrap() >= size, "{advice:#}");
    assert!(advice["gain"].as_f64().unwrap() > 0.3, "{advice:#}");
    let text = advice["advice"].as_str().unwrap();
    assert!(text.contains("of 1 byte") && text.contains("BufReader"), "{text}");
    let table = allot().arg("analyse").arg(program.with_extension("allot")).output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(table.contains("buffer the reads: "), "{table}");
    if let Some(system) = counted(&findings) {
        // Each byte, none at the end; the file is named.
        assert!(calls(system, "read").unwrap()["small"].as_u64().unwrap() >= size, "{system:#}");
        assert!(text.contains(&file), "{text}");
        assert_eq!(system["small_transfers"][0]["name"], file.as_str());
        assert_eq!(system["small_transfers"][0]["waits"], false);
    }
}

#[test]
fn letters_from_a_buffer_are_left_as_they_are() {
    let Some(program) = built("letters") else { return };
    let findings = findings(&program, &["buffer", &words("buffered")]);
    assert!(kinds(&findings).is_empty(), "{:#}", findings["system"]);
}

#[test]
fn bytes_written_one_at_a_time_are_to_be_buffered() {
    let Some(program) = built("letters") else { return };
    let copy = folder().join("written-copy");
    let findings = findings(&program, &["copy", &words("written"), copy.to_str().unwrap()]);
    assert_eq!(kinds(&findings), ["writes"], "{:#}", findings["system"]);
    let text = findings["system"]["advice"][0]["advice"].as_str().unwrap();
    assert!(text.contains("BufWriter") && text.contains("flush"), "{text}");
}

#[test]
fn who_answers_each_byte_can_save_no_call_by_a_buffer() {
    let Some(program) = built("ping_pong") else { return };
    let findings = findings(&program, &[]);
    // Where nothing is counted, pipes aren't told from files.
    if counted(&findings).is_some() {
        let kinds = kinds(&findings);
        assert!(
            !kinds.contains(&"reads") && !kinds.contains(&"writes"),
            "{:#}",
            findings["system"]
        );
    }
}

#[test]
fn replies_on_connections_are_not_to_be_buffered_and_their_parts_are() {
    let Some(program) = built("replies") else { return };
    let whole = findings(&program, &[]);
    assert!(!kinds(&whole).contains(&"writes"), "{:#}", whole["system"]);
    let parts = findings(&program, &["parts"]);
    // Where nothing is counted, connections aren't told from files.
    if counted(&parts).is_some() {
        let advice = parts["system"]["advice"].as_array().unwrap();
        let writes = advice.iter().find(|advice| advice["kind"] == "writes").unwrap();
        // One of the two writes of each of 30,000 replies.
        assert_eq!(writes["calls"], 30_000, "{writes:#}");
        assert!(writes["advice"].as_str().unwrap().contains("answer a message"), "{writes:#}");
    }
}

#[test]
fn memory_that_is_given_back_and_taken_again_is_to_be_kept() {
    let Some(program) = built("churn") else { return };
    let findings = findings(&program, &[]);
    let Some(system) = counted(&findings) else { return };
    assert_eq!(kinds(&findings)[0], "memory", "{system:#}");
    assert!(calls(system, "brk").unwrap()["calls"].as_u64().unwrap() > 300, "{system:#}");
    let text = system["advice"][0]["advice"].as_str().unwrap();
    assert!(text.contains("page faults") && text.contains("trim_threshold"), "{text}");
    // What it says to try is the remedy.
    let recording = program.with_extension("kept.allot");
    let (_, tunables) = text.split_once("GLIBC_TUNABLES=").unwrap();
    let (tunables, _) = tunables.split_once('`').unwrap();
    let mut command = allot();
    command.args(["record", "-o"]).arg(&recording).arg("--").arg(&program);
    assert!(command.env("GLIBC_TUNABLES", tunables).output().unwrap().status.success());
    let output = allot().args(["analyse", "--json"]).arg(&recording).output().unwrap();
    let kept: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!kinds(&kept).contains(&"memory"), "{:#}", kept["system"]);
}

#[test]
fn a_lock_that_is_waited_for_is_told_by_its_place_and_one_that_is_not_is_silent() {
    let Some(program) = built("locks") else { return };
    let hot = findings(&program, &["hot"]);
    let lock = &hot["locks"][0];
    assert_eq!(lock["kind"], "mutex", "{lock:#}");
    assert_eq!(lock["frames"][0]["function"], "update_total", "{lock:#}");
    assert_eq!(lock["locks"], 1);
    assert!(lock["share"].as_f64().unwrap() > 0.1, "{lock:#}");
    let advice = lock["advice"].as_str().unwrap();
    assert!(advice.contains("waits for a mutex") && advice.contains("shorter time"), "{advice}");
    if let Some(system) = counted(&hot) {
        assert!(system["futex_waits"].as_u64().unwrap() > 0, "{system:#}");
        assert!(system["futex_wait_ns"].as_u64().unwrap() > 0, "{system:#}");
    }
    let cold = findings(&program, &["cold"]);
    assert_eq!(cold["locks"].as_array().unwrap().len(), 0, "{:#}", cold["locks"]);
}

#[test]
fn readers_that_wait_for_a_writer_are_told_of_published_values() {
    let Some(program) = built("locks") else { return };
    let findings = findings(&program, &["shared"]);
    let locks = findings["locks"].as_array().unwrap();
    let read = locks.iter().find(|lock| lock["kind"] == "read").unwrap();
    assert_eq!(read["frames"][0]["function"], "read_shared", "{read:#}");
    assert!(read["advice"].as_str().is_none_or(|advice| advice.contains("Published")), "{read:#}");
}

#[test]
fn every_call_that_waits_for_some_time_is_seen_waiting() {
    let Some(program) = built("locks") else { return };
    let findings = findings(&program, &["timed"]);
    let waits = |kind: &str| -> u64 {
        let locks = findings["locks"].as_array().unwrap().iter();
        locks.filter(|lock| lock["kind"] == kind).map(|lock| lock["waits"].as_u64().unwrap()).sum()
    };
    // The first one's time was up.
    assert_eq!((waits("mutex"), waits("read"), waits("write")), (3, 2, 2), "{findings:#}");
}

#[test]
fn a_mutex_whose_owner_died_is_given_to_the_next_one() {
    let Some(program) = built("locks") else { return };
    recorded(&program, &["dead"], &program.with_extension("allot"));
}

/// Runs a program as the user `nobody`, without a capability.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg("--no-new-privs").arg(program).stdin(Stdio::null());
    command
}

/// A folder of the user `nobody` with an `allot` and a program that this user may run. `None`, and
/// a message, where that is not possible.
fn place_of_nobody(program: &Path) -> Option<tempfile::TempDir> {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("SKIPPED: only root can record as another user");
        return None;
    }
    // Whatever this is built in may be closed to others.
    let place = tempfile::tempdir().unwrap();
    if let Err(error) = std::os::unix::fs::chown(place.path(), Some(65_534), Some(65_534)) {
        eprintln!("SKIPPED: there is no other user to record as: {error}");
        return None;
    }
    // By another process: a file that this process, or a child that another test starts meanwhile,
    // has open for writing can't be run.
    let mut copy = Command::new("install");
    copy.arg("-m755").arg(env!("CARGO_BIN_EXE_allot")).arg(program).arg(place.path());
    assert!(copy.status().unwrap().success());
    match as_nobody(&place.path().join("allot")).arg("--version").output() {
        Ok(output) if output.status.success() => Some(place),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIPPED: nothing can be run as another user: {errors}");
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: no setpriv to become another user with: {error}");
            None
        }
    }
}

#[test]
fn without_rights_calls_are_told_by_proc_and_getrusage_which_is_said_in_a_line() {
    let Some(program) = built("letters") else { return };
    let Some(place) = place_of_nobody(&program) else { return };
    let letters = place.path().join(program.file_name().unwrap());
    let (text, recording) = (place.path().join("words"), place.path().join("run.allot"));
    std::fs::copy(words("nobody-s"), &text).unwrap();
    let size = std::fs::metadata(&text).unwrap().len();
    let mut command = as_nobody(&place.path().join("allot"));
    command.args(["record", "--json", "-o"]).arg(&recording).arg("--").arg(&letters);
    let output = command.arg("calls").arg(&text).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_eq!(std::fs::metadata(&recording).unwrap().uid(), 65_534);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("allot: system calls were not counted: "), "{errors}");
    assert!(errors.contains("; reads and writes are from /proc, page faults and "), "{errors}");
    let summary = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(summary.lines().last().unwrap()).unwrap();
    let why = summary["not_counted"].as_str().unwrap();
    assert!(errors.contains(why), "{why}: {errors}");

    let output = allot().args(["analyse", "--json"]).arg(&recording).output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let system = &findings["system"];
    assert_eq!(system["not_counted"], why, "the recording knows it too");
    // What only counting tells is unknown, and not 0.
    for field in ["total_calls", "futex_waits", "futex_wait_ns", "page_faults"] {
        assert!(system[field].is_null(), "{field}: {system:#}");
    }
    for field in ["calls", "small_transfers"] {
        assert_eq!(system[field].as_array().unwrap().len(), 0, "{system:#}");
    }
    for field in ["read_calls", "read_bytes"] {
        assert!((size..2 * size).contains(&system[field].as_u64().unwrap()), "{system:#}");
    }
    assert!(system["minor_faults"].as_u64().unwrap() > 0, "{system:#}");
    assert!(system["involuntary_switches"].is_u64(), "{system:#}");
    assert_eq!(kinds(&findings), ["reads"], "{system:#}");
    // A user who may count has what this one has not.
    let root = self::findings(&program, &["calls", text.to_str().unwrap()]);
    if let Some(system) = counted(&root) {
        assert!(system["total_calls"].as_u64().unwrap() > size, "{system:#}");
    }
}
