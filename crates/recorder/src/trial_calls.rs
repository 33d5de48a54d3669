//! What the hooks of malloc do in a trial: they look the call's stack up, whatever memory serves
//! it, so that trials with different memory spend the same time on that.

use crate::call_stack::route;
use crate::clock::{stamp, stamps_of_20_us};
use crate::raw_file;
use crate::thread_state::ThreadState;
use crate::threads::HookEntry;
use crate::trial::memory::{self, LARGEST, TrialMemory};
use crate::trial::rows::FreesInARow;
use crate::trial::settings::{RouteMemory, is_timed, memory_of};
use crate::unwind::CallSite;
use core::ptr::null_mut;
use trace_format::raw::MeasuredCall;

pub use crate::trial::memory::owns;
pub use crate::trial::settings::is_on;

/// The blocks of a row that is measured.
pub const ROW: usize = 1024;

fn thread_memory(state: *mut ThreadState) -> *mut TrialMemory {
    // SAFETY: the state is mapped as long as the process exists.
    unsafe { &raw mut (*state).trial_memory }
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
        if memory == RouteMemory::Malloc || size > LARGEST || !memory::is_ready() {
            (*state).trial_frees.last = 0;
            return null_mut();
        }
        let own = thread_memory(state);
        match memory {
            RouteMemory::Lists => TrialMemory::allocate_from_list(own, route, size),
            RouteMemory::Arena => TrialMemory::allocate_in_arena(own, route, size),
            RouteMemory::TimedArena => {
                (*state).end_row();
                TrialMemory::allocate_in_arena(own, route, size)
            }
            RouteMemory::ShadowArena => {
                TrialMemory::use_arena(own, route, size);
                null_mut()
            }
            RouteMemory::ShadowLists => {
                let block = TrialMemory::allocate_from_list(own, route, size);
                if !block.is_null() {
                    TrialMemory::free(own, block);
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
            return TrialMemory::free(null_mut(), block);
        };
        if is_timed() {
            return free_timed(state, block);
        }
        TrialMemory::free(thread_memory(state), block);
    }
}

/// # Safety
///
/// As for [`free`]; the state is this thread's.
unsafe fn free_timed(state: *mut ThreadState, block: *mut u8) {
    let now = stamp();
    // SAFETY: as the caller promised.
    unsafe {
        let row = &raw mut (*state).trial_frees;
        let between = now.wrapping_sub((*row).last);
        // Half a microsecond: a few misses of the cache. What takes longer is other work.
        if (*row).last != 0 && between < stamps_of_20_us() / 40 {
            (*row).between += between;
            (*row).count += 1;
        }
        TrialMemory::free(thread_memory(state), block);
        (*row).last = stamp();
    }
}

/// A free of a block that is not of this memory: the time until the next free is no walk's.
pub fn freed_elsewhere(entry: Option<&HookEntry>) {
    if let Some(entry) = entry {
        // SAFETY: the state is this thread's while it is in the hook.
        unsafe { (*entry.state()).trial_frees.last = 0 };
    }
}

/// The process ends.
pub fn end(entry: &HookEntry) {
    // SAFETY: the state is this thread's while it is in the hook.
    unsafe { (*entry.state()).end_row() };
}

/// Whether this process times frees in a row.
pub fn times_rows() -> bool {
    is_on() && memory::is_ready() && is_timed()
}

/// Blocks whose frees in a row are measured: there is no way from one to the next.
pub fn blocks_in_a_row(entry: &HookEntry) -> [*mut u8; ROW] {
    // SAFETY: the state is this thread's while it is in the hook. No stack has route 0.
    [(); ROW]
        .map(|()| unsafe { TrialMemory::allocate_in_arena(thread_memory(entry.state()), 0, 32) })
}

/// The row of [`blocks_in_a_row`] has been freed.
pub fn end_of_measured_row(entry: &HookEntry) {
    // SAFETY: the state is this thread's while it is in the hook.
    let row = unsafe { core::mem::replace(&mut (*entry.state()).trial_frees, FreesInARow::NONE) };
    raw_file::add_sums(MeasuredCall::Reallocation, row.count, row.between);
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
        let old_size = memory::usable_size(block);
        if size <= old_size && size >= old_size / 2 {
            return block;
        }
        let mut new = null_mut();
        if let Some(entry) = entry {
            if TrialMemory::grow_in_place(thread_memory(entry.state()), block, size) {
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

/// Bytes of a block of this memory.
///
/// # Safety
///
/// [`owns`] holds for the block, which is live.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: as the caller promised.
    unsafe { memory::usable_size(block) }
}
