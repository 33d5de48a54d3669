//! Hooks for malloc and its family.

use super::call_site;
use crate::clock::{stamp, ticks};
use crate::next_functions::{self as next, NextFunction};
use crate::raw_file::{self, SampledTimes};
use crate::threads::{HookEntry, enter};
use crate::trial_calls;
use crate::unwind::CallSite;
use core::ffi::{c_int, c_void};
use trace_format::raw::{AllocationFlags, AllocationFunction, MeasuredCall, TICK_SHIFT};

/// The address of a block, or null.
type BlockPointer = *mut c_void;

entry!(malloc, on_malloc, 1);
entry!(calloc, on_calloc, 2);
entry!(realloc, on_realloc, 2);
entry!(reallocarray, on_reallocarray, 3);
entry!(memalign, on_memalign, 2);
entry!(aligned_alloc, on_aligned_alloc, 2);
entry!(posix_memalign, on_posix_memalign, 3);
entry!(valloc, on_valloc, 1);
entry!(pvalloc, on_pvalloc, 1);

/// Calls an allocating function, and records the allocation.
#[inline(always)]
fn allocate(
    size: usize,
    flags: AllocationFlags,
    site: CallSite,
    next: impl FnOnce() -> BlockPointer,
) -> BlockPointer {
    let Some(entry) = enter() else { return next() };
    if trial_calls::is_on() {
        return allocate_in_trial(&entry, size, flags, site, next);
    }
    let entry = match entry.leave_if_timed() {
        Err(entry) => entry,
        Ok(()) => return allocate_timed(size, flags, site, next),
    };
    let block = next();
    if !block.is_null() {
        // SAFETY: the thread is in the hooked call.
        unsafe { entry.allocated(ticks(), block as u64, size as u64, flags, site) };
    }
    block
}

/// [`allocate`] in a trial.
fn allocate_in_trial(
    entry: &HookEntry,
    size: usize,
    flags: AllocationFlags,
    site: CallSite,
    next: impl FnOnce() -> BlockPointer,
) -> BlockPointer {
    const CALLOC: AllocationFlags = AllocationFlags::new(AllocationFunction::Calloc);
    // Blocks with an alignment of their own stay the next function's.
    if flags.alignment() > 1 || flags.function() == AllocationFunction::Aligned {
        trial_calls::called_elsewhere(Some(entry));
        return next();
    }
    // SAFETY: the thread is in the hooked call.
    let block = unsafe { trial_calls::allocate(entry, size, site) };
    if block.is_null() {
        return next();
    }
    if flags == CALLOC {
        // SAFETY: a new block of this size.
        unsafe { block.write_bytes(0, size) };
    }
    block.cast()
}

/// [`allocate`] that reads the clock whenever control passes between the program and the recorder.
#[cold]
#[inline(never)]
fn allocate_timed(
    size: usize,
    flags: AllocationFlags,
    site: CallSite,
    next: impl FnOnce() -> BlockPointer,
) -> BlockPointer {
    let zero = stamp();
    let begin = stamp();
    let Some(entry) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    if !block.is_null() {
        let tick = after >> TICK_SHIFT;
        // SAFETY: the thread is in the hooked call.
        unsafe { entry.allocated(tick, block as u64, size as u64, flags, site) };
        drop(entry);
        // One stamp more than in a call that is not timed.
        let recorder = before - begin + (stamp() - after);
        let times = SampledTimes { program: after - before, recorder, stamp: begin - zero };
        raw_file::add_times(MeasuredCall::Allocation, times);
    }
    block
}

extern "C" fn on_malloc(size: usize, stack: u64, frame: u64, return_address: u64) -> BlockPointer {
    let address = next::MALLOC.get();
    if address.is_null() {
        return next::early_block(size, 1).cast();
    }
    allocate(
        size,
        const { AllocationFlags::new(AllocationFunction::Malloc) },
        call_site(stack, frame, return_address),
        || call!(address, fn(usize) -> BlockPointer, size),
    )
}

