//! Prints rows as tables.

use super::details::Details;
use crate::console::failure::Failure;
use crate::console::print::{HEADING, NOTE, line, styled, wrapped};
use crate::console::table::{Line, Stand, figure, mebibytes, render, time};
use crate::runner::measurement::Row;
use crate::runner::plan::Plan;
use crate::workloads::{Setting, Workload};

/// Prints a table for each setting of a workload.
pub fn print(plan: &Plan, rows: &[Row]) -> Result<(), Failure> {
    let workload = plan.workload;
    for rows in rows.chunk_by(|one, next| setting(one) == setting(next)) {
        let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
        let rounds = format!("{rounds} round{}", if rounds == 1 { "" } else { "s" });
        let title = styled(HEADING, format!("{}, {}", workload.name, setting(&rows[0])));
        line(format!("{title} · {rounds}"))?;
        line(styled(NOTE, workload.meaning))?;
        line("")?;
        line(speed(workload, rows))?;
        line("")?;
        if rows[0].callers.is_some() {
            line(responses(rows))?;
            line("")?;
        }
        if let Some(details) = Details::of(workload) {
            let head: Vec<&str> = details.head.iter().map(String::as_str).collect();
            let lines = rows.iter().map(|row| {
                let name = std::iter::once(row.allocator.to_owned());
                (stand(row), name.chain(details.cells(row)).collect())
            });
            line(render(&head, &lines.collect::<Vec<Line>>()))?;
            line("")?;
        }
        if let Some(text) = beside_the_best_peer(workload, rows) {
            line(text)?;
            line("")?;
        }
    }
    if !plan.left_out.is_empty() {
        let text = format!("Left out of {}: {}.", workload.name, plan.left_out.join("; "));
        line(styled(NOTE, wrapped(&text)))?;
        line("")?;
    }
    Ok(())
}

/// A line that compares the project's own row with the fastest of its peers.
fn beside_the_best_peer(workload: &Workload, rows: &[Row]) -> Option<String> {
    let own = rows.iter().find(|row| row.allocator == workload.own())?;
    let ratio = own.ratio_to_best_peer?;
    Some(format!("{} takes {ratio:.2}x the time of {}.", own.allocator, own.best_peer?))
}

/// Lines that compare the programs that search a file. Each program is a workload of its own.
pub fn programs(all: &[(&Workload, Vec<Row>)]) -> Result<(), Failure> {
    let mut programs: Vec<(&str, f64)> = all
        .iter()
        .filter(|(workload, _)| workload.counts_all_calls())
        .filter_map(|(workload, rows)| Some((workload.name, rows.first()?.ns_per_op?)))
        .collect();
    programs.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (index, (name, ns)) in programs.iter().enumerate().skip(1) {
        let times = programs[..index]
            .iter()
            .map(|(other, slower)| format!("{}x as fast as {other}", figure(Some(slower / ns))));
        line(format!("{name} is {}.", times.collect::<Vec<_>>().join(" and ")))?;
    }
    if programs.len() > 1 { line("") } else { Ok(()) }
}

/// What the columns mean, once for all tables.
pub fn legend(rows: &[&Row]) -> Result<(), Failure> {
    let mut own: Vec<&str> = rows.iter().map(|row| row.own).collect();
    own.sort_unstable();
    own.dedup();
    let mut text = format!(
        "Times are medians of the rounds, with minimum and maximum; » marks the fastest row. ratio: time \
         divided by that of {}, the median of all rounds; above 1 is slower. peak, end: resident MiB \
         beyond the harness's own, at most and at the end. faults, calls: page faults and memory system \
         calls (mmap, munmap, mremap, madvise, mprotect, brk)",
        own.join(" or ")
    );
    let (with_tasks, without): (Vec<&&Row>, Vec<&&Row>) =
        rows.iter().partition(|row| row.queries.is_some());
    text += match (with_tasks.is_empty(), without.is_empty()) {
        (false, true) => {
            " per query, reply or request in the steady state, after each thread's first two."
        }
        (true, _) => {
            " of the measured part; calls are counted in a traced run that does less work."
        }
        (false, false) => {
            " per query, reply or request in the steady state, after each thread's first two; for other work, \
             of the measured part, with calls counted in a traced run that does less work."
        }
    };
    if rows.iter().all(|row| row.mmap_calls.is_none()) {
        text += " No calls were counted: tracing is not permitted here, or there was no time left for it.";
    }
    line(styled(NOTE, wrapped(&text)))?;
    let mut told: Vec<&str> = Vec::new();
    for row in rows {
        if let Some(handicap) = row.handicap.as_deref()
            && !told.contains(&row.allocator)
        {
            line(wrapped(&format!("{} does not run at its best here: {handicap}", row.allocator)))?;
            told.push(row.allocator);
        }
    }
    Ok(())
}

fn setting(row: &Row) -> Setting {
    Setting { threads: row.threads, callers: row.callers }
}

/// The heading of the column with the names of a workload's rows.
pub fn rows_are(workload: &Workload) -> &'static str {
    if workload.variants().is_empty() { "allocator" } else { "variant" }
}

fn stand(row: &Row) -> Stand {
    match (row.best, row.allocator == row.own) {
        (true, _) => Stand::Best,
        (_, true) => Stand::Own,
        _ => Stand::Plain,
    }
}

fn speed(workload: &Workload, rows: &[Row]) -> String {
    let ns = format!("ns/{}", workload.unit);
    let head = [rows_are(workload), &ns, "min", "max", "ratio", "peak", "end", "faults", "calls"];
    let lines: Vec<Line> = rows
        .iter()
        .map(|row| {
            let cells = vec![
                row.allocator.to_owned(),
                row.error.as_ref().map_or_else(|| figure(row.ns_per_op), |_| "failed".to_owned()),
                figure(row.ns_per_op_min),
                figure(row.ns_per_op_max),
                row.ratio_to_own.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                mebibytes(row.peak_net()),
                mebibytes(row.end_net()),
                figure(row.faults()),
                figure(row.calls()),
            ];
            (stand(row), cells)
        })
        .collect();
    render(&head, &lines)
}

/// Transactions and response times, and the part of the time spent in the allocator.
fn responses(rows: &[Row]) -> String {
    let head =
        ["allocator", "transactions", "time", "rate", "avg response", "min", "max", "in allocator"];
    let lines: Vec<Line> = rows
        .iter()
        .map(|row| {
            let cells = vec![
                row.allocator.to_owned(),
                row.queries.map_or_else(|| "-".to_owned(), |queries| queries.to_string()),
                time(row.seconds.map(|seconds| seconds * 1e3)),
                row.queries_per_second
                    .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s")),
                time(row.response_ms_avg),
                time(row.response_ms_min),
                time(row.response_ms_max),
                row.alloc_share
                    .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            ];
            (stand(row), cells)
        })
        .collect();
    render(&head, &lines)
}
