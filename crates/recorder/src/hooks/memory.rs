//! malloc and its family.

use super::caller;
use crate::clock::{stamp, ticks};
use crate::next::{self, Next};
use crate::raw_file::{self, Took};
use crate::thread::{Entered, enter};
use crate::unwind::Caller;
use core::ffi::{c_int, c_void};
use trace_format::raw::{Flags, Measured, Origin, TICK_SHIFT};

/// A block, or what isn't one.
type Block = *mut c_void;

entry!(malloc, on_malloc, 1);
entry!(calloc, on_calloc, 2);
entry!(realloc, on_realloc, 2);
entry!(reallocarray, on_reallocarray, 3);
entry!(memalign, on_memalign, 2);
entry!(aligned_alloc, on_aligned_alloc, 2);
entry!(posix_memalign, on_posix_memalign, 3);
entry!(valloc, on_valloc, 1);
entry!(pvalloc, on_pvalloc, 1);

/// Calls what allocates, and writes down what it gave.
#[inline(always)]
fn allocate(size: usize, flags: Flags, caller: Caller, next: impl FnOnce() -> Block) -> Block {
    let Some(entered) = enter() else { return next() };
    let entered = match entered.leaves_to_be_measured() {
        Err(entered) => entered,
        Ok(()) => return allocate_measured(size, flags, caller, next),
    };
    let block = next();
    if !block.is_null() {
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.allocated(ticks(), block as u64, size as u64, flags, caller) };
    }
    block
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn allocate_measured(
    size: usize,
    flags: Flags,
    caller: Caller,
    next: impl FnOnce() -> Block,
) -> Block {
    let zero = stamp();
    let begin = stamp();
    let Some(entered) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    if !block.is_null() {
        let tick = after >> TICK_SHIFT;
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.allocated(tick, block as u64, size as u64, flags, caller) };
        drop(entered);
        // As many stamps as a call has that isn't measured, and one more.
        let recorder = before - begin + (stamp() - after);
        let took = Took { program: after - before, recorder, stamp: begin - zero };
        raw_file::measured(Measured::Allocation, took);
    }
    block
}

extern "C" fn on_malloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let address = next::MALLOC.get();
    if address.is_null() {
        return next::early_block(size, 1).cast();
    }
    allocate(size, const { Flags::new(Origin::Malloc) }, caller(stack, frame, back), || {
        call!(address, fn(usize) -> Block, size)
    })
}

extern "C" fn on_calloc(count: usize, size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let address = next::CALLOC.get();
    let bytes = count.saturating_mul(size);
    if address.is_null() {
        return next::early_block(bytes, 1).cast();
    }
    allocate(bytes, const { Flags::new(Origin::Calloc) }, caller(stack, frame, back), || {
        call!(address, fn(usize, usize) -> Block, count, size)
    })
}

