//! Waits for locks, by the place that waited.

use super::findings::LockSite;
use super::first::{FirstEnd, Waits};
use super::symbols::Symbols;
use super::tally::share;
use super::words;
use allot_trace::{NodeId, Stacks};
use std::cmp::Reverse;

/// Places that are told.
const MOST_LOCKS: usize = 100;
/// Frames of a lock's stack that are told.
const LOCK_FRAMES: usize = 16;
/// The least share of the threads' time that is worth a word.
const LEAST: f64 = 0.01;

/// The places that waited, the longest wait in all first.
pub fn locks(stacks: &Stacks, symbols: &mut Symbols<'_>, end: &FirstEnd) -> Vec<LockSite> {
    let mut waits: Vec<_> = end.locks.iter().collect();
    waits.sort_by_key(|((node, kind), waits)| (Reverse(waits.waited_ns), *node, *kind));
    waits.truncate(MOST_LOCKS);
    let thread_ns: u64 = end.threads.iter().map(|(first, last)| last - first).sum();
    let site = |((node, kind), waits): (&(NodeId, &str), &Waits)| {
        // A thread may be seen first when it has waited.
        let share = share(waits.waited_ns, thread_ns).map(|share| share.min(1.0));
        LockSite {
            frames: stacks
                .frames(*node)
                .take(LOCK_FRAMES)
                .flat_map(|node| symbols.at(stacks, node).to_vec())
                .collect(),
            kind: (*kind).to_owned(),
            waits: waits.waits,
            waited_ns: waits.waited_ns,
            longest_ns: waits.longest_ns,
            locks: waits.locks.len() as u32,
            share,
            advice: share.filter(|&share| share >= LEAST).map(|share| advice(kind, waits, share)),
        }
    };
    waits.into_iter().map(site).collect()
}

/// What to do about waits at one place.
fn advice(kind: &str, waits: &Waits, share: f64) -> String {
    let locks = waits.locks.len() as u64;
    let of = match (kind, locks) {
        ("mutex", 1) => "a mutex".to_owned(),
        ("mutex", _) => format!("{} mutexes", words::count(locks)),
        (_, 1) => "a read-write lock".to_owned(),
        _ => format!("{} read-write locks", words::count(locks)),
    };
    let remedy = match kind {
        "read" => {
            "Readers wait for a writer: give them a sealed value that is published (`Published`), which they read without a lock, and let the writer publish the next one."
        }
        "write" => {
            "The writer waits for readers or other writers: publish whole values (`Published`) instead of changing one in place, or divide what is locked so that fewer threads meet."
        }
        _ if locks == 1 => {
            "Hold it for a shorter time (nothing under it that allocates, prints or calls the kernel), give each thread a part of its own and put the parts together at the end, or take it once for many things. If it protects memory that is handed out, a pool or an arena for each thread needs no lock; if it protects what all only read, seal it."
        }
        _ => {
            "Hold them for a shorter time (nothing under them that allocates, prints or calls the kernel), or let each thread work on a part of its own."
        }
    };
    format!(
        "{} waits for {of}, {} in all, {} the longest: {} of the time of all threads. {remedy}",
        words::count(waits.waits),
        words::time(waits.waited_ns),
        words::time(waits.longest_ns),
        words::percent(share)
    )
}
