//! Prepares a replay: compiles a recording into a file of steps.

use super::allocator_plan::Route;
use super::compile::{self, CompileOptions};
use super::event_stream::{self, ObservedEvents};
use super::live_bytes::{self, LiveBytesCurve};
use super::options::{ReplayOptions, interrupted};
use super::round_job::{self, REST, Round, RoundJob, RowAllocator};
use super::rounds::{self, RowSpec};
use super::sequence::{NO_GROUP, StepSequence};
use super::thread_scan;
use crate::analyse::findings::ReportNote;
use crate::analyse::{Analysis, NO_SITE};
use bench::console::failure::Failure;
use bench::console::progress::Progress;
use bench::console::table::grouped;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use trace_format::RecordingReader;

/// Steps of the progress bar for a pass over the events.
const STEPS: usize = 50;

/// A compiled recording, and the file of its steps.
pub struct CompiledRecording {
    pub sequence: StepSequence,
    steps: File,
    /// The curve of the recording's live bytes, with `--check`.
    curve: Option<LiveBytesCurve>,
    doubts: Vec<String>,
    options: ReplayOptions,
}

impl CompiledRecording {
    /// Reads the recording twice, or three times with `--check`.
    pub fn new(
        path: &Path,
        analysis: &Analysis,
        routes: &[Route],
        options: &ReplayOptions,
    ) -> Result<Self, Failure> {
        let check = options.check;
        let progress = Progress::shown_if(options.progress, (2 + usize::from(check)) * STEPS);
        let told =
            |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
        let reader = RecordingReader::open(path).map_err(|error| told(&error))?;
        let events = || {
            interrupted(options)?;
            reader.events(analysis.process).map_err(|error| told(&error))
        };
        let expected = analysis.findings.program.events;
        let observed =
            |events| ObservedEvents::new(events, expected, &progress, STEPS, options.stop);
        progress.say("finding blocks that pass between threads");
        let scan =
            event_stream::read_ahead(events()?, |events| thread_scan::scan(observed(events)))
                .map_err(|error| told(&error))?;
        interrupted(options)?;
        if scan.events == 0 {
            return Err(told(
                &"the process has no allocation or free, so there is nothing to replay; choose another with --process",
            ));
        }
        progress.say("writing the steps to replay");
        let groups = analysis.findings.groups.len();
        let mut compile_options =
            CompileOptions { group_of: Vec::new(), scoped: vec![false; groups], turns: check };
        for route in routes {
            compile_options.scoped[route.group as usize] = route.is_scoped();
        }
        compile_options.group_of = analysis
            .site_of
            .iter()
            .map(|site| match site {
                &NO_SITE => NO_GROUP,
                site => Some(analysis.findings.sites[*site as usize].group)
                    .filter(|group| routes.iter().any(|route| route.group == *group))
                    .unwrap_or(NO_GROUP),
            })
            .collect();
        let mut steps =
            tempfile::tempfile().map_err(|error| told(&compile::CompileError::Write(error)))?;
        let sequence = event_stream::read_ahead(events()?, |events| {
            compile::compile(observed(events), &scan, &compile_options, &mut steps)
        })
        .map_err(|error| told(&error))?;
        interrupted(options)?;
        let curve = if check {
            progress.say("adding up live bytes");
            let curve = event_stream::read_ahead(events()?, |events| {
                live_bytes::recorded(observed(events))
            });
            Some(curve.map_err(|error| told(&error))?)
        } else {
            None
        };
        interrupted(options)?;
        Ok(Self { sequence, steps, curve, doubts: Vec::new(), options: options.clone() })
    }

    fn job(&self, allocator: &RowAllocator, check: bool) -> RoundJob {
        RoundJob {
            // The file has no other name.
            file: PathBuf::from(format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                self.steps.as_raw_fd()
            )),
            sequence: self.sequence.clone(),
            allocator: allocator.clone(),
            check,
        }
    }

    /// One round of a row.
    pub fn round(&self, spec: &RowSpec) -> Result<Round, String> {
        rounds::in_child(&self.job(&spec.allocator, false), &|| self.options.is_stopped())
    }

    /// Whether glibc and all plans have the recording's live bytes after every step, and no two
    /// blocks overlap. `None` without `--check`.
    pub fn check(&mut self, specs: &[RowSpec]) -> Result<Option<bool>, Failure> {
        let Some(recorded) = &self.curve else { return Ok(None) };
        let progress = Progress::shown_if(self.options.progress, specs.len());
        let mut doubts = Vec::new();
        for spec in specs {
            if !matches!(&spec.allocator, RowAllocator::Plan(_)) && spec.name != REST {
                progress.step();
                continue;
            }
            progress.say(&format!("comparing live bytes with the recording's: {}", spec.name));
            let found =
                rounds::in_child(&self.job(&spec.allocator, true), &|| self.options.is_stopped());
            interrupted(&self.options)?;
            let round = found.map_err(|why| Failure::Failed(format!("{}: {why}", spec.name)))?;
            let curve = round.curve.unwrap_or_default();
            if curve.overlaps > 0 {
                doubts.push(format!(
                    "{}: {} blocks overlap a live one",
                    spec.name,
                    grouped(curve.overlaps)
                ));
            }
            if (LiveBytesCurve { overlaps: 0, ..curve.clone() }) != *recorded {
                doubts.push(format!(
                    "{}: its live bytes differ from the recording's: {} points up to {} bytes, but {} points up to {} bytes were recorded",
                    spec.name,
                    grouped(curve.points),
                    grouped(curve.most),
                    grouped(recorded.points),
                    grouped(recorded.most),
                ));
            }
            progress.step();
        }
        for doubt in &doubts {
            progress.warn(doubt);
        }
        self.doubts = doubts;
        Ok(Some(self.doubts.is_empty()))
    }

    /// Notes on the replay.
    pub fn notes(&self) -> Vec<ReportNote> {
        let mut notes: Vec<ReportNote> = self
            .doubts
            .iter()
            .map(|text| ReportNote { warning: true, text: text.clone() })
            .collect();
        let skipped = self.sequence.skipped;
        let mut note = |text: String| notes.push(ReportNote { warning: false, text });
        if skipped.unknown_frees > 0 {
            note(format!(
                "The replay leaves out {} frees of blocks that were allocated before the recording.",
                grouped(skipped.unknown_frees)
            ));
        }
        if skipped.lost_frees > 0 {
            note(format!(
                "The address of {} blocks was allocated again although no free was recorded; the replay frees them there.",
                grouped(skipped.lost_frees)
            ));
        }
        let threads: usize = self.sequence.chains.iter().map(Vec::len).sum();
        if threads > round_job::MOST_THREADS {
            note(format!(
                "Of {} threads, those that ran after each other share one in the replay, which starts no more than {}.",
                grouped(threads as u64),
                grouped(round_job::MOST_THREADS as u64)
            ));
        }
        notes
    }
}
