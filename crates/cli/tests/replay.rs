//! `allot replay`, on recordings made up here and on one of a real program.

#[path = "../../trace/tests/common/mod.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod common;

use common::{Stream, container};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use trace_format::raw::{AllocationFlags, AllocationFunction};

fn allot(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{name}"))
}

/// Writes a recording in which blocks of one site come and go: `rounds` times `live` of them, while
/// one is kept.
fn comes_and_goes(name: &str, rounds: u64, live: u64) -> String {
    let mut tick = 2_000;
    let mut stream = Stream::new(1_000);
    let block = |number: u64| 0x10_0000 + number * 0x400;
    // SAFETY: `at` leaves room for any event.
    unsafe {
        stream.encoder(1_000).thread(1_000, 0, 7);
        stream.encoder(1_000).node(0, 0x5000);
        stream.encoder(1_000).kind(2, 1000, AllocationFlags::new(AllocationFunction::Malloc));
        stream.encoder(tick).allocated(tick, block(0), 0);
        for _ in 0..rounds {
            for number in 1..=live {
                tick += 20;
                stream.encoder(tick).allocated(tick, block(number), 0);
            }
            for number in 1..=live {
                tick += 20;
                stream.encoder(tick).freed(tick, block(number));
            }
        }
    }
    let path = path(name);
    std::fs::write(&path, container(&[stream.finish()])).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn an_arena_that_is_never_reset_is_refused_where_blocks_come_and_go() {
    let file = comes_and_goes("forever", 80, 1600);
    let tried = ["--try", "0=arena-without-reset", "--check", "--rounds", "3", "--json"];
    let found = json(&allot(&[&["replay", &file][..], &tried].concat()));
    assert_eq!(found["replay"]["faithful"], true);
    let outcome = &found["advice"][0]["verdict"]["replayed"];
    assert_eq!(outcome["confirmed"], false, "{outcome}");
    // 128,000 blocks of 1000 bytes stay, of which 1,601 were live at once.
    assert!(outcome["memory_ratio"].as_f64().unwrap() > 50.0, "{outcome}");
    assert!(outcome["reason"].as_str().unwrap().starts_with("not confirmed"), "{outcome}");
}

#[test]
fn every_row_is_there_in_text_and_in_json() {
    let file = comes_and_goes("rows", 20, 10);
    let arguments = ["replay", &file, "--rounds", "2", "--try", "0=pool"];
    let found = json(&allot(&[&arguments[..], &["--json"]].concat()));
    let rows = found["replay"]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[1]), ("null", "glibc"));
    assert_eq!(*names.last().unwrap(), "pool for group 0");
    for row in rows {
        let (least, middle, most) = (&row["least_ns"], &row["time_ns"], &row["most_ns"]);
        assert!(least.as_u64() > Some(0) && least.as_u64() <= middle.as_u64(), "{row}");
        assert!(middle.as_u64() <= most.as_u64(), "{row}");
    }
    assert_eq!(found["replay"]["rounds"], 2);
    assert_eq!(found["replay"]["steps"], 401);
    let table = text(&allot(&arguments).stdout);
    for name in names {
        assert!(table.contains(name), "{table}");
    }
    assert!(table.contains("401 allocations and frees of one thread, 2 rounds"), "{table}");
}

#[test]
fn what_cannot_be_replayed_is_told_in_one_line() {
    let file = comes_and_goes("refused", 2, 2);
    let nothing = path("nothing");
    std::fs::write(&nothing, container(&[])).unwrap();
    let broken = path("broken");
    std::fs::write(&broken, "no recording at all, but long enough for its header").unwrap();
    let (nothing, broken) = (nothing.to_str().unwrap(), broken.to_str().unwrap());
    for (arguments, code, word) in [
        (&["replay"][..], 2, "FILE"),
        (&["replay", &file, "--rounds", "0"], 2, "--rounds"),
        (&["replay", &file, "--allocators", "glibcc"], 2, "'glibcc'"),
        (&["replay", &file, "--allocators", "bumpalo"], 2, "'bumpalo'"),
        (&["replay", &file, "--try", "0=heap"], 2, "free-list"),
        (&["replay", &file, "--try", "99=arena"], 2, "no group 99"),
        (&["replay", &file, "--process", "3"], 2, "no process 3"),
        (&["replay", "/no/such/file"], 1, "/no/such/file"),
        (&["replay", broken], 1, "broken"),
        (&["replay", nothing], 1, "nothing"),
    ] {
        let output = allot(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty() && errors.lines().count() == 1, "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
}

#[test]
fn sqlite_is_replayed_as_it_was_and_an_arena_without_reset_is_refused() {
    // Glibc's peak is above 1 MiB: below that there are no ratios of memory.
    let script = "create table t(a integer primary key, b text, c integer);
        with recursive n(i) as (select 1 union all select i+1 from n where i < 40000)
            insert into t select i, 'text '||i, (i*7919)%1000 from n;
        create index tc on t(c);
        select c, count(*), group_concat(substr(b, 1, 3)) from t group by c having count(*) > 19;
        update t set b = b||'x' where a % 3 = 0;";
    let there = Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: sqlite3 is not installed");
        return;
    }
    let file = path("sqlite.rec");
    let file = file.to_str().unwrap();
    let recorded = allot(&["record", "-o", file, "--", "sqlite3", ":memory:", script]);
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded.stderr));
    let tried = ["--try", "all=arena-without-reset", "--check", "--rounds", "3", "--json"];
    let found = json(&allot(&[&["replay", file][..], &tried].concat()));
    assert_eq!(found["replay"]["faithful"], true);
    assert_eq!(found["replay"]["threads"], 1);
    // The values that come and go with each row.
    let advice = found["advice"].as_array().unwrap();
    let outcome = |group: &Value| group["verdict"]["replayed"].clone();
    let worst = advice.iter().map(outcome).max_by(|a, b| {
        let memory = |outcome: &Value| outcome["memory_ratio"].as_f64().unwrap_or_default();
        memory(a).total_cmp(&memory(b))
    });
    let worst = worst.unwrap();
    assert_eq!(worst["confirmed"], false, "{worst}");
    assert!(worst["memory_ratio"].as_f64().unwrap() > 2.0, "{worst}");
}
