//! Runs the program itself: as it is, with each installed malloc, and with each advised change
//! tried.
//!
//! The runs are interleaved, so that drift of the machine affects all of them alike. Each round
//! starts with the next one, so that none is always first.

use super::bare_run::{BareProgram, RunFigures};
use super::trial::{LEAST_GAIN, MOST_MEMORY, TrialRun, TrialVariant, Trials, TriedChange};
use crate::analyse::findings::{
    ChangeParts, Findings, MeasuredFindings, MeasuredRatio, MeasuredRow, ObjectCategory,
};
use crate::replay::installed_mallocs::InstalledMalloc;
use bench::console::progress::Progress;
use bench::console::statistics::{Ratio, median};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the program's own malloc.
const AS_IT_IS: &str = "as it is";
/// The name of the control runs.
const CONTROL: &str = "control";
/// From this share of frees by the allocating thread on, blocks are not passed between threads.
const MOSTLY_SAME_THREAD: f64 = 0.9;
/// A change that leaves less of the program's CPU time was not measured right.
const LEAST_LEFT: f64 = 0.1;
/// The number of runs in which frees are timed.
const TIMED_RUNS: usize = 3;

/// How the program is run.
#[derive(Debug, Clone, Copy)]
enum Setting<'m> {
    AsItIs,
    Malloc(&'m Path),
    Trial(&'m Trials, TrialVariant<'m>),
}

impl<'m> Setting<'m> {
    fn run(&self, program: &BareProgram<'_>) -> io::Result<TrialRun> {
        let plain = |figures| TrialRun { figures, between_ns: 0.0 };
        match self {
            Self::AsItIs => program.run(None).map(plain),
            Self::Malloc(library) => program.run(Some(library)).map(plain),
            Self::Trial(trials, variant) => trials.run(program, *variant),
        }
    }

    fn is_timed(&self) -> bool {
        matches!(self, Self::Trial(_, TrialVariant::Timed(_)))
    }

    fn change(&self) -> Option<&'m TriedChange> {
        match self {
            Self::Trial(_, TrialVariant::Change(change)) => Some(change),
            _ => None,
        }
    }
}

/// One setting, and its runs.
struct Variant<'m> {
    name: &'m str,
    setting: Setting<'m>,
    runs: Vec<Option<TrialRun>>,
    failure: Option<String>,
}

impl<'m> Variant<'m> {
    fn new(name: &'m str, setting: Setting<'m>) -> Self {
        Self { name, setting, runs: Vec::new(), failure: None }
    }

    fn figures(&self, of: impl Fn(&RunFigures) -> Option<u64>) -> Vec<Option<f64>> {
        let figure = |run: &TrialRun| of(&run.figures).map(|value| value as f64);
        self.runs.iter().map(|run| run.as_ref().and_then(figure)).collect()
    }
}

