//! Mappings, reserved addresses and their protection.
//!
//! The invariants are those of `os.rs`.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use super::pages::advise;
use super::{page_size, refused};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::MAX_ADDRESS;

/// Maps `len` bytes of zeroed private memory at a multiple of `align` (a power of two).
pub fn map(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    debug_assert!(len % page_size() == 0);
    map_aligned(len, align, |len| {
        map_pages(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    })
}

/// Maps `len` bytes at a multiple of `align`. `map` makes a mapping at any address.
fn map_aligned(
    len: usize,
    align: usize,
    map: impl FnOnce(usize) -> Result<*mut c_void, Errno>,
) -> Result<NonNull<u8>, AllocError> {
    debug_assert!(align.is_power_of_two());
    // Map more, so that an aligned block is in it, and unmap what is before and after the block.
    let padded = len
        .checked_add(align.saturating_sub(page_size()))
        .filter(|sum| (1..MAX_ADDRESS).contains(sum))
        .ok_or(AllocError::new(ErrorKind::SizeOverflow, len))?;
    let start = map(padded).map_err(|errno| refused(errno, len))?;
    let start = NonNull::new(start.cast::<u8>()).expect(NOT_NULL);
    let address = start.addr().get();
    let before = address.next_multiple_of(align) - address;
    let after = padded - before - len;
    // SAFETY: the two ends are whole pages of the mapping just made (invariant 1), and unused. If
    // the kernel refuses to split the mapping, they stay mapped and use addresses, but no memory.
    unsafe {
        if before > 0 {
            let _ = unmap(start, before);
        }
        let block = start.add(before);
        if after > 0 {
            let _ = unmap(block.add(len), after);
        }
        Ok(block)
    }
}

const NOT_NULL: &str = "the kernel maps nothing at null unless asked to";

fn map_pages(len: usize, protection: ProtFlags, flags: MapFlags) -> Result<*mut c_void, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice touches no existing
    // memory.
    unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }
}

/// Maps `len` bytes of a file from `offset`, at a multiple of `align`, shared with all other
/// mappings of the file.
pub fn map_file(
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    align: usize,
) -> Result<NonNull<u8>, AllocError> {
    let map = |wanted: *mut u8, flags: MapFlags| {
        // SAFETY: as in `map_pages`: the mapping replaces none. The file's owner never shortens it
        // (see memory/file.rs), so no access faults.
        let mapped = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(wanted.cast(), len, protection, MapFlags::SHARED | flags, file, offset)
        };
        mapped.map(|start| NonNull::new(start.cast::<u8>()).expect(NOT_NULL))
    };
    if align <= page_size() {
        return map(ptr::null_mut(), MapFlags::empty()).map_err(|errno| refused(errno, len));
    }
    // The kernel finds addresses for a reservation, which then makes room for the file. The file is
    // not mapped over the reservation: a kernel that refuses may have removed the reservation
    // before, and another thread may own the addresses by then.
    loop {
        let start = reserve_addresses(len, align)?;
        // SAFETY: just reserved, and unused.
        unsafe { unmap(start, len)? };
        match map(start.as_ptr(), MapFlags::FIXED_NOREPLACE) {
            Ok(mapped) if mapped == start => return Ok(mapped),
            // A kernel before 4.17 treats the address as a hint.
            // SAFETY: mapped above, and unused.
            Ok(elsewhere) => unsafe { unmap(elsewhere, len)? },
            // Another thread has mapped something there.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(refused(errno, len)),
        }
    }
}

/// Reserves `len` bytes of addresses at a multiple of `align`, without memory: an access faults.
pub fn reserve_addresses(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    map_aligned(len, align, |len| map_pages(len, ProtFlags::empty(), flags))
}

/// As [`reserve_addresses`], for a process whose new mappings are locked in memory: these addresses
/// are not locked, and do not count towards the limit on locked memory (`ulimit -l`).
pub fn reserve_unlocked(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    map_aligned(len, align, |len| map_unlocked(len, ProtFlags::empty()))
}

/// Maps `len` bytes of zeroed private memory, not locked even if new mappings are. Memory is taken
/// page by page on the first access.
pub fn map_sparse(len: usize) -> Result<NonNull<u8>, AllocError> {
    map_aligned(len, 1, |len| map_unlocked(len, ProtFlags::READ | ProtFlags::WRITE))
}

/// Maps one page, unlocks it, and grows the mapping: a mapping that grows by `mremap` stays
/// unlocked, while a new one would be locked.
fn map_unlocked(len: usize, protection: ProtFlags) -> Result<*mut c_void, Errno> {
    let page = page_size();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping of one page, unlocked, grown and possibly moved. Nothing refers to it.
    unsafe {
        let start = map_pages(page, protection, flags)?;
        let grown = rustix::mm::munlock(start, page)
            .and_then(|()| rustix::mm::mremap(start, page, len, MremapFlags::MAYMOVE));
        grown.inspect_err(|_| {
            let _ = rustix::mm::munmap(start, page);
        })
    }
}

