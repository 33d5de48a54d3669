//! `published`: a configuration that all threads read.
//!
//! One operation is one read: the thread acquires the configuration, reads two of its fields, and
//! releases it. No thread writes during the measured part, as in a server whose configuration stays
//! for days.

use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use crate::workloads::variant::{TAKES_NO_MEMORY, Variant};
use crate::workloads::workload::RunSpec;
use allotment::{Published, ReadOnly, Sealed};
use arc_swap::ArcSwap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError, RwLock};

/// The configuration that all threads read.
#[derive(Debug)]
struct Configuration {
    url: String,
    port: u16,
}

impl Configuration {
    fn new() -> Self {
        Self { url: URL.to_owned(), port: PORT }
    }
}

/// The same configuration in sealed memory.
#[derive(Debug, ReadOnly)]
struct SealedConfiguration<'s> {
    url: &'s str,
    port: u16,
}

const URL: &str = "https://shop.example.org/server";
const PORT: u16 = 8443;

/// A way to share the configuration between threads.
trait SharedConfiguration: Sync + Sized {
    fn new() -> Self;

    /// Calls `inspect` with the URL and the port. The result does not borrow from them.
    fn read(&self, inspect: impl FnOnce(&str, u16));
}

/// The row with which ratios compare.
pub const OWN: &str = "allotment-published";

pub(crate) static VARIANTS: [Variant; 5] = [
    Variant::ours(
        OWN,
        "allotment::Published<Sealed<...>>, by read()",
        TAKES_NO_MEMORY,
        run::<Published<Sealed<SealedConfiguration<'static>>>>,
    ),
    Variant::ours(
        "allotment-sealed",
        "allotment::Sealed alone, which can't be replaced",
        TAKES_NO_MEMORY,
        run::<Sealed<SealedConfiguration<'static>>>,
    ),
    Variant::peer("mutex", "std::sync::Mutex", TAKES_NO_MEMORY, run::<Mutex<Configuration>>),
    Variant::peer("rwlock", "std::sync::RwLock", TAKES_NO_MEMORY, run::<RwLock<Configuration>>),
    Variant::peer(
        "arc-swap",
        "arc_swap::ArcSwap, by load()",
        TAKES_NO_MEMORY,
        run::<ArcSwap<Configuration>>,
    ),
];

impl SharedConfiguration for Mutex<Configuration> {
    fn new() -> Self {
        Self::new(Configuration::new())
    }

    #[inline(always)]
    fn read(&self, inspect: impl FnOnce(&str, u16)) {
        let configuration = self.lock().unwrap_or_else(PoisonError::into_inner);
        inspect(&configuration.url, configuration.port);
    }
}

impl SharedConfiguration for RwLock<Configuration> {
    fn new() -> Self {
        Self::new(Configuration::new())
    }

    #[inline(always)]
    fn read(&self, inspect: impl FnOnce(&str, u16)) {
        let configuration = self.read().unwrap_or_else(PoisonError::into_inner);
        inspect(&configuration.url, configuration.port);
    }
}

impl SharedConfiguration for ArcSwap<Configuration> {
    fn new() -> Self {
        Self::from_pointee(Configuration::new())
    }

    #[inline(always)]
    fn read(&self, inspect: impl FnOnce(&str, u16)) {
        let configuration = self.load();
        inspect(&configuration.url, configuration.port);
    }
}

impl SharedConfiguration for Sealed<SealedConfiguration<'static>> {
    fn new() -> Self {
        Self::new(|sealer| SealedConfiguration { url: sealer.alloc_str(URL), port: PORT })
    }

    #[inline(always)]
    fn read(&self, inspect: impl FnOnce(&str, u16)) {
        let configuration = self.get();
        inspect(configuration.url, configuration.port);
    }
}

impl SharedConfiguration for Published<Sealed<SealedConfiguration<'static>>> {
    fn new() -> Self {
        Self::new(SharedConfiguration::new())
    }

    #[inline(always)]
    fn read(&self, inspect: impl FnOnce(&str, u16)) {
        let generation = self.read();
        let configuration = generation.get();
        inspect(configuration.url, configuration.port);
    }
}

fn run<S: SharedConfiguration>(
    spec: &RunSpec,
    observer: &dyn Observer,
) -> Result<Measurement, RunError> {
    let threads = spec.setting.threads;
    let reads = reads(threads, spec.effort);
    let shared = S::new();
    let walls = thread_group::run(
        threads,
        observer,
        |_| (),
        |worker, ()| worker.measured(|| read_often(&shared, reads)),
    );
    Ok(Measurement::timed(reads * threads as u64, walls[0]))
}

/// The number of reads of each thread.
fn reads(threads: usize, effort: Effort) -> u64 {
    let all = if effort.is_quick() { 8_000_000 } else { 40_000_000 };
    (all / threads as u64).max(1)
}

#[inline(never)]
fn read_often<S: SharedConfiguration>(shared: &S, reads: u64) {
    for _ in 0..reads {
        // `black_box` hides the address. Otherwise the compiler could load once for all iterations.
        black_box(shared).read(|url, port| {
            black_box(url.len());
            black_box(port);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn reads_what_was_published<S: SharedConfiguration>() {
        let shared = S::new();
        let seen = Cell::new(0);
        shared.read(|url, port| {
            assert_eq!((url, port), (URL, PORT));
            seen.set(1);
        });
        assert_eq!(seen.get(), 1);
    }

    #[test]
    fn every_way_reads_the_configuration() {
        reads_what_was_published::<Mutex<Configuration>>();
        reads_what_was_published::<RwLock<Configuration>>();
        reads_what_was_published::<ArcSwap<Configuration>>();
        reads_what_was_published::<Sealed<SealedConfiguration<'static>>>();
        reads_what_was_published::<Published<Sealed<SealedConfiguration<'static>>>>();
    }

    #[test]
    fn every_thread_reads_and_quick_is_less() {
        for threads in [1, 2, 16, 1024] {
            assert!((1..reads(threads, Effort::Full)).contains(&reads(threads, Effort::Quick)));
        }
    }
}
