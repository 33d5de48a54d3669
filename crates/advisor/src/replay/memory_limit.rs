//! Whether there is enough memory for a replay.

use super::allocator_plan::Route;
use super::sequence::MOST_TOUCHED;
use crate::analyse::findings::{AdvisedAllocator, Findings};
use bench::console::table::mebibytes;
use nix::sys::resource::{Resource, getrlimit};
use procfs::Current;
use std::fs;

/// The bytes that are still available: the least of the kernel's estimate, the limit of our control
/// group, and `ulimit -v`. `None` if all of these are unknown.
pub fn available() -> Option<u64> {
    let system = procfs::Meminfo::current().ok().and_then(|memory| memory.mem_available);
    let own = getrlimit(Resource::RLIMIT_AS).ok().map(|(limit, _)| limit);
    system.into_iter().chain(left_of_group()).chain(own).min()
}

/// What the limit of our control group leaves, if there is one. Cached files don't count as used,
/// because the kernel drops them when memory is needed.
fn left_of_group() -> Option<u64> {
    let most = fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse::<u64>().ok()?;
    let stat = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
    let held = stat.lines().find_map(|line| line.strip_prefix("anon ")?.parse::<u64>().ok())?;
    Some(most.saturating_sub(held))
}

/// The bytes that a plan's allocator holds besides glibc's: an arena holds all blocks since its
/// last reset.
pub fn extra_bytes(route: &Route, findings: &Findings) -> u64 {
    let behaviour = &findings.groups[route.group as usize].behaviour;
    match route.allocator {
        // No more than this is written of each block.
        AdvisedAllocator::Arena if route.without_reset => {
            behaviour.bytes.min(behaviour.count.saturating_mul(MOST_TOUCHED as u64))
        }
        AdvisedAllocator::Arena => behaviour.peak_held_bytes,
        _ => behaviour.peak_live_bytes,
    }
}

/// Why this many bytes can't be held; `None` if they can.
pub fn refuse(wanted: u64, available: Option<u64>) -> Option<String> {
    let available = available.filter(|available| wanted > *available)?;
    Some(format!(
        "it would hold {} MiB at once, and only {} MiB of memory are available",
        mebibytes(Some(wanted)),
        mebibytes(Some(available))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_memory_is_refused_in_figures() {
        assert_eq!(refuse(1 << 30, None), None);
        assert_eq!(refuse(1 << 30, Some(1 << 30)), None);
        let why = refuse(3 << 30, Some(2 << 30)).unwrap();
        assert!(why.contains("3072.0 MiB") && why.contains("2048.0 MiB"), "{why}");
    }

    #[test]
    fn the_kernel_says_how_much_memory_there_is() {
        assert!(available().unwrap() > 1 << 20);
    }
}
