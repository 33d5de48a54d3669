//! Findings made up: as large and as hostile as they come, and with nothing in them.

use serde_json::{Value, json};

pub const SITES: u64 = 10_000;
pub const GROUPS: u64 = 40;

/// Names that a program's functions, files and arguments might have.
pub fn hostile() -> Vec<String> {
    vec![
        "</script><script>window.broken = 1</script>".to_owned(),
        "<img src=x onerror=\"window.broken = 2\">".to_owned(),
        "\"quoted\" 'twice' `thrice` \\ &amp; &lt; ${window.broken = 3}".to_owned(),
        "<!-- <script> -->".to_owned(),
        "@@data@@ and {{title}}".to_owned(),
        "\u{202e}drawkcab\u{202c} \u{2067}rtl\u{2069} שלום عالم".to_owned(),
        "line\u{2028}one\u{2029}two\nthree\0four\u{1b}[31m".to_owned(),
        "__proto__".to_owned(),
        "constructor".to_owned(),
        format!("std::map<{}>", "std::vector<std::basic_string<char>>, ".repeat(130)),
    ]
}

pub fn frame(function: &str, file: Option<&str>, wrapper: bool) -> Value {
    json!({
        "function": function, "file": file, "line": file.map(|_| 42), "module": "program", "inlined": false,
        "wrapper": wrapper,
    })
}

fn quantiles(most: u64) -> Value {
    json!({ "p10": most / 100, "p50": most / 10, "p90": most / 2, "p99": most, "most": most })
}

fn behaviour(count: u64, bytes: u64) -> Value {
    json!({
        "count": count, "reallocated": 0, "bytes": bytes, "dominant_size": 48, "dominant_share": 0.95, "sizes": 2,
        "least_size": 48, "most_size": 64, "lifetime_ns": quantiles(1000 + count), "lifetime_allocations": quantiles(9),
        "same_thread_share": 1.0, "threads": 1, "last_in_first_out_share": 0.25, "peak_live_objects": 10,
        "peak_live_bytes": 480, "never_freed": 1, "freed_at_exit": 2, "burst_share": 0.5, "mean_burst": 2.0,
        "returns_to_zero": 3, "phase_objects": 7.0, "drag": 1.25, "peak_drag": 1.5, "peak_held_bytes": 600,
        "first_ns": 1, "last_ns": 1_000_000_000
    })
}

fn with(mut value: Value, more: Value) -> Value {
    let Value::Object(more) = more else { unreachable!() };
    value.as_object_mut().unwrap().extend(more);
    value
}

/// Site `i` has 1 + (i x 7919 mod 10,000) allocations, each number once, and twice as many bytes
/// the smaller `i` is.
pub fn count_of(i: u64) -> u64 {
    1 + i * 7919 % SITES
}

pub fn bytes_of(i: u64) -> u64 {
    (2 * SITES - i) * 100
}

fn site(i: u64, names: &[String]) -> Value {
    let title = match names.get(i as usize) {
        Some(name) => name.clone(),
        None => format!("site_{i}"),
    };
    // The long name is in every fifth stack.
    let caller = if i % 5 < 4 && i >= 10 { "caller" } else { names.last().unwrap() };
    let frames = json!([
        frame("xmalloc", None, true),
        frame(&title, Some(&format!("src/file_{}.cpp", i % 100)), false),
        frame(caller, Some("src/</script>.cpp"), false),
        frame("main", Some("src/main.cpp"), false),
    ]);
    with(
        behaviour(count_of(i), bytes_of(i)),
        json!({ "id": i, "title": title, "frames": frames, "stacks": 2, "group": i % GROUPS }),
    )
}

fn verdict(i: u64, names: &[String]) -> Value {
    let replayed = match i % 4 {
        0 => {
            json!({ "confirmed": true, "reason": "confirmed: 0.50 × glibc's time", "time_ratio": 0.5, "memory_ratio": 1.0 })
        }
        1 => {
            json!({ "confirmed": false, "reason": "not confirmed, it is slower", "time_ratio": 6.0, "memory_ratio": 11.0 })
        }
        _ => Value::Null,
    };
    let (category, allocator) = [
        ("transient", "arena"),
        ("transient", "pool"),
        ("read_only_shared", "sealed"),
        ("leave_it", "none"),
    ][i as usize % 4];
    json!({
        "category": category, "allocator": allocator, "without_reset": false,
        "reason": format!("reason {i} with {}", names[i as usize % names.len()]),
        "refused": [{ "allocator": "arena", "reason": "it would hold <b>too</b> much" }],
        "gain": { "share": 0.4 - i as f64 / 100.0, "ceiling": 0.5 },
        "change": { "rust": format!("let arena_{i} = \"</script>\";"), "c": format!("allot_arena *arena_{i};") },
        "candidate": allocator == "sealed", "replayed": replayed,
    })
}

fn row(name: &str, groups: &[u64], time_ns: u64) -> Value {
    json!({
        "name": name, "groups": groups, "time_ns": time_ns, "least_ns": time_ns * 9 / 10, "most_ns": time_ns * 2,
        "wall_ns": time_ns, "peak_resident": 1 << 20, "minor_faults": 7, "time_ratio": time_ns as f64 / 1e6,
        "memory_ratio": 1.0, "gain": 0.1,
    })
}