/// A reallocation, by whichever function.
#[inline(always)]
fn reallocate(old: Block, size: usize, caller: Caller, next: impl FnOnce() -> Block) -> Block {
    const FLAGS: Flags = Flags::new(Origin::Realloc);
    if old.is_null() {
        return allocate(size, FLAGS, caller, next);
    }
    if let Some(early) = next::early_size(old) {
        return move_early(old, early, size, caller);
    }
    let Some(entered) = enter() else { return next() };
    let entered = match entered.leaves_to_be_measured() {
        Err(entered) => entered,
        Ok(()) => return reallocate_measured(old, size, caller, next),
    };
    let before = ticks();
    let block = next();
    // SAFETY: the thread is in the call that the entry has taken over.
    unsafe { reallocated(&entered, old, before, block, ticks(), size, caller) };
    block
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn reallocate_measured(
    old: Block,
    size: usize,
    caller: Caller,
    next: impl FnOnce() -> Block,
) -> Block {
    let zero = stamp();
    let begin = stamp();
    let Some(entered) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    let ticks = (before >> TICK_SHIFT, after >> TICK_SHIFT);
    // SAFETY: the thread is in the call that the entry has taken over.
    unsafe { reallocated(&entered, old, ticks.0, block, ticks.1, size, caller) };
    drop(entered);
    // A call that isn't measured has two stamps, and all say one more.
    let recorder = before - begin + (stamp() - after) + (begin - zero);
    let took = Took { program: after - before, recorder, stamp: begin - zero };
    raw_file::measured(Measured::Reallocation, took);
    block
}

/// # Safety
///
/// The thread is in the call that the entry has taken over.
#[inline(always)]
unsafe fn reallocated(
    entered: &Entered,
    old: Block,
    before: u64,
    block: Block,
    after: u64,
    size: usize,
    caller: Caller,
) {
    if !block.is_null() {
        entered.freed_by_realloc(before, old as u64);
        // SAFETY: as the caller promised.
        unsafe {
            let flags = const { Flags::new(Origin::Realloc) };
            entered.allocated(after, block as u64, size as u64, flags, caller);
        }
    } else if size == 0 {
        entered.freed(before, old as u64);
    }
}

/// A block that was given out while the next functions were looked up becomes a real one.
#[cold]
fn move_early(old: Block, early: usize, size: usize, caller: Caller) -> Block {
    let address = next::MALLOC.get();
    if address.is_null() {
        let block = next::early_block(size, 1).cast::<c_void>();
        if !block.is_null() {
            // SAFETY: both are as long as this, and apart.
            unsafe { block.cast::<u8>().copy_from_nonoverlapping(old.cast(), early.min(size)) };
        }
        return block;
    }
    let block = allocate(size, const { Flags::new(Origin::Realloc) }, caller, || {
        call!(address, fn(usize) -> Block, size)
    });
    if !block.is_null() {
        // SAFETY: both are as long as this, and apart.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(old.cast(), early.min(size)) };
    }
    block
}

extern "C" fn on_realloc(old: Block, size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let caller = caller(stack, frame, back);
    let address = next::REALLOC.get();
    if address.is_null() {
        return move_early(old, next::early_size(old).unwrap_or(0), size, caller);
    }
    reallocate(old, size, caller, || call!(address, fn(Block, usize) -> Block, old, size))
}

extern "C" fn on_reallocarray(
    old: Block,
    count: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    let address = next::REALLOCARRAY.get();
    let caller = caller(stack, frame, back);
    if address.is_null() {
        return match count.checked_mul(size) {
            Some(bytes) => on_realloc(old, bytes, stack, frame, back),
            None => core::ptr::null_mut(),
        };
    }
    reallocate(old, count.saturating_mul(size), caller, || {
        call!(address, fn(Block, usize, usize) -> Block, old, count, size)
    })
}

/// Calls what allocates with an alignment.
#[inline(always)]
fn align(next: &Next, alignment: usize, size: usize, caller: Caller) -> Block {
    let address = next.get();
    if address.is_null() {
        return next::early_block(size, alignment).cast();
    }
    let flags = const { Flags::new(Origin::Aligned) }.aligned(alignment);
    allocate(size, flags, caller, || call!(address, fn(usize, usize) -> Block, alignment, size))
}

extern "C" fn on_memalign(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    align(&next::MEMALIGN, alignment, size, caller(stack, frame, back))
}

extern "C" fn on_aligned_alloc(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    align(&next::ALIGNED_ALLOC, alignment, size, caller(stack, frame, back))
}

extern "C" fn on_posix_memalign(
    into: *mut Block,
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> c_int {
    const NO_MEMORY: c_int = 12;
    let address = next::POSIX_MEMALIGN.get();
    if address.is_null() {
        let block = next::early_block(size, alignment).cast::<c_void>();
        if block.is_null() {
            return NO_MEMORY;
        }
        // SAFETY: the program's own place for it.
        unsafe { into.write(block) };
        return 0;
    }
    let mut result = 0;
    let flags = const { Flags::new(Origin::Aligned) }.aligned(alignment);
    allocate(size, flags, caller(stack, frame, back), || {
        result = call!(address, fn(*mut Block, usize, usize) -> c_int, into, alignment, size);
        // SAFETY: a success has put a block there.
        if result == 0 { unsafe { into.read() } } else { core::ptr::null_mut() }
    });
    result
}

/// Calls what allocates whole pages.
fn pages(next: &Next, size: usize, caller: Caller) -> Block {
    let address = next.get();
    if address.is_null() {
        return next::early_block(size, 4096).cast();
    }
    let flags = const { Flags::new(Origin::Pages).aligned(4096) };
    allocate(size, flags, caller, || call!(address, fn(usize) -> Block, size))
}

extern "C" fn on_valloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    pages(&next::VALLOC, size, caller(stack, frame, back))
}

extern "C" fn on_pvalloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    pages(&next::PVALLOC, size, caller(stack, frame, back))
}

#[inline(always)]
fn release(next: &Next, block: Block) {
    if block.is_null() || next::early_size(block).is_some() {
        return;
    }
    let address = next.get();
    let mut entered = enter();
    if let Some(inside) = entered {
        entered = match inside.leaves_to_be_measured() {
            Err(inside) => Some(inside),
            Ok(()) => return release_measured(address, block),
        };
    }
    if let Some(entered) = &entered {
        entered.freed(ticks(), block as u64);
    }
    if !address.is_null() {
        call!(address, fn(Block) -> (), block);
    }
    drop(entered);
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn release_measured(address: *mut c_void, block: Block) {
    let zero = stamp();
    let begin = stamp();
    let entered = enter();
    if let Some(entered) = &entered {
        entered.freed(ticks(), block as u64);
    }
    let before = stamp();
    if !address.is_null() {
        call!(address, fn(Block) -> (), block);
    }
    let after = stamp();
    if entered.is_some() {
        let took = Took { program: after - before, recorder: before - begin, stamp: begin - zero };
        raw_file::measured(Measured::Free, took);
    }
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Block) {
    release(&next::FREE, block);
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: Block) {
    let next = if next::CFREE.get().is_null() { &next::FREE } else { &next::CFREE };
    release(next, block);
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Block) -> usize {
    if let Some(early) = next::early_size(block) {
        return early;
    }
    let address = next::USABLE_SIZE.get();
    if address.is_null() {
        return 0;
    }
    if !block.is_null()
        && let Some(entered) = enter()
    {
        entered.usable_asked(ticks(), block as u64);
    }
    call!(address, fn(Block) -> usize, block)
}
