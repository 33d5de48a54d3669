//! The store: every tier returns what was appended, for as long as it is kept, within the memory
//! limit.

use allotment::Budget;
use allotment_agent::collect::synthetic::{SyntheticCharts, SyntheticShape, value};
use allotment_agent::memory::{MallocMemory, Memory, SlabStoreMemory};
use allotment_agent::store::{
    Chart, Dimensions, MAX_DIMENSIONS, MAX_NAME_BYTES, NewChart, Retention, RunPoints, Second,
    Store, StoreError, StoreWriter, Summary, Tier,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first second of an hour.
const HOUR: Second = 1_700_000_000 / 3600 * 3600;

fn store<M: Memory>(retention: Retention) -> (Arc<Store<M>>, StoreWriter<M>) {
    Store::new(Arc::new(M::new(None).unwrap()), retention)
}

fn new_chart(name: &str, context: &str, dimensions: usize) -> NewChart {
    NewChart {
        name: name.into(),
        context: context.into(),
        title: "A title".into(),
        units: "units".into(),
        dimensions: Arc::new(Dimensions::new((0..dimensions).map(|n| format!("dimension {n}")))),
    }
}

fn one_chart<M: Memory>(writer: &mut StoreWriter<M>, dimensions: usize) -> Arc<Chart<M>> {
    writer.add(vec![new_chart("chart", "context", dimensions)]).unwrap().remove(0)
}

/// Returns the points of a dimension by their seconds. Runs must not overlap.
fn values<M: Memory>(
    chart: &Chart<M>,
    dimension: usize,
    range: std::ops::Range<Second>,
) -> Vec<(Second, f32)> {
    let points = chart.read();
    let mut all = Vec::new();
    for run in points.runs(dimension, Tier::Second, range) {
        let RunPoints::Values(values) = run.points else { panic!("seconds have values") };
        assert_eq!(run.step, 1);
        all.extend((run.start..).zip(values.iter().copied()));
    }
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    all
}

fn summaries<M: Memory>(chart: &Chart<M>, dimension: usize, tier: Tier) -> Vec<(Second, Summary)> {
    let points = chart.read();
    let mut all = Vec::new();
    for run in points.runs(dimension, tier, 0..Second::MAX) {
        let RunPoints::Summaries(summaries) = run.points else { panic!("no summaries") };
        let seconds = (0..).map(|point| run.start + point * run.step);
        all.extend(seconds.zip(summaries.iter().copied()));
    }
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    all
}

/// A function of dimension and second whose values are exact in f32.
fn sample(dimension: usize, at: Second) -> f32 {
    ((at % 10_000 * 7 + dimension as u32 * 13) % 1000) as f32
}

fn samples(dimensions: usize, at: Second) -> Vec<f32> {
    (0..dimensions).map(|dimension| sample(dimension, at)).collect()
}

fn expected(dimension: usize, range: std::ops::Range<Second>) -> Summary {
    let mut summary = Summary::EMPTY;
    range.for_each(|at| summary.take(sample(dimension, at)));
    summary
}

fn what_was_appended_is_read_in_all_tiers<M: Memory>() {
    let (_, mut writer) = store::<M>(Retention::DEFAULT);
    let chart = one_chart(&mut writer, 5);
    // From the middle of an hour across two boundaries.
    let (from, to) = (HOUR - 1000, HOUR + 3600 + 130);
    for at in from..to {
        writer.append(&chart, at, &samples(5, at));
        writer.end_tick(at);
    }
    for dimension in 0..5 {
        let seconds = values(&chart, dimension, from..to);
        // Retention is a lower bound: no point of the last hour is missing.
        assert_eq!(seconds.last().unwrap().0, to - 1);
        assert!(seconds.len() >= 3600 && seconds.windows(2).all(|w| w[1].0 == w[0].0 + 1));
        assert!(seconds.iter().all(|(at, value)| *value == sample(dimension, *at)));

        let minutes = summaries(&chart, dimension, Tier::Minute);
        let first = from / 60 * 60;
        assert_eq!(minutes.len() as u32, (to / 60 * 60 - first) / 60);
        assert_eq!(minutes[0], (first, expected(dimension, from..first + 60)));
        for (start, minute) in &minutes[1..] {
            assert_eq!(*minute, expected(dimension, *start..start + 60));
        }

        let hours = summaries(&chart, dimension, Tier::Hour);
        let starts: Vec<_> = hours.iter().map(|(start, _)| *start).collect();
        assert_eq!(starts, [HOUR - 3600, HOUR]);
        // Sums of integers of this size are exact in f32.
        assert_eq!(hours[0].1, expected(dimension, from..HOUR));
        assert_eq!(hours[1].1, expected(dimension, HOUR..HOUR + 3600));
    }
    let points = chart.read();
    assert_eq!(points.span(Tier::Minute), Some(from / 60 * 60..to / 60 * 60));
    assert_eq!(points.span(Tier::Hour), Some(HOUR - 3600..HOUR + 3600));
    assert_eq!(points.span(Tier::Second).unwrap().end, to);
    assert_eq!(points.runs(5, Tier::Second, 0..Second::MAX).count(), 0, "there is no sixth");
}

#[test]
fn what_was_appended_is_read_in_all_tiers_from_slabs() {
    what_was_appended_is_read_in_all_tiers::<SlabStoreMemory>();
}

#[test]
fn what_was_appended_is_read_in_all_tiers_from_malloc() {
    what_was_appended_is_read_in_all_tiers::<MallocMemory>();
}

#[test]
fn a_range_cuts_where_it_says() {
    let (_, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let chart = one_chart(&mut writer, 3);
    for at in HOUR..HOUR + 3000 {
        writer.append(&chart, at, &samples(3, at));
    }
    for (from, to) in [(0, 1), (5, 5), (9, 2), (0, 3000), (1234, 1300), (2999, 3000), (2500, 9000)]
    {
        let seconds = values(&chart, 1, HOUR + from..HOUR + to);
        let expected: Vec<_> =
            (HOUR + from..HOUR + to.min(3000)).map(|at| (at, sample(1, at))).collect();
        assert_eq!(seconds, expected);
    }
    assert_eq!(values(&chart, 1, 0..Second::MAX).len(), 3000);
}

#[test]
fn what_is_too_old_goes_and_what_is_young_enough_stays() {
    let retention = Retention([2000, 3 * 3600, 48 * 3600]);
    let (store, mut writer) = store::<SlabStoreMemory>(retention);
    let chart = one_chart(&mut writer, 4);
    let end = HOUR + 4 * 86_400;
    for at in HOUR..end {
        writer.append(&chart, at, &samples(4, at));
    }
    let points = chart.read();
    for tier in Tier::ALL {
        let kept = end - points.span(tier).unwrap().start;
        let retained = retention.0[tier as usize];
        // A buffer is freed as a whole, and only when another one is full.
        let buffer = u32::from(tier.capacity()) * tier.step();
        assert!(
            kept >= retained && kept <= retained + 2 * buffer + tier.step(),
            "{tier:?}: {kept}"
        );
    }
    drop(points);
    let live: u64 = store.memory().buffer_statistics().iter().map(|one| one.live).sum();
    let buffers: u64 = store.statistics().tiers.iter().map(|held| held.buffers).sum();
    // Each full buffer has a node, and each dimension has one buffer that is not full.
    assert_eq!(live, buffers + (buffers - 3 * 4));
}

#[test]
fn missed_seconds_are_gaps_and_a_clock_that_goes_back_changes_nothing() {
    let (_, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let chart = one_chart(&mut writer, 2);
    let at = |second: u32| HOUR + second;
    for second in [0, 1, 2, 5, 6] {
        writer.append(&chart, at(second), &samples(2, at(second)));
    }
    writer.append(&chart, at(6), &[9.0, 9.0]);
    writer.append(&chart, at(3), &[9.0, 9.0]);
    let seconds = values(&chart, 0, at(0)..at(10));
    let known: Vec<_> =
        seconds.iter().filter(|(_, value)| !value.is_nan()).map(|one| one.0 - HOUR).collect();
    assert_eq!(known, [0, 1, 2, 5, 6]);
    // A missing value is a gap in the second, and left out of the minute.
    writer.append(&chart, at(7), &[f32::NAN, 1.0]);
    // Nothing for more than two hours, which is longer than a buffer.
    writer.append(&chart, at(9000), &samples(2, at(9000)));
    writer.append(&chart, at(9060), &samples(2, at(9060)));
    let minutes = summaries(&chart, 0, Tier::Minute);
    assert_eq!(minutes[0].1.count, 5);
    assert!(minutes[1..].iter().rev().skip(1).all(|(_, minute)| minute.count == 0));
    assert_eq!(minutes.last().unwrap(), &(at(9000), expected(0, at(9000)..at(9001))));
    assert_eq!(summaries(&chart, 0, Tier::Hour)[0].1.count, 5);
    assert_eq!(values(&chart, 0, at(9000)..at(9001)), [(at(9000), sample(0, at(9000)))]);
}

#[test]
fn charts_are_found_by_context_and_each_change_has_a_number() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    assert_eq!((store.generation(), store.structure().contexts().len()), (0, 0));
    writer.add(vec![new_chart("b", "net", 2), new_chart("a", "net", 1)]).unwrap();
    let before = store.structure();
    writer.add(vec![new_chart("c", "net", 1), new_chart("d", "cpu", 1)]).unwrap();
    let after = store.structure();
    assert_eq!((before.generation(), after.generation(), store.generation()), (1, 2, 2));
    assert_eq!(before.context("net").unwrap().charts().len(), 2, "it stays as it was");
    let names: Vec<_> = after.contexts().map(|context| context.name()).collect();
    assert_eq!(names, ["cpu", "net"]);
    let names = |context: &str| -> Vec<_> {
        let structure = store.structure();
        let charts = structure.context(context).into_iter().flat_map(|one| one.charts());
        charts.map(|chart| chart.name().to_owned()).collect()
    };
    assert_eq!(names("net"), ["b", "a", "c"]);
    assert!(after.context("disk").is_none());

    writer.remove(&["a", "d", "never was"]);
    assert_eq!((names("net"), names("cpu").len()), (vec!["b".to_owned(), "c".to_owned()], 0));
    assert_eq!(store.structure().contexts().len(), 1, "a context without charts goes");
    assert_eq!(store.generation(), 3);
    writer.add(vec![new_chart("a", "net", 1)]).unwrap();
}

#[test]
fn charts_that_are_removed_give_all_their_memory_back() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let charts =
        writer.add((0..20).map(|n| new_chart(&n.to_string(), "context", 9)).collect()).unwrap();
    for at in HOUR..HOUR + 4000 {
        charts.iter().for_each(|chart| writer.append(chart, at, &samples(9, at)));
        writer.end_tick(at);
    }
    let reading = store.structure();
    drop(charts);
    let names: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    writer.remove(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    let live = || store.memory().buffer_statistics().iter().map(|one| one.live).sum::<u64>();
    assert!(live() > 0, "a reader may still look");
    drop(reading);
    assert_eq!(live(), 0);
    store.memory().trim();
    let pages = |one: &allotment_agent::memory::BufferStatistics| one.held_bytes - one.live_bytes;
    // Only the slabs' own structures are left.
    assert!(store.memory().buffer_statistics().iter().map(pages).sum::<u64>() < 1 << 20);
}

#[test]
fn charts_without_sense_are_refused_and_none_of_their_call_is_added() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    writer.add(vec![new_chart("a", "context", 1)]).unwrap();
    let long = "n".repeat(MAX_NAME_BYTES + 1);
    let refused = [
        (new_chart("a", "context", 1), StoreError::Duplicate("a".into())),
        (new_chart("", "context", 1), StoreError::Name("".into())),
        (new_chart("b", "", 1), StoreError::Name("".into())),
        (new_chart(&long, "context", 1), StoreError::Name(long.as_str().into())),
        (new_chart("b", "context", 0), StoreError::Dimensions("b".into(), 0)),
        (
            new_chart("b", "context", MAX_DIMENSIONS + 1),
            StoreError::Dimensions("b".into(), MAX_DIMENSIONS + 1),
        ),
        (new_chart("fine", "context", 1), StoreError::Duplicate("fine".into())),
    ];
    for (chart, error) in refused {
        let all = vec![new_chart("fine", "context", 1), chart];
        assert_eq!(writer.add(all).unwrap_err(), error);
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(store.statistics().charts, 1);
    let most = [new_chart(&"n".repeat(MAX_NAME_BYTES), "context", MAX_DIMENSIONS)];
    writer.add(most.into()).unwrap();
}

/// 10,000 metrics across the end of an hour, in place of a million, and for long enough that old
/// buffers are freed.
#[test]
fn buffers_hold_little_more_than_what_is_filled_and_one_partly_filled_a_metric_and_tier() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention([600, 86_400, 86_400]));
    let shape = SyntheticShape::new(10_000, None, None).unwrap();
    let mut synthetic = SyntheticCharts::new(&mut writer, shape).unwrap();
    let start = HOUR + 3600 - 400;
    for at in start..start + 1800 {
        synthetic.collect(&mut writer, at);
        writer.end_tick(at);
        if at % 100 != 0 {
            continue;
        }
        let statistics = store.statistics();
        let mut allowed = 0;
        for tier in Tier::ALL {
            let held = statistics.tiers[tier as usize];
            assert_eq!(held.lost, 0);
            let bytes = tier.point_bytes() as u64;
            // Only buffers that are being filled have unused space: one for each metric and tier.
            allowed += held.points * bytes * 115 / 100 + (held.capacity - held.points) * bytes;
        }
        // The reserved buffers will be those of the next tiers.
        let ahead: u64 = 10_000 * (2048 + 384);
        let ahead = if statistics.tiers[2].buffers == 0 { ahead } else { 0 };
        // The slabs' structures and their last pages are held in any case.
        let few: u64 = 4 << 20;
        let buffers = store.memory().buffer_statistics();
        let held: u64 = buffers.iter().map(|one| one.held_bytes).sum();
        assert!(held <= allowed + ahead + few, "second {}: {held} of {allowed}", at - start);
    }
    let statistics = store.statistics();
    assert_eq!(statistics.metrics, 10_000);
    assert!(statistics.tiers[0].points < 10_000 * 1800, "old ones went");
    assert_eq!(statistics.tiers[2].points, 10_000);
}

