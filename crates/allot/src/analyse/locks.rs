//! Waits for locks, by the place that waited.

use super::findings::LockSite;
use super::first::{FirstEnd, Waits};
use super::symbols::Symbols;
use super::tally::share;
use allot_trace::{NodeId, Stacks};
use std::cmp::Reverse;

/// Places that are told.
const MOST_LOCKS: usize = 100;
/// Frames of a lock's stack that are told.
const LOCK_FRAMES: usize = 16;

/// The places that waited, the longest wait in all first.
pub fn locks(stacks: &Stacks, symbols: &mut Symbols<'_>, end: &FirstEnd) -> Vec<LockSite> {
    let mut waits: Vec<_> = end.locks.iter().collect();
    waits.sort_by_key(|((node, kind), waits)| (Reverse(waits.waited_ns), *node, *kind));
    waits.truncate(MOST_LOCKS);
    let thread_ns: u64 = end.threads.iter().map(|(first, last)| last - first).sum();
    let site = |((node, kind), waits): (&(NodeId, &str), &Waits)| LockSite {
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
        share: share(waits.waited_ns, thread_ns),
        advice: None,
    };
    waits.into_iter().map(site).collect()
}
