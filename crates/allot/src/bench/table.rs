//! Rows as tables for the eye.

use super::row::{OWN, Row};
use crate::failure::Failure;
use crate::output::{HEADING, NOTE, line, styled, wrapped};
use crate::table::{Line, Stand, figure, mebibytes, render, time};
use workloads::{Setting, Workload};

/// Prints a table for each setting of a workload.
pub fn print(workload: &Workload, rows: &[Row]) -> Result<(), Failure> {
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
    }
    Ok(())
}

/// What the columns mean, once for all tables.
pub fn legend(rows: &[&Row]) -> Result<(), Failure> {
    let mut text = format!(
        "Medians over the rounds, min and max beside them; » marks the fastest. ratio: time by that of \
         {OWN}, round by round: above 1 is slower. peak, end: resident MiB beyond the harness's own. \
         faults, calls: page faults and memory system calls (mmap, munmap, mremap, madvise, mprotect, \
         brk) a query or reply in the steady state, after each thread's first two."
    );
    if rows.iter().all(|row| row.mmap_calls.is_none()) {
        text += " No calls: tracing is not permitted here.";
    }
    line(styled(NOTE, wrapped(&text)))?;
    let mut told: Vec<&str> = Vec::new();
    for row in rows {
        if let Some(handicap) = row.handicap.as_deref()
            && !told.contains(&row.allocator)
        {
            line(wrapped(&format!("{} is not at its best here: {handicap}", row.allocator)))?;
            told.push(row.allocator);
        }
    }
    Ok(())
}

fn setting(row: &Row) -> Setting {
    Setting { threads: row.threads, callers: row.callers }
}

fn stand(row: &Row) -> Stand {
    match (row.best, row.allocator == OWN) {
        (true, _) => Stand::Best,
        (_, true) => Stand::Own,
        _ => Stand::Plain,
    }
}

fn speed(workload: &Workload, rows: &[Row]) -> String {
    let ns = format!("ns/{}", workload.unit);
    let head = ["allocator", &ns, "min", "max", "ratio", "peak", "end", "faults", "calls"];
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
                figure(row.faults_per_query),
                figure(row.mmap_calls_per_query),
            ];
            (stand(row), cells)
        })
        .collect();
    render(&head, &lines)
}

/// The seed's table, and the allocator's part of the time.
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
