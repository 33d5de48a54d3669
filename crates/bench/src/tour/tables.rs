//! The tour's tables.

use super::{ARENA, AllocatorRounds, MALLOC};
use crate::console::failure::Failure;
use crate::console::print::{HEADING, line, styled};
use crate::console::statistics::{Ratio, RatioVerdict, median};
use crate::console::table::{Emphasis, Line, grouped, render, time};
use crate::workloads::query::store::Store;
use serde::Serialize;

/// One context of this machine's counters.
#[derive(Debug, Clone, Serialize)]
pub struct MachineFigure {
    part: &'static str,
    context: String,
    charts: usize,
    dimensions: u64,
    series: u64,
    queries: usize,
    malloc_ms: Option<f64>,
    arena_ms: Option<f64>,
    /// The arena's time divided by malloc's, the median of the rounds.
    ratio: Option<f64>,
    /// The 95 % interval of `ratio`.
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    /// `ahead`, `behind` or `level`.
    ratio_verdict: Option<&'static str>,
}

/// One allocator at full size: a row of the sequential or the parallel table.
#[derive(Debug, Clone, Serialize)]
pub struct FullSizeFigure {
    part: &'static str,
    allocator: &'static str,
    policy: &'static str,
    rounds: usize,
    transactions: Option<usize>,
    seconds: Option<f64>,
    transactions_per_second: Option<f64>,
    response_ms_avg: Option<f64>,
    response_ms_min: Option<f64>,
    response_ms_max: Option<f64>,
    best: bool,
}

/// The figures of each context.
pub fn machine(store: &Store, entries: &[AllocatorRounds]) -> Vec<MachineFigure> {
    let of = |name: &str| entries.iter().find(|entry| entry.about.name == name);
    let (malloc, arena) = (of(MALLOC), of(ARENA));
    let contexts = store.contexts().into_iter().enumerate();
    contexts
        .filter_map(|(index, context)| {
            let times = |entry: Option<&AllocatorRounds>| {
                entry.map(|entry| entry.each(index, |report| report.responses.average_ms))
            };
            let middle = |times: &Option<Vec<Option<f64>>>| {
                times.as_ref().and_then(|times| median(times.iter().flatten().copied()))
            };
            let any = malloc.or(arena)?.any(index).or_else(|| arena?.any(index))?;
            let (malloc, arena) = (times(malloc), times(arena));
            let both = arena.as_ref().zip(malloc.as_ref());
            let ratio = both.and_then(|(arena, malloc)| Ratio::of_rounds(arena, malloc));
            let interval = ratio.and_then(|ratio| ratio.interval);
            Some(MachineFigure {
                part: "machine",
                context: context.to_owned(),
                charts: store.of_context(context).count(),
                dimensions: any.dimensions,
                series: any.series,
                queries: any.queries,
                malloc_ms: middle(&malloc),
                arena_ms: middle(&arena),
                ratio: ratio.map(|ratio| ratio.median),
                ratio_low: interval.map(|interval| interval.low),
                ratio_high: interval.map(|interval| interval.high),
                ratio_verdict: ratio.and_then(|ratio| ratio.verdict()).map(RatioVerdict::word),
            })
        })
        .collect()
}

/// Prints the figures of each context.
pub fn print_machine(
    store: &Store,
    samples: u32,
    figures: &[MachineFigure],
) -> Result<(), Failure> {
    let title = styled(HEADING, "This machine");
    if store.charts.is_empty() {
        line(format!("{title}: nothing can be read from /proc."))?;
        return line("");
    }
    line(format!(
        "{title}: {} charts with {} dimensions, read from /proc {samples} times",
        grouped(store.charts.len() as u64),
        grouped(store.dimensions() as u64),
    ))?;
    line("")?;
    let head = [
        "context",
        "charts",
        "dimensions",
        "series",
        "malloc",
        "arena",
        "saves",
        "95 % interval",
        "verdict",
    ];
    let lines: Vec<Line> = figures
        .iter()
        .map(|figure| {
            let percent = |ratio: f64| (1.0 - ratio) * 100.0;
            let saves = figure.ratio.map(|ratio| format!("{:.0} %", percent(ratio)));
            let ends = figure.ratio_low.zip(figure.ratio_high);
            let interval =
                ends.map(|(low, high)| format!("{:.0} to {:.0} %", percent(high), percent(low)));
            let dash = || "-".to_owned();
            let cells = vec![
                figure.context.clone(),
                grouped(figure.charts as u64),
                grouped(figure.dimensions),
                grouped(figure.series),
                time(figure.malloc_ms),
                time(figure.arena_ms),
                saves.unwrap_or_else(dash),
                interval.unwrap_or_else(dash),
                figure.ratio_verdict.map_or_else(dash, str::to_owned),
            ];
            (Emphasis::Plain, cells)
        })
        .collect();
    line(render(&head, &lines))?;
    line("")
}

/// The figures of each allocator.
pub fn full_size(part: &'static str, entries: &[AllocatorRounds]) -> Vec<FullSizeFigure> {
    let mut figures: Vec<FullSizeFigure> = entries
        .iter()
        .map(|entry| {
            let middle = |of| median(entry.each(0, of).into_iter().flatten());
            let transactions = entry.any(0).map(|report| report.queries);
            let seconds = middle(|report| report.wall_seconds);
            FullSizeFigure {
                part,
                allocator: entry.about.name,
                policy: entry.about.policy,
                rounds: entry.rounds.iter().flatten().count(),
                transactions,
                seconds,
                transactions_per_second: transactions
                    .zip(seconds)
                    .map(|(transactions, seconds)| transactions as f64 / seconds),
                response_ms_avg: middle(|report| report.responses.average_ms),
                response_ms_min: middle(|report| report.responses.min_ms),
                response_ms_max: middle(|report| report.responses.max_ms),
                best: false,
            }
        })
        .collect();
    let least = figures.iter().filter_map(|figure| figure.seconds).min_by(f64::total_cmp);
    for figure in &mut figures {
        figure.best = least.is_some() && figure.seconds == least;
    }
    figures
}

/// Prints the sequential or the parallel table.
pub fn print_full_size(title: &str, figures: &[FullSizeFigure]) -> Result<(), Failure> {
    line(title)?;
    line("")?;
    let head =
        ["allocator", "transactions", "time to complete", "rate", "average response", "min", "max"];
    let lines: Vec<Line> = figures
        .iter()
        .map(|figure| {
            let dash = || "-".to_owned();
            let cells = vec![
                figure.allocator.to_owned(),
                figure.transactions.map_or_else(dash, |count| count.to_string()),
                time(figure.seconds.map(|seconds| seconds * 1e3)),
                figure.transactions_per_second.map_or_else(dash, |rate| format!("{rate:.1}/s")),
                time(figure.response_ms_avg),
                time(figure.response_ms_min),
                time(figure.response_ms_max),
            ];
            let emphasis = match (figure.best, figure.allocator == ARENA) {
                (true, _) => Emphasis::Best,
                (_, true) => Emphasis::Own,
                _ => Emphasis::Plain,
            };
            (emphasis, cells)
        })
        .collect();
    line(render(&head, &lines))?;
    line("")
}
