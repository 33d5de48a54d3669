//! Every system call of the library, and no other file makes one.
//!
//! # Invariants
//!
//! 1. A mapping made here is private to its caller until it is unmapped: no function gives out or touches
//!    a range that the caller did not pass in.
//! 2. All ranges are whole hardware pages: lengths are rounded up to them by the callers, and asserted here
//!    in debug builds.
//! 3. A failed call changes nothing, and returns the system's error number.
//!
//! An `unmap` may fail although its range is right: splitting a mapping needs one more, and the kernel
//! limits their number (`vm.max_map_count`). Callers then keep the range, as [`unmap`] says.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::thread::MembarrierCommand;
use rustix::time::ClockId;

use super::layout::{MAX_ADDRESS, checked_align_up};
use crate::error::{AllocError, ErrorKind};

/// The hardware page, in bytes.
#[inline]
pub fn page_size() -> usize {
    // Asked once: each chunk wants to know. Relaxed: every thread finds the same.
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

/// Milliseconds of a clock that only moves forward, at the resolution of the kernel's tick (1 to 10 ms).
/// Costs a few nanoseconds: no kernel entry where the vDSO has it.
pub fn coarse_millis() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Has `child` called in every child that is made by fork from now on, by the one thread that it has. What it calls
/// must be fit for a signal handler.
pub fn on_fork(child: extern "C" fn()) {
    unsafe extern "C" {
        /// POSIX; in every C library that we support.
        safe fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> core::ffi::c_int;
    }
    // It fails for want of memory alone; then children are as they were before there was this call.
    let _ = pthread_atfork(None, None, Some(child));
}

/// Declares that this process will call [`fence_process`]. Refused by kernels before 4.14, and by some sandboxes.
pub fn register_process_fences() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

/// Has every thread of this process pass a full memory fence between the call and its return, the calling one included.
/// A child made by fork need not register again.
pub fn fence_process() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::PrivateExpedited).or_else(|error| {
        if error.kind() != ErrorKind::System(Errno::PERM.raw_os_error()) {
            return Err(error);
        }
        // Not registered: if a kernel does not hand it on to children, they do it themselves.
        register_process_fences()?;
        membarrier(MembarrierCommand::PrivateExpedited)
    })
}

fn membarrier(command: MembarrierCommand) -> Result<(), AllocError> {
    rustix::thread::membarrier(command).map_err(|errno| refused(errno, 0))
}

/// Nanoseconds of a clock that only moves forward. Costs some 20: no kernel entry where the vDSO has it.
pub fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn refused(errno: Errno, bytes: usize) -> AllocError {
    AllocError::new(ErrorKind::System(errno.raw_os_error()), bytes)
}

/// Maps `len` bytes of zeroed private memory at a multiple of `align` (a power of two).
pub fn map(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let page = page_size();
    debug_assert!(len % page == 0 && align.is_power_of_two());
    if align <= page {
        return map_pages(len);
    }
    // More than a page: map the difference too and give its two ends back.
    let padded = len
        .checked_add(align - page)
        .filter(|&sum| sum < MAX_ADDRESS)
        .ok_or(AllocError::new(ErrorKind::SizeOverflow, len))?;
    let start = map_pages(padded)?;
    let address = start.addr().get();
    let aligned = checked_align_up(address, align).expect("a mapping lies below MAX_ADDRESS");
    let before = aligned - address;
    let after = padded - before - len;
    // SAFETY: the ends are parts of the mapping just made (invariant 1), whole pages, used by nobody. If
    // the kernel refuses to split it they stay mapped and untouched: address space, no memory.
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

fn map_pages(len: usize) -> Result<NonNull<u8>, AllocError> {
    if len == 0 || len >= MAX_ADDRESS {
        return Err(AllocError::new(ErrorKind::SizeOverflow, len));
    }
    // SAFETY: a new private mapping at an address of the kernel's choice touches no existing memory.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    match mapped {
        Ok(start) => {
            Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at null unasked"))
        }
        Err(errno) => Err(refused(errno, len)),
    }
}

/// Maps `len` bytes of a file from `offset`, shared with whoever else maps them.
pub fn map_file(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<NonNull<u8>, AllocError> {
    // SAFETY: as in `map_pages`; the file's owner keeps its length (see file.rs), so no access faults.
    let mapped = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            offset,
        )
    };
    match mapped {
        Ok(start) => {
            Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at null unasked"))
        }
        Err(errno) => Err(refused(errno, len)),
    }
}

