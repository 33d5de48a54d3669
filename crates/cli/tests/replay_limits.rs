//! The limits of `allot replay`: no memory, no disk, no time, an interrupt, a recording without an
//! end.

#[path = "../../trace/tests/common/mod.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod common;

use common::{Stream, container};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use trace_format::raw::{AllocationFlags, AllocationFunction};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

fn allot(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn notes(found: &Value) -> String {
    let notes = found["notes"].as_array().unwrap().iter();
    notes.map(|note| format!("{}\n", note["text"].as_str().unwrap())).collect()
}

/// A stream of a thread with one kind of blocks, after its first two events.
fn stream(number: u32, size: u64) -> (Stream, u64) {
    let mut stream = Stream::new(1_000);
    // SAFETY: `at` leaves room for any event.
    unsafe {
        stream.encoder(1_000).thread(1_000, number, 7 + number);
        stream.encoder(1_000).node(0, 0x5000);
        stream.encoder(1_000).kind(2, size, AllocationFlags::new(AllocationFunction::Malloc));
    }
    (stream, 2_000)
}

/// Blocks that come and go one by one.
fn pairs(number: u32, count: u64, size: u64) -> Stream {
    let (mut stream, mut tick) = stream(number, size);
    let address = 0x10_0000 * u64::from(number + 1);
    for _ in 0..count {
        tick += 40;
        // SAFETY: as above.
        unsafe {
            stream.encoder(tick).allocated(tick, address, 0);
            stream.encoder(tick + 20).freed(tick + 20, address);
        }
    }
    stream
}

/// Blocks that all stay.
fn heap(count: u64, size: u64) -> Stream {
    let (mut stream, mut tick) = stream(0, size);
    for block in 0..count {
        tick += 20;
        // SAFETY: as above.
        unsafe { stream.encoder(tick).allocated(tick, 0x10_0000 + block * (size + 16), 0) };
    }
    stream
}

fn written(name: &str, streams: Vec<Stream>) -> String {
    let chunks: Vec<_> = streams.into_iter().map(Stream::finish).collect();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-limits-{name}"));
    std::fs::write(&path, container(&chunks)).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// It fails in one line that has all these words.
fn fails(output: &Output, words: &[&str]) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    let last = errors.lines().next_back().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "no '{word}' in: {errors}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_replayed_as_far_as_it_goes() {
    let file = written("cut", vec![pairs(0, 60_000, 64), pairs(1, 60_000, 64)]);
    let whole = std::fs::read(&file).unwrap();
    let steps = |file: &str| {
        let found = json(&allot(&["replay", file, "--rounds", "1", "--check", "--json"]));
        assert_eq!(found["replay"]["faithful"], true, "{}", notes(&found));
        (found["replay"]["steps"].as_u64().unwrap(), notes(&found))
    };
    let (all, unhurt) = steps(&file);
    // Epochs are steps too.
    assert!(all >= 240_000 && !unhurt.contains("cut off"), "{all}, {unhurt}");
    // What comes last isn't events.
    let (some, hurt) = (1..10)
        .map(|tenths| {
            std::fs::write(&file, &whole[..whole.len() * (10 - tenths) / 10]).unwrap();
            steps(&file)
        })
        .find(|(some, _)| *some < all)
        .unwrap();
    assert!(some > 1_000, "{some} of {all}");
    assert!(hurt.contains("cut off"), "{hurt}");
}

#[test]
fn a_place_for_the_steps_that_is_full_or_missing_is_named() {
    let file = written("full", vec![pairs(0, 40_000, 64)]);
    // As good as a full disk: no file may be longer than so many blocks.
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" replay \"$1\"";
    let limited = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_allot"), &file])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fails(&limited, &["can't write the steps to", "File too large", "TMPDIR"]);
    let missing = command(&["replay", &file]).env("TMPDIR", "/no/such/place").output().unwrap();
    fails(&missing, &["can't write the steps to /no/such/place", "No such file", "TMPDIR"]);
}

#[test]
fn what_held_more_than_there_is_memory_is_not_replayed() {
    // 20,000 blocks of which 64 MiB each would be written to.
    let file = written("large", vec![heap(20_000, 1 << 30)]);
    fails(&allot(&["replay", &file]), &["can't be replayed", "1280000.0 MiB", "are available"]);
    // A size that no allocator can serve.
    let file = written("absurd", vec![heap(1, 1 << 46)]);
    fails(&allot(&["replay", &file, "--rounds", "1"]), &["glibc's row failed", "70368744177664"]);
}

#[test]
fn a_plan_that_would_need_more_memory_than_there_is_is_not_confirmed_and_not_run() {
    // Each block takes a MiB, and one is live at a time; an arena that is never reset would hold
    // all of them.
    let file = written("forever", vec![pairs(0, 3_000, 1 << 20)]);
    let script = "ulimit -v 2000000; exec \"$0\" replay \"$@\"";
    let limited = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_allot"), &file, "--rounds", "1", "--json"])
        .args(["--allocators", "null", "--try", "all=arena-without-reset"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let found = json(&limited);
    let outcome = &found["advice"][0]["verdict"]["replayed"];
    assert_eq!(outcome["confirmed"], false, "{outcome}");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(
        reason.contains("it would hold 3001.0 MiB") && reason.contains("are available"),
        "{reason}"
    );
}

#[test]
fn an_interrupt_leaves_no_child() {
    let file = written("long", vec![pairs(0, 300_000, 64)]);
    let mut replay = command(&["replay", &file, "--rounds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = replay.id();
    let child = loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let ours = |child: &&str| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            text(&line).contains("replay-round")
        };
        if let Some(child) = children.split_whitespace().find(ours) {
            break child.to_owned();
        }
        assert_eq!(replay.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(1));
    };
    kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
    assert_eq!(replay.wait().unwrap().code(), Some(130));
    // The kernel ends it; it may take a moment to go. If it stays, this test hangs, and says so by
    // that.
    let there = || {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        text(&line).contains("replay-round")
    };
    while there() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn with_a_budget_there_is_a_round_in_any_case() {
    let file = written("budget", vec![pairs(0, 100_000, 64)]);
    let found = json(&allot(&["replay", &file, "--time", "1", "--json"]));
    let rounds = found["replay"]["rounds"].as_u64().unwrap();
    assert!((1..=15).contains(&rounds), "{rounds}");
    let refused = allot(&["replay", &file, "--time", "0"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_build_without_optimisation_says_that_its_times_mean_nothing() {
    let file = written("debug", vec![pairs(0, 100, 64)]);
    let found = json(&allot(&["replay", &file, "--rounds", "1", "--json"]));
    assert_eq!(notes(&found).contains("without optimisation"), cfg!(debug_assertions));
}

#[test]
fn all_that_is_confirmed_is_run_together_or_nothing_is() {
    let file = written("together", vec![pairs(0, 50_000, 64), pairs(1, 50_000, 2_000)]);
    let found = json(&allot(&["replay", &file, "--rounds", "3", "--try", "all=pool", "--json"]));
    let replay = &found["replay"];
    let held: Vec<&Value> = found["advice"].as_array().unwrap().iter().collect();
    let held = held.iter().filter(|advice| advice["verdict"]["replayed"]["confirmed"] == true);
    // Whether any is depends on the times of this machine; that the figures agree doesn't.
    match held.count() {
        0 => assert!(replay["together"].is_null(), "{replay}"),
        count => {
            assert_eq!(replay["together"]["groups"].as_array().unwrap().len(), count);
            assert!(replay["together"]["time_ratio"].is_number(), "{replay}");
        }
    }
}
