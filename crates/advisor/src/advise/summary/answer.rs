//! The answer in one sentence, and its evidence: the advised changes with their results in the
//! replay, other mallocs, system calls and locks.

use super::measured::saving;
use super::{about, capital, found, full_stop, paragraph, replayed_share};
use crate::advise::terminal_text::one_line;
use crate::analyse::findings::{
    AdvisedAllocator, Findings, Gain, MallocAdvice, MeasuredFindings, ObjectCategory,
    ReplayFindings, ReplayRow, SiteGroup, StackFrame,
};
use crate::analyse::formatting;
use crate::analyse::screen::{advice, name as name_of};
use crate::replay::POOL_FOR_EVERYTHING;
use bench::console::print::{NOTE, WIDTH, styled, wrapped};
use bench::console::table::{Emphasis, Line, figure, render};

/// The legend of the table's columns.
pub const COLUMNS: &str = "   saves: share of CPU time; cost: of the blocks now; time, memory: of the replay, against glibc's";
/// The table's rows, and the characters of its first column.
const ROWS: usize = 5;
const WHERE: usize = 36;
/// The most lines of code that are shown.
const CODE: usize = 4;
/// The most pieces of advice about system calls that are shown.
const ADVICE: usize = 2;
/// The most characters of an advice that has several sentences.
const SENTENCES: usize = 2 * WIDTH - 40;
/// Below this share of the CPU time, no allocator matters.
const LEAST_GAIN: f64 = 0.01;

/// Whether the replay confirmed the change, and no other malloc saves as much.
pub fn is_confirmed(group: &SiteGroup) -> bool {
    is_change(group)
        && group.verdict.category != ObjectCategory::BetterMalloc
        && group.verdict.replayed.as_ref().is_some_and(|outcome| outcome.confirmed)
}

/// Whether the advice is one of this project's allocators.
fn is_change(group: &SiteGroup) -> bool {
    group.verdict.category != ObjectCategory::LeaveIt
        && group.verdict.allocator != AdvisedAllocator::None
}

fn share(group: &SiteGroup) -> f64 {
    group.verdict.gain.map_or(0.0, |gain| gain.share)
}

/// The groups with an advised change, in this order: confirmed; those that another malloc serves as
/// well or that were not replayed; not confirmed; candidates, whose gain nobody measured. Within
/// each, by gain.
pub fn ranked(findings: &Findings) -> Vec<&SiteGroup> {
    let rank = |group: &SiteGroup| match &group.verdict.replayed {
        _ if group.verdict.candidate => 3,
        _ if is_confirmed(group) => 0,
        Some(outcome) if !outcome.confirmed => 2,
        _ => 1,
    };
    let mut groups: Vec<&SiteGroup> =
        findings.groups.iter().filter(|group| is_change(group)).collect();
    groups.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| share(b).total_cmp(&share(a))));
    groups
}

/// Whether the answer is a change of the code or another malloc.
pub fn has_advice(ranked: &[&SiteGroup], malloc: Option<&MallocAdvice>) -> bool {
    malloc.is_some() || ranked.iter().any(|group| is_confirmed(group) && !group.verdict.candidate)
}

/// The answer where nothing is advised.
const NO_HELP: &str = "No allocator would help";