/// Maps a part of a file, shared, in the place of a range that was mapped here.
///
/// # Safety
/// The range was mapped here, whole pages of it are passed, and nothing refers to them.
pub unsafe fn map_file_at(
    start: NonNull<u8>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> Result<(), AllocError> {
    // SAFETY: passed on to the caller.
    let mapped = unsafe {
        rustix::mm::mmap(
            start.as_ptr().cast(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED,
            file,
            offset,
        )
    };
    mapped.map(|_| ()).map_err(|errno| refused(errno, len))
}

/// A child made by fork shall not have this range.
pub fn keep_from_children(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what a later fork copies, nothing in this process.
    unsafe { advise(start, len, Advice::LinuxDontFork) }
}

/// Reserves `len` bytes of addresses at a multiple of `align`, with no memory behind them: touching them faults.
pub fn reserve_addresses(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let padded = len
        .checked_add(align)
        .filter(|&sum| sum < MAX_ADDRESS)
        .ok_or(AllocError::new(ErrorKind::SizeOverflow, len))?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), flags) };
    let start = mapped.map_err(|errno| refused(errno, len))?.cast::<u8>();
    let before = start.addr().next_multiple_of(align) - start.addr();
    // SAFETY: the ends are parts of the mapping just made; if they can't be split off they stay, without memory.
    unsafe {
        if before > 0 {
            let _ = rustix::mm::munmap(start.cast(), before);
        }
        let block = start.add(before);
        let _ = rustix::mm::munmap(block.add(len).cast(), padded - before - len);
        Ok(NonNull::new(block).expect("the kernel maps nothing at null unasked"))
    }
}

/// Makes reserved addresses, or pages that were made read-only, readable and writable; pages without memory get some,
/// zeroed, when they are touched.
///
/// # Safety
/// The range was reserved or mapped here, whole pages of it are passed, and nobody holds it to be inaccessible.
pub unsafe fn make_accessible(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    let flags = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: passed on to the caller.
    unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, flags) }
        .map_err(|errno| refused(errno, len))
}

/// Makes pages read-only: a write to them faults.
///
/// # Safety
/// The range was mapped here, whole pages of it are passed, and nobody writes to it any more.
pub unsafe fn make_read_only(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    debug_assert!(len % page_size() == 0);
    // SAFETY: passed on to the caller.
    unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, MprotectFlags::READ) }
        .map_err(|errno| refused(errno, len))
}

/// Has the kernel refuse every later change to these mappings (`mseal`, Linux 6.10): they stay as they are until the
/// process ends. An older kernel refuses, which changes nothing.
///
/// # Safety
/// The range was mapped here, whole pages of it are passed, and it is never unmapped, discarded or made writable.
pub unsafe fn seal_for_ever(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    /// The call's number, on every architecture.
    const MSEAL: isize = 462;
    let answer: isize;
    // SAFETY: the call changes no byte and no register beyond those declared; passed on to the caller.
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

/// Keeps addresses that this child of a fork does not have from being given to anything else: touching them faults. Does
/// nothing where something is mapped. Whether the range is taken now. Fit for a signal handler.
pub fn hold_addresses(start: NonNull<u8>, len: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let wanted = start.as_ptr().cast();
    // SAFETY: a new mapping, which replaces none.
    match unsafe { rustix::mm::mmap_anonymous(wanted, len, ProtFlags::empty(), flags) } {
        Ok(mapped) if mapped == wanted => true,
        Ok(elsewhere) => {
            // A kernel before 4.17 takes the address for a hint.
            // SAFETY: mapped just now, used by nobody.
            let _ = unsafe { rustix::mm::munmap(elsewhere, len) };
            true
        }
        Err(errno) => errno == Errno::EXIST,
    }
}

/// Lets a file be `len` bytes long, sparse where it was shorter.
pub fn extend_file(file: BorrowedFd<'_>, len: u64) -> Result<(), AllocError> {
    rustix::fs::ftruncate(file, len).map_err(|errno| refused(errno, len as usize))
}

/// Unmaps a range. On an error (too many mappings) the range is as it was and still the caller's.
///
/// # Safety
/// The range was mapped here, whole pages of it are passed, and nothing refers to them any more.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    debug_assert!(len % page_size() == 0);
    // SAFETY: passed on to the caller.
    unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) }.map_err(|errno| refused(errno, len))
}

