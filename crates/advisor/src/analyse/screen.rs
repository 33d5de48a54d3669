//! The findings on one screen.

use super::findings::{AdvisedAllocator, Findings, ObjectCategory, SiteGroup};
use super::formatting;
use super::verdict_rules::LEAST_ALLOCATOR_SHARE;
use bench::console::print::{HEADING, NOTE, WIDTH, styled, wrapped};
use bench::console::table::{Emphasis, Line, render};

/// The most characters of a name in the table.
const NAME: usize = 25;
/// The most groups whose reasons are printed.
const REASONS: usize = 3;
/// The most notes that are printed.
const NOTES: usize = 4;

/// The advice in a few words; a question mark follows a candidate, which needs a proof.
pub fn advice(group: &SiteGroup) -> String {
    let verdict = &group.verdict;
    let allocator = match verdict.allocator {
        AdvisedAllocator::Arena if verdict.without_reset => "arena, no reset",
        AdvisedAllocator::Arena => "arena",
        AdvisedAllocator::Reap => "reap",
        AdvisedAllocator::FreeList => "free list",
        AdvisedAllocator::Pool => "pool",
        AdvisedAllocator::Slab => "slab",
        AdvisedAllocator::Sealed => "sealed",
        AdvisedAllocator::None if verdict.category == ObjectCategory::BetterMalloc => {
            "a better malloc"
        }
        AdvisedAllocator::None => "leave it",
    };
    if verdict.candidate { format!("{allocator}?") } else { allocator.to_owned() }
}

/// The whole text.
pub fn text(findings: &Findings, rows: usize) -> String {
    let mut text = heading(findings);
    let advised =
        findings.groups.iter().filter(|group| group.verdict.category != ObjectCategory::LeaveIt);
    if findings.groups.is_empty() {
        text += "\n";
    } else {
        let lines: Vec<Line> = findings.groups.iter().take(rows).map(line).collect();
        let headings =
            ["where", "sites", "allocations", "size", "peak live", "own", "drag", "gain", "advice"];
        text += "\n";
        text += &render(&headings, &lines);
        text += "\n";
        if findings.groups.len() > rows {
            let more = findings.groups.len() - rows;
            text += &format!(
                "{}\n",
                styled(NOTE, format!("   and {more} more (see --rows and --json)"))
            );
        }
    }
    for group in advised.take(REASONS) {
        let verdict = &group.verdict;
        text += "\n";
        text += &paragraph(&format!("{}: {}", group.title, advice(group)), &verdict.reason);
        for refused in &verdict.refused {
            let why = format!("not {}: {}", name(refused.allocator), refused.reason);
            text += &format!("{}\n", styled(NOTE, wrapped(&why)));
        }
    }
    let refused =
        findings.groups.iter().all(|group| group.verdict.category == ObjectCategory::LeaveIt);
    if let (true, Some(first)) = (refused, findings.groups.first()) {
        text += "\n";
        let little =
            findings.program.allocator_share.is_some_and(|share| share < LEAST_ALLOCATOR_SHARE);
        let whose = if little { String::new() } else { format!("{}: ", first.title) };
        text += &paragraph("Leave it as it is", &format!("{whose}{}", first.verdict.reason));
    }
    text += &advice_beside_memory(findings);
    text += "\n";
    for note in findings.notes.iter().take(NOTES) {
        let word = if note.warning { "warning: " } else { "" };
        text += &format!("{}\n", styled(NOTE, wrapped(&format!("{word}{}", note.text))));
    }
    let program = &findings.program;
    let costs = match (program.allocation_ns, program.free_ns) {
        (Some(allocation), Some(free)) if program.allocator_measured => format!(
            "the time of malloc and free in this run ({allocation:.0} and {free:.0} ns on average)"
        ),
        _ if program.allocator_measured => "the time of malloc in this run".to_owned(),
        _ => "the usual time of malloc and free".to_owned(),
    };
    let hint = format!(
        "gain: share of the program's CPU time, estimated from {costs}; `allot replay` tests it. own: share of the frees by the allocating thread. drag: bytes that an arena would hold, divided by live bytes (1.0 wastes nothing)."
    );
    text += &styled(NOTE, wrapped(&hint));
    text
}

