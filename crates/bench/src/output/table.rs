//! Prints rows as tables.

use super::columns;
use crate::console::failure::Failure;
use crate::console::print::{HEADING, NOTE, line, styled, wrapped};
use crate::console::statistics::FEWEST_ROUNDS;
use crate::console::table::{Emphasis, Line, counted, figure, render};
use crate::runner::plan::Plan;
use crate::runner::row::Row;
use crate::workloads::measurement::{
    MMAP_CALLS, NS_PER_OP, QUERIES, RATIO_TO_BEST_PEER, RATIO_TO_REFERENCE, SYSTEM_CALLS,
};
use crate::workloads::{Column, Workload};

/// Prints a table for each setting of a workload.
pub fn print(plan: &Plan, rows: &[Row]) -> Result<(), Failure> {
    let workload = plan.workload;
    for rows in rows.chunk_by(|one, next| one.setting == next.setting) {
        let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
        let title = styled(HEADING, format!("{}, {}", workload.name, rows[0].setting));
        line(format!("{title} · {}", counted(rounds, "round")))?;
        line(styled(NOTE, workload.meaning))?;
        line("")?;
        for columns in [columns::times(workload, rows), columns::memory()] {
            line(table(columns::names(workload), &columns, rows))?;
            line("")?;
        }
        if let Some(details) = workload.details() {
            line(table(&details.names, &details.columns, rows))?;
            line("")?;
        }
        for text in beside_others(workload, rows) {
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

/// Lines that compare the project's own row with the fastest of its peers, and with the better
/// reference.
fn beside_others(workload: &Workload, rows: &[Row]) -> Vec<String> {
    let own = rows.iter().find(|row| row.build.is_none() && row.allocator == workload.own());
    let Some(own) = own else { return Vec::new() };
    let compared = |ratio, other: Option<&str>| {
        let ratio = own.measurement.ratio(ratio)?;
        let (median, with_interval) = columns::median_and_interval(&ratio);
        Some(format!("{} takes {median}x the time of {} ({with_interval}).", own.allocator, other?))
    };
    let others = [(&RATIO_TO_BEST_PEER, own.best_peer), (&RATIO_TO_REFERENCE, own.reference)];
    others.into_iter().filter_map(|(ratio, other)| compared(ratio, other)).collect()
}

/// Lines that compare the programs that search a file. Each program is a workload of its own.
pub fn programs(all: &[(&Workload, Vec<Row>)]) -> Result<(), Failure> {
    let mut programs: Vec<(&str, f64)> = all
        .iter()
        .filter(|(workload, _)| workload.measures(&SYSTEM_CALLS))
        .filter_map(|(workload, rows)| Some((workload.name, rows.first()?.get(&NS_PER_OP)?)))
        .collect();
    programs.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (index, (name, ns)) in programs.iter().enumerate().skip(1) {
        let times = programs[..index]
            .iter()
            .map(|(other, slower)| format!("{}x as fast as {other}", figure(Some(slower / ns))));
        line(format!("{name} is {}.", times.collect::<Vec<_>>().join(" and ")))?;
    }
    if programs.len() > 1 {
        let text =
            "These compare medians of rounds that were not interleaved, so they have no interval.";
        line(styled(NOTE, text))?;
        line("")?;
    }
    Ok(())
}

/// What the columns mean, once for all tables.
pub fn legend(rows: &[&Row]) -> Result<(), Failure> {
    let base = if rows.iter().any(|row| row.build.is_some()) {
        "the same row of the other build".to_owned()
    } else {
        let mut own: Vec<&str> = rows.iter().map(|row| row.own).collect();
        own.sort_unstable();
        own.dedup();
        own.join(" or ")
    };
    let mut text = format!(
        "Times are medians of the rounds, with minimum and maximum; » marks the fastest row. ratio: time \
         divided by that of {base}, the median of all rounds; above 1 is slower. The interval contains that \
         median with 95 % confidence. A row is ahead or behind if its whole interval is below or above 1, and \
         level if the interval contains 1; fewer than {FEWEST_ROUNDS} rounds have no interval. peak, end: \
         resident MiB \
         beyond the harness's own, at most and at the end. faults, calls: page faults and memory system \
         calls (mmap, munmap, mremap, madvise, mprotect, brk)"
    );
    let (with_tasks, without): (Vec<&&Row>, Vec<&&Row>) =
        rows.iter().partition(|row| row.get(&QUERIES).is_some());
    text += match (with_tasks.is_empty(), without.is_empty()) {
        (false, true) => {
            " per query, reply or request in the steady state, after each thread's first two (pool-request: \
             once its cache is full)."
        }
        (true, _) => {
            " of the measured part; calls are counted in a traced run that does less work."
        }
        (false, false) => {
            " per query, reply or request in the steady state, after each thread's first two (pool-request: \
             once its cache is full); for other work, \
             of the measured part, with calls counted in a traced run that does less work."
        }
    };
    if rows.iter().all(|row| row.get(&MMAP_CALLS).is_none()) {
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

fn emphasis(row: &Row) -> Emphasis {
    match (row.best, row.is_own()) {
        (true, _) => Emphasis::Best,
        (_, true) => Emphasis::Own,
        _ => Emphasis::Plain,
    }
}

/// A table of these columns. The time of a row that failed is `failed`.
fn table(names: &str, columns: &[Column], rows: &[Row]) -> String {
    let head: Vec<&str> =
        std::iter::once(names).chain(columns.iter().map(|one| one.heading.as_str())).collect();
    let lines: Vec<Line> = rows
        .iter()
        .map(|row| {
            let name = std::iter::once(row.name());
            let mut cells: Vec<String> = name.chain(columns::cells(columns, row)).collect();
            if row.error.is_some() {
                cells[1] = "failed".to_owned();
            }
            (emphasis(row), cells)
        })
        .collect();
    render(&head, &lines)
}
