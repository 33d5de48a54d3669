//! The collector's thread stores what it collects, second by second, until it is stopped.

use allotment::{Budget, PoolGlobalAlloc};
use allotment_agent::clock::{Clock, Speed};
use allotment_agent::collect::synthetic::{SyntheticShape, chart_name, context_name, value};
use allotment_agent::collect::{CollectError, CollectorSources, start};
use allotment_agent::log::Log;
use allotment_agent::memory::{MallocMemory, Memory, SlabStoreMemory};
use allotment_agent::store::{Retention, RunPoints, Second, Store, Tier};
use std::alloc::System;
use std::sync::Arc;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const START: Second = 1_700_000_000;

fn store<M: Memory>() -> (Arc<Store<M>>, allotment_agent::store::StoreWriter<M>) {
    Store::new(Arc::new(M::new(None).unwrap()), Retention::DEFAULT)
}

fn wait_for<M: Memory>(store: &Store<M>, second: Second) {
    while store.newest() < second {
        std::thread::yield_now();
    }
}

fn synthetic_metrics_are_collected_each_second_until_the_end<M: Memory>() {
    let (store, writer) = store::<M>();
    let sources = CollectorSources {
        machine: false,
        synthetic: Some(SyntheticShape::new(250, Some(5), Some(2)).unwrap()),
    };
    let clock = Arc::new(Clock::simulated(START, Speed::Max));
    let collecting = start(writer, sources, clock, Arc::new(Log::stderr())).unwrap();
    let statistics = collecting.statistics().clone();
    wait_for(&store, START + 500);
    assert!(collecting.is_alive());
    collecting.stop().unwrap();
    let newest = store.newest();
    assert_eq!(statistics.ticks(), u64::from(newest - START));
    assert_eq!(statistics.ticks_missed(), 0);
    assert!(statistics.longest() >= statistics.last() && statistics.all() >= statistics.longest());
    let structure = store.structure();
    let charts = structure.context(&context_name(0)).unwrap().charts();
    assert_eq!(charts[1].name(), chart_name(1));
    let points = charts[1].read();
    let mut seconds = 0;
    for run in points.runs(3, Tier::Second, START..newest + 1) {
        let RunPoints::Values(values) = run.points else { panic!() };
        for (at, found) in (run.start..).zip(values) {
            assert_eq!(*found, value(53, at));
            seconds += 1;
        }
    }
    assert_eq!(seconds, newest - START);
    drop(points);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(store.newest(), newest, "it has ended");
}

#[test]
fn synthetic_metrics_are_collected_each_second_until_the_end_in_slabs() {
    synthetic_metrics_are_collected_each_second_until_the_end::<SlabStoreMemory>();
}

#[test]
fn synthetic_metrics_are_collected_each_second_until_the_end_in_malloc() {
    synthetic_metrics_are_collected_each_second_until_the_end::<MallocMemory>();
}

fn this_machine_has_charts_with_values<M: Memory>() {
    let (store, writer) = store::<M>();
    let sources = CollectorSources { machine: true, synthetic: None };
    let clock = Arc::new(Clock::simulated(START, Speed::Times(50.0)));
    let collecting = start(writer, sources, clock, Arc::new(Log::stderr())).unwrap();
    wait_for(&store, START + 20);
    collecting.stop().unwrap();
    let structure = store.structure();
    for context in ["system.cpu", "cpu.cpu", "system.memory", "system.load", "agent.ticks"] {
        let context = structure.context(context).unwrap_or_else(|| panic!("no {context}"));
        for chart in context.charts() {
            let points = chart.read();
            let known = |dimension| {
                points.runs(dimension, Tier::Second, 0..Second::MAX).any(|run| match run.points {
                    RunPoints::Values(values) => values.iter().any(|value| !value.is_nan()),
                    RunPoints::Summaries(_) => false,
                })
            };
            assert!((0..chart.dimensions().len()).any(known), "{}", chart.name());
        }
    }
}

#[test]
fn this_machine_has_charts_with_values_in_slabs() {
    this_machine_has_charts_with_values::<SlabStoreMemory>();
}

#[test]
fn this_machine_has_charts_with_values_in_malloc() {
    this_machine_has_charts_with_values::<MallocMemory>();
}

#[test]
fn ticks_that_come_too_late_are_counted_as_missed() {
    let (store, writer) = store::<SlabStoreMemory>();
    // Time passes much faster than the collector can follow.
    let clock = Arc::new(Clock::simulated(START, Speed::Times(100_000.0)));
    let shape = SyntheticShape::new(5000, None, None).unwrap();
    let sources = CollectorSources { machine: false, synthetic: Some(shape) };
    let collecting = start(writer, sources, clock, Arc::new(Log::stderr())).unwrap();
    let statistics = collecting.statistics().clone();
    while statistics.ticks() < 10 {
        std::thread::yield_now();
    }
    collecting.stop().unwrap();
    assert!(statistics.ticks_missed() > 0);
    let passed = u64::from(store.newest() - START);
    // Seconds before the thread's first tick do not count as missed.
    assert!(statistics.ticks() + statistics.ticks_missed() <= passed);
}

#[test]
fn metrics_beyond_the_memory_limit_are_refused_at_the_start() {
    let budget = Budget::new(4 << 20);
    let memory = Arc::new(SlabStoreMemory::new(Some(&budget)).unwrap());
    let (_, writer) = Store::new(memory, Retention::DEFAULT);
    let sources = CollectorSources {
        machine: false,
        synthetic: Some(SyntheticShape::new(100_000, None, None).unwrap()),
    };
    let clock = Arc::new(Clock::real());
    let error = start(writer, sources, clock, Arc::new(Log::stderr())).unwrap_err();
    assert!(matches!(error, CollectError::Store(_)));
    assert!(error.to_string().contains("raise the memory limit"));
}