/// The advice on system calls and locks, if there is any.
fn advice_beside_memory(findings: &Findings) -> String {
    let mut text = String::new();
    for advice in &findings.system.advice {
        text += "\n";
        text += &paragraph(&advice.title, &advice.advice);
    }
    let locks = findings.locks.iter().filter_map(|lock| Some((lock, lock.advice.as_ref()?)));
    for (lock, advice) in locks.take(REASONS) {
        let place = lock.frames.iter().find(|frame| !frame.wrapper);
        let heading =
            place.map_or_else(|| "lock".to_owned(), |place| format!("lock in {}", place.function));
        text += "\n";
        text += &paragraph(&heading, advice);
    }
    text
}

fn paragraph(heading: &str, text: &str) -> String {
    let line = wrapped(&format!("{heading}: {text}"));
    // The style is put in after the lines were broken, so that its characters are not counted.
    format!("{}\n", line.replacen(heading, &styled(HEADING, heading), 1))
}

fn heading(findings: &Findings) -> String {
    let program = &findings.program;
    let mut command = formatting::command(&program.command);
    if command.chars().count() > WIDTH {
        command = command.chars().take(WIDTH - 1).chain(['…']).collect();
    }
    let cpu = program.bare_cpu_ns.map_or_else(String::new, |ns| {
        let about = if program.bare_measured { "" } else { "about " };
        format!("{about}{} of CPU time, ", formatting::time(ns))
    });
    let share = program.allocator_share.map_or_else(String::new, |share| {
        format!(", which take {} of the CPU time", formatting::about(share))
    });
    let facts = format!(
        "{cpu}{}, {} of {}{share}; peak of live memory: {} in {}; {} by realloc; {} never freed.",
        formatting::counted(program.threads.into(), "thread"),
        formatting::counted(program.allocations, "allocation"),
        formatting::bytes(program.bytes),
        formatting::bytes(program.peak_live_bytes),
        formatting::counted(program.peak_live_objects, "block"),
        formatting::percent(program.realloc_share),
        formatting::counted(program.live_at_end, "block"),
    );
    let mut text = format!("{}\n{}\n", styled(HEADING, command), wrapped(&facts));
    if let Some(overlaps) = &findings.overlaps {
        text += &format!(
            "{} checked: {} {} a live one.\n",
            formatting::counted(overlaps.checked, "block"),
            formatting::count(overlaps.found),
            if overlaps.found == 1 { "overlaps" } else { "overlap" },
        );
    }
    text
}

fn line(group: &SiteGroup) -> Line {
    let behaviour = &group.behaviour;
    let size = if behaviour.dominant_share >= 0.9 {
        behaviour.dominant_size.to_string()
    } else {
        format!("{}..{}", behaviour.least_size, short(behaviour.most_size))
    };
    let gain =
        group.verdict.gain.map_or_else(|| "-".to_owned(), |gain| formatting::percent(gain.share));
    let gain = if gain.starts_with("less") { "<0.1 %".to_owned() } else { gain };
    let emphasis = if group.verdict.category == ObjectCategory::LeaveIt {
        Emphasis::Plain
    } else {
        Emphasis::Own
    };
    let cells = vec![
        shortened(&group.title),
        group.sites.len().to_string(),
        formatting::count(behaviour.count),
        size,
        formatting::bytes(behaviour.peak_live_bytes),
        formatting::percent(behaviour.same_thread_share),
        formatting::number(behaviour.drag),
        gain,
        advice(group),
    ];
    (emphasis, cells)
}

/// A size in few characters.
fn short(size: u64) -> String {
    match size {
        0..100_000 => size.to_string(),
        100_000..10_000_000 => format!("{}K", size >> 10),
        _ => format!("{}M", size >> 20),
    }
}

fn shortened(title: &str) -> String {
    if title.chars().count() <= NAME {
        title.to_owned()
    } else {
        title.chars().take(NAME - 1).chain(['…']).collect()
    }
}

/// An allocator with its article.
pub fn name(allocator: AdvisedAllocator) -> &'static str {
    match allocator {
        AdvisedAllocator::Arena => "an arena",
        AdvisedAllocator::Reap => "a reap",
        AdvisedAllocator::FreeList => "a free list",
        AdvisedAllocator::Pool => "a pool",
        AdvisedAllocator::Slab => "a slab",
        AdvisedAllocator::Sealed => "a sealed object",
        AdvisedAllocator::None => "an allocator of this project",
    }
}
