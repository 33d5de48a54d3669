//! What the hooks of malloc do in a trial. Each allocation looks up its call stack, also where malloc
//! serves the block, so that a trial and its control run spend the same time on that.

use crate::call_stack::route;
use crate::clock::{stamp, stamps_of_20_us};
use crate::raw_file;
use crate::thread_state::ThreadState;
use crate::threads::HookEntry;
use crate::trial::chunks;
use crate::trial::consecutive_frees::ConsecutiveFrees;
use crate::trial::heap::{LARGEST, ThreadHeap};
use crate::trial::settings::{RouteMemory, is_timed, memory_of};
use crate::unwind::CallSite;
use core::ptr::null_mut;
use trace_format::raw::MeasuredCall;

pub use crate::trial::chunks::owns;
pub use crate::trial::settings::is_on;

/// The number of blocks of [`blocks_to_free`].
pub const BLOCKS: usize = 1024;

fn thread_heap(state: *mut ThreadState) -> *mut ThreadHeap {
    // SAFETY: the state is mapped as long as the process exists.
    unsafe { &raw mut (*state).trial_heap }
}

/// A block for a call of this size; null if the next function serves it.
///
/// # Safety
///
/// The thread is in the call that was made at `site`.
#[inline(always)]
pub unsafe fn allocate(entry: &HookEntry, size: usize, site: CallSite) -> *mut u8 {
    let state = entry.state();
    // SAFETY: the state is this thread's, which is in the call.
    unsafe {
        let route = route(state, site);
        let memory = memory_of(route);
        (*state).trial_frees.last = 0;
        if memory == RouteMemory::Malloc || size > LARGEST {
            return null_mut();
        }
        let own = thread_heap(state);
        match memory {
            RouteMemory::Lists => ThreadHeap::allocate_from_list(own, route, size),
            RouteMemory::Arena => ThreadHeap::allocate_in_arena(own, route, size),
            RouteMemory::TimedArena => {
                (*state).end_consecutive_frees();
                ThreadHeap::allocate_in_arena(own, route, size)
            }
            RouteMemory::ControlArena => {
                ThreadHeap::simulate_arena_pair(own, route, size);
                null_mut()
            }
            RouteMemory::ControlLists => {
                let block = ThreadHeap::allocate_from_list(own, route, size);
                if !block.is_null() {
                    ThreadHeap::free(own, block);
                }
                null_mut()
            }
            RouteMemory::Malloc => null_mut(),
        }
    }
}

/// Frees a block of this memory. `entry` is `None` if the thread is in another hook, or has no
/// state.
///
/// # Safety
///
/// [`owns`] holds for the block, which is live.
#[inline(always)]
pub unsafe fn free(entry: Option<&HookEntry>, block: *mut u8) {
    // SAFETY: as the caller promised. The state is this thread's while it is in the hook.
    unsafe {
        let Some(state) = entry.map(HookEntry::state) else {
            return ThreadHeap::free(null_mut(), block);
        };
        if is_timed() {
            return free_timed(state, block);
        }
        ThreadHeap::free(thread_heap(state), block);
    }
}

/// # Safety
///
/// As for [`free`]; the state is this thread's.
unsafe fn free_timed(state: *mut ThreadState, block: *mut u8) {
    let now = stamp();
    // SAFETY: as the caller promised.
    unsafe {
        let frees = &raw mut (*state).trial_frees;
        let route = chunks::route_of(block);
        // Route 0 has the blocks of `blocks_to_free` only, which are timed too.
        if route != 0 && memory_of(route) != RouteMemory::TimedArena {
            (*frees).last = 0;
            return ThreadHeap::free(thread_heap(state), block);
        }
        let between = now.wrapping_sub((*frees).last);
        // About 70 nanoseconds, with the hooks' own part. What takes longer is other work.
        if (*frees).last != 0 && between < stamps_of_20_us() / 300 {
            (*frees).between += between;
            (*frees).count += 1;
        }
        ThreadHeap::free(thread_heap(state), block);
        (*frees).last = stamp();
    }
}

/// A call for a block that is not of this memory: the time until the next free does not count.
pub fn called_elsewhere(entry: Option<&HookEntry>) {
    if let Some(entry) = entry {
        // SAFETY: the state is this thread's while it is in the hook.
        unsafe { (*entry.state()).trial_frees.last = 0 };
    }
}

/// The process ends.
pub fn end(entry: &HookEntry) {
    // SAFETY: the state is this thread's while it is in the hook.
    unsafe { (*entry.state()).end_consecutive_frees() };
}

/// Whether this process times consecutive frees.
pub fn times_frees() -> bool {
    is_on() && is_timed()
}

/// Blocks to be freed one after the other, with no program code in between.
pub fn blocks_to_free(entry: &HookEntry) -> [*mut u8; BLOCKS] {
    // SAFETY: the state is this thread's while it is in the hook. Route 0 is malloc's, so the program
    // has no block in its arena.
    [(); BLOCKS]
        .map(|()| unsafe { ThreadHeap::allocate_in_arena(thread_heap(entry.state()), 0, 32) })
}

/// The [`blocks_to_free`] have been freed. A trial records no calls, so the header's fields for
/// reallocations hold their number and the time between them.
pub fn empty_walks_measured(entry: &HookEntry) {
    // SAFETY: the state is this thread's while it is in the hook.
    let frees =
        unsafe { core::mem::replace(&mut (*entry.state()).trial_frees, ConsecutiveFrees::NONE) };
    raw_file::add_sums(MeasuredCall::Reallocation, frees.count, frees.between);
}

/// Moves a block of this memory to a size. `next` allocates where this memory does not.
///
/// # Safety
///
/// [`owns`] holds for the block, which is live. The thread is in the call that was made at `site`.
pub unsafe fn resize(
    entry: Option<&HookEntry>,
    block: *mut u8,
    size: usize,
    site: CallSite,
    next: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    // SAFETY: as the caller promised. The state is this thread's while it is in the hook. Both
    // blocks have the bytes that are copied.
    unsafe {
        // As glibc does.
        if size == 0 {
            free(entry, block);
            return null_mut();
        }
        called_elsewhere(entry);
        let old_size = chunks::usable_size(block);
        if size <= old_size && size >= old_size / 2 {
            return block;
        }
        let mut new = null_mut();
        if let Some(entry) = entry {
            if ThreadHeap::grow_in_place(thread_heap(entry.state()), block, size) {
                return block;
            }
            new = allocate(entry, size, site);
        }
        if new.is_null() {
            new = next();
        }
        if !new.is_null() {
            new.copy_from_nonoverlapping(block, old_size.min(size));
            free(entry, block);
        }
        new
    }
}

/// A reallocation of a block that is not of this memory. In the control run, the library does what it
/// does in a trial for a block of the same stack.
///
/// # Safety
///
/// The thread is in the call that was made at `site`.
pub unsafe fn resize_elsewhere(entry: &HookEntry, size: usize, site: CallSite) {
    // SAFETY: as the caller promised; the state is this thread's.
    unsafe {
        let memory = memory_of(route(entry.state(), site));
        if matches!(memory, RouteMemory::ControlArena | RouteMemory::ControlLists) {
            allocate(entry, size, site);
        }
    }
    called_elsewhere(Some(entry));
}

/// Bytes of a block of this memory.
///
/// # Safety
///
/// [`owns`] holds for the block, which is live.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: as the caller promised.
    unsafe { chunks::usable_size(block) }
}