/// Runs the program `runs` times with each malloc and with each change. A run that does not end with
/// the exit code `expected` does not count, and its setting is run no more. Ends when `stop` is set.
pub fn measure(
    program: &BareProgram<'_>,
    mallocs: &[InstalledMalloc],
    trials: Option<&Trials>,
    runs: u32,
    expected: u8,
    stop: &AtomicBool,
) -> MeasuredFindings {
    let mut all = vec![Variant::new(AS_IT_IS, Setting::AsItIs)];
    // Those that are compared run one after the other.
    if let Some(trials) = trials {
        let with = |name, variant| Variant::new(name, Setting::Trial(trials, variant));
        all.push(with(CONTROL, TrialVariant::Control));
        for change in trials.changes() {
            all.push(with(&change.name, TrialVariant::Change(change)));
        }
        let has_arena = |change: &&TriedChange| change.blocks.iter().any(|blocks| blocks.in_arena);
        for change in trials.changes().iter().filter(has_arena) {
            all.push(with(&change.name, TrialVariant::Timed(change)));
        }
    }
    all.extend(
        mallocs.iter().map(|malloc| Variant::new(malloc.name, Setting::Malloc(&malloc.library))),
    );
    let runs_of = |variant: &Variant<'_>| match variant.setting.is_timed() {
        true => TIMED_RUNS.min(runs as usize),
        false => runs as usize,
    };
    let progress = Progress::new(all.iter().map(runs_of).sum());
    let mut done = 0;
    while done < runs && !stop.load(Ordering::Relaxed) {
        for index in 0..all.len() {
            let index = (index + done as usize) % all.len();
            if done as usize >= runs_of(&all[index]) {
                continue;
            }
            let variant = &mut all[index];
            progress.say(&format!("run {} of {runs}: {}", done + 1, variant.name));
            let run =
                if variant.failure.is_some() { None } else { one_run(program, variant, expected) };
            variant.runs.push(run);
            progress.step();
        }
        // An interrupt goes to the program too, so the round that it falls into does not count.
        if stop.load(Ordering::Relaxed) {
            all.iter_mut().for_each(|variant| {
                variant.runs.truncate(done as usize);
                variant.failure = None;
            });
            break;
        }
        done += 1;
    }
    findings(&all, done, runs)
}

fn one_run(program: &BareProgram<'_>, variant: &mut Variant<'_>, expected: u8) -> Option<TrialRun> {
    match variant.setting.run(program) {
        Ok(run) if run.figures.code == expected => Some(run),
        Ok(run) => {
            let code = run.figures.code;
            let why = format!("the program ended with exit code {code} instead of {expected}");
            variant.failure = Some(why);
            None
        }
        Err(error) => {
            variant.failure = Some(format!("the program could not be run: {error}"));
            None
        }
    }
}

fn findings(all: &[Variant<'_>], done: u32, asked: u32) -> MeasuredFindings {
    let mut notes = Vec::new();
    if done < asked {
        notes.push(format!("Interrupted: the figures are of {done} of {asked} rounds."));
    }
    let own = &all[0];
    if let Some(why) = &own.failure {
        notes.push(format!("Not measured: without the recorder, {why}."));
    }
    if !all.iter().any(|variant| matches!(variant.setting, Setting::Malloc(_))) {
        notes.push(
            "No other malloc is installed. To compare some, install for example libjemalloc2 and libmimalloc-dev (Debian's names)."
                .to_owned(),
        );
    }
    let control = all.iter().find(|variant| variant.name == CONTROL);
    let rows = all.iter().filter_map(|variant| match variant.setting {
        Setting::AsItIs | Setting::Malloc(_) => Some(row(variant, own)),
        Setting::Trial(..) => {
            let change = variant.setting.change()?;
            let is_timed = |other: &&Variant<'_>| {
                matches!(other.setting, Setting::Trial(_, TrialVariant::Timed(its)) if std::ptr::eq(its, change))
            };
            Some(change_row(variant, change, own, control?, all.iter().find(is_timed)))
        }
    });
    MeasuredFindings { runs: done, rows: rows.collect(), notes }
}

fn row(variant: &Variant<'_>, own: &Variant<'_>) -> MeasuredRow {
    let library = match variant.setting {
        Setting::Malloc(library) => Some(library),
        _ => None,
    };
    let middle = |of: fn(&RunFigures) -> Option<u64>| {
        let figures = variant.figures(of);
        median(figures.into_iter().flatten()).map(|value| value.round() as u64)
    };
    let compared = |of: fn(&RunFigures) -> Option<u64>| {
        library.and_then(|_| ratio(&variant.figures(of), &own.figures(of)))
    };
    MeasuredRow {
        name: variant.name.to_owned(),
        groups: Vec::new(),
        library: library.map(|path| path.display().to_string()),
        cpu_ns: middle(cpu),
        wall_ns: middle(wall),
        peak_bytes: middle(peak),
        cpu: compared(cpu),
        wall: compared(wall),
        peak: compared(peak),
        failure: variant.failure.clone(),
        parts: None,
    }
}

