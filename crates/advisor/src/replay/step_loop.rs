//! The loop that performs a thread's steps. It is compiled once for each row, with the row's calls
//! inlined.
//!
//! # Invariants
//!
//! The steps are those that `compile` writes:
//!
//! - A thread's own slot is filled by an allocation, and emptied by one later free or resize of
//!   that thread, with the shape of the allocation.
//! - A shared slot is filled by one thread and emptied once, by the same or another one, with the
//!   same shape. It is filled again only after it was emptied; the epochs ensure that.
//!
//! The file of the steps has no name, so no other process changes it.

use super::sequence::{MOST_TOUCHED, STEP_BYTES, Step, StepKind};
use super::thread_memory::{RoutedShape, ThreadMemory};
use nix::time::{ClockId, clock_gettime};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The state that all threads share.
#[derive(Debug)]
pub struct SharedState {
    /// The blocks that cross.
    slots: Vec<AtomicPtr<u8>>,
    /// For each epoch: the number of chains that enter it, and of those that have entered it.
    expected: Vec<u32>,
    arrived: Vec<AtomicU32>,
    /// For each chain: the number of its threads that have ended.
    ended: Vec<AtomicU32>,
    gate: Mutex<()>,
    changed: Condvar,
}

impl SharedState {
    pub fn new(slots: usize, expected: Vec<u32>, chains: usize) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            slots: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            arrived: zeros(expected.len()),
            expected,
            ended: zeros(chains),
            gate: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Waits for the block in a shared slot, and empties the slot.
    #[inline(always)]
    fn take(&self, slot: usize, waited: &mut Duration) -> *mut u8 {
        let slot = &self.slots[slot];
        let mut block = slot.load(Ordering::Acquire);
        if block.is_null() {
            block = wait_for(slot, waited);
        }
        slot.store(ptr::null_mut(), Ordering::Relaxed);
        block
    }

    /// Enters an epoch. Waits until all chains have entered the previous one.
    fn arrive(&self, epoch: usize) {
        let before = self.arrived[epoch].fetch_add(1, Ordering::AcqRel);
        if before + 1 == self.expected[epoch] {
            self.change();
        }
        if let Some(last) = epoch.checked_sub(1) {
            self.wait(|| self.arrived[last].load(Ordering::Acquire) >= self.expected[last]);
        }
    }

    /// Waits until `before` threads of the chain have ended.
    pub fn wait_for_turn(&self, chain: usize, before: usize) {
        self.wait(|| self.ended[chain].load(Ordering::Acquire) as usize >= before);
    }

    /// A thread of the chain has ended.
    pub fn end_turn(&self, chain: usize) {
        self.ended[chain].fetch_add(1, Ordering::Release);
        self.change();
    }

    fn change(&self) {
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait(&self, done: impl Fn() -> bool) {
        if done() {
            return;
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while !done() {
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits for another thread's allocation. The CPU time of waiting is added to `waited`.
#[cold]
fn wait_for(slot: &AtomicPtr<u8>, waited: &mut Duration) -> *mut u8 {
    let began = thread_time();
    let mut tries = 0u32;
    loop {
        let block = slot.load(Ordering::Acquire);
        if !block.is_null() {
            *waited += thread_time().saturating_sub(began);
            return block;
        }
        tries += 1;
        match tries {
            ..64 => std::hint::spin_loop(),
            64..512 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(20)),
        }
    }
}

/// The CPU time of the calling thread in nanoseconds. `getrusage` would update it only at timer
/// ticks.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A block and its shape, between the two halves of a resize.
pub type PendingResize = Option<(*mut u8, usize)>;

/// Performs a piece of a thread's steps. Returns the CPU time of waiting for other threads at
/// shared slots.
///
/// # Safety
/// The calls perform all pieces of one thread of a compiled recording, in order. `shapes` has its
/// routed shapes, and `own` has an element for each of the thread's slots. `resizing` is `None`
/// before the first piece, and then as the previous piece left it. The memories of all threads are
/// of the same row.
pub unsafe fn perform<M: ThreadMemory>(
    steps: &[[u8; STEP_BYTES]],
    shapes: &[RoutedShape],
    own: &mut [*mut u8],
    shared: &SharedState,
    resizing: &mut PendingResize,
    memory: &mut M,
) -> Duration {
    let mut waited = Duration::ZERO;
    for step in steps {
        // SAFETY: the caller's promise, step by step.
        unsafe {
            perform_step(Step::of(*step), shapes, own, shared, memory, resizing, &mut waited)
        };
    }
    waited
}

/// Performs one step. `resizing` is the first half of a resize, if that was the previous step.
///
/// # Safety
/// As for [`perform`].
#[inline(always)]
pub unsafe fn perform_step<M: ThreadMemory>(
    step: Step,
    shapes: &[RoutedShape],
    own: &mut [*mut u8],
    shared: &SharedState,
    memory: &mut M,
    resizing: &mut PendingResize,
    waited: &mut Duration,
) {
    match step.kind() {
        StepKind::Allocate => {
            let shape = &shapes[step.shape()];
            let block = memory.alloc(shape);
            // SAFETY: a fresh block of the size of its shape.
            unsafe { memory.touch(block, 0, shape.layout.size().min(MOST_TOUCHED)) };
            store_block(step, block, own, shared);
        }
        StepKind::Free => {
            let block = load_block(step, own, shared, waited);
            // SAFETY: the slot has the block that was stored there last, with this shape, and it is
            // freed once (invariants).
            unsafe { memory.free(block, &shapes[step.shape()]) };
        }
        StepKind::ResizeFrom => {
            *resizing = Some((load_block(step, own, shared, waited), step.shape()))
        }
        StepKind::ResizeTo => {
            let Some((block, old)) = resizing.take() else { return };
            let (old, new) = (&shapes[old], &shapes[step.shape()]);
            // SAFETY: as for a free; the resized block has the size of its shape.
            let block = unsafe {
                let block = memory.resize(block, old, new);
                let (from, to) = (old.layout.size(), new.layout.size().min(MOST_TOUCHED));
                if from < to {
                    memory.touch(block, from, to);
                }
                block
            };
            store_block(step, block, own, shared);
        }
        StepKind::Reset => memory.reset(step.shape() as u32),
        StepKind::Epoch => shared.arrive(step.shape()),
    }
}

#[inline(always)]
fn store_block(step: Step, block: *mut u8, own: &mut [*mut u8], shared: &SharedState) {
    if step.is_shared() {
        shared.slots[step.slot()].store(block, Ordering::Release);
    } else {
        own[step.slot()] = block;
    }
}

#[inline(always)]
fn load_block(step: Step, own: &[*mut u8], shared: &SharedState, waited: &mut Duration) -> *mut u8 {
    if step.is_shared() { shared.take(step.slot(), waited) } else { own[step.slot()] }
}