/// Ten thousand sites in forty groups, with hostile names wherever there are names.
pub fn large() -> Value {
    let names = hostile();
    let groups: Vec<Value> = (0..GROUPS)
        .map(|i| {
            let sites: Vec<u64> = (0..SITES).filter(|site| site % GROUPS == i).collect();
            let title = names.get(i as usize).cloned().unwrap_or_else(|| format!("group {i}"));
            let own =
                json!({ "id": i, "title": title, "sites": sites, "verdict": verdict(i, &names) });
            with(behaviour(1_000_000 - i, 5_000_000 + i), own)
        })
        .collect();
    let leaves: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(i, name)| json!({ "name": name, "count": 10 + i, "bytes": 1000 }))
        .collect();
    let flame = json!({
        "name": "program", "count": 1000, "bytes": 40_000, "children": [
            { "name": "wide", "count": 200, "bytes": 30_000, "children": [{ "name": "needle", "count": 100, "bytes": 8000 }] },
            { "name": "narrow", "count": 800, "bytes": 10_000, "children": leaves },
        ]
    });
    with(
        empty(),
        json!({
            "program": program(&names),
            "timeline": (0..1000).map(|i| json!({
                "time_ns": i * 1_000_000, "bytes": i * 1000, "objects": i * 10, "most_bytes": i * 1100,
            })).collect::<Vec<_>>(),
            "sites": (0..SITES).map(|i| site(i, &names)).collect::<Vec<_>>(),
            "groups": groups,
            "flame": flame,
            "overlaps": { "checked": 100, "found": 1, "examples": ["<b>0x1</b>"] },
            "locks": [{
                "frames": [frame(&names[1], None, false)], "kind": "mutex", "waits": 5, "waited_ns": 5_000_000,
                "longest_ns": 2_000_000, "locks": 1, "share": 0.05, "advice": "shard it </script>",
            }],
            "system": {
                "calls": [{ "name": "read", "calls": 408_889, "bytes": 408_889, "small": 408_889 }, { "name": "mmap", "calls": 7 }],
                "read_calls": 408_889, "read_bytes": 408_889, "write_calls": 1, "written_bytes": 10,
                "minor_faults": 100, "major_faults": 2, "voluntary_switches": 3, "involuntary_switches": 4,
                "advice": [{ "kind": "reads", "title": "buffer the reads", "advice": "read of 1 byte <i>each</i>", "calls": 408_889,
                    "saved_ns": 90_000_000, "gain": 0.09 }],
            },
            "replay": {
                "rounds": 5, "noise": 0.02, "steps": 123_456, "threads": 3, "faithful": true,
                "rows": [row("null", &[], 50_000), row("glibc", &[], 1_000_000), row("mimalloc", &[], 600_000),
                    row("arena for group 0", &[0], 500_000), row("all that was confirmed", &[0, 4], 400_000)],
                "failed": [{ "name": "snmalloc", "reason": names[0] }],
            },
            "notes": [{ "warning": true, "text": names[0] }, { "warning": false, "text": names[2] }],
        }),
    )
}

fn program(names: &[String]) -> Value {
    let mut command = vec!["program".to_owned()];
    command.extend_from_slice(names);
    json!({
        "command": command, "executable": names[0], "process": 0, "processes": 2, "exit": "signal 11",
        "cpu_ns": 1_200_000_000u64, "bare_cpu_ns": 1_000_000_000u64, "bare_measured": true, "wall_ns": 1_000_000_000u64,
        "peak_resident": 20_000_000, "threads": 3, "events": 123_456, "allocations": 61_728, "frees": 61_728,
        "realloc_share": 0.01, "bytes": 9_999_999, "peak_live_bytes": 1_098_900, "peak_live_objects": 9990,
        "live_at_end": 5, "unknown_frees": 1, "allocator_share": 0.6, "freed_at_exit": 7,
        "trace_bytes_per_event": 1.2, "raw_bytes_per_event": 3.4, "truncated": true,
    })
}

/// A program that was seen to do nothing.
pub fn empty() -> Value {
    json!({
        "version": 1,
        "program": {
            "command": ["true"], "executable": "/bin/true", "process": 0, "processes": 1, "exit": "0", "cpu_ns": null,
            "bare_cpu_ns": null, "bare_measured": false, "wall_ns": 0, "peak_resident": null, "threads": 0, "events": 0,
            "allocations": 0, "frees": 0, "realloc_share": 0.0, "bytes": 0, "peak_live_bytes": 0,
            "peak_live_objects": 0, "live_at_end": 0, "unknown_frees": 0, "allocator_share": null, "freed_at_exit": 0,
            "trace_bytes_per_event": 0.0, "raw_bytes_per_event": 0.0, "truncated": false,
        },
        "timeline": [], "sites": [], "groups": [],
        "flame": { "name": "true", "count": 0, "bytes": 0 },
        "overlaps": null, "locks": [],
        "system": {
            "calls": [], "read_calls": null, "read_bytes": null, "write_calls": null, "written_bytes": null,
            "minor_faults": null, "major_faults": null, "voluntary_switches": null, "involuntary_switches": null,
            "advice": [],
        },
        "replay": null, "notes": [],
    })
}

/// A flame graph so deep: written by hand, since a value so deep can't be dropped on a small stack.
pub fn deep(levels: usize) -> String {
    let inner = r#"{"name":"innermost","count":1,"bytes":1"#;
    let outer = r#"{"name":"outer","count":1,"bytes":1,"children":["#.repeat(levels);
    let flame = format!("{outer}{inner}}}{}", "]}".repeat(levels));
    let (key, all) = ("\"flame\":", empty().to_string());
    let at = all.find(key).unwrap() + key.len();
    let end = at + all[at..].find('}').unwrap() + 1;
    format!("{}{flame}{}", &all[..at], &all[end..])
}