#[test]
fn the_first_buffers_of_minutes_and_hours_are_there_before_the_boundary() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let mut synthetic =
        SyntheticCharts::new(&mut writer, SyntheticShape::new(30_000, None, None).unwrap())
            .unwrap();
    let boundary = HOUR + 3600;
    let buffers = || store.memory().buffer_statistics();
    let held = || buffers().iter().map(|one| one.held_bytes).sum::<u64>();
    let live = || buffers().iter().map(|one| one.live_bytes).sum::<u64>();
    for at in boundary - 59..boundary {
        synthetic.collect(&mut writer, at);
        writer.end_tick(at);
    }
    let (held_before, live_before) = (held(), live());
    synthetic.collect(&mut writer, boundary);
    let (held_more, live_more) = (held() - held_before, live() - live_before);
    assert!(live_more > 30_000 * 1024, "60,000 buffers are {live_more} bytes");
    // Thirty first buffers of seconds fill up in every second; their successors are allocated then.
    assert!(
        held_more < live_more / 20,
        "{held_more} of {live_more} bytes were taken at the boundary"
    );
    assert_eq!(store.statistics().tiers[1].buffers, 30_000);
    assert_eq!(store.statistics().tiers[2].buffers, 30_000);
}

#[test]
fn without_memory_the_oldest_points_go_and_the_newest_stay() {
    let budget = Budget::new(6 << 20);
    let memory = Arc::new(SlabStoreMemory::new(Some(&budget)).unwrap());
    let (store, mut writer) = Store::new(memory, Retention([u32::MAX / 2; 3]));
    let chart = one_chart(&mut writer, 300);
    let end = HOUR + 8000;
    for at in HOUR..end {
        writer.append(&chart, at, &samples(300, at));
        writer.end_tick(at);
    }
    assert!(budget.used() <= budget.limit());
    let held = store.statistics().tiers[0];
    assert!(held.lost > 0);
    for dimension in 0..300 {
        let last = values(&chart, dimension, end - 1..end);
        assert_eq!(last, [(end - 1, sample(dimension, end - 1))]);
        assert!(
            values(&chart, dimension, 0..Second::MAX)
                .iter()
                .all(|(at, value)| *value == sample(dimension, *at))
        );
    }
    // Refused charts are an error, and existing charts continue.
    let many = (0..1000).map(|n| new_chart(&format!("more {n}"), "more", 1000)).collect();
    assert!(matches!(writer.add(many), Err(StoreError::Memory(_))));
    writer.append(&chart, end, &samples(300, end));
    assert_eq!(values(&chart, 7, end..end + 1), [(end, sample(7, end))]);
}

