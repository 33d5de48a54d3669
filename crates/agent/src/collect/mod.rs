//! What is collected each second, and the thread that collects it.
//!
//! The thread allocates all short-lived objects without a lock: samples have one size and come from
//! a free list. What reading `/proc` needs besides comes from a pool that the thread enters.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `chart_kind` | the kinds of charts of a machine |
//! | `proc_files` | the files of `/proc`, and the samples read from them |
//! | `machine_charts` | the charts of this machine's devices |
//! | `synthetic` | computed metrics |

mod chart_kind;
mod machine_charts;
mod proc_files;
pub mod synthetic;

pub use machine_charts::{FORGET_AFTER, MAX_CHARTS};
pub use proc_files::MAX_DEVICE_NAME_BYTES;

use crate::clock::{Clock, StopSignal};
use crate::log::Log;
use crate::memory::{Memory, ObjectList};
use crate::store::{Second, StoreError, StoreWriter};
use allotment::AllocError;
use machine_charts::MachineCharts;
use proc_files::{DeviceName, Sample};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use synthetic::{SyntheticCharts, SyntheticShape};

/// What to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorSources {
    /// Whether to collect this machine's counters.
    pub machine: bool,
    /// The computed metrics, if any.
    pub synthetic: Option<SyntheticShape>,
}

/// The statistics of a collector.
#[derive(Debug, Default)]
pub struct CollectorStatistics {
    ticks: AtomicU64,
    missed: AtomicU64,
    last_micros: AtomicU64,
    longest_micros: AtomicU64,
    all_micros: AtomicU64,
}

impl CollectorStatistics {
    /// Returns the number of seconds that were collected.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Returns the number of seconds that were not collected, because the second before took too
    /// long or the clock was set forward.
    #[must_use]
    pub fn ticks_missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Returns the duration of the last tick.
    #[must_use]
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.last_micros.load(Ordering::Relaxed))
    }

    /// Returns the duration of the longest tick.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_micros.load(Ordering::Relaxed))
    }

    /// Returns the duration of all ticks together.
    #[must_use]
    pub fn all(&self) -> Duration {
        Duration::from_micros(self.all_micros.load(Ordering::Relaxed))
    }

    /// Records a tick. Only the collector's thread writes these counters.
    fn tick(&self, missed: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let add = |to: &AtomicU64, more| {
            to.store(to.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
        };
        add(&self.ticks, 1);
        add(&self.missed, missed);
        add(&self.all_micros, micros);
        self.last_micros.store(micros, Ordering::Relaxed);
        let longest = self.longest_micros.load(Ordering::Relaxed).max(micros);
        self.longest_micros.store(longest, Ordering::Relaxed);
    }
}

/// Why the collector can't start, or why it ended.
#[derive(Debug)]
pub enum CollectError {
    /// The computed charts can't be added.
    Store(StoreError),
    /// Memory for the collector's own objects is not available.
    Memory(AllocError),
    /// The thread is not available.
    Thread(io::Error),
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Memory(error) => {
                write!(f, "no memory for the collector: {error}; raise the memory limit")
            }
            Self::Thread(error) => write!(
                f,
                "no thread for the collector: {error}; end other processes, or raise the limit of processes"
            ),
        }
    }
}

impl std::error::Error for CollectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Memory(error) => Some(error),
            Self::Thread(error) => Some(error),
        }
    }
}

/// A running collector. Dropping it stops the collector.
#[derive(Debug)]
pub struct CollectorHandle {
    statistics: Arc<CollectorStatistics>,
    stop: StopSignal,
    thread: Option<JoinHandle<Result<(), CollectError>>>,
}

impl CollectorHandle {
    /// Returns the collector's statistics.
    #[must_use]
    pub fn statistics(&self) -> &Arc<CollectorStatistics> {
        &self.statistics
    }

