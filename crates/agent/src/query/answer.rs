//! Answers a query from the store.

use super::buckets::Buckets;
use super::json::{JsonWriter, OutOfMemory};
use super::parameters::{Query, SeriesBy};
use super::virtual_chart::{ReplySeries, VirtualChart};
use crate::memory::Memory;
use crate::store::{Chart, ChartPoints, MetricContext, RunPoints, Second, Tier};
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use std::mem::ManuallyDrop;
use std::ops::Range;

/// Dimensions to read under one lock of a chart. The lock is then released once, so that the
/// collector does not wait for long.
const DIMENSIONS_PER_LOCK: usize = 8 * DIMENSIONS_PER_BATCH;
/// Dimensions whose buffers are prefetched together.
const DIMENSIONS_PER_BATCH: usize = 32;
const INITIAL_REPLY_BYTES: usize = 4096;

/// Returns the range of a query in the seconds that the store has.
fn range_of(query: &Query<'_>, newest: Second) -> Range<Second> {
    let clamp = |time: i64| time.clamp(0, i64::from(Second::MAX)) as Second;
    // A second that only some charts have is left to the next query.
    let end = clamp(query.before).min(newest.saturating_add(1));
    let start = clamp(query.after);
    start..end.max(start)
}

/// Returns the oldest point of each tier, or `None` where no chart has one.
fn oldest_points<M: Memory>(context: &MetricContext<M>) -> [Option<Second>; 3] {
    let mut oldest = [None; 3];
    for chart in context.charts() {
        let points = chart.read();
        for (oldest, tier) in oldest.iter_mut().zip(Tier::ALL) {
            let start = points.span(tier).map(|span| span.start);
            *oldest = match (*oldest, start) {
                (Some(one), Some(other)) => Some(Second::min(one, other)),
                (one, other) => one.or(other),
            };
        }
    }
    oldest
}

/// Chooses the tier of a query. The coarsest tier whose points are not farther apart than those of
/// the reply is preferred. If it does not reach back to the wanted time, a finer tier is taken (in
/// an agent that started lately), or else a coarser one (for old data).
fn choose_tier(oldest: [Option<Second>; 3], range: &Range<Second>, points: u32) -> Tier {
    let seconds_per_point = f64::from(range.end - range.start) / f64::from(points);
    let preferred =
        Tier::ALL.iter().rposition(|tier| f64::from(tier.step()) <= seconds_per_point).unwrap_or(0);
    let Some(first) = oldest.iter().flatten().min() else { return Tier::Second };
    let wanted = range.start.max(*first);
    let reaches_back = |tier: &usize| {
        let slack = Tier::ALL[*tier].step();
        oldest[*tier].is_some_and(|start| start <= wanted.saturating_add(slack))
    };
    let order = (0..=preferred).rev().chain(preferred + 1..Tier::ALL.len());
    order.clone().find(reaches_back).map_or(Tier::Second, |tier| Tier::ALL[tier])
}

/// Splits a range among tiers: the chosen tier, and finer tiers for what is too new for it.
fn pieces<M: Memory>(
    points: &ChartPoints<'_, M>,
    tier: Tier,
    range: &Range<Second>,
) -> impl Iterator<Item = (Tier, Range<Second>)> + use<M> {
    let mut from = range.start;
    let end = range.end;
    let mut pieces = [const { None }; 3];
    let finer = Tier::ALL[..=tier as usize].iter().rev();
    for (piece, tier) in pieces.iter_mut().zip(finer) {
        if let Some(span) = points.span(*tier) {
            let to = span.end.min(end);
            if to > from {
                *piece = Some((*tier, from..to));
                from = to;
            }
        }
    }
    pieces.into_iter().flatten()
}

/// Answers a query about a context. The virtual chart is allocated in `memory`, the JSON in
/// `reply`.
///
/// `FREED_TOGETHER` means that objects left in `memory` need not be freed one by one.
pub fn answer<M: Memory, A: Allocator + Copy, B: Allocator, const FREED_TOGETHER: bool>(
    context: &MetricContext<M>,
    query: &Query<'_>,
    newest: Second,
    memory: A,
    reply: B,
) -> Result<Vec<u8, B>, OutOfMemory> {
    let range = range_of(query, newest);
    let tier = choose_tier(oldest_points(context), &range, query.points);
    let whole = query.after..query.before;
    let mut work = ManuallyDrop::new(QueryState {
        buckets: Buckets::new(whole, query.points, memory)?,
        virtual_chart: VirtualChart::new(memory, query.group, query.by),
    });
    let filled = context.charts().iter().try_for_each(|chart| work.take(chart, tier, &range));
    let reply = filled.and_then(|()| render(context, query, tier, &work.virtual_chart, reply));
    if !FREED_TOGETHER {
        drop(ManuallyDrop::into_inner(work));
    }
    reply
}