/// A first buffer is smaller than a full-size one, so freeing it is not enough.
#[test]
fn without_memory_a_series_never_gives_up_its_newest_points_while_it_has_older_ones() {
    let budget = Budget::new(6 << 20);
    let memory = Arc::new(SlabStoreMemory::new(Some(&budget)).unwrap());
    let (_, mut writer) = Store::new(memory, Retention([u32::MAX / 2; 3]));
    let chart = one_chart(&mut writer, 300);
    let mut pieces = vec![Vec::new(); 300];
    for at in HOUR..HOUR + 8000 {
        writer.append(&chart, at, &samples(300, at));
        let points = chart.read();
        for (dimension, before) in pieces.iter_mut().enumerate() {
            let starts: Vec<_> =
                points.runs(dimension, Tier::Second, 0..Second::MAX).map(|run| run.start).collect();
            // A dimension that had several runs keeps the newest. A full run may become the last
            // but one.
            if let [_, .., newest] = before[..] {
                assert!(starts.contains(&newest), "{dimension} at {at}: {before:?}, {starts:?}");
            }
            *before = starts;
        }
    }
}

#[test]
fn the_first_minute_and_the_last_second_of_all_time_are_as_any_other() {
    let (_, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let chart = one_chart(&mut writer, 2);
    for at in 0..130 {
        writer.append(&chart, at, &samples(2, at));
    }
    let minutes = summaries(&chart, 1, Tier::Minute);
    assert_eq!(minutes, [(0, expected(1, 0..60)), (60, expected(1, 60..120))]);
    // A gap of all possible years, at the end of the range of seconds.
    let from = Second::MAX - 200;
    for at in from..=Second::MAX {
        writer.append(&chart, at, &samples(2, at));
        writer.end_tick(at);
    }
    // The largest second has no successor, so it is ignored.
    writer.append(&chart, Second::MAX, &samples(2, Second::MAX));
    let seconds = values(&chart, 0, from..Second::MAX);
    assert!(seconds.iter().map(|one| one.0).eq(from..Second::MAX));
    let minutes = summaries(&chart, 1, Tier::Minute);
    let last = (Second::MAX / 60 - 1) * 60;
    assert_eq!(*minutes.last().unwrap(), (last, expected(1, last..last + 60)));
    let points = chart.read();
    assert_eq!(points.span(Tier::Second).unwrap().end, Second::MAX);
}

#[test]
fn a_chart_that_was_removed_may_be_appended_to_and_nothing_is_reserved_for_it() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention::DEFAULT);
    let gone = one_chart(&mut writer, 5);
    writer.append(&gone, HOUR, &samples(5, HOUR));
    writer.remove(&["chart"]);
    let stays = writer.add(vec![new_chart("stays", "context", 5)]).unwrap().remove(0);
    for at in HOUR + 1..HOUR + 3700 {
        writer.append(&gone, at, &samples(5, at));
        writer.append(&stays, at, &samples(5, at));
        writer.end_tick(at);
    }
    assert_eq!(summaries(&stays, 0, Tier::Minute).len(), 61);
    assert_eq!(summaries(&gone, 0, Tier::Minute).len(), 61);
    assert_eq!(store.statistics().charts, 1);
}

