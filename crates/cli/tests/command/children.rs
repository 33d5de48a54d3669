//! The processes that rounds run in.

use crate::{allot, run, text};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The answer of `allot trace` to what is known; `None` where it may not trace, which it says.
fn traced(threads: &str) -> Option<Value> {
    let output = run(&["trace", "--", "known-calls", threads]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    if answer["counted"].is_null() {
        let why = answer["refused"].as_str().unwrap();
        assert!(why.starts_with("ptrace: ") || why.starts_with("seccomp: "), "{why}");
        return None;
    }
    Some(answer["counted"].clone())
}

#[test]
fn the_tracer_counts_every_call_of_every_thread_and_no_other() {
    for threads in [1, 7] {
        let Some(counted) = traced(&threads.to_string()) else { return };
        for call in ["mmap", "munmap", "mremap", "madvise", "mprotect", "brk"] {
            assert_eq!(counted["calls"][call], 5 * threads, "{call}: {counted}");
        }
        assert_eq!(counted["steady_calls"], 6 * 2 * threads, "{counted}");
    }
}

/// The processes whose parent is `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let of = |entry: std::fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let after_name = stat.rsplit_once(')')?.1;
        let mut fields = after_name.split_whitespace();
        let (state, its_parent) = (fields.next()?, fields.next()?);
        (state != "Z" && its_parent == parent.to_string()).then_some(id)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

/// Waits for what must come; a test that waits in vain fails.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupt_ends_the_children_too() {
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let mut bench = allot(&["bench", "query", "--allocators", "glibc", "--rounds", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let children = wait_for("a child", || {
            let children = children_of(bench.id());
            (!children.is_empty()).then_some(children)
        });
        let sent = Command::new("kill")
            .args([format!("-{signal}"), bench.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(bench.wait().unwrap().code(), code, "{signal}");
        for child in children {
            wait_for("the child's end", || {
                let gone = std::fs::read_to_string(format!("/proc/{child}/stat"))
                    .map_or(true, |stat| stat.contains(") Z "));
                gone.then_some(())
            });
        }
    }
}

#[test]
fn a_child_that_crashes_is_named_and_its_figures_are_null() {
    let mut bench = allot(&[
        "bench",
        "query",
        "--allocators",
        "glibc",
        "--threads",
        "1",
        "--rounds",
        "2",
        "--json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    // Not a SIGSEGV: a Rust program catches the first one to look for a stack overflow, and one
    // that was only sent never comes again.
    let child = wait_for("a child", || children_of(bench.id()).first().copied());
    let sent = Command::new("kill").args(["-ABRT", &child.to_string()]).status().unwrap();
    assert!(sent.success());
    let output = {
        let mut printed = String::new();
        bench.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let mut errors = String::new();
        bench.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (bench.wait().unwrap().code(), printed, errors)
    };
    assert_eq!(output.0, Some(1));
    assert_eq!(
        output.2,
        "allot: query with glibc, 1 caller: ended by SIGABRT\nallot: 1 of 1 rows failed\n"
    );
    let row: Value = serde_json::from_str(output.1.trim()).unwrap();
    assert_eq!((&row["workload"], &row["allocator"]), (&"query".into(), &"glibc".into()));
    assert_eq!(row["error"], "ended by SIGABRT");
    assert_eq!(row["rounds"], 0);
    for field in ["ops", "ns_per_op", "base_rss_bytes", "minor_faults", "mmap_calls", "alloc_share"]
    {
        assert_eq!(row.get(field), Some(&Value::Null), "{field}");
    }
}