/// The answer in one sentence.
pub fn verdict(
    findings: &Findings,
    ranked: &[&SiteGroup],
    malloc: Option<&MallocAdvice>,
) -> String {
    let confirmed: Vec<&&SiteGroup> =
        ranked.iter().filter(|group| is_confirmed(group) && !group.verdict.candidate).collect();
    let candidates =
        ranked.iter().filter(|group| is_confirmed(group) && group.verdict.candidate).count();
    let suffices = findings.groups.iter().any(|group| {
        group.verdict.category == ObjectCategory::BetterMalloc
            && group.verdict.replayed.as_ref().is_some_and(|outcome| outcome.confirmed)
    });
    let measured = findings.measured.as_ref();
    let best = measured.and_then(MeasuredFindings::best);
    if !confirmed.is_empty() {
        let gain = match confirmed.as_slice() {
            [one] => one.verdict.gain.map(|gain| gain.share),
            _ => findings.replay.as_ref().and_then(|replay| replay.together.as_ref()?.gain),
        };
        if let Some((row, cpu)) = best
            && gain.is_none_or(|gain| gain < 1.0 - cpu.median + LEAST_GAIN)
        {
            let text = format!(
                ": {} saves {} of CPU time (measured), and no change of the code is confirmed that saves more.",
                row.name,
                saving(cpu)
            );
            return found("Change the malloc, not the program", &text);
        }
        let (head, saves) = match confirmed.as_slice() {
            [one] => {
                let what = name_of(one.verdict.allocator);
                (format!("Use {what} for {}", quoted(&one.title)), "saves")
            }
            all => (format!("Make {} changes", all.len()), "together they save"),
        };
        let tried = confirmed.iter().all(|group| is_tried(group));
        if is_too_high(findings) && !tried {
            let text =
                ": faster in the replay, but how much it saves is unknown (see the warning).";
            return found(&head, text);
        }
        let gain =
            gain.map_or_else(String::new, |gain| format!(": {saves} {} of CPU time", about(gain)));
        let how = if tried { "measured in the program itself" } else { "replay-confirmed" };
        return found(&head, &format!("{gain} ({how})."));
    }
    if let Some((row, cpu)) = best {
        let head = format!("Use {} instead of glibc's malloc", row.name);
        let text = format!(
            ": saves {} of CPU time (measured). No change of the code is confirmed.",
            saving(cpu)
        );
        return found(&head, &text);
    }
    // What was measured counts, not what was replayed.
    let malloc = malloc.filter(|_| measured.is_none_or(|measured| measured.rows.len() < 2));
    if let (true, Some(malloc)) = (suffices, malloc) {
        let gain = malloc.gain.map_or_else(
            || "saves as much".to_owned(),
            |gain| format!("saves {} of CPU time, as much", about(gain)),
        );
        let head = "Change the malloc, not the program";
        return found(
            head,
            &format!(": {} {gain} as changing the code would (replay-confirmed).", malloc.name),
        );
    }
    if findings.program.allocations == 0 {
        let text = "it allocated nothing that the recorder could see.";
        return paragraph(NO_HELP, text);
    }
    if let Some(malloc) = malloc {
        let head = format!("Use {} instead of glibc's malloc", malloc.name);
        let gain = malloc.gain.map_or_else(String::new, |gain| {
            format!(": saves {} of CPU time (replay-confirmed)", about(gain))
        });
        let changes = if ranked.iter().any(|group| !group.verdict.candidate) {
            "No change of the code is confirmed."
        } else {
            "No change of the code would save more."
        };
        return found(&head, &format!("{gain}. {changes}"));
    }
    if let Some(heap) = &findings.program.own_heap {
        return paragraph(NO_HELP, &format!("{}. {}", heap.reason, heap.remedy));
    }
    if ranked.len() == candidates {
        let mut text = leave(findings);
        if candidates > 0 {
            let (count, whom) = match candidates {
                1 => ("one group of blocks".to_owned(), "it"),
                many => (format!("{many} groups of blocks"), "them"),
            };
            text += &format!(
                " But {count} could be sealed (read-only memory) if nothing writes to {whom}; a recording can't show that."
            );
        }
        return paragraph(NO_HELP, &text);
    }
    if ranked.iter().all(|group| group.verdict.replayed.is_none()) {
        return paragraph("Not tested", "the advice below is an estimate, and was not replayed.");
    }
    paragraph(NO_HELP, "what looked promising was replayed, and none of it was confirmed.")
}

/// Whether the change was tried in the program itself.
fn is_tried(group: &SiteGroup) -> bool {
    group.verdict.gain.is_some_and(|gain| gain.tried)
}

/// Whether the replay's figures can't be right.
fn is_too_high(findings: &Findings) -> bool {
    findings.replay.as_ref().is_some_and(ReplayFindings::is_too_high)
}

