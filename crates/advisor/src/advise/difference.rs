//! `allot advise --diff OLD NEW`: compares two recordings of a program, before and after a change.

use super::terminal_text::one_line;
use crate::analyse::findings::{Findings, RecordedProgram};
use crate::analyse::{self, formatting};
use bench::console::failure::Failure;
use bench::console::print::{self, BEST, HEADING, NOTE, WIDTH, styled, wrapped};
use bench::console::table::{Emphasis, Line, figure, render};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The most functions that the screen shows.
const SITES: usize = 10;
/// The most characters of a function's name.
const WHERE: usize = 36;
/// A change of the number of allocations, as a share of the old one, that counts as one.
const LEAST_CHANGE: f64 = 0.01;
/// CPU times of single runs that differ by less are taken for equal.
const LEAST_TIME_CHANGE: f64 = 0.05;

/// Two recordings, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub old: RunTotals,
    pub new: RunTotals,
    /// The functions whose allocations differ most first.
    pub sites: Vec<SiteDifference>,
}

/// The totals of one recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTotals {
    pub command: Vec<String>,
    pub wall_ns: u64,
    /// Without the recorder's share, which is estimated.
    pub cpu_ns: Option<u64>,
    /// What allocating and freeing takes of it.
    pub allocator_ns: Option<u64>,
    pub allocations: u64,
    pub bytes: u64,
    pub peak_live_bytes: u64,
    pub live_at_end: u64,
    pub system_calls: Option<u64>,
}

/// A function that allocates, in both recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SiteDifference {
    pub title: String,
    pub old: SiteTotals,
    pub new: SiteTotals,
}

/// What a function allocates; all 0 if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SiteTotals {
    pub allocations: u64,
    pub bytes: u64,
    pub peak_live_bytes: u64,
}

/// Runs the command.
pub fn run(old: &Path, new: &Path, json: bool) -> Result<(), Failure> {
    let findings = |file: &Path| {
        let options = analyse::AnalyseOptions { progress: true, ..Default::default() };
        analyse::analyse(file, &options).map(|analysis| analysis.findings)
    };
    let difference = Difference::of(&findings(old)?, &findings(new)?);
    if json { print::json_line(&difference) } else { print::line(difference.text().trim_end()) }
}

impl RunTotals {
    fn of(findings: &Findings) -> Self {
        let program: &RecordedProgram = &findings.program;
        let cpu_ns = program.bare_cpu_ns;
        let allocator_ns = cpu_ns
            .zip(program.allocator_share)
            .map(|(cpu, share)| (cpu as f64 * share.min(1.0)) as u64);
        Self {
            command: program.command.clone(),
            wall_ns: program.wall_ns,
            cpu_ns,
            allocator_ns,
            allocations: program.allocations,
            bytes: program.bytes,
            peak_live_bytes: program.peak_live_bytes,
            live_at_end: program.live_at_end,
            system_calls: findings.system.total_calls,
        }
    }
}

impl Difference {
    /// Compares two findings. Functions are the same if they have the same name.
    pub fn of(old: &Findings, new: &Findings) -> Self {
        let mut sites: BTreeMap<&str, [SiteTotals; 2]> = BTreeMap::new();
        for (index, findings) in [old, new].into_iter().enumerate() {
            for site in &findings.sites {
                let totals = &mut sites.entry(&site.title).or_default()[index];
                totals.allocations += site.behaviour.count;
                totals.bytes += site.behaviour.bytes;
                totals.peak_live_bytes += site.behaviour.peak_live_bytes;
            }
        }
        let differs = |[old, new]: &[SiteTotals; 2]| old != new;
        let mut sites: Vec<SiteDifference> = sites
            .into_iter()
            .filter(|(_, totals)| differs(totals))
            .map(|(title, [old, new])| SiteDifference { title: title.to_owned(), old, new })
            .collect();
        let change = |site: &SiteDifference| {
            let allocations = site.old.allocations.abs_diff(site.new.allocations);
            (allocations, site.old.bytes.abs_diff(site.new.bytes))
        };
        sites.sort_by_key(|site| std::cmp::Reverse(change(site)));
        Self { old: RunTotals::of(old), new: RunTotals::of(new), sites }
    }

