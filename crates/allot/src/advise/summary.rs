//! What a user wants to know, on one screen.

use super::processes::Others;
use super::words::{counted, one_line};
use crate::analyse::findings::{Allocator, BetterMalloc, Category, Findings, Group, ReplayRow};
use crate::analyse::{table::advice, words};
use crate::output::{BEST, HEADING, NOTE, WIDTH, styled, wrapped};
use crate::table::{Line, Stand, figure, render};

/// The most lines that it has.
pub const LINES: usize = 24;
/// Rows of the table, and of its columns the first.
const ROWS: usize = 5;
const WHERE: usize = 36;
/// What its columns are.
const COLUMNS: &str = "   saves, at most: of the program's CPU time; replayed: time over glibc's, peak memory against it";
/// Lines of code that are shown.
const CODE: usize = 4;
/// Warnings, and advice of each other kind, that are told.
const WARNINGS: usize = 2;
const ADVICE: usize = 2;
/// Characters of an advice, where it has several sentences.
const SENTENCES: usize = 2 * WIDTH - 40;
/// Below so much CPU time a run is mostly its start.
const SHORT_NS: u64 = 20_000_000;
/// Less than this share of the CPU time isn't worth a line.
const LEAST_GAIN: f64 = 0.01;

/// What is told besides what was found.
#[derive(Debug, Default)]
pub struct Facts {
    /// Where the report is, or why there is none.
    pub report: Option<Result<String, String>>,
    /// The recording, where it is kept.
    pub recording: Option<String>,
    pub others: Others,
}

/// Lines that belong together, and how much they matter: those of the greatest number go first where there is no room.
struct Part {
    lines: Vec<String>,
    chapter: u8,
    dispensable: u8,
}

