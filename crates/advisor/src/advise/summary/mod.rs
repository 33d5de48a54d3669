//! The summary on one screen: the [answer] first, then the evidence for it, then what puts it in
//! doubt.

mod answer;
mod measured;

use super::other_processes::OtherProcesses;
use super::terminal_text::one_line;
use crate::analyse::findings::Findings;
use crate::analyse::formatting;
use answer::{
    COLUMNS, code, has_advice, is_confirmed, malloc_line, ranked, rows, system, verdict, why,
    withdrawn,
};
use bench::console::print::{BEST, HEADING, NOTE, WIDTH, styled, wrapped};

/// The most lines of a summary.
pub const LINES: usize = 24;
/// The most warnings that are shown.
const WARNINGS: usize = 2;
/// A run with less CPU time than this is mostly the program's start.
const SHORT_NS: u64 = 20_000_000;

/// Why a change may save more than what allocating and freeing takes. A replay has neither.
const BEYOND_COST: &str = "; better locality, and walks that only free, may add to a saving.";

/// What the summary shows besides the findings.
#[derive(Debug, Default)]
pub struct SummaryFacts {
    /// The report's file, or the error that prevented it. `None`: no report was wanted.
    pub report: Option<Result<String, String>>,
    /// The recording's file, if it is kept.
    pub recording: Option<String>,
    pub others: OtherProcesses,
}

/// Lines that belong together. Where the screen is full, parts with the greatest `dispensable` are
/// left out first; parts with 0 stay. An empty line separates chapters.
struct SummaryPart {
    lines: Vec<String>,
    chapter: u8,
    dispensable: u8,
}

/// The whole text, at most [`LINES`] lines of at most [`WIDTH`] characters.
pub fn summary(findings: &Findings, facts: &SummaryFacts) -> String {
    let mut parts = Vec::new();
    let mut part = |chapter: u8, dispensable: u8, text: String| {
        if !text.is_empty() {
            let lines = text.lines().map(str::to_owned).collect();
            parts.push(SummaryPart { lines, chapter, dispensable });
        }
    };
    let replay = findings.replay.as_ref();
    let malloc = replay.and_then(|replay| replay.better_malloc.as_ref());
    let ranked = ranked(findings);
    part(0, 0, title(findings));
    part(0, 0, verdict(findings, &ranked, malloc));
    part(1, 0, head(findings));
    part(1, 0, rows(findings, &ranked));
    if !ranked.is_empty() {
        part(1, 5, styled(NOTE, COLUMNS));
    }
    if let Some(first) =
        ranked.first().filter(|group| is_confirmed(group) || group.verdict.candidate)
    {
        part(1, 3, why(first, findings));
        part(1, 4, code(first, findings));
    } else if let Some(first) = ranked.first() {
        part(1, 3, withdrawn(first));
    }
    if let Some(measured) = &findings.measured {
        part(2, 0, measured::table(measured));
        part(2, 1, measured::advice(measured, findings));
    } else {
        let faster = replay.and_then(|replay| replay.faster_malloc.as_ref());
        part(2, 1, malloc_line(malloc, faster, findings));
    }
    for text in system(findings) {
        part(2, 2, text);
    }
    for note in findings.notes.iter().filter(|note| note.warning).take(WARNINGS) {
        part(3, 1, paragraph("Warning", &note.text));
    }
    if let Some(heap) = &findings.program.own_heap
        && has_advice(&ranked, malloc)
    {
        part(3, 1, paragraph("Not recorded", &format!("{}. {}", heap.reason, heap.remedy)));
    }
    for text in doubts(findings) {
        part(3, 1, wrapped(&text));
    }
    if let Some(others) = facts.others.sentence(facts.recording.as_deref()) {
        // Without it, the figures may be taken for those of another process.
        part(3, u8::from(findings.measured.is_some()), wrapped(&others));
    }
    if !ranked.is_empty() {
        for note in findings.notes.iter().filter(|note| note.text.contains("debug symbols")) {
            let text =
                format!("{} (packages like NAME-dbgsym or NAME-debuginfo).", capital(&note.text));
            part(3, 5, styled(NOTE, wrapped(&text)));
        }
    }
    part(3, 0, files(facts));
    fitted(parts)
}

/// Joins the parts, without the most dispensable ones until the rest fits on the screen.
fn fitted(mut parts: Vec<SummaryPart>) -> String {
    loop {
        let mut chapters: Vec<u8> = parts.iter().map(|part| part.chapter).collect();
        chapters.dedup();
        let lines: usize = parts.iter().map(|part| part.lines.len()).sum();
        let Some(least) = parts.iter().map(|part| part.dispensable).max() else { break };
        if lines + chapters.len() <= LINES || least == 0 {
            break;
        }
        if let Some(at) = parts.iter().rposition(|part| part.dispensable == least) {
            parts.remove(at);
        }
    }
    let mut text = String::new();
    let mut chapter = None;
    for part in parts {
        if chapter.is_some_and(|chapter| chapter != part.chapter) {
            text.push('\n');
        }
        chapter = Some(part.chapter);
        for line in part.lines {
            text += &line;
            text.push('\n');
        }
    }
    text
}

