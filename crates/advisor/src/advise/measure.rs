//! Runs the program itself, without the recorder: as it is, and with each installed malloc.
//!
//! The runs are interleaved, so that drift of the machine affects all mallocs alike. Each round
//! starts with the next malloc, so that none is always first.

use super::bare_run::{BareProgram, RunFigures};
use crate::analyse::findings::{MeasuredFindings, MeasuredRatio, MeasuredRow};
use crate::replay::installed_mallocs::InstalledMalloc;
use bench::console::progress::Progress;
use bench::console::statistics::{Ratio, median};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the program's own malloc.
const AS_IT_IS: &str = "as it is";

/// One malloc, and its runs.
struct Candidate<'m> {
    name: &'m str,
    library: Option<&'m Path>,
    runs: Vec<Option<RunFigures>>,
    failure: Option<String>,
}

impl Candidate<'_> {
    fn figures(&self, of: impl Fn(&RunFigures) -> Option<u64>) -> Vec<Option<f64>> {
        self.runs.iter().map(|run| run.as_ref().and_then(&of).map(|value| value as f64)).collect()
    }
}

/// Runs the program `runs` times with each malloc. A run that does not end with the exit code
/// `expected` does not count, and the malloc is run no more. Ends when `stop` is set.
pub fn measure(
    program: &BareProgram<'_>,
    mallocs: &[InstalledMalloc],
    runs: u32,
    expected: u8,
    stop: &AtomicBool,
) -> MeasuredFindings {
    let own = Candidate { name: AS_IT_IS, library: None, runs: Vec::new(), failure: None };
    let others = mallocs.iter().map(|malloc| Candidate {
        name: malloc.name,
        library: Some(&malloc.library),
        runs: Vec::new(),
        failure: None,
    });
    let mut all: Vec<Candidate<'_>> = std::iter::once(own).chain(others).collect();
    let progress = Progress::new(all.len() * runs as usize);
    let mut done = 0;
    while done < runs && !stop.load(Ordering::Relaxed) {
        for index in 0..all.len() {
            let index = (index + done as usize) % all.len();
            let candidate = &mut all[index];
            progress.say(&format!("run {} of {runs}: {}", done + 1, candidate.name));
            let run = if candidate.failure.is_some() {
                None
            } else {
                one_run(program, candidate, expected)
            };
            candidate.runs.push(run);
            progress.step();
        }
        // An interrupt goes to the program too, so the round that it falls into does not count.
        if stop.load(Ordering::Relaxed) {
            all.iter_mut().for_each(|candidate| {
                candidate.runs.truncate(done as usize);
                candidate.failure = None;
            });
            break;
        }
        done += 1;
    }
    findings(&all, done, runs)
}

fn one_run(
    program: &BareProgram<'_>,
    candidate: &mut Candidate<'_>,
    expected: u8,
) -> Option<RunFigures> {
    match program.run(candidate.library) {
        Ok(run) if run.code == expected => Some(run),
        Ok(run) => {
            let why =
                format!("the program ended with exit code {} instead of {expected}", run.code);
            candidate.failure = Some(why);
            None
        }
        Err(error) => {
            candidate.failure = Some(format!("the program could not be run: {error}"));
            None
        }
    }
}

fn findings(all: &[Candidate<'_>], done: u32, asked: u32) -> MeasuredFindings {
    let mut notes = Vec::new();
    if done < asked {
        notes.push(format!("Interrupted: the figures are of {done} of {asked} rounds."));
    }
    let own = &all[0];
    if let Some(why) = &own.failure {
        notes.push(format!("Not measured: without the recorder, {why}."));
    }
    if all.len() == 1 {
        notes.push(
            "No other malloc is installed. To compare some, install for example libjemalloc2 and libmimalloc-dev (Debian's names)."
                .to_owned(),
        );
    }
    let rows = all.iter().map(|candidate| row(candidate, own)).collect();
    MeasuredFindings { runs: done, rows, notes }
}

fn row(candidate: &Candidate<'_>, own: &Candidate<'_>) -> MeasuredRow {
    let middle = |of: fn(&RunFigures) -> Option<u64>| {
        let figures = candidate.figures(of);
        median(figures.into_iter().flatten()).map(|value| value.round() as u64)
    };
    let ratio = |of: fn(&RunFigures) -> Option<u64>| {
        let ratio = Ratio::of_rounds(&candidate.figures(of), &own.figures(of))?;
        let (low, high) = (ratio.interval.map(|i| i.low), ratio.interval.map(|i| i.high));
        candidate.library.map(|_| MeasuredRatio { median: ratio.median, low, high })
    };
    let cpu = |run: &RunFigures| Some(run.cpu_ns);
    let wall = |run: &RunFigures| Some(run.wall_ns);
    let peak = |run: &RunFigures| run.peak_bytes;
    MeasuredRow {
        name: candidate.name.to_owned(),
        library: candidate.library.map(|path| path.display().to_string()),
        cpu_ns: middle(cpu),
        wall_ns: middle(wall),
        peak_bytes: middle(peak),
        cpu: ratio(cpu),
        wall: ratio(wall),
        peak: ratio(peak),
        failure: candidate.failure.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare_run::StandardInput;
    use super::*;
    use std::ffi::OsString;

    fn candidate<'m>(name: &'m str, cpu: &[u64]) -> Candidate<'m> {
        let run = |cpu_ns: &u64| {
            Some(RunFigures { cpu_ns: *cpu_ns, wall_ns: 2 * cpu_ns, peak_bytes: None, code: 0 })
        };
        let library = (name != AS_IT_IS).then_some(Path::new("/lib/x.so"));
        Candidate { name, library, runs: cpu.iter().map(run).collect(), failure: None }
    }

    #[test]
    fn the_best_malloc_is_quicker_beyond_chance() {
        let own = candidate(AS_IT_IS, &[100; 6]);
        let quick = candidate("quick", &[80, 81, 79, 80, 82, 80]);
        let uneven = candidate("uneven", &[50, 51, 52, 50, 50, 101]);
        let found = findings(&[own, quick, uneven], 6, 6);
        let (best, cpu) = found.best().unwrap();
        assert_eq!((best.name.as_str(), cpu.median, cpu.high), ("quick", 0.8, Some(0.82)));
        assert!(found.rows[2].cpu.unwrap().shows_no_difference(), "within the interval");
        assert!(found.notes.is_empty() && found.rows[0].cpu.is_none());
    }

    #[test]
    fn fewer_than_six_runs_show_no_best_malloc() {
        let own = candidate(AS_IT_IS, &[100; 5]);
        let quick = candidate("quick", &[10; 5]);
        assert!(findings(&[own, quick], 5, 5).best().is_none());
    }

    #[test]
    fn a_program_that_ends_otherwise_has_no_figures_and_the_reason() {
        let command = ["sh", "-c", "exit 3"].map(OsString::from);
        let input = StandardInput::none();
        let program = BareProgram { path: Path::new("/bin/sh"), command: &command, input: &input };
        let found = measure(&program, &[], 2, 0, &AtomicBool::new(false));
        assert_eq!(found.rows[0].cpu_ns, None);
        assert!(found.notes[0].contains("exit code 3 instead of 0"), "{:?}", found.notes);
        assert!(found.notes[1].contains("No other malloc is installed"));
        let found = measure(&program, &[], 2, 3, &AtomicBool::new(true));
        assert_eq!((found.runs, found.rows[0].cpu_ns), (0, None));
    }
}