/// A group's title as code, unless it is words.
fn quoted(title: &str) -> String {
    let title = one_line(title, WHERE);
    if title.contains(' ') { title } else { format!("`{title}`") }
}

/// Why nothing is advised.
fn leave(findings: &Findings) -> String {
    match replayed_share(findings).or(findings.program.allocator_share) {
        Some(share) if share < 2.0 * LEAST_GAIN => format!(
            "allocating and freeing takes {} of its CPU time, too little for any allocator to matter.",
            formatting::percent(share)
        ),
        Some(_) => match findings.groups.first() {
            Some(group) => format!(
                "no change would save 1 % of its CPU time. The largest gain would be in {}: {}.",
                group.title, group.verdict.reason
            ),
            None => "no change would save 1 % of its CPU time.".to_owned(),
        },
        None => "its CPU time isn't known, so no gain can be calculated.".to_owned(),
    }
}

/// The table of advised changes; empty if there is none.
pub fn rows(findings: &Findings, ranked: &[&SiteGroup]) -> String {
    if ranked.is_empty() {
        return String::new();
    }
    let text = table(findings, ranked, WHERE);
    let plain = anstream::adapter::strip_str(&text).to_string();
    let width = plain.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    // Where the line is too long, names are shortened.
    match width.saturating_sub(WIDTH) {
        0 => text,
        excess => table(findings, ranked, WHERE.saturating_sub(excess).max(1)),
    }
}

/// The table, with at most `name` characters for a name.
fn table(findings: &Findings, ranked: &[&SiteGroup], name: usize) -> String {
    let too_high = is_too_high(findings);
    let line = |group: &&SiteGroup| -> Line {
        let outcome = group.verdict.replayed.as_ref();
        let (emphasis, said) = match outcome {
            _ if is_confirmed(group) && group.verdict.candidate => (Emphasis::Own, "no extra cost"),
            _ if is_confirmed(group) && is_tried(group) => (Emphasis::Best, "measured"),
            _ if is_confirmed(group) && too_high => (Emphasis::Best, "faster"),
            _ if is_confirmed(group) => (Emphasis::Best, "confirmed"),
            Some(outcome) if outcome.confirmed => (Emphasis::Plain, "malloc as good"),
            Some(_) => (Emphasis::Plain, "not confirmed"),
            None => (Emphasis::Plain, "not replayed"),
        };
        let gain = |share: fn(&Gain) -> f64| {
            let text = group
                .verdict
                .gain
                .as_ref()
                .map_or_else(|| "-".to_owned(), |gain| formatting::percent(share(gain)));
            if text.starts_with("less") { "<0.1 %".to_owned() } else { text }
        };
        let cells = vec![
            one_line(&group.title, name),
            advice(group),
            formatting::count(group.behaviour.count),
            match group.verdict.candidate {
                true => "-".to_owned(),
                false if too_high && !is_tried(group) => "?".to_owned(),
                false => gain(|gain| gain.share),
            },
            gain(|gain| gain.ceiling),
            figure(outcome.and_then(|outcome| outcome.time_ratio)),
            memory(findings, |row| row.groups == [group.id]),
            said.to_owned(),
        ];
        (emphasis, cells)
    };
    let lines: Vec<Line> =
        baselines(findings).into_iter().chain(ranked.iter().take(ROWS).map(line)).collect();
    let heads = ["where", "advice", "blocks", "saves", "cost", "time", "memory", "replay"];
    let mut text = render(&heads, &lines);
    if ranked.len() > ROWS {
        text += &format!(
            "\n{}",
            styled(NOTE, format!("   and {} more in the report", ranked.len() - ROWS))
        );
    }
    text
}

