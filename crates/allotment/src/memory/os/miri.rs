//! Replaces the system calls under Miri, which has none for memory: each mapping is a block of the
//! global allocator.
//!
//! # Invariants
//!
//! 1. A mapping is freed when the last of its bytes is unmapped. So Miri reports every access to a
//!    mapping that was unmapped as a whole. It does not see an access to a part that was unmapped
//!    before the rest, nor a mapping that leaks, because the list `MAPPINGS` refers to it.
//! 2. Advice changes nothing, except that discarded memory reads zeros.
//! 3. Protection changes nothing: Miri does not see a write to read-only memory. A page without
//!    memory reads zeros.
//! 4. Files can't be mapped: the calls return errors.
//! 5. The clocks advance with each reading. A thread that waits yields, and checks again.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::error::{AllocError, ErrorKind};

/// Reserved addresses are memory here, so only this many bytes can be reserved.
const MAX_RESERVED: usize = 64 << 20;

/// A block that stands for a mapping.
struct Mapping {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes that are not unmapped yet.
    left: usize,
}

// SAFETY: the address is used only to find the block and to free it, which any thread may do.
unsafe impl Send for Mapping {}

static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

fn mappings() -> MutexGuard<'static, Vec<Mapping>> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(errno: Errno, bytes: usize) -> AllocError {
    AllocError::new(ErrorKind::System(errno.raw_os_error()), bytes)
}

pub fn page_size() -> usize {
    4096
}

fn tick() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(1 << 40);
    // Relaxed: the clock orders nothing.
    NOW.fetch_add(1000, Ordering::Relaxed)
}

pub fn coarse_millis() -> u64 {
    tick() / 1_000_000
}

pub fn nanos() -> u64 {
    tick()
}

pub fn thread_nanos() -> u64 {
    tick()
}

/// Nothing forks under Miri.
pub fn on_fork(_child: extern "C" fn(), _registered: &AtomicBool) -> Result<(), AllocError> {
    Ok(())
}

pub fn around_fork(
    _before: extern "C" fn(),
    _in_parent: extern "C" fn(),
    _in_child: extern "C" fn(),
    _registered: &AtomicBool,
) -> Result<(), AllocError> {
    Ok(())
}

pub const ADDRESSES_IN_USE: ErrorKind = ErrorKind::System(Errno::EXIST.raw_os_error());

pub fn register_process_fences() -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, 0))
}

pub fn fence_process() -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, 0))
}

pub fn map(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    debug_assert!(len % page_size() == 0 && align.is_power_of_two());
    let layout = Layout::from_size_align(len, align.max(page_size()));
    let too_large = || AllocError::new(ErrorKind::SizeOverflow, len);
    let layout = layout.ok().filter(|layout| layout.size() > 0).ok_or_else(too_large)?;
    // SAFETY: the layout's size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused(Errno::NOMEM, len))?;
    mappings().push(Mapping { start, layout, left: len });
    Ok(start)
}

pub fn map_file(
    _: BorrowedFd<'_>,
    _: u64,
    len: usize,
    _: usize,
) -> Result<NonNull<u8>, AllocError> {
    Err(refused(Errno::NOSYS, len))
}

pub fn exclude_from_fork(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn reserve_addresses(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    if len > MAX_RESERVED { Err(refused(Errno::NOMEM, len)) } else { map(len, align) }
}

pub fn reserve_unlocked(len: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    reserve_addresses(len, align)
}

pub fn map_sparse(len: usize) -> Result<NonNull<u8>, AllocError> {
    map(len, 1)
}

pub fn locks_new_mappings() -> bool {
    false
}

pub fn lock(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn unlock(_: NonNull<u8>, _: usize) {}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn make_accessible(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn make_read_only(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn seal_permanently(_: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, len))
}

pub fn reserve_addresses_at(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn check_file_length(_: u64) -> Result<(), AllocError> {
    Ok(())
}

pub fn extend_file(_: BorrowedFd<'_>, len: u64) -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, len as usize))
}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    let mut mappings = mappings();
    let index = mappings.iter().position(|mapping| {
        let first = mapping.start.addr().get();
        (first..first + mapping.layout.size()).contains(&start.addr().get())
    });
    let index = index.expect("only mappings are unmapped");
    mappings[index].left =
        mappings[index].left.checked_sub(len).expect("no byte is unmapped twice");
    if mappings[index].left == 0 {
        let mapping = mappings.swap_remove(index);
        // SAFETY: allocated by `map` with this layout. All of it is unmapped, and the callers
        // guarantee that nothing refers to it.
        unsafe { dealloc(mapping.start.as_ptr(), mapping.layout) };
    }
    Ok(())
}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    // SAFETY: the range was mapped, and the caller guarantees that nothing refers to its bytes.
    unsafe { start.write_bytes(0, len) };
    Ok(())
}

pub fn advise_huge(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn advise_small(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn is_resident(_: NonNull<u8>) -> Option<bool> {
    None
}

pub fn read_start(_: &CStr, _: &mut [u8]) -> usize {
    0
}

/// # Safety
/// As in `linux.rs`.
pub unsafe fn split_huge(_: NonNull<u8>, _: usize) {}

pub fn populate(_: NonNull<u8>, _: usize) -> Result<(), AllocError> {
    Ok(())
}

pub fn wait_on(word: &AtomicU32, expected: u32) {
    // Acquire, like a return from the system call: it pairs with what the waking thread wrote.
    if word.load(Ordering::Acquire) == expected {
        std::thread::yield_now();
    }
}

pub fn wake_all(_: &AtomicU32) {}

pub fn create_unlinked(_: &Path) -> std::io::Result<fs::File> {
    Err(Errno::NOSYS.into())
}

pub fn create_named(_: &Path) -> std::io::Result<fs::File> {
    Err(Errno::NOSYS.into())
}

pub fn reserve_blocks(_: BorrowedFd<'_>, _: u64, len: usize) -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, len))
}

pub fn punch_hole(_: BorrowedFd<'_>, _: u64, len: usize) -> Result<(), AllocError> {
    Err(refused(Errno::NOSYS, len))
}
