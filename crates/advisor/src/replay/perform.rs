//! The loop that does a thread's steps: the same for every row, compiled with the row's own calls in it.
//!
//! # Invariants
//!
//! The steps are what `compile` makes of a recording: a slot of a thread's own is filled by an allocation, and emptied by one free
//! or resize of that thread behind it, which names the shape of the allocation. A shared slot is filled by one thread and emptied once,
//! by another or the same one, with the same shape; it is filled again only when whoever emptied it has done so, which the epochs see
//! to. The file with the steps has no name, so that nobody else changes them.

use super::memory::{Form, Memory};
use super::sequence::{MOST_TOUCHED, STEP_BYTES, Step, What};
use nix::time::{ClockId, clock_gettime};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What all threads share.
#[derive(Debug)]
pub struct Common {
    /// Where blocks are that cross.
    slots: Vec<AtomicPtr<u8>>,
    /// By epoch: how many lanes come to it, and how many have.
    expected: Vec<u32>,
    arrived: Vec<AtomicU32>,
    /// By lane: how many of its threads have ended.
    ended: Vec<AtomicU32>,
    gate: Mutex<()>,
    changed: Condvar,
}

impl Common {
    pub fn new(slots: usize, expected: Vec<u32>, lanes: usize) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            slots: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            arrived: zeros(expected.len()),
            expected,
            ended: zeros(lanes),
            gate: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Takes the block out of a shared slot, as soon as it is there.
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

    /// Comes to an epoch.
    fn arrive(&self, epoch: usize) {
        let before = self.arrived[epoch].fetch_add(1, Ordering::AcqRel);
        if before + 1 == self.expected[epoch] {
            self.change();
        }
        if let Some(last) = epoch.checked_sub(1) {
            self.wait(|| self.arrived[last].load(Ordering::Acquire) >= self.expected[last]);
        }
    }

    /// Waits for the threads of the lane that ran before.
    pub fn wait_for_turn(&self, lane: usize, before: usize) {
        self.wait(|| self.ended[lane].load(Ordering::Acquire) as usize >= before);
    }

    /// The thread that had its turn has ended.
    pub fn end_turn(&self, lane: usize) {
        self.ended[lane].fetch_add(1, Ordering::Release);
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

/// Waits for another thread's allocation; what it costs is told apart from the work.
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

/// The CPU time of the calling thread, to the nanosecond: its resource usage is brought up to date at ticks alone.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A block and its shape, between the two halves of a resize.
pub type Resizing = Option<(*mut u8, usize)>;

/// Does a piece of a thread's steps. Returns the CPU time that it waited for other threads in shared slots.
///
/// # Safety
/// The pieces, all of them and in this order, are those of one thread of a compiled recording; `forms` are its shapes, `own` has a
/// place for each of the thread's slots, `resizing` is `None` before the first piece and then as the piece before left it, the memory
/// is of one row for all threads.
pub unsafe fn perform<M: Memory>(
    steps: &[[u8; STEP_BYTES]],
    forms: &[Form],
    own: &mut [*mut u8],
    common: &Common,
    resizing: &mut Resizing,
    memory: &mut M,
) -> Duration {
    let mut waited = Duration::ZERO;
    for step in steps {
        // SAFETY: the caller's promise, step by step.
        unsafe { one(Step::of(*step), forms, own, common, memory, resizing, &mut waited) };
    }
    waited
}

/// Does one step. `resizing` is what the step before began, if it was the first half of a resize.
///
/// # Safety
/// As for [`perform`].
#[inline(always)]
pub unsafe fn one<M: Memory>(
    step: Step,
    forms: &[Form],
    own: &mut [*mut u8],
    common: &Common,
    memory: &mut M,
    resizing: &mut Resizing,
    waited: &mut Duration,
) {
    match step.what() {
        What::Allocate => {
            let form = &forms[step.shape()];
            let block = memory.alloc(form);
            // SAFETY: a fresh block that is as long as its form says.
            unsafe { memory.touch(block, 0, form.layout.size().min(MOST_TOUCHED)) };
            put(step, block, own, common);
        }
        What::Free => {
            let block = get(step, own, common, waited);
            // SAFETY: the slot has the block that was put there last, with this shape, and it is freed once (invariants).
            unsafe { memory.free(block, &forms[step.shape()]) };
        }
        What::ResizeFrom => *resizing = Some((get(step, own, common, waited), step.shape())),
        What::ResizeTo => {
            let Some((block, old)) = resizing.take() else { return };
            let (old, new) = (&forms[old], &forms[step.shape()]);
            // SAFETY: as for a free; the resized block is as long as its form says.
            let block = unsafe {
                let block = memory.resize(block, old, new);
                let (from, to) = (old.layout.size(), new.layout.size().min(MOST_TOUCHED));
                if from < to {
                    memory.touch(block, from, to);
                }
                block
            };
            put(step, block, own, common);
        }
        What::Reset => memory.reset(step.shape() as u32),
        What::Epoch => common.arrive(step.shape()),
    }
}

#[inline(always)]
fn put(step: Step, block: *mut u8, own: &mut [*mut u8], common: &Common) {
    if step.is_shared() {
        common.slots[step.slot()].store(block, Ordering::Release);
    } else {
        own[step.slot()] = block;
    }
}

#[inline(always)]
fn get(step: Step, own: &[*mut u8], common: &Common, waited: &mut Duration) -> *mut u8 {
    if step.is_shared() { common.take(step.slot(), waited) } else { own[step.slot()] }
}
