//! Every system call of the library, except `getpid` and the output of messages.
//!
//! # Invariants
//!
//! 1. A mapping made here belongs to its caller until it is unmapped: no function returns or
//!    accesses a range that the caller did not pass in.
//! 2. All ranges are whole hardware pages. The callers round lengths up to them; debug builds
//!    assert it here.
//! 3. A call that fails changes nothing, and returns the system's error number.
//!
//! `unmap` may fail although its range is correct: splitting a mapping makes one more, and the
//! kernel limits their number (`vm.max_map_count`). In that case the caller keeps the range; see
//! [`unmap`].

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::thread::MembarrierCommand;
use rustix::time::ClockId;

use super::layout::{MAX_ADDRESS, checked_align_up};
use crate::error::{AllocError, ErrorKind};

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

/// The milliseconds of a monotonic clock, at the resolution of the kernel's tick (1 to 10 ms).
/// Costs a few nanoseconds: with a vDSO there is no system call.
pub fn coarse_millis() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Registers a function that every later child made by fork calls, on its only thread. Sets
/// `registered`, and does nothing if it was set before. The function must be async-signal-safe, and
/// a second call in the same child must be harmless: two threads may register it at the same time.
pub fn on_fork(child: extern "C" fn(), registered: &AtomicBool) -> Result<(), AllocError> {
    unsafe extern "C" {
        /// POSIX; every supported C library has it.
        safe fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> core::ffi::c_int;
    }
    // Acquire pairs with the Release below: a thread that sees the flag forks after the function
    // was registered.
    if registered.load(Ordering::Acquire) {
        return Ok(());
    }
    match pthread_atfork(None, None, Some(child)) {
        0 => {
            registered.store(true, Ordering::Release);
            Ok(())
        }
        // A lack of memory for the three functions.
        code => Err(AllocError::new(ErrorKind::System(code), 3 * size_of_val(&child))),
    }
}

/// Declares that this process will call [`fence_process`]. Kernels before 4.14 and some sandboxes
/// refuse.
pub fn register_process_fences() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

/// Makes every thread of this process, including the calling thread, execute a full memory fence
/// between the call and its return. A child made by fork need not register again.
pub fn fence_process() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::PrivateExpedited).or_else(|error| {
        if error.kind() != ErrorKind::System(Errno::PERM.raw_os_error()) {
            return Err(error);
        }
        // Not registered: the kernel may not pass the registration on to children.
        register_process_fences()?;
        membarrier(MembarrierCommand::PrivateExpedited)
    })
}

fn membarrier(command: MembarrierCommand) -> Result<(), AllocError> {
    rustix::thread::membarrier(command).map_err(|errno| refused(errno, 0))
}

/// The nanoseconds of a monotonic clock. Costs about 20 ns: with a vDSO there is no system call.
pub fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The nanoseconds that the calling thread has run. Costs a few hundred nanoseconds: a system call.
pub fn thread_nanos() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Why [`reserve_addresses_at`] fails where something is mapped.
pub const ADDRESSES_IN_USE: ErrorKind = ErrorKind::System(Errno::EXIST.raw_os_error());

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
    // Map more, so that an aligned block is in it, and unmap what is before and after the block.
    let padded = len
        .checked_add(align - page)
        .filter(|&sum| sum < MAX_ADDRESS)
        .ok_or(AllocError::new(ErrorKind::SizeOverflow, len))?;
    let start = map_pages(padded)?;
    let address = start.addr().get();
    let aligned = checked_align_up(address, align).expect("a mapping lies below MAX_ADDRESS");
    let before = aligned - address;
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

fn map_pages(len: usize) -> Result<NonNull<u8>, AllocError> {
    if len == 0 || len >= MAX_ADDRESS {
        return Err(AllocError::new(ErrorKind::SizeOverflow, len));
    }
    // SAFETY: a new private mapping at an address of the kernel's choice touches no existing
    // memory.
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
            Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at null unless asked to"))
        }
        Err(errno) => Err(refused(errno, len)),
    }
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
        // (see file.rs), so no access faults.
        let mapped = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(wanted.cast(), len, protection, MapFlags::SHARED | flags, file, offset)
        };
        mapped.map(|start| {
            NonNull::new(start.cast::<u8>())
                .expect("the kernel maps nothing at null unless asked to")
        })
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

/// Keeps this range out of children made by fork: they don't have the mapping.
pub fn exclude_from_fork(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: this advice changes what a later fork copies, nothing in this process.
    unsafe { advise(start, len, Advice::LinuxDontFork) }
}