    /// One screen.
    fn text(&self) -> String {
        let mut text = styled(HEADING, one_line(&formatting::command(&self.old.command), WIDTH));
        text += &format!("\n{}\n\n{}\n", self.verdict(), self.totals());
        if !self.sites.is_empty() {
            text += &format!("\n{}\n", self.table());
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text += &format!("\n{}\n", styled(NOTE, wrapped(&notes.join(" "))));
        }
        text
    }

    /// Whether the change did something, in a sentence.
    fn verdict(&self) -> String {
        let (old, new) = (self.old.allocations, self.new.allocations);
        let share = change(old as f64, new as f64);
        let site = self.sites.first().map(|site| {
            let more = site.new.allocations > site.old.allocations;
            (one_line(&site.title, WHERE), more)
        });
        let (head, text) = if share <= -LEAST_CHANGE {
            let at = match site {
                Some((title, false)) => format!(", the largest part in `{title}`"),
                _ => String::new(),
            };
            let gone = formatting::count(old - new);
            ("Fewer allocations", format!(": {gone} of {} are gone{at}", formatting::count(old)))
        } else if share >= LEAST_CHANGE {
            let at = match site {
                Some((title, true)) => format!(", the largest part in `{title}`"),
                _ => String::new(),
            };
            let (new, old) = (formatting::count(new), formatting::count(old));
            ("More allocations", format!(": {new} instead of {old}{at}"))
        } else {
            ("As many allocations as before", format!(": {}", formatting::count(new)))
        };
        let text = format!("{head}{text}. {}", self.time());
        wrapped(&text).replacen(head, &styled(BEST, head), 1)
    }

    /// What the CPU time says.
    fn time(&self) -> String {
        let Some((old, new)) = self.old.cpu_ns.zip(self.new.cpu_ns) else {
            return "The CPU time of a recording is unknown.".to_owned();
        };
        let share = change(old as f64, new as f64);
        let times = format!("{} instead of {}", formatting::time(new), formatting::time(old));
        if share.abs() < LEAST_TIME_CHANGE {
            format!("The CPU time is about the same: {times}.")
        } else {
            let word = if share < 0.0 { "less" } else { "more" };
            format!(
                "The program takes {} {word} CPU time: {times}.",
                formatting::percent(share.abs())
            )
        }
    }

    fn totals(&self) -> String {
        let (old, new) = (&self.old, &self.new);
        let row =
            |name: &str, of: fn(&RunTotals) -> Option<u64>, show: fn(u64) -> String| -> Line {
                let show = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), show);
                let ratio = of(old).zip(of(new)).filter(|(old, _)| *old > 0);
                let ratio = figure(ratio.map(|(old, new)| new as f64 / old as f64));
                (Emphasis::Plain, vec![name.to_owned(), show(of(old)), show(of(new)), ratio])
            };
        let lines = [
            row("wall time", |run| Some(run.wall_ns), formatting::time),
            row("CPU time", |run| run.cpu_ns, formatting::time),
            row("  allocating and freeing", |run| run.allocator_ns, formatting::time),
            row("allocations", |run| Some(run.allocations), formatting::count),
            row("bytes", |run| Some(run.bytes), formatting::bytes),
            row("peak live memory", |run| Some(run.peak_live_bytes), formatting::bytes),
            row("blocks live at the end", |run| Some(run.live_at_end), formatting::count),
            row("system calls", |run| run.system_calls, formatting::count),
        ];
        render(&["total", "old", "new", "ratio"], &lines)
    }

    fn table(&self) -> String {
        let line = |site: &SiteDifference| -> Line {
            let SiteDifference { title, old, new } = site;
            let cells = vec![
                one_line(title, WHERE),
                formatting::count(old.allocations),
                formatting::count(new.allocations),
                formatting::bytes(old.bytes),
                formatting::bytes(new.bytes),
            ];
            (Emphasis::Plain, cells)
        };
        let lines: Vec<Line> = self.sites.iter().take(SITES).map(line).collect();
        let heads = ["where", "allocations: old", "new", "bytes: old", "new"];
        let mut text = render(&heads, &lines);
        if self.sites.len() > SITES {
            let more = self.sites.len() - SITES;
            text += &format!("\n{}", styled(NOTE, format!("   and {more} more with --json")));
        }
        text
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Each recording is one run, so small differences of time may be chance; --repeat measures the program itself."
                .to_owned(),
        ];
        let name = |run: &RunTotals| run.command.first().map(|name| base(name).to_owned());
        if name(&self.old) != name(&self.new) {
            notes.push(format!(
                "The recordings are of two programs: {} and {}.",
                one_line(&name(&self.old).unwrap_or_default(), WHERE),
                one_line(&name(&self.new).unwrap_or_default(), WHERE)
            ));
        } else if self.old.command[1..] != self.new.command[1..] {
            notes.push("The program had other arguments in the second recording.".to_owned());
        }
        notes
    }
}

