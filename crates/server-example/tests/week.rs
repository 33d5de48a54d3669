//! Every variant plays the same days, and its memory is sampled.

use server_example::built_week_programs;
use server_example::week::command::{Week, play};
use server_example::week::sample::Sample;
use server_example::week::variant::VARIANTS;
use std::process::Command;

#[test]
fn every_variant_plays_the_same_day_with_the_same_live_bytes() {
    let programs = built_week_programs!();
    let week = Week { days: 1, rate: 5, hour_ms: 0 };
    let mut first: Option<Vec<Sample>> = None;
    for variant in VARIANTS {
        let Some(program) = variant.program(&programs) else { continue };
        let played = play(program, variant, week, || {}).unwrap();
        assert_eq!(played.samples.len(), 145);
        for sample in &played.samples {
            assert!(sample.resident_bytes > sample.live_bytes, "{}: {sample:?}", variant.name);
        }
        let last = played.samples.last().unwrap();
        assert!(last.requests > 5 * 1300, "{last:?}");
        let first = first.get_or_insert_with(|| played.samples.clone());
        for (sample, other) in played.samples.iter().zip(first.iter()) {
            assert_eq!((sample.minute, sample.requests), (other.minute, other.requests));
            // Threads' buffers and the scheduler's queues differ from run to run.
            let difference = sample.live_bytes.abs_diff(other.live_bytes);
            assert!(difference < 1 << 20, "{}: {sample:?} {other:?}", variant.name);
        }
    }
}

#[test]
fn pools_need_an_allocator_that_knows_them() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_week-glibc")).args(["--pools", "request"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("week-pools"), "{output:?}");
}
