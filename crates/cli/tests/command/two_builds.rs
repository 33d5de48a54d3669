//! `allot bench --against`: two builds in one run.

use crate::{json_lines, run, short, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A program that stands for another build: it answers `--version` and any other call with a row.
fn other_build(folder: &Path, row: &str) -> String {
    let program = folder.join("allot");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then exit 0; fi\necho \"$*\" >> {}/calls\n{row}\n",
        folder.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program.display().to_string()
}

#[test]
fn each_row_runs_with_both_builds_in_each_round_and_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let other = other_build(folder.path(), r#"echo '{"ns_per_op": 1e9, "ops": 7, "older": true}'"#);
    let mut arguments = short(&["--allocators", "glibc,bumpalo", "--json", "--against"]);
    let rounds = arguments.iter().position(|word| *word == "--rounds").unwrap();
    arguments[rounds + 1] = "6";
    arguments.push(&other);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = json_lines(&output);
    let names =
        rows.iter().map(|row| [&row["allocator"], &row["build"]].map(|it| it.as_str().unwrap()));
    let expected =
        [["glibc", "this"], ["glibc", "other"], ["bumpalo", "this"], ["bumpalo", "other"]];
    assert!(names.eq(expected), "{rows:?}");
    for pair in rows.chunks(2) {
        let figure = |build: usize, field: &str| pair[build][field].as_f64().unwrap();
        assert_eq!((figure(1, "ns_per_op"), &pair[1]["rounds"]), (1e9, &6.into()));
        assert_eq!(pair[1]["peak_rss_bytes"], serde_json::Value::Null, "it told none");
        assert!(figure(0, "peak_rss_bytes") > 0.0);
        let (ratio, inverse) =
            (figure(0, "ratio_to_other_build"), figure(1, "ratio_to_other_build"));
        assert!(ratio < 0.01 && inverse > 100.0, "{pair:?}");
        assert!(figure(0, "ratio_to_other_build_low") <= ratio);
        assert!(figure(0, "ratio_to_other_build_high") >= ratio);
        assert_eq!(pair[0]["ratio_to_other_build_verdict"], "ahead");
        assert_eq!(pair[1]["ratio_to_other_build_verdict"], "behind");
    }
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
    let call = |name| {
        format!("bench query-small --allocators {name} --threads 1 --rounds 1 --json --quick\n")
    };
    assert_eq!(calls, [call("glibc"), call("bumpalo")].concat().repeat(6));
}

#[test]
fn a_build_compared_with_itself_prints_a_table_with_both() {
    let program = env!("CARGO_BIN_EXE_allot");
    let output = run(&[&short(&["--allocators", "glibc", "--against"])[..], &[program]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for expected in
        ["glibc, this", "glibc, other", "95 % interval", "the same row of the other build"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn what_the_other_build_can_not_do_is_a_failed_row_and_what_is_no_build_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let other =
        other_build(folder.path(), "echo \"allot: unknown workload 'query-small'\" >&2; exit 2");
    let output =
        run(&[&short(&["--allocators", "glibc", "--json", "--against"])[..], &[&other]].concat());
    assert_eq!(output.status.code(), Some(1));
    let rows = json_lines(&output);
    assert!(rows[0]["error"].is_null() && rows[0]["ratio_to_other_build"].is_null());
    assert!(rows[1]["error"].as_str().unwrap().contains("unknown workload 'query-small'"));
    let output = run(&short(&["--against", "/no/such/build"]));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.starts_with("allot: can't run '/no/such/build': "), "{errors}");
    assert_eq!(errors.lines().count(), 1);
}