/// The working data of a query.
struct QueryState<'s, A: Allocator + Copy> {
    buckets: Buckets<A>,
    virtual_chart: VirtualChart<'s, A>,
}

impl<'s, A: Allocator + Copy> QueryState<'s, A> {
    fn take<M: Memory>(
        &mut self,
        chart: &'s Chart<M>,
        tier: Tier,
        range: &Range<Second>,
    ) -> Result<(), OutOfMemory> {
        let mut points = chart.read();
        let mut names = chart.dimensions().names();
        let count = names.len();
        for first in (0..count).step_by(DIMENSIONS_PER_BATCH) {
            if first > 0 && first % DIMENSIONS_PER_LOCK == 0 {
                drop(points);
                points = chart.read();
            }
            let batch = first..count.min(first + DIMENSIONS_PER_BATCH);
            prefetch(&points, tier, range, batch.clone());
            for (index, name) in batch.zip(&mut names) {
                self.buckets.clear();
                for (tier, piece) in pieces(&points, tier, range) {
                    for run in points.runs(index, tier, piece) {
                        self.buckets.take(run);
                    }
                }
                self.virtual_chart.add(chart.name(), name, self.buckets.aggregates())?;
            }
        }
        Ok(())
    }
}

/// Prefetches the first point of each run of some dimensions. Each lies in a buffer of its own,
/// which is seldom in a cache. In one short loop the processor fetches many of them at the same
/// time; the work on one dimension after the other would wait for each.
#[inline]
fn prefetch<M: Memory>(
    points: &ChartPoints<'_, M>,
    tier: Tier,
    range: &Range<Second>,
    dimensions: Range<usize>,
) {
    let mut bits = 0;
    for (tier, piece) in pieces(points, tier, range) {
        for index in dimensions.clone() {
            for run in points.runs(index, tier, piece.clone()) {
                bits ^= match run.points {
                    RunPoints::Values(values) => values.first().map_or(0, |value| value.to_bits()),
                    RunPoints::Summaries(all) => all.first().map_or(0, |summary| summary.count),
                };
            }
        }
    }
    std::hint::black_box(bits);
}

fn render<M: Memory, A: Allocator + Copy, B: Allocator>(
    context: &MetricContext<M>,
    query: &Query<'_>,
    tier: Tier,
    virtual_chart: &VirtualChart<'_, A>,
    reply: B,
) -> Result<Vec<u8, B>, OutOfMemory> {
    let mut json = JsonWriter::new(reply, INITIAL_REPLY_BYTES)?;
    json.raw("{\"context\":")?;
    json.string(context.name())?;
    json.raw(",\"title\":")?;
    json.string(context.title())?;
    json.raw(",\"units\":")?;
    json.string(context.units())?;
    json.raw(",\"after\":")?;
    json.whole(query.after)?;
    json.raw(",\"before\":")?;
    json.whole(query.before)?;
    json.raw(",\"points\":")?;
    json.whole(query.points)?;
    json.raw(",\"group\":")?;
    json.string(query.group.as_str())?;
    json.raw(",\"by\":")?;
    json.string(query.by.as_str())?;
    json.raw(",\"resolution\":")?;
    json.whole(tier.step())?;
    json.raw(",\"charts\":")?;
    json.whole(context.charts().len() as u64)?;
    json.raw(",\"dimensions\":")?;
    json.whole(virtual_chart.dimensions().len() as u64)?;
    json.raw(",\"series\":[")?;
    for (index, series) in virtual_chart.series().iter().enumerate() {
        json.raw(if index == 0 { "\n" } else { ",\n" })?;
        one_series(&mut json, query.by, virtual_chart, series)?;
    }
    json.raw("\n]}\n")?;
    Ok(json.into_bytes())
}

