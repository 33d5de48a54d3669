//! The report of named living allocators, as text and as JSON.
#![cfg(system_memory)]

use std::sync::mpsc;

use allotment::arena::ArenaBuilder;
use allotment::{Arena, report};
use serde_json::Value;

fn named(name: &str) -> ArenaBuilder {
    Arena::builder().name(name)
}

/// The JSON objects of the allocators of this name.
fn in_json(name: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(&report().to_json()).expect("the report is JSON");
    assert!(json["recycler"]["cached_bytes"].is_u64() && json["recycler"]["limit_bytes"].is_u64());
    let fresh = &json["fresh_memory"];
    for figure in ["huge_bytes", "refused_bytes", "huge_page_nanos", "small_pages_nanos"] {
        assert!(fresh[figure].is_u64(), "{figure}");
    }
    assert!(fresh["small_bytes"].as_u64() > Some(0) && fresh["populated_pages_nanos"].is_u64());
    let all = json["allocators"].as_array().expect("a list").clone();
    all.into_iter().filter(|one| one["name"] == name).collect()
}

#[test]
fn a_named_arena_is_in_the_text_and_the_json_until_it_is_dropped() {
    let arena = named("there").build();
    arena.alloc_slice_copy(&[1u64; 100]);
    arena.alloc(1u8);
    let text = report().to_string();
    let line = text.lines().find(|line| line.starts_with("there ")).expect("a line of its own");
    let figures: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(figures[1..4], ["arena", "2", "801"], "{line}");
    let json = &in_json("there")[0];
    assert_eq!(json["kind"], "arena");
    let statistics = arena.statistics();
    for (key, figure) in [
        ("live_objects", statistics.live_objects),
        ("live_bytes", statistics.live_bytes),
        ("held_bytes", statistics.held_bytes),
        ("peak_held_bytes", statistics.peak_held_bytes),
        ("wasted_bytes", statistics.wasted_bytes),
        ("chunks", statistics.chunks),
        ("recycled_chunks", statistics.recycled_chunks),
        ("source_calls", statistics.source_calls),
    ] {
        assert_eq!(json[key], figure, "{key}");
    }
    drop(arena);
    assert!(in_json("there").is_empty());
    assert!(!report().to_string().contains("there "));
}

#[test]
fn an_arena_without_a_name_is_not_reported() {
    let _arena = Arena::new();
    let _named = named("with a name").build();
    assert!(report().allocators.iter().all(|one| !one.name.is_empty()));
}

#[test]
fn arenas_of_one_name_each_have_a_line() {
    let _arenas: Vec<_> = (0..3).map(|_| named("triplet").build()).collect();
    assert_eq!(in_json("triplet").len(), 3);
}

#[test]
fn names_with_quotes_controls_and_other_alphabets_survive_json() {
    for name in [
        "a \"quoted\" name",
        "back\\slash",
        "line\nfeed, tab\t and nul\0",
        "\u{1b}[31mred\u{7f}",
        "Größe ☂ 数",
        "\u{2028}\u{1}",
    ] {
        let _arena = named(name).build();
        assert_eq!(in_json(name).len(), 1, "{name:?}");
    }
}

#[test]
fn another_thread_reads_exact_figures_while_the_owner_waits() {
    let (to_reader, from_owner) = mpsc::channel();
    let (to_owner, from_reader) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for expected in from_owner {
                let all = report().allocators;
                let one = all.iter().find(|one| one.name == "read along").expect("it lives");
                assert_eq!(one.statistics, expected);
                to_owner.send(()).unwrap();
            }
        });
        let mut arena = named("read along").build();
        for round in 0..200usize {
            arena.alloc_slice_copy(&vec![0u8; round * 10 + 1]);
            if round % 50 == 49 {
                arena.reset();
            }
            to_reader.send(arena.statistics()).unwrap();
            from_reader.recv().unwrap();
        }
        drop(to_reader);
    });
}

#[test]
fn a_report_made_while_arenas_are_made_and_dropped_never_mixes_two() {
    let stop = core::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(core::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let name = format!("made and dropped {thread}");
                while !stopped() {
                    let arena = named(&name).build();
                    arena.alloc_slice_copy(&[1u64; 10]);
                }
            });
        }
        for _ in 0..300 {
            for one in report().allocators {
                if one.name.starts_with("made and") {
                    assert!(one.name.len() == 18 && one.statistics.live_objects <= 1, "{one:?}");
                }
            }
        }
        stop.store(true, core::sync::atomic::Ordering::Relaxed);
    });
}