/// What a change of the code is compared with: the best malloc, and a pool, each for all blocks.
fn baselines(findings: &Findings) -> Vec<Line> {
    let Some(replay) = &findings.replay else { return Vec::new() };
    let line = |row: &ReplayRow, advice: &str| -> Line {
        let gain =
            row.gain.map_or_else(|| "-".to_owned(), |gain| formatting::percent(gain.max(0.0)));
        let cost = replay.ceiling.map_or_else(|| "-".to_owned(), formatting::percent);
        let cells = vec![
            "everything".to_owned(),
            advice.to_owned(),
            formatting::count(findings.program.allocations),
            if gain.starts_with("less") { "<0.1 %".to_owned() } else { gain },
            cost,
            figure(row.time_ratio),
            memory(findings, |other| other.name == row.name),
            "baseline".to_owned(),
        ];
        (Emphasis::Plain, cells)
    };
    let others = replay.rows.iter().filter(|row| {
        row.groups.is_empty() && !["null", "glibc", POOL_FOR_EVERYTHING].contains(&&*row.name)
    });
    let gain = |row: &&ReplayRow| row.gain.unwrap_or(f64::MIN);
    let malloc = others.max_by(|a, b| gain(a).total_cmp(&gain(b)));
    let pool = replay.rows.iter().find(|row| row.name == POOL_FOR_EVERYTHING);
    let malloc = malloc.map(|row| line(row, &row.name));
    malloc.into_iter().chain(pool.map(|row| line(row, "pool"))).collect()
}

/// Peak memory of a plan, minus glibc's. A ratio would say nothing where glibc's peak is a
/// few pages.
fn memory(findings: &Findings, is_plan: impl Fn(&ReplayRow) -> bool) -> String {
    let peak = |is: &dyn Fn(&&ReplayRow) -> bool| {
        findings.replay.as_ref()?.rows.iter().find(is)?.peak_resident
    };
    let own = peak(&|row| is_plan(row));
    let glibc = peak(&|row| row.name == "glibc");
    let (Some(own), Some(glibc)) = (own, glibc) else { return "-".to_owned() };
    let mebibytes = (own as f64 - glibc as f64) / f64::from(1 << 20);
    if mebibytes.abs() < 0.05 { "same".to_owned() } else { format!("{mebibytes:+.1} MiB") }
}

/// Why this change is advised, and where it is made.
pub fn why(group: &SiteGroup, findings: &Findings) -> String {
    paragraph(
        &format!("Why {} for {}", name_of(group.verdict.allocator), quoted(&group.title)),
        &format!("{}. {}", group.verdict.reason, place(group, findings)),
    )
}

/// A sentence with the places of the change: the call in which an arena or a reap is created and
/// reset, and the function that allocates.
fn place(group: &SiteGroup, findings: &Findings) -> String {
    let mut parts = Vec::new();
    if let Some(call) = &group.place
        && matches!(group.verdict.allocator, AdvisedAllocator::Arena | AdvisedAllocator::Reap)
    {
        let what = if group.verdict.without_reset { "Create it" } else { "Create and reset it" };
        parts.push(format!("{what} in {}", location(call)));
    }
    let sites = || group.sites.iter().filter_map(|site| findings.sites.get(*site as usize));
    let allocates = sites().find_map(|site| site.frames.iter().find(|frame| !frame.wrapper));
    // Without its file it would only repeat the title.
    if let Some(frame) = allocates.filter(|frame| frame.file.is_some()) {
        let most = if sites().count() > 1 { "Most blocks are" } else { "They are" };
        parts.push(format!("{most} allocated in {}", location(frame)));
    }
    parts.iter().map(|part| full_stop(part)).collect::<Vec<_>>().join(" ")
}

/// A function with its file's name and its line, if they are known.
fn location(frame: &StackFrame) -> String {
    let function = quoted(&frame.function);
    let file = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    match (file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({}:{line})", one_line(file, WHERE)),
        (Some(file), None) => format!("{function} ({})", one_line(file, WHERE)),
        (None, _) => function,
    }
}

/// Why a change was not confirmed; empty if it was, or was not replayed.
pub fn withdrawn(group: &SiteGroup) -> String {
    let Some(outcome) = group.verdict.replayed.as_ref().filter(|outcome| !outcome.confirmed) else {
        return String::new();
    };
    let head = format!("{} for {}", name_of(group.verdict.allocator), quoted(&group.title));
    paragraph(&capital(&head), &format!("{}.", outcome.reason))
}

