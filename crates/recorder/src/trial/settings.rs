//! Whether this process is a trial, which call stacks have which route, and what memory each route
//! has.
//!
//! Invariant: the one thread that begins the recording writes all of it, before any hook finds that
//! the recording has begun, and it never changes afterwards.

use super::chunks;
use crate::sys::{self, FileDescriptor, OpenMode};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use trace_format::raw::{MAX_ROUTE, TrialSites};

/// The environment variable with the path of the file.
pub const SITES: &[u8] = b"ALLOT_TRIAL_SITES=";
/// The environment variable with one letter for each route, from route 1 on: see [`RouteMemory`].
pub const MEMORY: &[u8] = b"ALLOT_TRIAL_MEMORY=";

/// What serves the blocks of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteMemory {
    /// The program's malloc; any other letter than those below.
    Malloc,
    /// Chunks in which block follows block, each reused once all of its blocks are freed: `a`.
    Arena,
    /// As an arena, and the times between consecutive frees are measured: `A`.
    TimedArena,
    /// A list of free blocks for each size: `l`.
    Lists,
    /// The program's malloc, in the control run: all that an arena does for a block is done too, but
    /// no such block is handed out: `s`.
    ControlArena,
    /// The same with lists: `t`.
    ControlLists,
}

const PAGE: usize = 4096;
/// The largest file.
const MAX_FILE: usize = 1 << 30;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_TIMED: AtomicBool = AtomicBool::new(false);
static ROUTES: [AtomicU8; MAX_ROUTE as usize + 1] =
    [const { AtomicU8::new(0) }; MAX_ROUTE as usize + 1];

struct Table(UnsafeCell<Option<TrialSites<'static>>>);

// SAFETY: it is written before IS_ON is set, and only read afterwards (the invariant).
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(None));

/// Whether this process is a trial.
#[inline(always)]
pub fn is_on() -> bool {
    // Relaxed: who goes on to the table reads it once more (`sites`).
    IS_ON.load(Ordering::Relaxed)
}

/// The file.
pub fn sites() -> Option<TrialSites<'static>> {
    // Pairs with the store in `begin`.
    if !IS_ON.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: it does not change any more (the invariant).
    unsafe { *TABLE.0.get() }
}

/// What serves the blocks of a route.
#[inline(always)]
pub fn memory_of(route: u8) -> RouteMemory {
    // Relaxed: whoever knows a route has read the table, after `begin`.
    match ROUTES[usize::from(route & MAX_ROUTE)].load(Ordering::Relaxed) {
        b'a' => RouteMemory::Arena,
        b'A' => RouteMemory::TimedArena,
        b'l' => RouteMemory::Lists,
        b's' => RouteMemory::ControlArena,
        b't' => RouteMemory::ControlLists,
        _ => RouteMemory::Malloc,
    }
}

/// Whether a route is a timed arena.
#[inline(always)]
pub fn is_timed() -> bool {
    IS_TIMED.load(Ordering::Relaxed)
}

/// Sets the memory of the routes.
pub fn set_memory(letters: &[u8]) {
    for (route, letter) in ROUTES[1..].iter().zip(letters) {
        route.store(*letter, Ordering::Relaxed);
    }
    IS_TIMED.store(letters.contains(&b'A'), Ordering::Relaxed);
}

/// Reads the file, which [`begin`] needs.
///
/// # Safety
///
/// No other thread calls this function, and the process is no trial yet.
pub unsafe fn read(path: &[u8]) {
    IS_WANTED.store(true, Ordering::Relaxed);
    let mut name = [0; 4096];
    let Some(text) = name.get_mut(..path.len() + 1) else { return };
    text[..path.len()].copy_from_slice(path);
    let Ok(file) = FileDescriptor::open(text, OpenMode::Read) else { return };
    let Ok(start) = sys::map(MAX_FILE) else { return };
    let mut length = 0;
    // SAFETY: this much was mapped, and belongs to this call.
    let bytes = unsafe { core::slice::from_raw_parts_mut(start, MAX_FILE) };
    while let Ok(more @ 1..) = file.read(&mut bytes[length..]) {
        length += more;
    }
    let used = length.next_multiple_of(PAGE);
    // SAFETY: as the caller promised. The bytes that were read stay mapped, and the others are not
    // used any more.
    unsafe {
        *TABLE.0.get() = TrialSites::read(&bytes[..length]);
        if used < MAX_FILE {
            sys::unmap(start.add(used), MAX_FILE - used);
        }
    }
}

/// Makes the process a trial if it is to be one. Returns false if that is not possible.
///
/// # Safety
///
/// No other thread calls this function.
pub unsafe fn begin() -> bool {
    if !IS_WANTED.load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: as the caller promised.
    let is_read = unsafe { (*TABLE.0.get()).is_some() };
    let is_possible = is_read && (chunks::is_mapped() || chunks::map());
    // Pairs with the load in `sites`.
    IS_ON.store(is_possible, Ordering::Release);
    is_possible
}