/// The whole text, at most [`LINES`] lines of at most [`WIDTH`] characters.
pub fn summary(findings: &Findings, facts: &Facts) -> String {
    let mut parts = Vec::new();
    let mut part = |chapter: u8, dispensable: u8, text: String| {
        if !text.is_empty() {
            let lines = text.lines().map(str::to_owned).collect();
            parts.push(Part { lines, chapter, dispensable });
        }
    };
    let replay = findings.replay.as_ref();
    let malloc = replay.and_then(|replay| replay.better_malloc.as_ref());
    let ranked = ranked(findings);
    part(0, 0, head(findings));
    part(1, 0, verdict(findings, &ranked, malloc));
    part(1, 0, rows(findings, &ranked, ROWS.min(ranked.len())));
    if !ranked.is_empty() {
        part(1, 5, styled(NOTE, COLUMNS));
    }
    if let Some(first) =
        ranked.first().filter(|group| is_confirmed(group) || group.verdict.candidate)
    {
        part(1, 3, why(first));
        part(1, 4, code(first, findings));
    } else if let Some(first) = ranked.first() {
        part(1, 3, withdrawn(first));
    }
    if let Some(malloc) = malloc {
        part(2, 1, malloc_line(malloc, findings));
    }
    for text in system(findings) {
        part(2, 2, text);
    }
    for note in findings.notes.iter().filter(|note| note.warning).take(WARNINGS) {
        part(3, 1, paragraph("Warning", &note.text));
    }
    for text in doubts(findings) {
        part(3, 1, wrapped(&text));
    }
    if let Some(others) = facts.others.sentence(facts.recording.as_deref()) {
        part(3, 2, wrapped(&others));
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

/// Leaves out what matters least until it fits.
fn fitted(mut parts: Vec<Part>) -> String {
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

fn head(findings: &Findings) -> String {
    let program = &findings.program;
    let command = one_line(&program.command.join(" "), WIDTH);
    let mut text = match program.exit.as_deref() {
        None | Some("0") => "Ran".to_owned(),
        Some(exit) => match exit.strip_prefix("signal ") {
            Some(signal) => format!("Was ended by {} after", signal_name(signal)),
            None => format!("Ended with exit code {exit} after"),
        },
    };
    text += &format!(" {}", words::time(program.wall_ns));
    if let Some(ns) = program.bare_cpu_ns {
        text += &if program.bare_measured {
            format!(", with {} of CPU time, measured without the recorder", words::time(ns))
        } else {
            format!(", with about {} of CPU time of its own", words::time(ns))
        };
    }
    text += &match program.threads {
        0 | 1 => ".".to_owned(),
        threads => format!("; {} threads allocate.", words::count(threads.into())),
    };
    if program.allocations == 0 {
        return format!("{}\n{}", styled(HEADING, command), wrapped(&text));
    }
    let share = match (replayed_share(findings), program.allocator_share) {
        (Some(share), _) => {
            format!(" They take {} of the CPU time: no allocator can save more.", about(share))
        }
        (None, Some(share)) => format!(" They take {} of the CPU time.", about(share)),
        (None, None) => String::new(),
    };
    let spent = format!(
        "{} allocations of {} in all, at most {} live at once.{share}",
        words::count(program.allocations),
        words::bytes(program.bytes),
        words::bytes(program.peak_live_bytes),
    );
    format!("{}\n{}\n{}", styled(HEADING, command), wrapped(&text), wrapped(&spent))
}

/// What all allocating takes by the replay. That goes with the figures of its plans, and is better than what the run's few samples
/// say; where there was no plan, what is said of leaving it as it is goes by those.
fn replayed_share(findings: &Findings) -> Option<f64> {
    let replay = findings.replay.as_ref()?;
    let has_plans = replay.rows.iter().any(|row| !row.groups.is_empty());
    replay.ceiling.filter(|_| has_plans).map(|share| share.min(1.0))
}

/// `about 3.1 %`, `less than 0.1 %`.
fn about(share: f64) -> String {
    let text = words::percent(share);
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

/// The replay has confirmed it, and no malloc gives as much.
fn is_confirmed(group: &Group) -> bool {
    is_change(group)
        && group.verdict.category != Category::BetterMalloc
        && group.verdict.replayed.as_ref().is_some_and(|outcome| outcome.confirmed)
}

/// It is about one of our allocators.
fn is_change(group: &Group) -> bool {
    group.verdict.category != Category::LeaveIt && group.verdict.allocator != Allocator::None
}

fn share(group: &Group) -> f64 {
    group.verdict.gain.map_or(0.0, |gain| gain.share)
}

/// The groups for which a change was thought of: confirmed, then candidates, then those that a malloc serves as well or that
/// were not replayed, then withdrawn; each by gain.
fn ranked(findings: &Findings) -> Vec<&Group> {
    let rank = |group: &Group| match &group.verdict.replayed {
        _ if is_confirmed(group) => u8::from(group.verdict.candidate),
        Some(outcome) if !outcome.confirmed => 3,
        _ => 2,
    };
    let mut groups: Vec<&Group> = findings.groups.iter().filter(|group| is_change(group)).collect();
    groups.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| share(b).total_cmp(&share(a))));
    groups
}

/// What is said where nothing is advised.
const NO_HELP: &str = "No allocator would help";

/// The one sentence that a user takes home.
fn verdict(findings: &Findings, ranked: &[&Group], malloc: Option<&BetterMalloc>) -> String {
    let confirmed: Vec<&&Group> =
        ranked.iter().filter(|group| is_confirmed(group) && !group.verdict.candidate).collect();
    let candidates =
        ranked.iter().filter(|group| is_confirmed(group) && group.verdict.candidate).count();
    let suffices = findings.groups.iter().any(|group| {
        group.verdict.category == Category::BetterMalloc
            && group.verdict.replayed.as_ref().is_some_and(|outcome| outcome.confirmed)
    });
    if !confirmed.is_empty() {
        let gain = match confirmed.as_slice() {
            [one] => one.verdict.gain.map(|gain| gain.share),
            _ => findings.replay.as_ref().and_then(|replay| replay.together.as_ref()?.gain),
        };
        let gain = gain.map_or_else(String::new, |gain| {
            let together = if confirmed.len() > 1 { "together " } else { "" };
            format!(": {together}{} of its CPU time", about(gain))
        });
        let head = counted(confirmed.len(), "change is worth it", "changes are worth it");
        return found(&head, &format!(", confirmed by replaying what was recorded{gain}."));
    }
    if let (true, Some(malloc)) = (suffices, malloc) {
        let head = "Change the malloc, not the program";
        return found(
            head,
            &format!(": {} gives as much as any change of the code would.", malloc.name),
        );
    }
    if findings.program.allocations == 0 {
        let text = "it allocated nothing, as far as can be seen.";
        return paragraph(NO_HELP, text);
    }
    if candidates > 0 {
        let head = counted(candidates, "candidate", "candidates");
        let whom = if candidates > 1 { "them" } else { "it" };
        return found(
            &head,
            &format!(
                ", which only you can confirm: that nobody writes to {whom} can't be recorded."
            ),
        );
    }
    if ranked.is_empty() {
        return paragraph(NO_HELP, &leave(findings));
    }
    if ranked.iter().all(|group| group.verdict.replayed.is_none()) {
        return paragraph("Not proved", "what follows is estimated, and was not replayed.");
    }
    paragraph(NO_HELP, "what looked promising was replayed on other allocators, and did not hold.")
}

/// Why nothing is advised.
fn leave(findings: &Findings) -> String {
    match replayed_share(findings).or(findings.program.allocator_share) {
        Some(share) if share < 2.0 * LEAST_GAIN => format!(
            "allocating and freeing takes {} of its CPU time, too little for any allocator to matter.",
            words::percent(share)
        ),
        Some(_) => match findings.groups.first() {
            Some(group) => format!(
                "nothing would save 1 % of its CPU time. The most there is: {}, {}.",
                group.title, group.verdict.reason
            ),
            None => "nothing would save 1 % of its CPU time.".to_owned(),
        },
        None => "its CPU time isn't known, so nothing can be said to be worth a change.".to_owned(),
    }
}

fn rows(findings: &Findings, ranked: &[&Group], most: usize) -> String {
    if ranked.is_empty() {
        return String::new();
    }
    let text = table(findings, ranked, most, WHERE);
    let plain = anstream::adapter::strip_str(&text).to_string();
    let width = plain.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    // Names give way to figures.
    match width.saturating_sub(WIDTH) {
        0 => text,
        excess => table(findings, ranked, most, WHERE.saturating_sub(excess).max(1)),
    }
}

/// The table, with so many characters for a name.
fn table(findings: &Findings, ranked: &[&Group], most: usize, name: usize) -> String {
    let line = |group: &&Group| -> Line {
        let outcome = group.verdict.replayed.as_ref();
        let (stand, said) = match outcome {
            _ if is_confirmed(group) && group.verdict.candidate => (Stand::Own, "costs nothing"),
            _ if is_confirmed(group) => (Stand::Best, "confirmed"),
            Some(outcome) if outcome.confirmed => (Stand::Plain, "a malloc does it"),
            Some(_) => (Stand::Plain, "withdrawn"),
            None => (Stand::Plain, "not replayed"),
        };
        let gain = |share: fn(&crate::analyse::findings::Gain) -> f64| {
            let text = group
                .verdict
                .gain
                .as_ref()
                .map_or_else(|| "-".to_owned(), |gain| words::percent(share(gain)));
            if text.starts_with("less") { "<0.1 %".to_owned() } else { text }
        };
        let cells = vec![
            one_line(&group.title, name),
            advice(group),
            words::count(group.behaviour.count),
            if group.verdict.candidate { "-".to_owned() } else { gain(|gain| gain.share) },
            gain(|gain| gain.ceiling),
            figure(outcome.and_then(|outcome| outcome.time_ratio)),
            memory(findings, group.id),
            said.to_owned(),
        ];
        (stand, cells)
    };
    let lines: Vec<Line> = ranked.iter().take(most).map(line).collect();
    let heads = ["where", "advice", "blocks", "saves", "at most", "time", "memory", "replayed"];
    let mut text = render(&heads, &lines);
    if ranked.len() > most {
        text += &format!(
            "\n{}",
            styled(NOTE, format!("   and {} more in the report", ranked.len() - most))
        );
    }
    text
}

/// The peak of a group's plan against glibc's. Their ratio says nothing where glibc's is a few pages.
fn memory(findings: &Findings, group: u32) -> String {
    let peak = |is: &dyn Fn(&&ReplayRow) -> bool| {
        findings.replay.as_ref()?.rows.iter().find(is)?.peak_resident
    };
    let own = peak(&|row| row.groups == [group]);
    let glibc = peak(&|row| row.name == "glibc");
    let (Some(own), Some(glibc)) = (own, glibc) else { return "-".to_owned() };
    let mebibytes = (own as f64 - glibc as f64) / f64::from(1 << 20);
    if mebibytes.abs() < 0.05 { "same".to_owned() } else { format!("{mebibytes:+.1} MiB") }
}

fn why(group: &Group) -> String {
    paragraph(
        &format!("{}, {}", one_line(&group.title, WHERE), advice(group)),
        &format!("{}.", group.verdict.reason),
    )
}

fn withdrawn(group: &Group) -> String {
    let Some(outcome) = group.verdict.replayed.as_ref().filter(|outcome| !outcome.confirmed) else {
        return String::new();
    };
    paragraph(&one_line(&group.title, WHERE), &format!("{}.", outcome.reason))
}

/// The first lines to change, in the language that the place is written in.
fn code(group: &Group, findings: &Findings) -> String {
    let site = group.sites.first().and_then(|site| findings.sites.get(*site as usize));
    let is_rust = site.is_some_and(|site| {
        site.frames
            .iter()
            .filter_map(|frame| frame.file.as_deref())
            .any(|file| file.ends_with(".rs"))
    });
    let code = if is_rust { &group.verdict.change.rust } else { &group.verdict.change.c };
    // The first line names the place, which was just named.
    let lines = code.lines().skip(1).take(CODE);
    lines.map(|line| format!("    {}", one_line(line, WIDTH - 4))).collect::<Vec<_>>().join("\n")
}

fn malloc_line(malloc: &BetterMalloc, findings: &Findings) -> String {
    let mut text = "replayed, it takes".to_owned();
    text +=
        &malloc.time_ratio.map_or_else(String::new, |time| format!(" {time:.2} of glibc's time"));
    text += &malloc
        .memory_ratio
        .map_or_else(String::new, |memory| format!(" and {memory:.2} of its memory"));
    text += &malloc.gain.map_or_else(String::new, |gain| {
        format!(", which saves {} of the program's CPU time", words::percent(gain))
    });
    let program = findings.program.command.first().map_or("PROGRAM", |program| program);
    text += &match library(&malloc.name) {
        Some(library) => format!(". LD_PRELOAD={library} {} …", one_line(program, WHERE)),
        None => ".".to_owned(),
    };
    paragraph(&format!("{}, without any change of the code", malloc.name), &text)
}

/// The name of a malloc's shared library.
fn library(malloc: &str) -> Option<&'static str> {
    Some(match malloc {
        "jemalloc" => "libjemalloc.so.2",
        "mimalloc" => "libmimalloc.so.2",
        "snmalloc" => "libsnmallocshim.so",
        "tcmalloc" => "libtcmalloc_minimal.so.4",
        _ => return None,
    })
}

/// System calls and locks.
fn system(findings: &Findings) -> Vec<String> {
    let mut texts = Vec::new();
    for advice in findings.system.advice.iter().take(ADVICE) {
        let head = if advice.title.is_empty() {
            "System calls".to_owned()
        } else {
            capital(&advice.title)
        };
        texts.push(paragraph(&head, &first_sentences(&advice.advice)));
    }
    let lock = findings.locks.iter().find_map(|lock| Some((lock, lock.advice.as_deref()?)));
    if let Some((lock, advice)) = lock {
        let place = lock.frames.iter().find(|frame| !frame.wrapper);
        let place = place
            .map_or_else(String::new, |frame| format!(" in {}", one_line(&frame.function, WHERE)));
        texts.push(paragraph(&format!("Lock{place}"), &first_sentences(advice)));
    }
    if texts.is_empty() {
        let system = &findings.system;
        let text = match (&system.not_counted, system.total_calls) {
            (Some(why), _) => {
                format!("Locks: nothing worth a change. System calls were not counted: {why}.")
            }
            (None, Some(calls)) => format!(
                "Nothing to gain from {} system calls, nor from locks.",
                words::count(calls)
            ),
            (None, None) => "Nothing to gain from system calls or locks.".to_owned(),
        };
        texts.push(styled(NOTE, wrapped(&text)));
    }
    texts
}

/// As many sentences as fit in two lines, but one at least.
fn first_sentences(text: &str) -> String {
    let mut fitting = 0;
    for (at, _) in text.match_indices(". ") {
        if fitting == 0 || text[..=at].chars().count() <= SENTENCES {
            fitting = at + 1;
        }
    }
    if fitting == 0 || text.chars().count() <= SENTENCES {
        return full_stop(text);
    }
    text[..fitting].to_owned()
}

/// Why the figures are rough.
fn doubts(findings: &Findings) -> Vec<String> {
    let program = &findings.program;
    let mut doubts = Vec::new();
    let Some(bare) = program.bare_cpu_ns else { return doubts };
    if bare < SHORT_NS {
        doubts.push(format!(
            "It took {} of CPU time, which is mostly its start. Give it more work for advice to go by.",
            words::time(bare)
        ));
    } else if !program.bare_measured && program.cpu_ns.is_some_and(|cpu| cpu > 2 * bare) {
        doubts.push(
            "More than half of what was measured was the recorder's, so the shares of CPU time are rough: --against-bare measures them."
                .to_owned(),
        );
    }
    doubts
}

fn files(facts: &Facts) -> String {
    let mut text = match &facts.report {
        Some(Ok(report)) => format!("Report: {report}, for a browser."),
        Some(Err(why)) => format!("The report was not written: {why}."),
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

/// Styles are put in when the lines are broken, so that they are not counted.
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
