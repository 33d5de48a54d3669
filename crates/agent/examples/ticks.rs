//! Measures how long a tick takes, second by second across the end of an hour, without a server.
//!
//! `cargo run --release -p allotment-agent --example ticks -- [METRICS] [allotment|malloc]`

use allotment_agent::collect::synthetic::{SyntheticCharts, SyntheticShape};
use allotment_agent::memory::{MallocMemory, Memory, SlabStoreMemory};
use allotment_agent::store::{Retention, Store, Tier};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// 150 seconds before the end of an hour.
const START: u32 = 1_700_000_000 / 3600 * 3600 + 3600 - 150;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let metrics = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    match arguments.next().as_deref() {
        None | Some("allotment") => run::<SlabStoreMemory>(metrics),
        Some("malloc") => run::<MallocMemory>(metrics),
        Some(other) => Err(format!("no allocator {other:?}: say allotment or malloc").into()),
    }
}

fn run<M: Memory>(metrics: u32) -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let (store, mut writer) = Store::new(Arc::new(M::new(None)?), Retention::DEFAULT);
    let mut synthetic =
        SyntheticCharts::new(&mut writer, SyntheticShape::new(metrics, None, None)?)?;
    println!("{metrics} metrics added in {:.0?} ({})", began.elapsed(), M::NAME);
    let mut ticks = Vec::new();
    for second in 0..300 {
        let now = START + second;
        let began = Instant::now();
        synthetic.collect(&mut writer, now);
        let collected = began.elapsed();
        writer.end_tick(now);
        let whole = began.elapsed();
        ticks.push(collected);
        if second < 3 || now.is_multiple_of(60) || whole > Duration::from_millis(300) {
            println!("second {second:3}: collected in {collected:.1?}, whole tick {whole:.1?}");
        }
    }
    ticks.sort();
    println!("median {:.1?}, worst {:.1?}", ticks[ticks.len() / 2], ticks[ticks.len() - 1]);
    let statistics = store.statistics();
    let mut allowed = 0;
    for tier in Tier::ALL {
        let held = statistics.tiers[tier as usize];
        let bytes = tier.point_bytes() as u64;
        allowed += held.points * bytes * 115 / 100 + (held.capacity - held.points) * bytes;
        println!(
            "{tier:?}: {} MiB filled in buffers of {} MiB",
            (held.points * bytes) >> 20,
            (held.capacity * bytes) >> 20
        );
    }
    for one in store.memory().buffer_statistics() {
        println!(
            "{}: held {} MiB, live {} MiB",
            one.name,
            one.held_bytes >> 20,
            one.live_bytes >> 20
        );
    }
    let held: u64 = store.memory().buffer_statistics().iter().map(|one| one.held_bytes).sum();
    if held > 0 {
        println!(
            "held {} MiB; 1.15 of what is filled and the rest of buffers that are being filled: {} MiB",
            held >> 20,
            allowed >> 20
        );
    }
    Ok(())
}