/// Whether the kernel locks every new mapping in memory, and gives it all of its memory at once
/// (`mlockall(MCL_FUTURE)`). `true` if not even a page can be mapped.
pub fn locks_new_mappings() -> bool {
    let Ok(start) = map(page_size(), 1) else { return true };
    // SAFETY: a page just mapped, which nothing refers to. The kernel refuses this advice for
    // locked pages only.
    unsafe {
        let locked = advise(start, page_size(), Advice::LinuxDontNeed).is_err();
        let _ = unmap(start, page_size());
        locked
    }
}

/// Why [`reserve_addresses_at`] fails where something is mapped.
pub const ADDRESSES_IN_USE: ErrorKind = ErrorKind::System(Errno::EXIST.raw_os_error());

/// Reserves addresses that this child of a fork does not have mapped, so that nothing else is
/// mapped there: an access faults. Returns [`ADDRESSES_IN_USE`] if something is mapped in the range
/// already. Async-signal-safe.
pub fn reserve_addresses_at(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let wanted = start.as_ptr().cast();
    // SAFETY: a new mapping, which replaces none.
    match unsafe { rustix::mm::mmap_anonymous(wanted, len, ProtFlags::empty(), flags) } {
        Ok(mapped) if mapped == wanted => Ok(()),
        Ok(elsewhere) => {
            // A kernel before 4.17 treats the address as a hint, and follows it where nothing is
            // mapped. SAFETY: mapped above, and unused.
            let _ = unsafe { rustix::mm::munmap(elsewhere, len) };
            Err(refused(Errno::EXIST, len))
        }
        Err(errno) => Err(refused(errno, len)),
    }
}

/// Makes reserved addresses, or read-only pages, readable and writable. Pages without memory get
/// zeroed memory on the first access.
///
/// # Safety
/// The range is whole pages that were reserved or mapped here, and no code relies on them being
/// inaccessible or read-only.
pub unsafe fn make_accessible(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    let flags = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: guaranteed by the caller.
    unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, flags) }
        .map_err(|errno| refused(errno, len))
}

/// Makes pages read-only: a write to them faults.
///
/// # Safety
/// The range is whole pages that were mapped here, and nothing writes to them any more.
pub unsafe fn make_read_only(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    debug_assert!(len % page_size() == 0);
    // SAFETY: guaranteed by the caller.
    unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, MprotectFlags::READ) }
        .map_err(|errno| refused(errno, len))
}

/// Makes the kernel refuse every later change to these mappings (`mseal`, Linux 6.10): they stay as
/// they are until the process ends. An older kernel returns an error, and nothing changes.
///
/// # Safety
/// The range is whole pages that were mapped here, and it is never unmapped, discarded or made
/// writable.
pub unsafe fn seal_permanently(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    /// The number of the system call on every architecture.
    const MSEAL: isize = 462;
    let answer: isize;
    // SAFETY: the call changes no byte of memory, and no register except those declared. The rest
    // is guaranteed by the caller.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") MSEAL => answer,
            in("rdi") start.as_ptr(),
            in("rsi") len,
            in("rdx") 0usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") MSEAL,
            inlateout("x0") start.as_ptr().addr() as isize => answer,
            in("x1") len,
            in("x2") 0usize,
            options(nostack),
        );
    }
    match answer {
        0 => Ok(()),
        errno => Err(refused(Errno::from_raw_os_error((-errno) as i32), len)),
    }
}

/// Unmaps a range. On an error (too many mappings), the range is as it was and still belongs to the
/// caller.
///
/// # Safety
/// The range is whole pages that were mapped here, and nothing refers to them any more.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    debug_assert!(len % page_size() == 0);
    // SAFETY: guaranteed by the caller.
    unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) }.map_err(|errno| refused(errno, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_the_requested_alignment_and_reads_zeros() {
        let page = page_size();
        for align in [1, page, 64 << 10, 2 << 20] {
            let len = 3 * page;
            let start = map(len, align).unwrap();
            assert_eq!(start.addr().get() % align.max(page), 0);
            // SAFETY: the mapping just made, `len` bytes long, unmapped once.
            unsafe {
                let bytes = core::slice::from_raw_parts(start.as_ptr(), len);
                assert!(bytes.iter().all(|&byte| byte == 0));
                unmap(start, len).unwrap();
            }
        }
    }

    #[test]
    fn a_mapping_beyond_the_address_space_is_an_error() {
        let page = page_size();
        assert_eq!(map(0, 1).unwrap_err().kind(), ErrorKind::SizeOverflow);
        assert!(map(usize::MAX - page + 1, 1).is_err());
        assert!(map(MAX_ADDRESS - page, 2 << 20).is_err());
        assert!(map(1 << 46, 1).map(|_| ()).is_err() || cfg!(target_pointer_width = "64"));
    }

    #[test]
    fn unlocked_memory_is_zeroed_and_aligned_as_any_other() {
        let len = 1 << 20;
        let start = map_sparse(len).unwrap();
        let reserved = reserve_unlocked(len, len).unwrap();
        assert_eq!(reserved.addr().get() % len, 0);
        // SAFETY: our own mappings, within their bounds, unmapped once.
        unsafe {
            assert_eq!((start.read(), start.add(len - 1).read()), (0, 0));
            start.add(len - 1).write(7);
            make_accessible(reserved, len).unwrap();
            assert_eq!(reserved.add(len - 1).read(), 0);
            unmap(start, len).unwrap();
            unmap(reserved, len).unwrap();
        }
    }
}