/// The first lines of the change, in the language that the place is written in.
pub fn code(group: &SiteGroup, findings: &Findings) -> String {
    let site = group.sites.first().and_then(|site| findings.sites.get(*site as usize));
    let is_rust = site.is_some_and(|site| {
        site.frames
            .iter()
            .filter_map(|frame| frame.file.as_deref())
            .any(|file| file.ends_with(".rs"))
    });
    let code = if is_rust { &group.verdict.change.rust } else { &group.verdict.change.c };
    // The first line names the place, which the line above names already.
    let lines = code.lines().skip(1).take(CODE);
    lines.map(|line| format!("    {}", one_line(line, WIDTH - 4))).collect::<Vec<_>>().join("\n")
}

/// What the best other malloc saves, and how to try it; and a malloc that saves more.
pub fn malloc_line(
    better: Option<&MallocAdvice>,
    faster: Option<&MallocAdvice>,
    findings: &Findings,
) -> String {
    let mut sentences = Vec::new();
    if let Some(malloc) = better {
        let saves = malloc.gain.map_or_else(String::new, |gain| {
            format!("saves {} of the program's CPU time; it ", formatting::percent(gain))
        });
        sentences.push(format!("{} {saves}takes {}.", malloc.name, replayed(malloc)));
        if let Some(library) = &malloc.library {
            let program = findings.program.command.first().map_or("PROGRAM", |program| program);
            let packages = match &*library.packages {
                "" => String::new(),
                packages => format!(" ({packages})"),
            };
            sentences.push(format!(
                "Try it: LD_PRELOAD={} {} …{packages}.",
                library.file,
                one_line(program, WHERE),
            ));
        }
    }
    if let Some(malloc) = faster {
        let saves = malloc.gain.map_or_else(
            || "is faster".to_owned(),
            |gain| format!("saves {}", formatting::percent(gain)),
        );
        let drawback = match &malloc.drawback {
            Some(why) => format!(", but {why}"),
            None => String::new(),
        };
        sentences.push(format!(
            "{} {saves}{drawback}: it takes {}.",
            malloc.name,
            replayed(malloc)
        ));
    }
    if sentences.is_empty() {
        return String::new();
    }
    paragraph("Without changing the code", &sentences.join(" "))
}

/// A malloc's time and memory in the replay, after "takes".
fn replayed(malloc: &MallocAdvice) -> String {
    let time =
        malloc.time_ratio.map_or_else(String::new, |time| format!("{time:.2} × glibc's time and "));
    format!(
        "{time}{} in the replay",
        formatting::memory(malloc.memory_ratio, malloc.more_peak_bytes)
    )
}

/// The advice on system calls and locks.
pub fn system(findings: &Findings) -> Vec<String> {
    let mut texts = Vec::new();
    for advice in findings.system.advice.iter().take(ADVICE) {
        let head = if advice.title.is_empty() {
            "System calls".to_owned()
        } else {
            capital(&advice.title)
        };
        let mut text = first_sentences(&advice.advice);
        let facts = advice.advice.len() - advice.remedy.len().min(advice.advice.len());
        // The remedy is told even where the figures take the whole space.
        if text.len() <= facts && !advice.remedy.is_empty() {
            text = format!("{} {}", text.trim_end(), first_sentence(&advice.remedy));
        }
        texts.push(paragraph(&head, &text));
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
                format!("Locks: nothing to gain. System calls were not counted: {why}.")
            }
            (None, Some(calls)) => format!(
                "Nothing to gain from its {} system calls or from locks.",
                formatting::count(calls)
            ),
            (None, None) => "Nothing to gain from system calls or locks.".to_owned(),
        };
        texts.push(styled(NOTE, wrapped(&text)));
    }
    texts
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |at| &text[..=at])
}

/// As many sentences as fit in two lines, at least one.
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