extern "C" fn on_calloc(
    count: usize,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> BlockPointer {
    let address = next::CALLOC.get();
    let bytes = count.saturating_mul(size);
    if address.is_null() {
        return next::early_block(bytes, 1).cast();
    }
    allocate(
        bytes,
        const { AllocationFlags::new(AllocationFunction::Calloc) },
        call_site(stack, frame, return_address),
        || call!(address, fn(usize, usize) -> BlockPointer, count, size),
    )
}

/// Calls a reallocating function, and records the reallocation.
#[inline(always)]
fn reallocate(
    old: BlockPointer,
    size: usize,
    site: CallSite,
    next: impl FnOnce() -> BlockPointer,
) -> BlockPointer {
    const FLAGS: AllocationFlags = AllocationFlags::new(AllocationFunction::Realloc);
    if old.is_null() {
        return allocate(size, FLAGS, site, next);
    }
    if let Some(early_size) = next::early_size(old) {
        return move_early(old, early_size, size, site);
    }
    let entry = enter();
    if trial_calls::owns(old.cast()) {
        let allocate = || match next::MALLOC.get() {
            address if address.is_null() => core::ptr::null_mut(),
            address => call!(address, fn(usize) -> BlockPointer, size).cast(),
        };
        // SAFETY: a block of the trial's memory, which the program resizes in this call.
        return unsafe { trial_calls::resize(entry.as_ref(), old.cast(), size, site, allocate) }
            .cast();
    }
    let Some(entry) = entry else { return next() };
    if trial_calls::is_on() {
        // SAFETY: the thread is in the hooked call.
        unsafe { trial_calls::resize_elsewhere(&entry, size, site) };
        return next();
    }
    let entry = match entry.leave_if_timed() {
        Err(entry) => entry,
        Ok(()) => return reallocate_timed(old, size, site, next),
    };
    let before = ticks();
    let block = next();
    // SAFETY: the thread is in the hooked call.
    unsafe { reallocated(&entry, old, before, block, ticks(), size, site) };
    block
}

/// [`reallocate`] that reads the clock whenever control passes between the program and the
/// recorder.
#[cold]
#[inline(never)]
fn reallocate_timed(
    old: BlockPointer,
    size: usize,
    site: CallSite,
    next: impl FnOnce() -> BlockPointer,
) -> BlockPointer {
    let zero = stamp();
    let begin = stamp();
    let Some(entry) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    let ticks = (before >> TICK_SHIFT, after >> TICK_SHIFT);
    // SAFETY: the thread is in the hooked call.
    unsafe { reallocated(&entry, old, ticks.0, block, ticks.1, size, site) };
    drop(entry);
    // A call that is not timed has two stamps. One more stamp is added to each time.
    let recorder = before - begin + (stamp() - after) + (begin - zero);
    let times = SampledTimes { program: after - before, recorder, stamp: begin - zero };
    raw_file::add_times(MeasuredCall::Reallocation, times);
    block
}

/// # Safety
///
/// The thread is in the hooked call.
#[inline(always)]
unsafe fn reallocated(
    entry: &HookEntry,
    old: BlockPointer,
    before: u64,
    block: BlockPointer,
    after: u64,
    size: usize,
    site: CallSite,
) {
    if !block.is_null() {
        entry.freed_by_realloc(before, old as u64);
        // SAFETY: as the caller promised.
        unsafe {
            let flags = const { AllocationFlags::new(AllocationFunction::Realloc) };
            entry.allocated(after, block as u64, size as u64, flags, site);
        }
    } else if size == 0 {
        entry.freed(before, old as u64);
    }
}

/// Reallocates a block that was handed out before the next functions were known.
#[cold]
fn move_early(old: BlockPointer, early_size: usize, size: usize, site: CallSite) -> BlockPointer {
    const FLAGS: AllocationFlags = AllocationFlags::new(AllocationFunction::Realloc);
    let address = next::MALLOC.get();
    let block = if address.is_null() {
        next::early_block(size, 1).cast()
    } else {
        allocate(size, FLAGS, site, || call!(address, fn(usize) -> BlockPointer, size))
    };
    if !block.is_null() {
        // SAFETY: both blocks have this many bytes, and do not overlap.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(old.cast(), early_size.min(size)) };
    }
    block
}

extern "C" fn on_realloc(
    old: BlockPointer,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> BlockPointer {
    let site = call_site(stack, frame, return_address);
    let address = next::REALLOC.get();
    if address.is_null() {
        return move_early(old, next::early_size(old).unwrap_or(0), size, site);
    }
    reallocate(old, size, site, || {
        call!(address, fn(BlockPointer, usize) -> BlockPointer, old, size)
    })
}

extern "C" fn on_reallocarray(
    old: BlockPointer,
    count: usize,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> BlockPointer {
    let address = next::REALLOCARRAY.get();
    let site = call_site(stack, frame, return_address);
    if address.is_null() {
        return match count.checked_mul(size) {
            Some(bytes) => on_realloc(old, bytes, stack, frame, return_address),
            None => core::ptr::null_mut(),
        };
    }
    reallocate(old, count.saturating_mul(size), site, || {
        call!(address, fn(BlockPointer, usize, usize) -> BlockPointer, old, count, size)
    })
}

/// Calls a function that allocates with an alignment, and records the allocation.
#[inline(always)]
fn allocate_aligned(
    function: &NextFunction,
    alignment: usize,
    size: usize,
    site: CallSite,
) -> BlockPointer {
    let address = function.get();
    if address.is_null() {
        return next::early_block(size, alignment).cast();
    }
    let flags = const { AllocationFlags::new(AllocationFunction::Aligned) }.aligned(alignment);
    allocate(size, flags, site, || {
        call!(address, fn(usize, usize) -> BlockPointer, alignment, size)
    })
}

extern "C" fn on_memalign(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> BlockPointer {
    allocate_aligned(&next::MEMALIGN, alignment, size, call_site(stack, frame, return_address))
}

extern "C" fn on_aligned_alloc(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> BlockPointer {
    allocate_aligned(&next::ALIGNED_ALLOC, alignment, size, call_site(stack, frame, return_address))
}

extern "C" fn on_posix_memalign(
    into: *mut BlockPointer,
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    return_address: u64,
) -> c_int {
    const ENOMEM: c_int = 12;
    let address = next::POSIX_MEMALIGN.get();
    if address.is_null() {
        let block = next::early_block(size, alignment).cast::<c_void>();
        if block.is_null() {
            return ENOMEM;
        }
        // SAFETY: the program's variable for the result.
        unsafe { into.write(block) };
        return 0;
    }
    let mut result = 0;
    let flags = const { AllocationFlags::new(AllocationFunction::Aligned) }.aligned(alignment);
    allocate(size, flags, call_site(stack, frame, return_address), || {
        result =
            call!(address, fn(*mut BlockPointer, usize, usize) -> c_int, into, alignment, size);
        // SAFETY: a successful call has stored a block there.
        if result == 0 { unsafe { into.read() } } else { core::ptr::null_mut() }
    });
    result
}

/// Calls a function that allocates whole pages, and records the allocation.
fn allocate_pages(function: &NextFunction, size: usize, site: CallSite) -> BlockPointer {
    let address = function.get();
    if address.is_null() {
        return next::early_block(size, 4096).cast();
    }
    let flags = const { AllocationFlags::new(AllocationFunction::Pages).aligned(4096) };
    allocate(size, flags, site, || call!(address, fn(usize) -> BlockPointer, size))
}

extern "C" fn on_valloc(size: usize, stack: u64, frame: u64, return_address: u64) -> BlockPointer {
    allocate_pages(&next::VALLOC, size, call_site(stack, frame, return_address))
}

extern "C" fn on_pvalloc(size: usize, stack: u64, frame: u64, return_address: u64) -> BlockPointer {
    allocate_pages(&next::PVALLOC, size, call_site(stack, frame, return_address))
}

/// Records a free, and calls a freeing function.
#[inline(always)]
fn release(function: &NextFunction, block: BlockPointer) {
    if block.is_null() || next::early_size(block).is_some() {
        return;
    }
    let address = function.get();
    let mut entry = enter();
    if trial_calls::is_on() {
        if trial_calls::owns(block.cast()) {
            // SAFETY: a block of the trial's memory, which the program frees.
            return unsafe { trial_calls::free(entry.as_ref(), block.cast()) };
        }
        trial_calls::called_elsewhere(entry.as_ref());
        if !address.is_null() {
            call!(address, fn(BlockPointer) -> (), block);
        }
        return;
    }
    if let Some(left) = entry {
        entry = match left.leave_if_timed() {
            Err(left) => Some(left),
            Ok(()) => return release_timed(address, block),
        };
    }
    if let Some(entry) = &entry {
        entry.freed(ticks(), block as u64);
    }
    if !address.is_null() {
        call!(address, fn(BlockPointer) -> (), block);
    }
    drop(entry);
}

/// [`release`] that reads the clock whenever control passes between the program and the recorder.
#[cold]
#[inline(never)]
fn release_timed(address: *mut c_void, block: BlockPointer) {
    let zero = stamp();
    let begin = stamp();
    let entry = enter();
    if let Some(entry) = &entry {
        entry.freed(ticks(), block as u64);
    }
    let before = stamp();
    if !address.is_null() {
        call!(address, fn(BlockPointer) -> (), block);
    }
    let after = stamp();
    if entry.is_some() {
        let times =
            SampledTimes { program: after - before, recorder: before - begin, stamp: begin - zero };
        raw_file::add_times(MeasuredCall::Free, times);
    }
}

/// The function that the program calls.
///
/// # Safety
///
/// As for the next function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: BlockPointer) {
    release(&next::FREE, block);
}

/// The function that the program calls.
///
/// # Safety
///
/// As for the next function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: BlockPointer) {
    let function = if next::CFREE.get().is_null() { &next::FREE } else { &next::CFREE };
    release(function, block);
}

/// The function that the program calls.
///
/// # Safety
///
/// As for the next function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: BlockPointer) -> usize {
    if let Some(size) = next::early_size(block) {
        return size;
    }
    if trial_calls::owns(block.cast()) {
        // SAFETY: a block of the trial's memory.
        return unsafe { trial_calls::usable_size(block.cast()) };
    }
    let address = next::USABLE_SIZE.get();
    if address.is_null() {
        return 0;
    }
    if !block.is_null()
        && let Some(entry) = enter()
    {
        entry.usable_size_queried(ticks(), block as u64);
    }
    call!(address, fn(BlockPointer) -> usize, block)
}
