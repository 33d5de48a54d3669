//! The system calls of Linux.
//!
//! The invariants are those of `os.rs`.
//!
//! | file | what it holds |
//! |---|---|
//! | `pages` | what backs the pages of a mapping |
//! | `mappings` | mappings, reserved addresses and their protection |
//! | `files` | files that serve as memory |
//! | `process` | clocks, forks, fences, waiting threads and messages |

mod files;
mod mappings;
mod pages;
mod process;

use core::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::error::{AllocError, ErrorKind};

pub use self::files::{
    check_file_length, create_named, create_unlinked, extend_file, punch_hole, read_start,
    reserve_blocks,
};
pub use self::mappings::{
    ADDRESSES_IN_USE, locks_new_mappings, make_accessible, make_read_only, map, map_file,
    map_sparse, reserve_addresses, reserve_addresses_at, reserve_unlocked, seal_permanently, unmap,
};
pub use self::pages::{
    advise_huge, advise_small, discard, exclude_from_fork, is_resident, lock, populate, split_huge,
    unlock,
};
pub use self::process::{
    around_fork, coarse_millis, fence_process, nanos, on_fork, register_process_fences,
    thread_nanos, wait_on, wake_all,
};

/// The hardware page, in bytes.
#[inline]
pub fn page_size() -> usize {
    // Read once, because every chunk needs it. Relaxed: every thread finds the same value.
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            let size = rustix::param::page_size();
            PAGE.store(size, Ordering::Relaxed);
            size
        }
        known => known,
    }
}

fn refused(errno: Errno, bytes: usize) -> AllocError {
    AllocError::new(ErrorKind::System(errno.raw_os_error()), bytes)
}