#[test]
fn readers_see_whole_seconds_while_the_collector_goes_on() {
    let (store, mut writer) = store::<SlabStoreMemory>(Retention([1500, 7200, 86_400]));
    let mut synthetic =
        SyntheticCharts::new(&mut writer, SyntheticShape::new(2_000, None, None).unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3_usize {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut reads = 0_u64;
                while !stop.load(Ordering::Relaxed) || reads == 0 {
                    for (number, chart) in (0..).zip(store.structure().charts()) {
                        let points = chart.read();
                        let dimension = (reads as usize + reader) % 100;
                        let metric = number * 100 + dimension as u32;
                        for run in points.runs(dimension, Tier::Second, 0..Second::MAX) {
                            let RunPoints::Values(values) = run.points else { panic!() };
                            for (at, found) in (run.start..).zip(values) {
                                assert_eq!(*found, value(metric, at));
                            }
                        }
                        reads += 1;
                    }
                }
            });
        }
        for at in HOUR..HOUR + 4000 {
            synthetic.collect(&mut writer, at);
            writer.end_tick(at);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.newest(), HOUR + 3999);
}

#[test]
fn a_synthetic_shape_is_what_was_asked_for_or_refused() {
    for (metrics, charts, contexts) in [
        (0, None, None),
        (20_000_001, None, None),
        (5, Some(6), None),
        (5, Some(0), None),
        (50_000, Some(2), None),
        (5, Some(5), Some(6)),
        (5, Some(5), Some(0)),
    ] {
        let error = SyntheticShape::new(metrics, charts, contexts).unwrap_err();
        assert!(error.to_string().contains(&metrics.to_string()) || contexts.is_some());
    }
    let (store, mut writer) = store::<MallocMemory>(Retention::DEFAULT);
    SyntheticCharts::new(&mut writer, SyntheticShape::new(1003, Some(10), Some(3)).unwrap())
        .unwrap();
    let statistics = store.statistics();
    assert_eq!((statistics.metrics, statistics.charts, statistics.contexts), (1003, 10, 3));
    let structure = store.structure();
    let sizes: Vec<_> = structure.charts().map(|chart| chart.dimensions().len()).collect();
    assert!(
        sizes.iter().all(|size| (100..=101).contains(size)) && sizes.iter().sum::<usize>() == 1003
    );
}