/// Reserves `len` bytes of addresses at a multiple of `align`, without memory: an access faults.
pub fn reserve_addresses(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let padded = padded_for(len, align)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), flags) };
    let start = mapped.map_err(|errno| refused(errno, len))?.cast();
    // SAFETY: the mapping just made.
    Ok(unsafe { keep_aligned(start, padded, len, align) })
}

/// As [`reserve_addresses`], for a process whose new mappings are locked in memory: these addresses
/// are not locked, and do not count towards the limit on locked memory (`ulimit -l`).
pub fn reserve_unlocked(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let padded = padded_for(len, align)?;
    let start = map_unlocked(padded, ProtFlags::empty()).map_err(|errno| refused(errno, len))?;
    // SAFETY: the mapping just made.
    Ok(unsafe { keep_aligned(start, padded, len, align) })
}

/// Maps `len` bytes of zeroed private memory, not locked even if new mappings are. Memory is taken
/// page by page on the first access.
pub fn map_sparse(len: usize) -> Result<NonNull<u8>, AllocError> {
    let mapped = map_unlocked(len, ProtFlags::READ | ProtFlags::WRITE);
    let start = mapped.map_err(|errno| refused(errno, len))?;
    Ok(NonNull::new(start).expect("the kernel maps nothing at null unless asked to"))
}

/// A mapping grown from one page, which was unlocked before: a mapping that grows by `mremap` stays
/// as it is, while a new one would be locked.
fn map_unlocked(len: usize, protection: ProtFlags) -> Result<*mut u8, Errno> {
    let page = page_size();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping of one page at an address of the kernel's choice, unlocked, grown and
    // possibly moved. Nothing refers to it.
    unsafe {
        let start = rustix::mm::mmap_anonymous(ptr::null_mut(), page, protection, flags)?;
        let grown = rustix::mm::munlock(start, page)
            .and_then(|()| rustix::mm::mremap(start, page, len, MremapFlags::MAYMOVE));
        grown.map(|grown| grown.cast()).inspect_err(|_| {
            let _ = rustix::mm::munmap(start, page);
        })
    }
}

/// Whether the kernel locks every new mapping in memory, and gives it all of its memory at once
/// (`mlockall(MCL_FUTURE)`). `true` if not even a page can be mapped.
pub fn locks_new_mappings() -> bool {
    let Ok(start) = map_pages(page_size()) else { return true };
    // SAFETY: a page just mapped, which nothing refers to. The kernel refuses this advice for
    // locked pages only.
    unsafe {
        let locked = advise(start, page_size(), Advice::LinuxDontNeed).is_err();
        let _ = unmap(start, page_size());
        locked
    }
}

/// The bytes to reserve so that `len` bytes at a multiple of `align` are among them.
fn padded_for(len: usize, align: usize) -> Result<usize, AllocError> {
    len.checked_add(align)
        .filter(|&sum| sum < MAX_ADDRESS)
        .ok_or(AllocError::new(ErrorKind::SizeOverflow, len))
}

