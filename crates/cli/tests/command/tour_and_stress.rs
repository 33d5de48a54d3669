//! The tour, and `allot stress`.

use crate::{allot, json_lines, run, text};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

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
    allocators.extend(bench::peers::about("tcmalloc").is_ok().then_some("tcmalloc"));
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
            let handicap = bench::peers::about(allocator).unwrap().handicap;
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
