//! The results of a replay, as text and as JSON.

use crate::analyse::findings::{Findings, ReplayRow, SiteGroup};
use crate::analyse::formatting;
use bench::console::print::{NOTE, styled, wrapped};
use bench::console::table::{self, Emphasis, Line, figure, grouped, mebibytes, time};
use serde_json::json;

/// The results as one JSON object.
pub fn json(findings: &Findings) -> serde_json::Value {
    let advice =
        findings.groups.iter().filter(|group| group.verdict.replayed.is_some()).map(
            |group| json!({ "group": group.id, "title": group.title, "verdict": group.verdict }),
        );
    json!({
        "program": findings.program,
        "replay": findings.replay,
        "advice": advice.collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

/// The table, and a sentence on each advice.
pub fn table(findings: &Findings) -> String {
    let Some(replay) = &findings.replay else { return String::new() };
    let head = ["", "CPU time", "of glibc's", "saves", "peak MiB", "of glibc's", "faults"];
    let best = replay.rows.iter().skip(1).min_by_key(|row| row.time_ns).map(|row| &row.name);
    let line = |row: &ReplayRow| -> Line {
        let emphasis = match best {
            Some(best) if *best == row.name => Emphasis::Best,
            _ if !row.groups.is_empty() => Emphasis::Own,
            _ => Emphasis::Plain,
        };
        let ms = |ns: u64| time(Some(ns as f64 / 1e6));
        let cells = vec![
            row.name.clone(),
            ms(row.time_ns),
            figure(row.time_ratio),
            row.gain.map_or_else(|| "-".to_owned(), |gain| format!("{:.1} %", gain * 100.0)),
            mebibytes(row.peak_resident),
            figure(row.memory_ratio),
            row.minor_faults.map_or_else(|| "-".to_owned(), grouped),
        ];
        (emphasis, cells)
    };
    let lines: Vec<Line> = replay.rows.iter().map(line).collect();
    let mut text = format!(
        "{}: {} allocations and frees of {}, {} (±{:.1} %)\n\n{}\n{}\n",
        formatting::command(&findings.program.command),
        grouped(replay.steps),
        match replay.threads {
            1 => "one thread".to_owned(),
            threads => format!("{} threads", grouped(threads.into())),
        },
        match replay.rounds {
            1 => "one round".to_owned(),
            rounds => format!("{rounds} rounds"),
        },
        replay.noise * 100.0,
        table::render(&head, &lines),
        styled(NOTE, SAVES)
    );
    for failure in &replay.failed {
        text += &format!("\n{} failed: {}\n", failure.name, failure.reason);
    }
    let judged = findings.groups.iter().filter(|group| group.verdict.replayed.is_some());
    for group in judged.take(MOST_GROUPS) {
        text += "\n";
        text += &wrapped(&sentence(group));
        text += "\n";
    }
    // A single plan has its sentence above.
    if let Some(together) = replay.together.as_ref().filter(|together| together.groups.len() > 1) {
        let what = format!("All {} confirmed changes", together.groups.len());
        text += "\n";
        text += &wrapped(&format!("{what}: {}.", together.reason));
        text += "\n";
    }
    if let Some(better) = &replay.better_malloc {
        text += "\n";
        text += &wrapped(&format!("Without changing the code: {}.", better.reason));
        text += "\n";
    }
    if let Some(faster) = &replay.faster_malloc {
        let drawback = faster.drawback.as_deref().unwrap_or("it has a drawback");
        text += "\n";
        text += &wrapped(&format!("{}, but {drawback}.", faster.reason));
        text += "\n";
    }
    match replay.faithful {
        Some(true) => {
            text += "\nCheck passed: with glibc and every plan, live bytes equal the recording's after every step, and no blocks overlap.\n";
        }
        Some(false) => text += "\nCheck failed: the replay does not do what was recorded.\n",
        None => {}
    }
    for note in &findings.notes {
        text += "\n";
        text += &styled(NOTE, wrapped(&note.text));
        text += "\n";
    }
    text
}

/// The legend of the table.
const SAVES: &str = "saves: share of the program's CPU time, compared with glibc. null: no allocator, only the replay itself. A change of the program may save more than null: the replay has neither the cache misses on its blocks nor walks that only free.";

/// The most groups whose advice is printed; JSON has all.
const MOST_GROUPS: usize = 16;

fn sentence(group: &SiteGroup) -> String {
    let reason = group.verdict.replayed.as_ref().map_or("", |outcome| &*outcome.reason);
    let most = match group.verdict.gain {
        Some(gain) if gain.ceiling_measured => {
            format!(" (these blocks cost {:.1} % in all)", gain.ceiling * 100.0)
        }
        _ => String::new(),
    };
    format!("Group {}, {}: {reason}{most}.", group.id, group.title)
}