fn one_series<A: Allocator + Copy, B: Allocator>(
    json: &mut JsonWriter<B>,
    by: SeriesBy,
    virtual_chart: &VirtualChart<'_, A>,
    series: &ReplySeries<A>,
) -> Result<(), OutOfMemory> {
    let first = series.members.first().map(|place| &virtual_chart.dimensions()[*place as usize]);
    let Some(first) = first else { return Ok(()) };
    // The bytes were copied from text.
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    json.raw("{\"name\":")?;
    json.string(text(&first.name))?;
    if by == SeriesBy::Dimension {
        json.raw(",\"id\":")?;
        json.string(text(&first.id))?;
    }
    json.raw(",\"dimensions\":")?;
    json.whole(series.members.len() as u64)?;
    let summary = series.summary;
    let known = |value: f64| if summary.count == 0 { f64::NAN } else { value };
    json.raw(",\"min\":")?;
    json.value(known(summary.min))?;
    json.raw(",\"max\":")?;
    json.value(known(summary.max))?;
    json.raw(",\"average\":")?;
    json.value(known(summary.sum / summary.count as f64))?;
    json.raw(",\"values\":[")?;
    for (index, value) in series.points.iter().enumerate() {
        if index > 0 {
            json.raw(",")?;
        }
        json.value(*value)?;
    }
    json.raw("]}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MallocMemory, SlabStoreMemory};
    use crate::store::{Dimensions, NewChart, Retention, Store, StoreWriter};
    use std::sync::Arc;

    const START: Second = 1_700_000_000;

    fn value(chart: usize, dimension: usize, second: Second) -> f32 {
        match (second - START) % 97 {
            96 => f32::NAN,
            step => (chart * 1000 + dimension * 100) as f32 + step as f32,
        }
    }

    /// A store with two charts of two dimensions each.
    fn store<M: Memory>(seconds: u32, retention: Retention) -> (Arc<Store<M>>, StoreWriter<M>) {
        let (store, mut writer) = Store::new(Arc::new(M::new(None).unwrap()), retention);
        let dimensions = Arc::new(Dimensions::new(["in", "out"]));
        let chart = |name: &str| NewChart {
            name: name.into(),
            context: "net".into(),
            title: "Traffic".into(),
            units: "kB/s".into(),
            dimensions: Arc::clone(&dimensions),
        };
        let charts = writer.add(vec![chart("net.a"), chart("net.b")]).unwrap();
        for second in START..START + seconds {
            for (index, chart) in charts.iter().enumerate() {
                writer.append(chart, second, &[value(index, 0, second), value(index, 1, second)]);
            }
            writer.end_tick(second);
        }
        (store, writer)
    }

    fn ask<M: Memory>(store: &Store<M>, query_string: &str) -> serde_json::Value {
        let newest = store.newest();
        let query = Query::parse(query_string, i64::from(newest) + 1, 10_000).unwrap();
        let structure = store.structure();
        let context = structure.context(&query.context).unwrap();
        let arena = allotment::Arena::new();
        let together =
            answer::<_, _, _, true>(context, &query, newest, &arena, MallocMemory).unwrap();
        let one_by_one =
            answer::<_, _, _, false>(context, &query, newest, MallocMemory, &arena).unwrap();
        assert_eq!(together.as_slice(), one_by_one.as_slice(), "{query_string}");
        serde_json::from_slice(&together).unwrap()
    }

    /// Returns the first series' values.
    fn values(reply: &serde_json::Value) -> std::vec::Vec<f64> {
        let values = reply["series"][0]["values"].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
    }

    #[test]
    fn seconds_are_answered_as_they_were_collected() {
        let (store, _writer) = store::<SlabStoreMemory>(2000, Retention::DEFAULT);
        for (group, by_hand) in [
            (
                "average",
                (|all: &[f64]| all.iter().sum::<f64>() / all.len() as f64) as fn(&[f64]) -> f64,
            ),
            ("sum", |all| all.iter().sum()),
            ("min", |all| all.iter().copied().fold(f64::INFINITY, f64::min)),
            ("max", |all| all.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ] {
            let reply = ask(
                &store,
                &format!("context=net&after=-1000&points=40&group={group}&by=dimension"),
            );
            assert_eq!((&reply["resolution"], &reply["dimensions"]), (&1.into(), &4.into()));
            assert_eq!(reply["series"][3]["id"], "net.b.out");
            let asked = values(&reply);
            assert_eq!(asked.len(), 40);
            for (point, asked) in asked.iter().enumerate() {
                let first = START + 1000 + point as u32 * 25;
                let known: std::vec::Vec<f64> = (first..first + 25)
                    .map(|second| f64::from(value(0, 0, second)))
                    .filter(|value| !value.is_nan())
                    .collect();
                assert!((asked - by_hand(&known)).abs() < 0.001, "{group} {point}: {asked}");
            }
        }
    }

    #[test]
    fn dimensions_of_one_name_are_added_up() {
        let (store, _writer) = store::<MallocMemory>(100, Retention::DEFAULT);
        let reply = ask(&store, "context=net&after=-10&points=10");
        assert_eq!(reply["series"].as_array().unwrap().len(), 2);
        assert_eq!(reply["series"][0]["name"], "in");
        let expected: std::vec::Vec<f64> = (90..100)
            .map(|second| f64::from(value(0, 0, START + second) + value(1, 0, START + second)))
            .collect();
        let both: std::vec::Vec<_> = values(&reply).into_iter().zip(expected).collect();
        assert!(
            both.iter().all(|(is, should)| is == should || (is.is_nan() && should.is_nan())),
            "{both:?}"
        );
    }

    #[test]
    fn a_long_range_is_answered_from_coarse_points_and_ends_with_fine_ones() {
        let (store, _writer) = store::<SlabStoreMemory>(3 * 3600, Retention::DEFAULT);
        let reply = ask(&store, "context=net&after=-7200&points=60&group=sum&by=dimension");
        assert_eq!(reply["resolution"], 60);
        let asked = values(&reply);
        let whole: f64 = (START + 3600..START + 3 * 3600)
            .map(|second| f64::from(value(0, 0, second)))
            .filter(|value| !value.is_nan())
            .sum();
        // The range may begin within a minute, whose point belongs to an earlier interval.
        let sum: f64 = asked.iter().sum();
        assert!(
            (sum - whole).abs() < 60.0 * 100.0 && asked.iter().all(|value| *value > 0.0),
            "{sum} {whole}"
        );
        // Minutes are kept when the seconds have been dropped.
        let old = ask(&store, "context=net&after=-1000&before=-9000&points=100&by=dimension");
        assert_eq!(old["resolution"], 60);
        assert!(old["series"][0]["max"].as_f64().unwrap() > 0.0);
        // Whole hours come from their tier, and the current hour from its minutes and seconds.
        let hours = ask(&store, "context=net&after=-10800&points=3&by=dimension");
        assert_eq!(hours["resolution"], 3600);
        assert!(values(&hours)[2] > 0.0);
    }

    #[test]
    fn an_agent_that_began_lately_answers_long_ranges_from_what_it_has() {
        let (store, _writer) = store::<SlabStoreMemory>(30, Retention::DEFAULT);
        let reply = ask(&store, "context=net&after=-86400&points=24&by=dimension");
        assert_eq!(reply["resolution"], 1);
        assert!(values(&reply)[23] > 0.0 && values(&reply)[22].is_nan());
    }

    #[test]
    fn an_interval_is_of_the_same_seconds_wherever_the_range_begins() {
        let (store, mut writer) = Store::<MallocMemory>::new(
            Arc::new(MallocMemory::new(None).unwrap()),
            Retention::DEFAULT,
        );
        let new = NewChart {
            name: "early".into(),
            context: "net".into(),
            title: "Traffic".into(),
            units: "kB/s".into(),
            dimensions: Arc::new(Dimensions::new(["in"])),
        };
        let chart = writer.add(vec![new]).unwrap().remove(0);
        for second in 1..=100 {
            writer.append(&chart, second, &[1.0]);
            writer.end_tick(second);
        }
        // The range begins a hundred seconds before the first second.
        let reply = ask(&store, "context=net&before=101&after=-200&points=2&group=sum");
        assert_eq!(reply["after"], -99);
        assert!(values(&reply)[0].is_nan() && values(&reply)[1] == 100.0, "{reply}");
    }

    #[test]
    fn a_range_without_points_is_answered_with_gaps() {
        let (store, _writer) = store::<SlabStoreMemory>(90, Retention::DEFAULT);
        for query in
            ["after=-1000&before=-900", "after=4102444800&before=4102444900", "after=1&before=2"]
        {
            let reply = ask(&store, &format!("context=net&points=1&{query}"));
            assert!(values(&reply)[0].is_nan() && reply["series"][0]["min"].is_null(), "{query}");
        }
    }

    #[test]
    fn a_request_whose_memory_is_used_up_says_so() {
        let (store, _writer) = store::<SlabStoreMemory>(3000, Retention::DEFAULT);
        let structure = store.structure();
        let query =
            Query::parse("context=net&after=-2000&points=1000", i64::from(store.newest()), 10_000)
                .unwrap();
        let budget = allotment::Budget::new(32 << 10);
        let builder = allotment::Arena::builder().budget(&budget);
        let arena = builder.on_refusal(allotment::OnRefusal::ReturnError).build();
        let context = structure.context("net").unwrap();
        let refused =
            answer::<_, _, _, true>(context, &query, store.newest(), &arena, MallocMemory);
        assert_eq!(refused.unwrap_err(), OutOfMemory);
    }

    #[test]
    fn the_tier_follows_resolution_then_reach() {
        let all = [Some(10_000), Some(5_000), Some(1_000)];
        assert_eq!(choose_tier(all, &(12_000..13_000), 100), Tier::Second);
        assert_eq!(choose_tier(all, &(12_000..18_000), 100), Tier::Minute);
        assert_eq!(choose_tier(all, &(8_000..9_000), 100), Tier::Minute);
        assert_eq!(choose_tier(all, &(2_000..3_000), 100), Tier::Hour);
        assert_eq!(choose_tier(all, &(0..3_600_000), 100), Tier::Hour);
        assert_eq!(
            choose_tier([Some(10_000), Some(10_020), None], &(0..360_000), 10),
            Tier::Minute
        );
        assert_eq!(choose_tier([None; 3], &(0..10), 10), Tier::Second);
    }
}