/// The file's name of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// How much `new` is above `old`, as a share of it.
fn change(old: f64, new: f64) -> f64 {
    if old == new { 0.0 } else { (new - old) / old.max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;
    use crate::analyse::findings::{BlockFigures, Site};

    /// Findings with these functions, allocations and milliseconds of CPU time.
    fn run(sites: &[(&str, u64)], cpu_ms: u64) -> Findings {
        let mut all = findings(Vec::new());
        let site = |(index, (title, count)): (usize, &(&str, u64))| Site {
            id: index as u32,
            title: (*title).to_owned(),
            frames: Vec::new(),
            stacks: 1,
            group: 0,
            behaviour: BlockFigures { count: *count, bytes: 16 * count, ..Default::default() },
        };
        all.sites = sites.iter().enumerate().map(site).collect();
        all.program.allocations = sites.iter().map(|(_, count)| count).sum();
        all.program.bare_cpu_ns = Some(cpu_ms * 1_000_000);
        all
    }

    fn text(old: &Findings, new: &Findings) -> String {
        let text = Difference::of(old, new).text();
        let text = anstream::adapter::strip_str(&text).to_string();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_that_worked_says_what_is_gone_and_where() {
        let old = run(&[("parse", 900_000), ("print", 50_000), ("same", 7)], 800);
        let new = run(&[("print", 60_000), ("same", 7)], 600);
        let difference = Difference::of(&old, &new);
        let titles: Vec<_> = difference.sites.iter().map(|site| site.title.as_str()).collect();
        assert_eq!(titles, ["parse", "print"], "what is the same is left out");
        let text = text(&old, &new);
        for part in [
            "Fewer allocations: 890,000 of 950,007 are gone, the largest part in `parse`.",
            "The program takes 25 % less CPU time: 600.0 ms instead of 800.0 ms.",
            "parse 900,000 0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("two programs") && !text.contains("other arguments"), "{text}");
    }

    #[test]
    fn a_change_that_did_nothing_says_so() {
        let old = run(&[("parse", 100_000)], 800);
        let new = run(&[("parse", 100_500)], 810);
        let text = text(&old, &new);
        assert!(text.contains("As many allocations as before: 100,500."), "{text}");
        assert!(text.contains("about the same: 810.0 ms instead of 800.0 ms."), "{text}");
    }

    #[test]
    fn a_change_that_made_it_worse_says_so() {
        let old = run(&[("parse", 100)], 100);
        let mut new = run(&[("parse", 100), ("copy", 300)], 150);
        new.program.command = vec!["other".to_owned()];
        let text = text(&old, &new);
        assert!(text.contains("More allocations: 400 instead of 100, the largest part in `copy`."));
        assert!(text.contains("The program takes 50 % more CPU time"), "{text}");
        assert!(text.contains("two programs: server and other."), "{text}");
        assert!(text.lines().count() <= 40);
    }
}
