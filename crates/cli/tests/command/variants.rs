//! The rows of `allot bench` that are variants of one work, and of programs and loops in other
//! languages.

use crate::{json_lines, run, text};
use serde_json::Value;

#[cfg(feature = "fast-peers")]
#[test]
fn the_programs_of_others_tell_their_user_time_or_what_is_missing() {
    if crate::too_long("the_programs_of_others_tell_their_user_time_or_what_is_missing") {
        return;
    }
    let output = run(&["bench", "client", "--quick", "--rounds", "1", "--json"]);
    let rows = json_lines(&output);
    let names = ["client-sqlite", "client-lua", "client-expat"];
    assert_eq!(rows.len(), 2 * names.len());
    for (row, name) in rows.iter().zip(names.iter().flat_map(|name| [name, name])) {
        assert_eq!(row["workload"], *name);
        assert_eq!(row["threads"], 1);
        if let Some(error) = row["error"].as_str() {
            assert!(error.contains("install it") && error.contains(name), "{error}");
            assert!(row["ns_per_op"].is_null() && row["user_ns_per_op"].is_null());
            continue;
        }
        let figure = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field}: {row}"));
        assert!(figure("user_ns_per_op") > 0.0 && figure("ns_per_op") > 0.0);
        assert!(figure("user_ratio_to_own") > 0.0);
        assert_eq!(row["best_peer"], "glibc");
        if row["allocator"] == row["own"] {
            assert_eq!(figure("user_ratio_to_own"), 1.0);
        } else {
            assert_eq!(row["allocator"], "glibc");
        }
    }
    let others = run(&["bench", "query-small", "--quick", "--rounds", "1", "--threads", "1"]);
    assert!(!text(&others.stdout).contains("user ns/"));
}

#[cfg(feature = "fast-peers")]
#[test]
fn a_resource_of_the_standard_library_is_set_beside_the_one_of_ours_that_does_its_work() {
    let output = run(&["bench", "pmr-map", "--quick", "--rounds", "1", "--threads", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let row = |name: &str| rows.iter().find(|row| row["allocator"] == name).unwrap();
    for (theirs, ours) in [
        ("pmr-monotonic", "allotment-arena"),
        ("pmr-pool", "allotment-pool"),
        ("pmr-synchronized-pool", "allotment-slab"),
        ("glibc", "allotment-pool"),
    ] {
        assert_eq!(row(theirs)["own"], ours);
        assert_eq!(row(ours)["own"], ours);
        assert_eq!(row(ours)["ratio_to_own"], 1.0);
        let ns = |name: &str| row(name)["ns_per_op"].as_f64().unwrap();
        let ratio = row(theirs)["ratio_to_own"].as_f64().unwrap();
        assert!((ratio - ns(theirs) / ns(ours)).abs() < 1e-9, "{theirs}");
        assert_eq!(row(theirs)["ops"], row(ours)["ops"]);
    }
    assert_eq!(rows.len(), 7);
}

#[cfg(feature = "fast-peers")]
#[test]
fn loops_in_c_stand_beside_those_in_rust() {
    let output = run(&["bench", "c-slab-handle", "--quick", "--rounds", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["allocator"].as_str().unwrap()).collect();
    assert_eq!(names, ["c-slab-handle", "allotment-slab-handle"].repeat(2));
    for pair in rows.chunks(2) {
        assert_eq!(pair[0]["ops"], pair[1]["ops"]);
        assert_eq!(pair[0]["live_bytes"], pair[1]["live_bytes"]);
        assert_eq!(pair[0]["best_peer"], "allotment-slab-handle");
        assert!(pair[0]["ratio_to_best_peer"].as_f64().unwrap() > 0.0);
        assert_eq!(pair[0]["user_ns_per_op"], Value::Null);
    }
}

#[test]
fn the_papers_programs_make_the_papers_calls() {
    if crate::too_long("the_papers_programs_make_the_papers_calls") {
        return;
    }
    let output = run(&["bench", "letters", "--quick", "--rounds", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["letters-read", "letters-buffered", "letters-mapped"]);
    // Open and close; between them one call a byte, or a block of 4 KiB, and one more that sees the
    // end; or three to find the file's size, map it and unmap it.
    for (row, calls) in rows.iter().zip([408_889, 103, 5]) {
        // Before it closes a file, a debug build asks whether that is open.
        let calls = calls + u64::from(cfg!(debug_assertions));
        assert_eq!((&row["kind"], &row["unit"]), (&"variant".into(), &"byte".into()));
        assert_eq!((&row["own"], &row["threads"]), (&row["allocator"], &1.into()));
        assert_eq!(row["ops"].as_u64().unwrap() % 408_886, 0);
        assert!(row["ns_per_op"].as_f64().unwrap() > 0.0 && row["policy"].is_string());
        assert!(row["system_calls"].is_null() || row["system_calls"] == calls, "{row}");
        for field in ["best_peer", "ratio_to_best_peer", "locks_per_op", "queries"] {
            assert_eq!(row.get(field), Some(&Value::Null), "{field}");
        }
    }
    let output = run(&["bench", "letters-mapped", "letters-buffered", "--quick", "--rounds", "1"]);
    let printed = text(&output.stdout);
    assert!(printed.contains("per search  system calls"), "{printed}");
    let beside = |line: &str| {
        line.starts_with("letters-mapped is ") && line.ends_with("x as fast as letters-buffered.")
    };
    assert!(printed.lines().any(beside), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn variants_are_rows_beside_each_other() {
    if crate::too_long("variants_are_rows_beside_each_other") {
        return;
    }
    let arguments =
        ["bench", "published", "categories", "--quick", "--rounds", "1", "--threads", "2"];
    let output = run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let of = |workload: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["workload"] == workload).collect()
    };
    for workload in [arguments[1], arguments[2]] {
        let workload = bench::workloads::Workload::named(workload).unwrap();
        let mut names: Vec<_> = workload.variants().iter().map(|variant| variant.name).collect();
        let mut found: Vec<_> =
            of(workload.name).iter().map(|row| row["allocator"].as_str().unwrap()).collect();
        assert_eq!(found[0], workload.own());
        names.sort_unstable();
        found.sort_unstable();
        assert_eq!(names, found);
        for row in of(workload.name) {
            assert_eq!((&row["kind"], &row["threads"]), (&"variant".into(), &2.into()));
            assert!(row["ratio_to_own"].as_f64().unwrap() > 0.0, "{row}");
            let peer = row["best_peer"].as_str().unwrap();
            assert!(!peer.starts_with("allotment"), "{row}");
            assert_eq!(row.get("system_calls"), Some(&Value::Null));
        }
    }
    let locks = |name: &str| {
        let row = of("categories").into_iter().find(|row| row["allocator"] == name).unwrap();
        row["locks_per_op"].clone()
    };
    let own = locks("allotment-categories");
    assert_eq!(own["total"], 1.0, "{own}");
    assert_eq!((&own["session_list"], &own["configuration"]), (&1.0.into(), &0.0.into()));
    assert_eq!((&own["replies"], &own["heap"]), (&0.0.into(), &0.0.into()));
    let all = locks("all-mutex");
    assert!(all["total"].as_f64() > Some(100.0) && all["heap"].as_f64() > Some(80.0), "{all}");
    assert_eq!((&all["configuration"], &all["replies"]), (&19.0.into(), &2.0.into()));
    assert!(of("published").iter().all(|row| row["locks_per_op"].is_null()));
    let printed = text(&run(&arguments).stdout);
    assert!(printed.contains("   variant  ") && printed.contains("locks/request"), "{printed}");
    assert!(printed.contains("allotment-published takes "), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}