/// The program's command.
fn title(findings: &Findings) -> String {
    styled(HEADING, one_line(&formatting::command(&findings.program.command), WIDTH))
}

/// How the program ran, and what its allocations take.
fn head(findings: &Findings) -> String {
    let program = &findings.program;
    let mut text = match program.exit.as_deref() {
        None | Some("0") => "Ran for".to_owned(),
        Some(exit) => match exit.strip_prefix("signal ") {
            Some(signal) => format!("Was ended by {} after", signal_name(signal)),
            None => format!("Ended with exit code {exit} after"),
        },
    };
    text += &format!(" {}", formatting::time(program.wall_ns));
    if let Some(ns) = program.bare_cpu_ns {
        // Threads that don't allocate aren't in the recording.
        let others = if ns > program.wall_ns { " in all its threads and children" } else { "" };
        let time = formatting::time(ns);
        text += &if program.bare_measured {
            format!(" with {time} of CPU time{others}, measured without the recorder")
        } else {
            format!(" with about {time} of CPU time{others}, the recorder's share taken off")
        };
    }
    text += &match program.threads {
        0 | 1 => ".".to_owned(),
        threads => format!("; {} threads allocate.", formatting::count(threads.into())),
    };
    if program.allocations == 0 {
        return wrapped(&text);
    }
    let share = match (replayed_share(findings), program.allocator_share) {
        (Some(share), _) => {
            format!(" Allocating and freeing takes {} of the CPU time{BEYOND_COST}", about(share))
        }
        (None, Some(share)) => {
            format!(" Allocating and freeing takes {} of the CPU time.", about(share))
        }
        (None, None) => String::new(),
    };
    let spent = format!(
        "{} allocations of {} in all; live memory peaked at {}.{share}",
        formatting::count(program.allocations),
        formatting::bytes(program.bytes),
        formatting::bytes(program.peak_live_bytes),
    );
    format!("{}\n{}", wrapped(&text), wrapped(&spent))
}

/// The share of the CPU time that allocating and freeing takes, as the replay measured it. `None`
/// without a replayed plan: the summary then uses the share that the recorder sampled, as the
/// verdict "leave it" does.
fn replayed_share(findings: &Findings) -> Option<f64> {
    let replay = findings.replay.as_ref()?;
    let has_plans = replay.rows.iter().any(|row| !row.groups.is_empty());
    replay.ceiling.filter(|_| has_plans).map(|share| share.min(1.0))
}

/// `about 3.1 %`, `less than 0.1 %`.
fn about(share: f64) -> String {
    let text = formatting::percent(share);
    if text.starts_with("less") { text } else { format!("about {text}") }
}

/// `SIGSEGV (a crash)`.
fn signal_name(number: &str) -> String {
    use nix::sys::signal::Signal;
    let signal = number.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    match signal {
        Some(Signal::SIGINT) => "Ctrl-C".to_owned(),
        Some(
            signal @ (Signal::SIGSEGV
            | Signal::SIGBUS
            | Signal::SIGILL
            | Signal::SIGFPE
            | Signal::SIGABRT
            | Signal::SIGTRAP
            | Signal::SIGSYS),
        ) => format!("{} (a crash)", signal.as_str()),
        Some(signal) => signal.as_str().to_owned(),
        None => format!("signal {number}"),
    }
}

/// Sentences that say why the figures are rough.
fn doubts(findings: &Findings) -> Vec<String> {
    let program = &findings.program;
    let mut doubts = Vec::new();
    let Some(bare) = program.bare_cpu_ns else { return doubts };
    if bare < SHORT_NS {
        doubts.push(format!(
            "It took {} of CPU time, which is mostly its start. Give it more work to get reliable figures.",
            formatting::time(bare)
        ));
    } else if !program.bare_measured && program.cpu_ns.is_some_and(|cpu| cpu > 2 * bare) {
        doubts.push(
            "The recorder took more than half of the measured CPU time, so all percentages are rough. Run again with --against-bare, which also measures the program without the recorder."
                .to_owned(),
        );
    }
    doubts
}

fn files(facts: &SummaryFacts) -> String {
    let mut text = match &facts.report {
        Some(Ok(report)) => format!("Report: {report} (open it in a browser)."),
        Some(Err(why)) => {
            format!("The report was not written: {why}; choose a file with --report.")
        }
        None => String::new(),
    };
    if let Some(recording) = &facts.recording {
        text += if text.is_empty() { "" } else { " " };
        text += &format!("Recording: {recording}.");
    }
    wrapped(&text)
}

fn found(head: &str, text: &str) -> String {
    in_style(BEST, head, &wrapped(&format!("{head}{text}")))
}

fn paragraph(head: &str, text: &str) -> String {
    in_style(HEADING, head, &wrapped(&format!("{head}: {text}")))
}

/// Puts the style in after the lines were broken, so that its characters are not counted.
fn in_style(style: clap::builder::styling::Style, head: &str, text: &str) -> String {
    text.replacen(head, &styled(style, head), 1)
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn full_stop(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}