fn cpu(run: &RunFigures) -> Option<u64> {
    Some(run.cpu_ns)
}

fn wall(run: &RunFigures) -> Option<u64> {
    Some(run.wall_ns)
}

fn peak(run: &RunFigures) -> Option<u64> {
    run.peak_bytes
}

fn ratio(figures: &[Option<f64>], base: &[Option<f64>]) -> Option<MeasuredRatio> {
    let ratio = Ratio::of_rounds(figures, base)?;
    let (low, high) = (ratio.interval.map(|i| i.low), ratio.interval.map(|i| i.high));
    Some(MeasuredRatio { median: ratio.median, low, high })
}

/// The row of a change: 1 − calls − walks − (control / as it is) × (1 − trial / control), of the CPU
/// time. Both ratios are medians of the rounds' ratios, so a round in which the machine is slow counts
/// no more than others. Wall time and memory have the last part only.
fn change_row(
    variant: &Variant<'_>,
    change: &TriedChange,
    own: &Variant<'_>,
    control: &Variant<'_>,
    timed: Option<&Variant<'_>>,
) -> MeasuredRow {
    let base = median(own.figures(cpu).into_iter().flatten()).unwrap_or(0.0).max(1.0);
    let timed_runs = timed.iter().flat_map(|timed| timed.runs.iter().flatten());
    let walks = median(timed_runs.map(|run| run.between_ns)).map_or(0.0, |ns| ns / base);
    let calls = change.blocks.iter().map(|blocks| blocks.saved_ns * blocks.count as f64);
    let calls = calls.sum::<f64>() / base;
    let changed = |of: fn(&RunFigures) -> Option<u64>, less: f64| -> Option<MeasuredRatio> {
        let control_cost = ratio(&control.figures(of), &own.figures(of))?.median;
        let tried = ratio(&variant.figures(of), &control.figures(of))?;
        let whole = |tried: f64| (1.0 - less - control_cost * (1.0 - tried)).max(0.0);
        Some(MeasuredRatio {
            median: whole(tried.median),
            low: tried.low.map(whole),
            high: tried.high.map(whole),
        })
    };
    let of_own = |ratio: Option<MeasuredRatio>, of: fn(&RunFigures) -> Option<u64>| {
        let own = median(own.figures(of).into_iter().flatten())?;
        Some((own * ratio?.median).round() as u64)
    };
    let (cpu_of, wall_of, peak_of) =
        (changed(cpu, walks + calls), changed(wall, 0.0), changed(peak, 0.0));
    let parts = cpu_of.map(|cpu| ChangeParts {
        allocation: 1.0 - cpu.median - walks - calls,
        calls,
        walks,
    });
    MeasuredRow {
        name: variant.name.to_owned(),
        groups: change.groups.clone(),
        library: None,
        cpu_ns: of_own(cpu_of, cpu),
        wall_ns: of_own(wall_of, wall),
        peak_bytes: of_own(peak_of, peak),
        cpu: cpu_of,
        wall: wall_of,
        peak: peak_of,
        failure: variant.failure.clone().or_else(|| control.failure.clone()),
        parts,
    }
}

