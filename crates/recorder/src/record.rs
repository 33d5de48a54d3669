//! Writing down what a call did.

use crate::raw_file;
use crate::table::{Key, mix};
use crate::thread::{Entered, Thread};
use crate::unwind::Caller;
use crate::unwind::cache::Found;
use crate::unwind::walk::walk;
use trace_format::raw::{Flags, Lock, WaitedFor};

/// A frame below its caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub(crate) return_address: u64,
    pub(crate) parent: u32,
}

impl Key for Node {
    #[inline]
    fn hash(self) -> u64 {
        mix(self.return_address ^ u64::from(self.parent) << 40)
    }

    #[inline]
    fn near(self) -> usize {
        self.parent as usize * 2
    }
}

/// A kind of allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub(crate) size: u64,
    pub(crate) node: u32,
    pub(crate) flags: Flags,
}

impl Key for Kind {
    #[inline]
    fn hash(self) -> u64 {
        mix(self.size ^ u64::from(self.node) << 32 ^ u64::from(self.flags.0) << 56)
    }

    #[inline]
    fn near(self) -> usize {
        self.node as usize
    }
}

impl Entered {
    /// A block was allocated, until `tick`.
    ///
    /// # Safety
    ///
    /// The thread is in the call that `caller` made.
    #[inline(always)]
    pub unsafe fn allocated(
        &self,
        tick: u64,
        address: u64,
        size: u64,
        flags: Flags,
        caller: Caller,
    ) {
        let thread = self.thread();
        // SAFETY: the state is this thread's while it is entered, and each borrow ends before the next begins.
        unsafe {
            if let Some(found) = (*thread).cache.find(&caller)
                && let Some(kind) = (*thread).cache.kind(found, size, flags)
                && (*thread).encoder.fits()
                && !raw_file::is_checking()
            {
                (*thread).encoder.allocated(tick, address, kind);
            } else {
                allocated_elsewhere(thread, tick, address, size, flags, caller);
            }
        }
    }

    /// A block is freed, from `tick` on.
    #[inline(always)]
    pub fn freed(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is entered; there is room.
        unsafe {
            if (*self.thread()).make_room(tick, 0) {
                (*self.thread()).encoder.freed(tick, address);
            }
        }
    }

    /// A block was freed, from `tick` on, by a reallocation that has succeeded.
    #[inline(always)]
    pub fn freed_by_realloc(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is entered; there is room.
        unsafe {
            if (*self.thread()).make_room(tick, 0) {
                (*self.thread()).encoder.freed_by_realloc(tick, address);
            }
        }
    }

    /// The usable size of a block was asked for.
    pub fn usable_asked(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is entered; there is room.
        unsafe {
            if (*self.thread()).make_room(tick, 0) {
                (*self.thread()).encoder.usable_asked(tick, address);
            }
        }
    }

    /// The thread waited for a lock, until `tick`.
    ///
    /// # Safety
    ///
    /// The thread is in the call that `caller` made.
    pub unsafe fn waited(&self, tick: u64, ticks: u64, address: u64, lock: Lock, caller: Caller) {
        let thread = self.thread();
        // SAFETY: the state is this thread's while it is entered; there is room.
        unsafe {
            let Some((node, _)) = site(thread, tick, caller) else { return };
            if (*thread).make_room(tick, 0) {
                (*thread).encoder.waited(tick, WaitedFor { node, address, lock, ticks });
            }
        }
    }
}

/// For a stack or a kind that isn't the one that was there last.
///
/// # Safety
///
/// The state is this thread's, which is in the call that `caller` made.
#[cold]
#[inline(never)]
unsafe fn allocated_elsewhere(
    thread: *mut Thread,
    tick: u64,
    address: u64,
    size: u64,
    flags: Flags,
    caller: Caller,
) {
    // SAFETY: as the caller promised.
    unsafe {
        let Some((node, found)) = site(thread, tick, caller) else { return };
        let key = Kind { size, node, flags };
        let known = (*thread).kinds.get(key);
        let kind = match known {
            Some(known) => known,
            None => {
                if !(*thread).make_room(tick, 0) {
                    return;
                }
                let Some(number) = (*thread).kinds.add(key) else { return raw_file::missed() };
                (*thread).encoder.kind(node, size, flags);
                number
            }
        };
        if let Some(found) = found {
            (*thread).cache.keep_kind(found, size, flags, kind);
        }
        if (*thread).make_room(tick, 0) {
            match known {
                Some(kind) => (*thread).encoder.allocated(tick, address, kind),
                None => (*thread).encoder.allocated_of_newest(tick, address),
            }
        }
    }
}

/// The stack of a call.
///
/// # Safety
///
/// The state is this thread's, which is in the call that `caller` made.
unsafe fn site(thread: *mut Thread, tick: u64, caller: Caller) -> Option<(u32, Option<Found>)> {
    // SAFETY: as the caller promised.
    unsafe {
        if !(*thread).has_numbers(tick) {
            return None;
        }
        if let Some(found) = (*thread).cache.find(&caller) {
            if raw_file::is_checking() {
                let right = walk(thread, tick, caller, true)?;
                raw_file::compared(right.node == found.node);
            }
            return Some((found.node, Some(found)));
        }
        let walked = walk(thread, tick, caller, false)?;
        if raw_file::is_checking() {
            let right = walk(thread, tick, caller, true)?;
            raw_file::compared(right.node == walked.node);
        }
        let found =
            walked.known.then(|| (*thread).cache.keep(&caller, &(*thread).frames, walked.node));
        Some((walked.node, found))
    }
}
