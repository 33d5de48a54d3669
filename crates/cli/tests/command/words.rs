//! What it says to people: errors, help, tables, the page.

use crate::{SHORT, allot, json_lines, run, short, text};
use std::io::Read;
use std::process::Stdio;

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
    for workload in bench::workloads::catalogue() {
        assert!(errors.contains(workload.name), "{errors}");
    }
    let errors = text(&run(&["bench", "--allocators", "glibc,glibcc"]).stderr);
    assert!(errors.contains("'glibcc'"), "{errors}");
    for about in bench::peers::known() {
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
fn help_names_every_workload_allocator_and_figure() {
    let help = text(&run(&["bench", "--help"]).stdout);
    for workload in bench::workloads::catalogue() {
        assert!(help.contains(workload.name) && help.contains(workload.meaning), "{help}");
        for variant in workload.variants() {
            assert!(help.contains(variant.name) && help.contains(variant.meaning), "{help}");
        }
    }
    for about in bench::peers::known() {
        assert!(help.contains(about.name), "{help}");
    }
    for metric in bench::workloads::measurement::METRICS {
        assert!(help.contains(&format!("\n  {} ", metric.key)), "{} {help}", metric.key);
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
fn what_an_allocator_can_not_run_is_said_under_the_table_and_on_standard_error() {
    if crate::too_long("what an allocator can't run") {
        return;
    }
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
    assert!(words.contains("Left out of exchange-1: bumpalo (its objects are freed"), "{printed}");
    assert!(words.contains("slab (it serves one thread only)"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    let errors = text(&output.stderr);
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.contains("left out of exchange-1: bumpalo (its objects are freed"), "{errors}");
}

#[test]
fn a_place_without_room_for_the_file_is_told_with_its_remedy() {
    let mut bench = allot(&["bench", "letters-mapped", "--quick", "--rounds", "1", "--json"]);
    let output = bench.env("TMPDIR", "/no/such/folder").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("search the word list in '/no/such/folder'"), "{errors}");
    assert!(errors.contains("set TMPDIR to another directory"), "{errors}");
    assert!(json_lines(&output)[0]["error"].as_str().unwrap().contains("TMPDIR"));
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
        "allot: left out of tree-copy-8: glibc (it is an allocator, and this workload compares layouts of a \
         tree)\n"
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