/// Puts what the changes saved in the program itself in the place of what they saved in the replay.
pub fn apply(findings: &mut Findings) {
    let Some(measured) = findings.measured.clone() else { return };
    let best = measured.best().map_or(0.0, |(_, cpu)| 1.0 - cpu.median);
    let mut confirmed = Vec::new();
    for row in &measured.rows {
        let [group] = row.groups[..] else { continue };
        let verdict = &mut findings.groups[group as usize].verdict;
        if let (Some(why), Some(outcome)) = (&row.failure, &mut verdict.replayed) {
            outcome.confirmed = false;
            outcome.reason = format!("not confirmed, it could not be tried: {why}");
        }
        // Without an interval, a trial decides nothing.
        let Some(cpu) = row.cpu.filter(|cpu| row.failure.is_none() && cpu.high.is_some()) else {
            continue;
        };
        let saved = 1.0 - cpu.median;
        let group = &mut findings.groups[group as usize];
        let verdict = &mut group.verdict;
        if let Some(gain) = &mut verdict.gain {
            (gain.share, gain.measured, gain.tried) = (saved.max(0.0), true, true);
            gain.ceiling = gain.ceiling.max(gain.share);
        }
        if let Some(outcome) = &mut verdict.replayed {
            let walks = row.parts.map_or(0.0, |parts| parts.walks);
            let memory = row.peak.map(|peak| peak.median);
            (outcome.confirmed, outcome.reason) = outcome_of(cpu, walks, memory);
            if outcome.confirmed {
                confirmed.push((group.id, saved));
            }
        }
        // The replay held another malloc to be as good.
        if verdict.category == ObjectCategory::BetterMalloc && saved > best + LEAST_GAIN {
            let is_shared = group.behaviour.same_thread_share < MOSTLY_SAME_THREAD;
            verdict.category =
                if is_shared { ObjectCategory::Shared } else { ObjectCategory::Transient };
        }
    }
    if confirmed.len() < 2 {
        return;
    }
    let groups: Vec<u32> = confirmed.iter().map(|(group, _)| *group).collect();
    let sum = confirmed.iter().map(|(_, saved)| saved).sum();
    let row = measured.rows.iter().find(|row| row.groups == groups);
    let gain = row.and_then(|row| Some(1.0 - row.cpu?.median)).unwrap_or(sum);
    if let Some(replay) = &mut findings.replay {
        let together = replay.together.get_or_insert_default();
        (together.groups, together.gain, together.sum) = (groups, Some(gain.max(0.0)), Some(sum));
    }
}