/// Unmaps what is before and after the aligned block of a new mapping.
///
/// # Safety
/// The mapping was just made with this padding, and nothing refers to it.
unsafe fn keep_aligned(start: *mut u8, padded: usize, len: usize, align: usize) -> NonNull<u8> {
    let before = start.addr().next_multiple_of(align) - start.addr();
    // SAFETY: the two ends are parts of the mapping. If they can't be split off, they stay mapped,
    // without memory.
    unsafe {
        if before > 0 {
            let _ = rustix::mm::munmap(start.cast(), before);
        }
        let block = start.add(before);
        let _ = rustix::mm::munmap(block.add(len).cast(), padded - before - len);
        NonNull::new(block).expect("the kernel maps nothing at null unless asked to")
    }
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

/// Sets a file's length to `len` bytes. Bytes beyond its former length are sparse.
pub fn extend_file(file: BorrowedFd<'_>, len: u64) -> Result<(), AllocError> {
    rustix::fs::ftruncate(file, len).map_err(|errno| refused(errno, len as usize))
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
            // The advice does not apply to locked pages. This one does, from Linux 5.18 on.
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

/// Whether a hardware page has memory. `None` if the system does not say.
pub fn is_resident(page: NonNull<u8>) -> Option<bool> {
    unsafe extern "C" {
        /// Linux's, in every supported C library.
        unsafe fn mincore(start: *mut c_void, len: usize, residency: *mut u8) -> core::ffi::c_int;
    }
    // The kernel writes one byte. qemu, where it imitates larger pages, writes one for each page of
    // the machine it runs on.
    let mut residency = [0_u8; 16];
    // SAFETY: writes at most a byte for each 4 KiB of a page of at most 64 KiB, and reads nothing
    // of it.
    let answer = unsafe { mincore(page.as_ptr().cast(), page_size(), residency.as_mut_ptr()) };
    (answer == 0).then_some(residency[0] & 1 == 1)
}

/// Reads the beginning of a file. Returns the number of bytes read, 0 if the file can't be read.
pub fn read_start(path: &core::ffi::CStr, buffer: &mut [u8]) -> usize {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return 0 };
    rustix::io::read(file, buffer).unwrap_or(0)
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

/// Sleeps until a thread calls [`wake_all`] on `word`. Returns immediately if `word` is not
/// `expected`. May also return without cause, so callers check the word again.
pub fn wait_on(word: &AtomicU32, expected: u32) {
    let _ = rustix::thread::futex::wait(word, futex_flags(), expected, None);
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, futex_flags(), i32::MAX as u32);
}

fn futex_flags() -> rustix::thread::futex::Flags {
    rustix::thread::futex::Flags::PRIVATE
}

unsafe fn advise(start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), AllocError> {
    let start: *mut c_void = start.as_ptr().cast();
    // SAFETY: guaranteed by the caller.
    unsafe { rustix::mm::madvise(start, len, advice) }.map_err(|errno| refused(errno, len))
}

/// Creates a file without a name in `directory`. It vanishes with its last descriptor and mapping.
pub fn create_unlinked(directory: &Path) -> std::io::Result<fs::File> {
    // With O_EXCL, the file can't be given a name later.
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // A filesystem without O_TMPFILE: create a named file, and remove the name. Without
        // permissions, no user but root can open it in between.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let unique = format!(".allotment-{}-{}", std::process::id(), next_number());
            let path = directory.join(unique);
            let file = create_file(&path, Mode::empty())?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a file that must not exist yet, readable and writable by its owner.
pub fn create_named(path: &Path) -> std::io::Result<fs::File> {
    create_file(path, Mode::RUSR | Mode::WUSR)
}

fn create_file(path: &Path, mode: Mode) -> std::io::Result<fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, mode)?.into())
}

fn next_number() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes to standard error without the lock of [`std::io::Stderr`]: a thread that holds the lock
/// may wait for the caller. What can't be written is lost.
pub fn write_to_standard_error(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(std::io::stderr(), bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Reserves the blocks of a range of a file, and extends the file, so that no later write can fail
/// for lack of space. If the filesystem can't reserve, zeros are written instead.
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
        let count = zeros.len().min(len - done);
        match rustix::io::pwrite(file, &zeros[..count], offset + done as u64) {
            Ok(0) => return Err(refused(Errno::NOSPC, len)),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno, len)),
        }
    }
    Ok(())
}

/// Gives the blocks of a range of a file back. The range then reads zeros.
pub fn punch_hole(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len as u64).map_err(|errno| refused(errno, len))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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

    #[test]
    fn a_process_that_registered_can_have_its_threads_fenced() {
        match register_process_fences() {
            Ok(()) => fence_process().unwrap(),
            Err(error) => println!("skipped: this kernel has no fences for a process: {error}"),
        }
    }

    #[test]
    fn a_file_without_a_name_can_not_be_given_one() {
        use std::os::fd::AsRawFd;
        let directory = std::env::temp_dir();
        let file = create_unlinked(&directory).unwrap();
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = directory.join(format!("allotment-named-{}", std::process::id()));
        let (cwd, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
        let linked = rustix::fs::linkat(cwd, open, cwd, &name, follow);
        let _ = fs::remove_file(name);
        assert!(linked.is_err());
    }

    #[test]
    fn a_file_without_permissions_is_memory_for_its_creator_alone() {
        let path = std::env::temp_dir().join(format!("allotment-closed-{}", std::process::id()));
        let file = create_file(&path, Mode::empty()).unwrap();
        let other = fs::File::open(&path);
        fs::remove_file(&path).unwrap();
        // SAFETY: a system call without arguments.
        assert!(other.is_err() || unsafe { libc::geteuid() } == 0);
        let len = page_size();
        reserve_blocks(file.as_fd(), 0, len).unwrap();
        let start = map_file(file.as_fd(), 0, len, 1).unwrap();
        // SAFETY: our own mapping, within its bounds, unmapped once.
        unsafe {
            start.write(7);
            assert_eq!(start.read(), 7);
            unmap(start, len).unwrap();
        }
    }

    #[test]
    fn the_coarse_clock_does_not_go_back() {
        let first = coarse_millis();
        assert!(coarse_millis() >= first);
    }
}