/// Gives the memory of a private range back and keeps the addresses; the next touch reads zeros.
///
/// # Safety
/// As for [`unmap`], but for the addresses themselves.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: passed on to the caller.
    unsafe { advise(start, len, Advice::LinuxDontNeed) }
}

/// Asks for huge pages in a private range. A kernel without them refuses, which changes nothing.
pub fn advise_huge(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what backs the pages, never their bytes.
    unsafe { advise(start, len, Advice::LinuxHugepage) }
}

/// Has the kernel split the huge page that a part of a private range lies in, if it does; the part's bytes are lost.
/// Discarding a part of a whole huge page would free nothing until the rest goes too.
///
/// # Safety
/// As for [`discard`].
pub unsafe fn split_huge(start: NonNull<u8>, len: usize) {
    // Freeing a part lazily needs it split at once. Refused for a mapping that is no anonymous one: nothing to split.
    // SAFETY: passed on to the caller.
    let _ = unsafe { advise(start, len, Advice::LinuxFree) };
}

/// Faults a private or shared writable range in, as if each page had been written. A kernel that can't refuses
/// (before 5.14), and the pages come one by one when they are touched.
pub fn populate(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what backs the pages, never their bytes.
    unsafe { advise(start, len, Advice::LinuxPopulateWrite) }
}

/// Sleeps until `word` is no longer `expected` and somebody wakes its sleepers, or at once if it isn't now.
/// May also return without cause: callers look again.
pub fn wait_on(word: &AtomicU32, expected: u32) {
    let _ = rustix::thread::futex::wait(word, futex_flags(), expected, None);
}

/// Wakes everyone who sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, futex_flags(), i32::MAX as u32);
}

fn futex_flags() -> rustix::thread::futex::Flags {
    rustix::thread::futex::Flags::PRIVATE
}

unsafe fn advise(start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), AllocError> {
    let start: *mut c_void = start.as_ptr().cast();
    // SAFETY: passed on to the caller.
    unsafe { rustix::mm::madvise(start, len, advice) }.map_err(|errno| refused(errno, len))
}

/// Creates a file without a name in `directory`: gone with its last descriptor and mapping.
pub fn create_unlinked(directory: &Path) -> std::io::Result<fs::File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(file.into()),
        // Filesystems without O_TMPFILE: a name, then none.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let unique = format!(".allotment-{}-{}", std::process::id(), next_number());
            let path = directory.join(unique);
            let file = create_named(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a file that must not exist yet, readable and writable by its owner.
pub fn create_named(path: &Path) -> std::io::Result<fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn next_number() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Reserves the blocks of a range of a file, extending it, so that no later write can fail for want of
/// space. A filesystem that can't reserve has zeros written instead.
pub fn reserve_blocks(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len as u64) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, offset, len),
            Err(errno) => return Err(refused(errno, len)),
        }
    }
}

fn write_zeros(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    let zeros = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let part = zeros.len().min(len - done);
        match rustix::io::pwrite(file, &zeros[..part], offset + done as u64) {
            Ok(0) => return Err(refused(Errno::NOSPC, len)),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno, len)),
        }
    }
    Ok(())
}

/// Gives the blocks of a range of a file back; the range then reads zeros.
pub fn punch_hole(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len as u64).map_err(|errno| refused(errno, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_the_alignment_that_was_asked_and_reads_zeros() {
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
    fn discarded_memory_reads_zeros_again() {
        let len = page_size();
        let start = map(len, 1).unwrap();
        // SAFETY: our own mapping, in its bounds.
        unsafe {
            start.write(7);
            discard(start, len).unwrap();
            assert_eq!(start.read(), 0);
            unmap(start, len).unwrap();
        }
    }

    #[test]
    fn a_process_that_registered_can_have_its_threads_fenced() {
        match register_process_fences() {
            Ok(()) => fence_process().unwrap(),
            Err(error) => println!("skipped: this kernel has no fences for a process: {error}"),
        }
    }

    #[test]
    fn the_coarse_clock_does_not_go_back() {
        let first = coarse_millis();
        assert!(coarse_millis() >= first);
    }
}