/// Whether a change is confirmed by its trial, and why. What is saved by walks that are left out does
/// not count for that: a walk may do other work too.
fn outcome_of(cpu: MeasuredRatio, walks: f64, memory: Option<f64>) -> (bool, String) {
    let interval = cpu.low.zip(cpu.high);
    let interval =
        interval.map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
    let peak = memory.map_or_else(String::new, |memory| format!(", {memory:.2} × its peak memory"));
    let figures =
        format!("tried in the program itself: {:.2} of its CPU time{interval}{peak}", cpu.median);
    if cpu.median < LEAST_LEFT {
        let why =
            "not confirmed, it can't save as much; the machine is busy, or the program too short";
        (false, format!("{why}; {figures}"))
    } else if memory.is_some_and(|memory| memory > MOST_MEMORY) {
        (false, format!("not confirmed, it needs too much memory; {figures}"))
    } else if cpu.median + walks >= 1.0 - LEAST_GAIN
        || cpu.high.is_none_or(|high| high + walks >= 1.0)
    {
        (
            false,
            format!("not confirmed, it saves less than 1 % or nothing beyond chance; {figures}"),
        )
    } else {
        (true, format!("confirmed; {figures}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare_run::StandardInput;
    use super::super::trial::ChangedBlocks;
    use super::*;
    use std::ffi::OsString;

    fn variant<'m>(name: &'m str, cpu: &[u64]) -> Variant<'m> {
        let run = |cpu_ns: &u64| {
            let wall_ns = 2 * cpu_ns;
            let figures = RunFigures { cpu_ns: *cpu_ns, wall_ns, peak_bytes: None, code: 0 };
            Some(TrialRun { figures, between_ns: 0.0 })
        };
        let setting = match name {
            AS_IT_IS => Setting::AsItIs,
            _ => Setting::Malloc(Path::new("/lib/x.so")),
        };
        Variant { runs: cpu.iter().map(run).collect(), ..Variant::new(name, setting) }
    }

    #[test]
    fn the_best_malloc_is_quicker_beyond_chance() {
        let own = variant(AS_IT_IS, &[100; 6]);
        let quick = variant("quick", &[80, 81, 79, 80, 82, 80]);
        let uneven = variant("uneven", &[50, 51, 52, 50, 50, 101]);
        let found = findings(&[own, quick, uneven], 6, 6);
        let (best, cpu) = found.best().unwrap();
        assert_eq!((best.name.as_str(), cpu.median, cpu.high), ("quick", 0.8, Some(0.82)));
        assert!(found.rows[2].cpu.unwrap().shows_no_difference(), "within the interval");
        assert!(found.notes.is_empty() && found.rows[0].cpu.is_none());
    }

    #[test]
    fn a_change_saves_what_its_trial_does_beyond_the_control_run_and_what_is_calculated() {
        let change = TriedChange {
            groups: vec![4],
            name: "an arena".to_owned(),
            blocks: vec![ChangedBlocks { count: 10, in_arena: true, saved_ns: 0.5 }],
        };
        let runs = |name, cpu: &[u64]| variant(name, cpu);
        // Rounds in which the machine is slow.
        let own = runs(AS_IT_IS, &[100, 100, 200, 100, 100, 100]);
        let control = runs(CONTROL, &[150, 150, 300, 150, 150, 150]);
        let tried = runs("an arena", &[120, 120, 240, 120, 360, 120]);
        let mut timed = runs("an arena", &[130]);
        timed.runs[0].as_mut().unwrap().between_ns = 15.0;
        let row = change_row(&tried, &change, &own, &control, Some(&timed));
        let parts = row.parts.unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(parts.allocation, 0.3) && near(parts.calls, 0.05) && near(parts.walks, 0.15));
        let cpu = row.cpu.unwrap();
        assert!(near(cpu.median, 0.5) && near(cpu.low.unwrap(), 0.5), "{cpu:?}");
        assert_eq!((row.groups, row.cpu_ns), (vec![4], Some(50)));
    }

    #[test]
    fn a_trial_decides_whether_a_change_is_confirmed() {
        let ratio = |median, low, high| MeasuredRatio { median, low: Some(low), high: Some(high) };
        assert!(outcome_of(ratio(0.8, 0.7, 0.9), 0.0, None).0);
        assert!(!outcome_of(ratio(0.8, 0.7, 0.9), 0.15, None).0, "walks are no proof");
        let (confirmed, why) = outcome_of(ratio(0.8, 0.7, 1.1), 0.0, Some(1.0));
        assert!(!confirmed && why.contains("nothing beyond chance"), "{why}");
        let (confirmed, why) = outcome_of(ratio(0.5, 0.4, 0.6), 0.0, Some(1.6));
        assert!(!confirmed && why.contains("too much memory"), "{why}");
        assert!(!outcome_of(ratio(0.995, 0.99, 0.999), 0.0, None).0);
        let (confirmed, why) = outcome_of(ratio(0.02, 0.0, 0.3), 0.0, None);
        assert!(!confirmed && why.contains("can't save as much"), "{why}");
    }

    #[test]
    fn fewer_than_six_runs_show_no_best_malloc() {
        let own = variant(AS_IT_IS, &[100; 5]);
        let quick = variant("quick", &[10; 5]);
        assert!(findings(&[own, quick], 5, 5).best().is_none());
    }

    #[test]
    fn a_program_that_ends_otherwise_has_no_figures_and_the_reason() {
        let command = ["sh", "-c", "exit 3"].map(OsString::from);
        let input = StandardInput::none();
        let program = BareProgram { path: Path::new("/bin/sh"), command: &command, input: &input };
        let found = measure(&program, &[], None, 2, 0, &AtomicBool::new(false));
        assert_eq!(found.rows[0].cpu_ns, None);
        assert!(found.notes[0].contains("exit code 3 instead of 0"), "{:?}", found.notes);
        assert!(found.notes[1].contains("No other malloc is installed"));
        let found = measure(&program, &[], None, 2, 3, &AtomicBool::new(true));
        assert_eq!((found.runs, found.rows[0].cpu_ns), (0, None));
    }
}
