//! A process's own memory and page faults, as the kernel counts them. What can't be read is `None`.

use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::{MMPermissions, MMapPath, Process};
use std::time::Duration;

/// Resident bytes now. They are counted page by page if the kernel supports that, because its
/// running count may be wrong by some pages for each core.
pub fn resident() -> Option<u64> {
    page_by_page("Rss").or_else(|| status(|status| status.vmrss))
}

/// Resident bytes in huge pages now.
pub fn huge() -> Option<u64> {
    page_by_page("AnonHugePages")
}

fn page_by_page(field: &str) -> Option<u64> {
    let rollup = Process::myself().ok()?.smaps_rollup().ok()?;
    rollup.memory_map_rollup.iter().find_map(|map| map.extension.map.get(field).copied())
}

/// Huge pages that the kernel could give now without compaction.
pub fn free_huge_pages() -> Option<u64> {
    let huge =
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    let huge: u64 = huge.trim().parse().ok()?;
    let blocks = std::fs::read_to_string("/proc/buddyinfo").ok()?;
    free_blocks(&blocks, (huge / procfs::page_size()).checked_ilog2()?)
}

/// Free blocks of 2^`order` pages, from the text of `/proc/buddyinfo`: for each zone, the numbers
/// of free blocks of 1, 2, 4, ... pages. A larger block counts as several.
fn free_blocks(buddyinfo: &str, order: u32) -> Option<u64> {
    let mut free = 0;
    for zone in buddyinfo.lines() {
        let (_, counts) = zone.split_once("zone")?;
        for (one, count) in (0..).zip(counts.split_whitespace().skip(1)) {
            let count: u64 = count.parse().ok()?;
            free += if one >= order { count << (one - order) } else { 0 };
        }
    }
    Some(free)
}

/// The peak of resident bytes since [`forget_peak`], or since the process began.
pub fn peak_resident() -> Option<u64> {
    status(|status| status.vmhwm).or_else(|| {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        u64::try_from(usage.max_rss()).ok().filter(|kib| *kib > 0).map(|kib| kib * 1024)
    })
}

/// Resets the peak, if that is permitted.
pub fn forget_peak() {
    // If it is not, the peak counts from the start of the process: it is never too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Minor page faults of the whole process so far.
pub fn minor_faults() -> Option<u64> {
    u64::try_from(getrusage(UsageWho::RUSAGE_SELF).ok()?.minor_page_faults()).ok()
}

/// Processor time of the whole process so far, outside the kernel.
pub fn user_time() -> Option<Duration> {
    let time = getrusage(UsageWho::RUSAGE_SELF).ok()?.user_time();
    let whole = u64::try_from(time.tv_sec()).ok()?;
    Some(Duration::from_secs(whole) + Duration::from_micros(u64::try_from(time.tv_usec()).ok()?))
}

/// Maps all pages of the program and its libraries. They are in the page cache anyway. Code that
/// runs for the first time then does not look like allocated memory.
pub fn map_programs() {
    let Ok(maps) = Process::myself().and_then(|myself| myself.maps()) else { return };
    for map in maps {
        let readable = map.perms.contains(MMPermissions::READ);
        if readable && matches!(map.pathname, MMapPath::Path(_)) {
            let (start, end) = map.address;
            let at = std::ptr::without_provenance_mut(start as usize);
            // SAFETY: the call changes nothing that a program can see: it maps pages of a file for
            // reading, as the first access would. If the kernel lacks it, or there is nothing left
            // to map, it fails, and only precision is lost.
            let _ = unsafe { libc::madvise(at, (end - start) as usize, libc::MADV_POPULATE_READ) };
        }
    }
}

fn status(kib: impl Fn(&procfs::process::Status) -> Option<u64>) -> Option<u64> {
    let status = Process::myself().ok()?.status().ok()?;
    kib(&status).map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_user_time() {
        let before = user_time().unwrap();
        let mut sum = 0u64;
        while user_time().unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[test]
    fn free_blocks_of_all_zones_count_and_larger_ones_several_times() {
        let text = "Node 0, zone      DMA      0      0      0      1\n\
                    Node 0, zone   Normal  23695  15434      3      2\n";
        assert_eq!(free_blocks(text, 2), Some(2 + 3 + 4));
        assert_eq!(free_blocks(text, 3), Some(3));
        assert_eq!(free_blocks("Node 0, zone DMA x", 2), None);
        assert!(free_huge_pages().is_none_or(|pages| pages < 1 << 40));
    }

    #[test]
    fn touched_memory_is_resident_and_faulted_in() {
        let (before, faults) = (resident().unwrap(), minor_faults().unwrap());
        forget_peak();
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let after = resident().unwrap();
        drop(block);
        assert!(after > before + (24 << 20), "{before} -> {after}");
        assert!(peak_resident().unwrap() > before + (24 << 20));
        assert!(minor_faults().unwrap() > faults);
    }
}
