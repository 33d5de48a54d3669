//! What backs the pages of a mapping: whether they have memory, are locked, or are huge.
//!
//! The invariants are those of `os.rs`.

use core::ffi::c_void;
use core::ptr::NonNull;

use rustix::mm::{Advice, MlockFlags};

use super::{page_size, refused};
use crate::error::AllocError;

pub(super) unsafe fn advise(
    start: NonNull<u8>,
    len: usize,
    advice: Advice,
) -> Result<(), AllocError> {
    let start: *mut c_void = start.as_ptr().cast();
    // SAFETY: guaranteed by the caller.
    unsafe { rustix::mm::madvise(start, len, advice) }.map_err(|errno| refused(errno, len))
}

/// Gives the memory of a private range back and keeps the addresses. The next access reads zeros.
/// Locked pages (`mlock`, `mlockall`) stay locked: they get memory, which is locked, on the next
/// access.
///
/// # Safety
/// The range is whole pages that were mapped here, and nothing refers to their bytes any more.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        advise(start, len, Advice::LinuxDontNeed)
            // `MADV_DONTNEED` fails for locked pages. This advice succeeds, from Linux 5.18 on.
            .or_else(|_| advise(start, len, Advice::LinuxDontneedLocked))
            .or_else(|_| discard_between_locks(start, len))
    }
}

/// Discards locked pages of a kernel before 5.18.
///
/// # Safety
/// As for [`discard`].
unsafe fn discard_between_locks(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    unlock(start, len);
    // SAFETY: guaranteed by the caller.
    unsafe {
        advise(start, len, Advice::LinuxDontNeed)?;
        rustix::mm::mlock_with(start.as_ptr().cast(), len, MlockFlags::ONFAULT)
    }
    .map_err(|errno| refused(errno, len))
}

/// Locks pages in memory. They get memory now.
pub fn lock(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: changes what backs the pages, never their bytes.
    unsafe { rustix::mm::mlock(start.as_ptr().cast(), len) }.map_err(|errno| refused(errno, len))
}

/// Undoes [`lock`].
pub fn unlock(start: NonNull<u8>, len: usize) {
    // SAFETY: as for `lock`. It fails for ranges that are not mapped, and then there is no lock.
    let _ = unsafe { rustix::mm::munlock(start.as_ptr().cast(), len) };
}

/// Asks for huge pages in a private range. A kernel without huge pages returns an error, and
/// nothing changes.
pub fn advise_huge(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what backs the pages, never their bytes.
    unsafe { advise(start, len, Advice::LinuxHugepage) }
}

/// Asks for ordinary pages in a private range. Where there are no huge pages this returns an error.
pub fn advise_small(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: as in `advise_huge`.
    unsafe { advise(start, len, Advice::LinuxNoHugepage) }
}

/// Makes the kernel split the huge page that holds a part of a private range, if there is one. The
/// part's bytes are lost. Without the split, discarding a part of a huge page would free no memory
/// until the rest is discarded too.
///
/// # Safety
/// As for [`discard`].
pub unsafe fn split_huge(start: NonNull<u8>, len: usize) {
    // Lazy freeing of a part splits the huge page immediately. It is refused for mappings that are
    // not anonymous, which have no huge page to split. SAFETY: guaranteed by the caller.
    let _ = unsafe { advise(start, len, Advice::LinuxFree) };
}

/// Faults a private or shared writable range in, as if each page had been written. Kernels before
/// 5.14 return an error; the pages are then faulted in one by one when they are accessed.
pub fn populate(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what backs the pages, never their bytes.
    unsafe { advise(start, len, Advice::LinuxPopulateWrite) }
}

/// Whether a hardware page has memory. `None` if the system does not say.
pub fn is_resident(page: NonNull<u8>) -> Option<bool> {
    unsafe extern "C" {
        /// Every supported C library has this call of Linux.
        unsafe fn mincore(start: *mut c_void, len: usize, residency: *mut u8) -> core::ffi::c_int;
    }
    // The kernel writes one byte. If qemu emulates larger pages, it writes one byte for each page
    // of the host.
    let mut residency = [0_u8; 16];
    // SAFETY: writes at most a byte for each 4 KiB of a page of at most 64 KiB, and reads nothing
    // of it.
    let answer = unsafe { mincore(page.as_ptr().cast(), page_size(), residency.as_mut_ptr()) };
    (answer == 0).then_some(residency[0] & 1 == 1)
}

/// Keeps this range out of children made by fork: they don't have the mapping.
pub fn exclude_from_fork(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what a later fork copies, nothing in this process.
    unsafe { advise(start, len, Advice::LinuxDontFork) }
}

#[cfg(test)]
mod tests {
    use super::super::{map, unmap};
    use super::*;

    #[test]
    fn discarded_memory_reads_zeros_again() {
        let len = page_size();
        let start = map(len, 1).unwrap();
        // SAFETY: our own mapping, within its bounds.
        unsafe {
            start.write(7);
            discard(start, len).unwrap();
            assert_eq!(start.read(), 0);
            unmap(start, len).unwrap();
        }
    }

    #[test]
    fn locked_memory_that_was_discarded_reads_zeros_and_stays_locked() {
        let len = 4 * page_size();
        let start = map(len, 1).unwrap();
        if lock(start, len).is_err() {
            println!("skipped: this process may lock no memory");
            return;
        }
        for discard in [discard, discard_between_locks] {
            // SAFETY: our own mapping, within its bounds.
            unsafe {
                start.write_bytes(7, len);
                discard(start, len).unwrap();
                assert_ne!(is_resident(start), Some(true));
                // Locked pages refuse this advice.
                assert!(advise(start, len, Advice::LinuxDontNeed).is_err());
                assert_eq!(start.read(), 0);
            }
        }
        // SAFETY: mapped above, unmapped once.
        unsafe { unmap(start, len).unwrap() };
    }
}
