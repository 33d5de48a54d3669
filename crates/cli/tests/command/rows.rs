//! The rows of allocators in `allot bench`.

use crate::{allot, json_lines, run, short, text};
use serde_json::Value;

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
    if crate::too_long("rows_of_objects_of_one_size_have_their_steps_and_no_queries") {
        return;
    }
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
    assert_eq!(names, ["tiers-cold", "tiers-reserved", "tiers-steady"]);
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
fn the_first_touch_of_memory_tells_its_pages_and_compares_with_pages_of_each_size() {
    let output = run(&[
        "bench",
        "query-alloc-cold",
        "--rounds",
        "1",
        "--threads",
        "2",
        "--allocators",
        "glibc,allotment-arena,mmap-huge,mmap-small",
        "--json",
    ]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("query-alloc-cold: the kernel "), "{errors}");
    let rows = json_lines(&output);
    assert_eq!(rows.len(), 4);
    let row = |name: &str| rows.iter().find(|row| row["allocator"] == name).unwrap();
    for row in &rows {
        assert_eq!((&row["ops"], &row["queries"]), (&800_000.into(), &Value::Null));
        assert!(row["minor_faults"].as_u64().unwrap() > 0, "{row}");
        assert!(row["free_huge_pages"].is_u64() || row["free_huge_pages"].is_null(), "{row}");
        assert!(row["ratio_to_reference"].as_f64().unwrap() > 0.0, "{row}");
        let reference = row["reference"].as_str().unwrap();
        assert!(["mmap-huge", "mmap-small"].contains(&reference), "{row}");
    }
    // Each thread's objects take 32 MB: 7,813 ordinary pages.
    assert!(row("mmap-small")["minor_faults"].as_u64().unwrap() > 2 * 7_813);
    assert_eq!(row("mmap-small")["huge_bytes"], 0);
    let huge = row("mmap-huge");
    let got = huge["huge_bytes"].as_u64().unwrap();
    assert!(got <= huge["peak_rss_bytes"].as_u64().unwrap(), "{huge}");
    let printed = text(
        &run(&[
            "bench",
            "burst-alloc-cold",
            "--rounds",
            "1",
            "--threads",
            "1",
            "--allocators",
            "allotment-slab,mmap-small",
        ])
        .stdout,
    );
    for heading in ["first touch", "huge pages", "free before", "max/min", "to reference"] {
        assert!(printed.contains(heading), "{printed}");
    }
    assert!(
        printed.contains("allotment-slab takes ") && printed.contains("x the time of mmap-small")
    );
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

/// The rows that can run a workload.
fn rows_of(workload: &str) -> Vec<bench::workloads::Subject> {
    let workload = bench::workloads::Workload::named(workload).unwrap();
    let able =
        |row: &bench::workloads::Subject| bench::workloads::can_run(workload, *row, 1).is_ok();
    workload.subjects().into_iter().filter(able).collect()
}

#[test]
fn references_are_rows_of_work_on_cold_memory_only() {
    let references = |workload| {
        let rows = rows_of(workload).into_iter().filter(|row| row.is_reference());
        rows.map(|row| row.name()).collect::<Vec<_>>()
    };
    for cold in ["query-alloc-cold", "burst-alloc-cold", "tiers-cold"] {
        assert_eq!(references(cold), ["mmap-huge", "mmap-small"], "{cold}");
    }
    for steady in ["query", "query-alloc", "typed", "burst-alloc", "burst-free", "grow", "pair"] {
        assert!(references(steady).is_empty(), "{steady}");
    }
}

#[test]
fn an_arenas_everyday_work_has_a_row_of_every_arena_that_can_do_it() {
    let names = |workload| rows_of(workload).iter().map(|row| row.name()).collect::<Vec<_>>();
    let arenas = [
        "allotment-arena",
        "allotment-arena-reset",
        "bumpalo",
        "bumpalo-reset",
        "bump-scope",
        "multitude",
    ];
    for workload in ["typed", "typed-small"] {
        let rows = names(workload);
        for name in arenas.iter().chain(&["allotment-arena-raw", "typed-arena"]) {
            assert!(rows.contains(name), "{name}: {rows:?}");
        }
    }
    for workload in ["arena-vec", "arena-format"] {
        let rows = names(workload);
        assert!(arenas.iter().all(|name| rows.contains(name)), "{rows:?}");
        assert!(!rows.contains(&"allotment-arena-raw"), "{rows:?}");
    }
    for workload in ["scope-free-1000", "scope-free-10000000"] {
        assert_eq!(names(workload), ["allotment-arena", "bump-scope"]);
    }
}

#[test]
fn boxes_and_requests_have_rows_of_our_everyday_types_beside_the_mallocs() {
    let ours = |workload: &str| {
        let rows = rows_of(workload).into_iter().filter(|row| row.is_ours());
        rows.map(|row| row.name()).collect::<Vec<_>>()
    };
    for workload in ["channel", "xmalloc"] {
        let boxes = ["allotment-pool", "allotment-slab", "allotment-slab-handle"];
        assert_eq!(ours(workload), boxes, "{workload}");
    }
    for entries in ["1000", "10000", "100000"] {
        let pools = ["allotment-pool", "allotment-pool-request", "allotment-pool-limited"];
        assert_eq!(ours(&format!("pool-request-{entries}")), pools, "{entries}");
    }
}

#[test]
fn trees_tell_their_memory_and_their_walk() {
    if crate::too_long("the rows of trees") {
        return;
    }
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
    if crate::too_long("objects_of_any_size_are_rows_of_every_malloc") {
        return;
    }
    let workloads = [
        ("mixed-remote", 20),
        ("scope", 2_000),
        ("scope-exit", 2_000),
        ("xmalloc", 1),
        ("pool-request-1000", 1_000),
    ];
    for (workload, ops) in workloads {
        let output =
            run(&["bench", workload, "--quick", "--rounds", "1", "--threads", "2", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let rows = json_lines(&output);
        for about in bench::peers::known()
            .iter()
            .filter(|about| about.kind == bench::peers::PeerKind::Malloc)
        {
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
    if crate::too_long("a_handler_runs_with_the_global_allocator_that_its_row_names") {
        return;
    }
    let output = run(&["bench", "handler", "--quick", "--rounds", "1", "--threads", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names: Vec<_> = rows.iter().map(|row| row["allocator"].as_str().unwrap()).collect();
    for about in bench::peers::known() {
        assert_eq!(
            names.contains(&about.name),
            about.serves(bench::peers::Service::Global),
            "{}",
            about.name
        );
    }
    for row in &rows {
        assert_eq!((&row["ops"], &row["queries"]), (&20_000.into(), &20_000.into()), "{row}");
        let share = &row["alloc_share"];
        assert!(share.is_null() || share.as_f64().is_some_and(|share| share > 0.0 && share < 1.0));
    }
    // Every child would end otherwise, but that of the allocator which is there unless another one
    // is named.
    let other = names.iter().rfind(|&&name| name != "glibc").unwrap();
    let child = ["child", "handler", other, "--threads", "1", "--quick"];
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
    assert!(printed.contains("in allocator") && printed.contains("ns/request inside"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}
