//! The command as a user meets it.

use serde_json::Value;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn allot(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(arguments).stdin(Stdio::null()).env_remove("CARGO");
    command
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

#[test]
fn bad_arguments_are_told_in_one_line_with_exit_code_2() {
    for arguments in [
        &["trim"][..],
        &["bench", "--roundz"],
        &["bench", "--rounds", "0"],
        &["bench", "--rounds", "many"],
        &["bench", "--threads", "0"],
        &["bench", "--threads", "1,,2"],
        &["bench", "--html"],
        &["bench", "--html", "/no/such/directory/page.html"],
        &["bench", "quary"],
        &["bench", "--allocators", "glibcc"],
        &["bench", "query", "--allocators", "typed-arena"],
        &["bench", "pair", "--allocators", "bumpalo"],
        &["bench", "pair", "--allocators", "slab", "--threads", "2"],
        &["bench", "exchange", "--threads", "3"],
        &["bench", "tree", "--threads", "2"],
        &["bench", "mixed-remote", "--threads", "1"],
        &["bench", "mixed", "--allocators", "bumpalo"],
        &["bench", "scope", "--allocators", "allotment-arena"],
        &["bench", "handler", "--allocators", "bumpalo"],
        &["bench", "published", "--allocators", "mutx"],
        &["bench", "published", "--allocators", "glibc"],
        &["bench", "grow", "--allocators", "mutex"],
        &["bench", "letters", "--threads", "2"],
        &["bench", "letters-read", "--allocators", "mapped"],
        &["bench", "c-free-list", "--threads", "2"],
        &["bench", "client", "--threads", "2"],
        &["bench", "client-lua", "--allocators", "mimalloc"],
        &["bench", "pmr-map", "--allocators", "bumpalo"],
        &["bench", "tree-copy-8", "--allocators", "glibc"],
        &["bench", "tree-8", "--allocators", "compact-copy,allotment-free-list-a-tree"],
        &["--json", "bench"],
        &["stress", "--threads", "0"],
        &["stress", "--threads", "1025"],
        &["stress", "--elements", "9"],
        &["stress", "--seconds", "0"],
        &["stress", "--allocator", "glibcc"],
        &["stress", "--allocator", "bumpalo"],
        &["stress", "--allocator", "slab", "--threads", "2"],
        &["stress", "--allocator", "allotment-free-list", "--threads", "2"],
        &["stress", "--allocator", "compact-copy", "--threads", "1"],
        &["stress", "slab"],
    ] {
        let output = run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(errors.starts_with("allot: "), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let errors = text(&run(&["bench", "quary"]).stderr);
    assert!(errors.contains("'quary'"), "{errors}");
    for workload in workloads::catalogue() {
        assert!(errors.contains(workload.name), "{errors}");
    }
    let errors = text(&run(&["bench", "--allocators", "glibc,glibcc"]).stderr);
    assert!(errors.contains("'glibcc'"), "{errors}");
    for about in peers::known() {
        assert!(errors.contains(about.name), "{errors}");
    }
    let errors = text(&run(&["bench", "published", "--allocators", "mutex,mutx"]).stderr);
    assert_eq!(
        errors,
        "allot: unknown row 'mutx'; published has allotment-published, allotment-sealed, mutex, rwlock and \
         arc-swap\n"
    );
}

#[test]
fn help_names_every_workload_and_allocator() {
    let help = text(&run(&["bench", "--help"]).stdout);
    for workload in workloads::catalogue() {
        assert!(help.contains(workload.name) && help.contains(workload.meaning), "{help}");
        for way in workload.ways() {
            assert!(help.contains(way.name) && help.contains(way.meaning), "{help}");
        }
    }
    for about in peers::known() {
        assert!(help.contains(about.name), "{help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let help = text(&run(&["stress", "--help"]).stdout);
    assert!(help.contains("--elements") && help.contains("Examples:"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let help = text(&run(&["--help"]).stdout);
    assert!(help.contains("bench") && help.contains("tour") && help.contains("stress"), "{help}");
    for hidden in ["child", "trace", "known-calls", "--small"] {
        assert!(!help.contains(hidden), "{help}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for arguments in [
        short(&["--allocators", "glibc", "--json"]),
        short(&["--allocators", "glibc"]),
        vec!["bench", "--help"],
        vec!["stress", "--seconds", "60", "--allocator", "glibc"],
        vec!["stress", "--seconds", "60", "--allocator", "glibc", "--json"],
        vec!["stress", "--help"],
        vec!["--small"],
        vec!["--small", "--json"],
    ] {
        let mut child =
            allot(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}: {errors}");
        assert_eq!(errors, "", "{arguments:?}");
    }
}

#[test]
fn a_json_row_has_every_field_of_the_contract() {
    let output = run(&short(&["--allocators", "glibc,bumpalo", "--json"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!((&row["workload"], &row["threads"]), (&"query-small".into(), &1.into()));
        assert_eq!((&row["rounds"], &row["unit"]), (&1.into(), &"object".into()));
        assert_eq!(row["ops"].as_u64().unwrap() % 400, 0);
        assert_eq!(row["ops"].as_u64().unwrap() / 400, row["queries"].as_u64().unwrap());
        let ns = ["ns_per_op", "ns_per_op_min", "ns_per_op_max"].map(|f| row[f].as_f64().unwrap());
        assert!(ns[0] > 0.0 && ns[1] == ns[0] && ns[2] == ns[0], "{row}");
        assert!(row["base_rss_bytes"].as_u64().unwrap() > 0);
        assert!(row["peak_rss_bytes"].as_u64().unwrap() >= row["end_rss_bytes"].as_u64().unwrap());
        assert_eq!(row["live_bytes"], 100 * (192 + 24 + 40 + 64));
        assert!(row["policy"].is_string());
        for field in ["minor_faults", "mmap_calls", "faults_per_query", "mmap_calls_per_query"] {
            assert!(row[field].is_number() || row[field].is_null(), "{field}");
        }
        // What does not apply is there, and null.
        for field in ["response_ms_avg", "response_ms_min", "response_ms_max", "alloc_share"] {
            assert_eq!(row.get(field), Some(&Value::Null), "{field}");
        }
    }
    assert_eq!(rows.iter().filter(|row| row["best"] == true).count(), 1);
}

#[test]
fn rows_of_objects_of_one_size_have_their_steps_and_no_queries() {
    let output = run(&[
        "bench",
        "churn",
        "--quick",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--allocators",
        "glibc,sharded-slab",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["ops"], 5_000_000);
        assert_eq!((&row["own"], &row["unit"]), (&"allotment-slab".into(), &"pair".into()));
        assert_eq!(row["live_bytes"], 6_400_000);
        for field in ["queries", "faults_per_query", "mmap_calls_per_query", "reserve_ms"] {
            assert_eq!(row.get(field), Some(&Value::Null), "{field}");
        }
        let steps = row["rss_steps"].as_object().unwrap();
        let names: Vec<&str> = steps.keys().map(String::as_str).collect();
        assert_eq!(names.len(), 5, "{names:?}");
        // Net of the base: at least the objects, and not the program's own memory.
        let burst = steps["burst"].as_u64().unwrap();
        assert!((64_000_000..160_000_000).contains(&burst), "{burst}");
        assert!(steps["all_freed"].is_u64());
    }
    let trimmed = |name: &str| {
        let row = rows.iter().find(|row| row["allocator"] == name).unwrap();
        row["rss_steps"]["trimmed"].clone()
    };
    assert!(trimmed("glibc").is_u64() || cfg!(not(target_env = "gnu")));
    assert!(trimmed("sharded-slab").is_null(), "nothing can be asked of it");
}

#[cfg(feature = "c-peers")]
#[test]
fn the_programs_of_others_tell_their_user_time_or_what_is_missing() {
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

#[cfg(feature = "c-peers")]
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

#[cfg(feature = "c-peers")]
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
fn what_an_allocator_can_not_run_is_said_under_the_table_and_on_standard_error() {
    let output = run(&[
        "bench",
        "exchange-1",
        "--quick",
        "--rounds",
        "1",
        "--allocators",
        "sharded-slab,slab,bumpalo",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Left out of exchange-1: bumpalo (its objects end"), "{printed}");
    assert!(words.contains("slab (it serves one thread alone)"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    let errors = text(&output.stderr);
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.contains("left out of exchange-1: bumpalo (its objects end"), "{errors}");
}

#[test]
fn the_hour_boundary_tells_its_seconds() {
    let output = run(&[
        "bench",
        "tiers",
        "--quick",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--allocators",
        "glibc",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiers-cold", "tiers-reserved"]);
    for row in &rows {
        assert_eq!(row["ops"], 200_000, "a tenth of the metrics");
        let second = |field: &str| row[field].as_f64().unwrap();
        assert!(
            second("second_ms_avg") > 0.0 && second("second_ms_avg") <= second("second_ms_max")
        );
        assert_eq!(row.get("reserve_ms"), Some(&Value::Null), "malloc has no reservation");
    }
}

#[test]
fn trees_tell_their_memory_and_their_walk() {
    let bench = |workload, allocators| {
        let output = run(&[
            "bench",
            workload,
            "--quick",
            "--rounds",
            "1",
            "--allocators",
            allocators,
            "--json",
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        json_lines(&output)
    };
    for row in bench("many-trees", "allotment-free-list,allotment-free-list-a-tree,glibc") {
        assert_eq!((&row["own"], &row["ops"]), (&"allotment-free-list".into(), &2_621_440.into()));
        assert!(row["walk_ns_per_node"].as_f64().unwrap() > 0.0);
        let steps = row["rss_steps"].as_object().unwrap();
        let names: Vec<&str> = steps.keys().map(String::as_str).collect();
        assert_eq!(names, ["all_freed", "built", "pruned", "rebuilt"], "serde sorts them");
        assert!(steps["rebuilt"].as_u64() >= row["live_bytes"].as_u64(), "{row}");
    }
    let rows = bench("tree-copy-8", "compact-copy,malloc-built");
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!((&row["own"], &row["kind"]), (&"compact-copy".into(), &"placement".into()));
        assert_eq!((&row["live_bytes"], &row["unit"]), (&(8 << 20).into(), &"node".into()));
        assert!(row["rss_steps"]["laid_out"].as_u64() >= row["live_bytes"].as_u64(), "{row}");
        assert_eq!(row.get("walk_ns_per_node"), Some(&Value::Null), "it is what was measured");
    }
    let rows = bench("tree-8", "allotment-free-list,glibc");
    assert!(rows.iter().all(|row| row["live_bytes"] == 129 * 32 && row["ops"] == 3 << 20));
}

#[test]
fn objects_of_any_size_are_rows_of_every_malloc() {
    for (workload, ops) in [("mixed-remote", 20), ("scope", 2_000), ("scope-exit", 2_000)] {
        let output =
            run(&["bench", workload, "--quick", "--rounds", "1", "--threads", "2", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let rows = json_lines(&output);
        for about in peers::known().iter().filter(|about| about.kind == peers::Kind::Malloc) {
            let row = rows.iter().find(|row| row["allocator"] == about.name);
            let row = row.unwrap_or_else(|| panic!("{workload} lacks {}", about.name));
            assert!(row["ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["ops"].as_u64().unwrap() % ops, 0, "{row}");
            assert!(row["live_bytes"].as_u64().unwrap() > 150_000, "{row}");
        }
    }
}

#[test]
fn a_handler_runs_with_the_global_allocator_that_its_row_names() {
    let output = run(&["bench", "handler", "--quick", "--rounds", "1", "--threads", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["allocator"].as_str().unwrap()).collect();
    for about in peers::known() {
        assert_eq!(names.contains(&about.name), about.global, "{}", about.name);
    }
    for row in &rows {
        assert_eq!((&row["ops"], &row["queries"]), (&20_000.into(), &20_000.into()), "{row}");
        let share = &row["alloc_share"];
        assert!(share.is_null() || share.as_f64().is_some_and(|share| share > 0.0 && share < 1.0));
    }
    // Every child would end otherwise.
    let child = ["child", "handler", names[names.len() - 1], "--threads", "1", "--quick"];
    let output = allot(&child).env("ALLOT_GLOBAL", "no-such").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    let remedy = format!("start it with ALLOT_GLOBAL={}", child[2]);
    assert!(errors.contains("which is glibc") || cfg!(not(target_env = "gnu")), "{errors}");
    assert!(errors.contains(&remedy) && errors.lines().count() == 1, "{errors}");
    // And the table tells the allocator's part.
    let output = run(&[
        "bench",
        "handler",
        "--quick",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--allocators",
        child[2],
    ]);
    let printed = text(&output.stdout);
    assert!(printed.contains("in allocator") && printed.contains("ns/request in it"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn the_papers_programs_make_the_papers_calls() {
    let output = run(&["bench", "letters", "--quick", "--rounds", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["letters-read", "letters-buffered", "letters-mapped"]);
    // Open and close; between them one call a byte, or a block of 4 KiB, and one more that sees the end; or three to
    // find the file's size, map it and unmap it.
    for (row, calls) in rows.iter().zip([408_889, 103, 5]) {
        // Before it closes a file, a debug build asks whether that is open.
        let calls = calls + u64::from(cfg!(debug_assertions));
        assert_eq!((&row["kind"], &row["unit"]), (&"way".into(), &"byte".into()));
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
    assert!(printed.contains("a search  system calls"), "{printed}");
    let beside = |line: &str| {
        line.starts_with("letters-mapped is ") && line.ends_with("x as fast as letters-buffered.")
    };
    assert!(printed.lines().any(beside), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn a_place_without_room_for_the_file_is_told_with_its_remedy() {
    let mut bench = allot(&["bench", "letters-mapped", "--quick", "--rounds", "1", "--json"]);
    let output = bench.env("TMPDIR", "/no/such/folder").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("no file to search in '/no/such/folder'"), "{errors}");
    assert!(errors.contains("TMPDIR names another folder"), "{errors}");
    assert!(json_lines(&output)[0]["error"].as_str().unwrap().contains("TMPDIR"));
}

#[test]
fn ways_are_rows_beside_each_other() {
    let arguments =
        ["bench", "published", "categories", "--quick", "--rounds", "1", "--threads", "2"];
    let output = run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let of = |workload: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["workload"] == workload).collect()
    };
    for workload in [arguments[1], arguments[2]] {
        let workload = workloads::Workload::named(workload).unwrap();
        let mut names: Vec<_> = workload.ways().iter().map(|way| way.name).collect();
        let mut found: Vec<_> =
            of(workload.name).iter().map(|row| row["allocator"].as_str().unwrap()).collect();
        assert_eq!(found[0], workload.own());
        names.sort_unstable();
        found.sort_unstable();
        assert_eq!(names, found);
        for row in of(workload.name) {
            assert_eq!((&row["kind"], &row["threads"]), (&"way".into(), &2.into()));
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
    assert!(printed.contains("   way  ") && printed.contains("locks/request"), "{printed}");
    assert!(printed.contains("allotment-published takes "), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn what_no_one_would_ask_for_is_not_said_to_be_left_out() {
    let arguments = ["bench", "tree-copy-8", "--quick", "--rounds", "1"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(!printed.contains("Left out") && !printed.contains("glibc,"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    let output = run(&[&arguments[..], &["--allocators", "compact-copy,glibc"]].concat());
    assert_eq!(
        text(&output.stderr),
        "allot: left out of tree-copy-8: glibc (it is an allocator, and not one of the ways in which a copied \
         tree may lie)\n"
    );
}

#[test]
fn plain_output_has_no_escapes_and_fits_in_100_columns() {
    let output = run(&short(&["--allocators", "glibc,bumpalo"]));
    let printed = text(&output.stdout);
    assert!(!printed.contains('\u{1b}'));
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("ns/object") && printed.contains("»"), "{printed}");
    assert_eq!(text(&output.stderr), "", "no bar where there is no terminal");
}

#[test]
fn the_page_is_written() {
    let path = std::env::temp_dir().join(format!("allot-page-{}.html", std::process::id()));
    let name = path.to_str().unwrap().to_owned();
    let mut arguments: Vec<&str> = SHORT.to_vec();
    arguments.extend(["--allocators", "glibc", "--html", &name]);
    let output = run(&arguments);
    let page = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(page.contains("<svg") && page.contains("glibc") && page.ends_with("</html>\n"));
}

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

#[test]
fn the_small_tour_prints_both_tables_the_line_and_the_command() {
    let output = run(&["--small"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for expected in
        ["This machine", "process", "sequential test", "parallel test", "glibc", "bumpalo"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(printed.contains("Here an arena answers one caller"), "{printed}");
    assert!(printed.lines().last().unwrap().contains("allot bench query"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(!printed.contains('\u{1b}'));
}

#[test]
fn the_small_tour_is_json_too() {
    let output = run(&["--small", "--json"]);
    let figures = json_lines(&output);
    for part in ["machine", "sequential", "parallel"] {
        assert!(figures.iter().any(|figure| figure["part"] == part), "{part}");
    }
    let rate = |figure: &Value| figure["transactions_per_second"].as_f64();
    let full_size = figures.iter().filter(|figure| figure["part"] != "machine");
    assert!(full_size.clone().count() >= 4);
    assert!(full_size.clone().all(|figure| rate(figure).is_some_and(|rate| rate > 0.0)));
}

#[test]
fn stress_tells_each_second_and_the_sum() {
    let output =
        run(&["stress", "--threads", "3", "--elements", "100", "--seconds", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = json_lines(&output);
    assert_eq!(lines.len(), 3);
    for (second, line) in lines[..2].iter().enumerate() {
        assert_eq!(line["second"], second + 1);
        assert!(line["malloc_per_second"].as_f64().unwrap() > 0.0);
        assert!(line["free_per_second"].as_f64().unwrap() > 0.0);
    }
    let sum = &lines[2];
    assert_eq!(sum["allocator"], "allotment-slab");
    assert_eq!((&sum["threads"], &sum["elements"]), (&3.into(), &100.into()));
    assert_eq!(sum["malloc"], sum["free"], "nothing is left");
    assert_eq!(sum["malloc"].as_u64().unwrap() % 252, 0, "whole cycles");
    assert_eq!((&sum["interrupted"], &sum["handicap"]), (&false.into(), &Value::Null));
    assert!(sum["policy"].is_string());
}

#[test]
fn stress_speaks_to_people_and_starts_an_allocator_in_the_environment_that_it_needs() {
    let mut allocators = vec!["glibc", "slab"];
    allocators.extend(peers::about("tcmalloc").is_ok().then_some("tcmalloc"));
    for allocator in allocators {
        let output = run(&[
            "stress",
            "--threads",
            "1",
            "--elements",
            "1000",
            "--seconds",
            "1",
            "--allocator",
            allocator,
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines.len(), 3, "{printed}");
        assert_eq!(
            lines[0],
            format!(
                "{allocator} under stress: 1 thread, 1,000 elements of 64 B each, for 1 second"
            )
        );
        assert!(lines[1].contains("M malloc and") && lines[1].ends_with("M free operations/s"));
        assert!(lines[2].contains(" free on 1 thread in ") && lines[2].ends_with(" ns a pair"));
        if allocator == "tcmalloc" {
            let handicap = peers::about(allocator).unwrap().handicap;
            // In this process it may be handicapped; in its own it is not, if the kernel can.
            let errors = text(&output.stderr);
            assert!(errors.is_empty() || handicap().is_some(), "{errors}");
        }
    }
}

#[test]
fn an_interrupted_stress_sums_up_what_was_done() {
    for signal in ["INT", "TERM"] {
        let mut stress = allot(&["stress", "--seconds", "600", "--allocator", "glibc", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first line is out: the threads run, and the handler is there.
        let mut printed = vec![0; 10];
        stress.stdout.as_mut().unwrap().read_exact(&mut printed).unwrap();
        let sent = Command::new("kill")
            .args([format!("-{signal}"), stress.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        let output = stress.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(130), String::new()));
        let printed = text(&[&printed[..], &output.stdout].concat());
        let sum: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
        assert_eq!(sum["interrupted"], true);
        assert_eq!(sum["malloc"], sum["free"]);
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
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
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
    // Not a SIGSEGV: a Rust program catches the first one to look for a stack overflow, and one that
    // was only sent never comes again.
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