    /// Whether the collector runs: false after a panic, which is a defect, or if it found no memory
    /// at its start.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the collector after its current tick.
    ///
    /// # Errors
    /// With the cause, if the collector had ended before.
    pub fn stop(mut self) -> Result<(), CollectError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CollectError> {
        self.stop.set();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            // The panic's message is on standard error.
            Some(Err(_)) => Err(CollectError::Thread(io::Error::other("the collector panicked"))),
            None => Ok(()),
        }
    }
}

impl Drop for CollectorHandle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Adds the computed charts, and starts to collect on a new thread.
///
/// # Errors
/// When memory for the charts or the thread is not available.
pub fn start<M: Memory>(
    mut writer: StoreWriter<M>,
    sources: CollectorSources,
    clock: Arc<Clock>,
    log: Arc<Log>,
) -> Result<CollectorHandle, CollectError> {
    let synthetic = sources.synthetic.map(|shape| SyntheticCharts::new(&mut writer, shape));
    let synthetic = synthetic.transpose().map_err(CollectError::Store)?;
    let statistics = Arc::new(CollectorStatistics::default());
    let stop = StopSignal::default();
    let collector = Collector {
        machine: sources.machine.then(MachineCharts::default),
        synthetic,
        writer,
        clock,
        log,
        statistics: statistics.clone(),
        stop: stop.clone(),
        failed: [false; proc_files::ALL.len()],
    };
    let thread = std::thread::Builder::new().name("collector".into());
    let thread = thread.spawn(move || collector.run()).map_err(CollectError::Thread)?;
    Ok(CollectorHandle { statistics, stop, thread: Some(thread) })
}

struct Collector<M: Memory> {
    writer: StoreWriter<M>,
    machine: Option<MachineCharts<M>>,
    synthetic: Option<SyntheticCharts<M>>,
    clock: Arc<Clock>,
    log: Arc<Log>,
    statistics: Arc<CollectorStatistics>,
    stop: StopSignal,
    /// Which files could not be read the last time.
    failed: [bool; proc_files::ALL.len()],
}

impl<M: Memory> Collector<M> {
    fn run(mut self) -> Result<(), CollectError> {
        let store = self.writer.store().clone();
        let pool = store.memory().pool("collector").map_err(CollectError::Memory)?;
        // Declared after the pool, and so dropped before it: its objects may lie in the pool.
        let samples = store.memory().list("samples of a second").map_err(CollectError::Memory)?;
        let mut last = self.clock.now();
        while let Some(now) = self.clock.next_tick(last, &self.stop) {
            let began = Instant::now();
            self.collect(now, &samples, &pool);
            let missed = u64::from(now - last - 1);
            self.statistics.tick(missed, began.elapsed());
            if missed > 0 {
                self.log.warning(format_args!("missed {missed} ticks before second {now}"));
            }
            last = now;
            // No request waits for the writer until the next second.
            self.writer.end_tick(now);
        }
        if !self.stop.is_set() {
            self.log.error(format_args!(
                "second {last} is the last that the store can hold; the collector stops"
            ));
        }
        Ok(())
    }

    fn collect(&mut self, now: Second, samples: &M::List<Sample>, pool: &M::Pool) {
        if let Some(synthetic) = &mut self.synthetic {
            synthetic.collect(&mut self.writer, now);
        }
        let Some(machine) = &mut self.machine else { return };
        let (failed, log) = (&mut self.failed, &self.log);
        let read = Instant::now();
        let collect = self.statistics.last().as_secs_f64() * 1000.0;
        let agent_sample = Sample::new(&chart_kind::AGENT, DeviceName::NONE, &[collect]);
        let mut collected = Vec::from_iter(samples.put(agent_sample));
        for (reading, failed) in proc_files::ALL.iter().zip(failed) {
            let result = M::enter(pool, || {
                (reading.read)(&mut |sample| collected.extend(samples.put(sample)))
            });
            let fails = result.is_err();
            if let Err(error) = result
                && !*failed
            {
                log.warning(format_args!("{} is not collected: {error}", reading.name));
            }
            *failed = fails;
        }
        for sample in &collected {
            machine.add_sample(&mut self.writer, &self.log, now, read, sample);
        }
        machine.forget(&mut self.writer, &self.log, now);
    }
}
