//! Performs a replay in the recorded order, and checks that it is faithful: after each allocation
//! and free, as many bytes are live as in the program, and no blocks overlap.

use super::live_bytes::LiveBytesCurve;
use super::round_job::PreparedReplay;
use super::sequence::{Step, StepBuffer, StepKind};
use super::step_loop::{SharedState, perform_step};
use super::thread_memory::{MemoryFactory, RoutedShape, ThreadMemory};
use bench::workloads::AbortIfPanicking;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Performs all steps in the order of the recording, each thread's on a thread of its own. Returns
/// the curve of live bytes, with the number of overlapping blocks.
pub fn in_order<R: MemoryFactory>(prepared: &PreparedReplay, row: &R) -> LiveBytesCurve {
    let shared = prepared.shared();
    let order = TurnOrder::new(prepared);
    let ledger = Mutex::default();
    thread::scope(|scope| {
        for replay_thread in prepared.replay_threads() {
            let (shared, order, ledger) = (&shared, &order, &ledger);
            scope.spawn(move || {
                let guard = AbortIfPanicking;
                for thread in replay_thread.threads {
                    one_thread(prepared, row, thread as usize, shared, order, ledger);
                }
                std::mem::forget(guard);
            });
        }
    });
    ledger.into_inner().unwrap_or_else(PoisonError::into_inner).curve
}

fn one_thread<R: MemoryFactory>(
    prepared: &PreparedReplay,
    row: &R,
    thread: usize,
    shared: &SharedState,
    order: &TurnOrder,
    ledger: &Mutex<LiveLedger>,
) {
    let about = &prepared.sequence.threads[thread];
    let mut own = vec![std::ptr::null_mut(); about.slots as usize];
    let mut resizing = None;
    let mut step_buffer = StepBuffer::of(about.steps.iter());
    let mut steps =
        about.steps.iter().flat_map(|piece| prepared.read(&mut step_buffer, piece).to_vec());
    let leaves = about.leaves || about.chain == 0;
    row.within(thread, leaves, |memory| {
        let mut memory = CheckedMemory { memory, ledger };
        for turn in &order.of[thread] {
            order.wait(thread, *turn);
            for step in steps.by_ref().take(prepared.turns[*turn] as u32 as usize) {
                let step = Step::of(step);
                if step.kind() == StepKind::Epoch {
                    continue;
                }
                let waited = &mut Duration::default();
                // SAFETY: all of this thread's steps of this sequence, in order, with its slots and
                // its memory.
                unsafe {
                    perform_step(
                        step,
                        &prepared.shapes,
                        &mut own,
                        shared,
                        &mut memory,
                        &mut resizing,
                        waited,
                    );
                }
            }
            order.end_turn(prepared, *turn + 1);
        }
    });
}

/// Makes the threads take turns in the recorded order.
#[derive(Debug)]
struct TurnOrder {
    /// For each thread: its turns.
    of: Vec<Vec<usize>>,
    now: Mutex<usize>,
    /// For each thread.
    changed: Vec<Condvar>,
}

impl TurnOrder {
    fn new(prepared: &PreparedReplay) -> Self {
        let threads = prepared.sequence.threads.len();
        let mut of = vec![Vec::new(); threads];
        for (number, turn) in prepared.turns.iter().enumerate() {
            of[(turn >> 32) as usize].push(number);
        }
        let changed = (0..threads).map(|_| Condvar::new()).collect();
        Self { of, now: Mutex::new(0), changed }
    }

    fn wait(&self, thread: usize, turn: usize) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        while *now != turn {
            now = self.changed[thread].wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end_turn(&self, prepared: &PreparedReplay, turn: usize) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        if let Some(next) = prepared.turns.get(turn) {
            self.changed[(next >> 32) as usize].notify_one();
        }
    }
}

/// The live blocks, by the address that the allocator returned.
#[derive(Debug, Default)]
struct LiveLedger {
    live: BTreeMap<usize, usize>,
    bytes: u64,
    curve: LiveBytesCurve,
}

impl LiveLedger {
    fn add(&mut self, block: *mut u8, size: usize) {
        let from = block.addr();
        let below = self.live.range(..from + size).next_back();
        if below.is_some_and(|(at, size)| at + size > from) {
            self.curve.overlaps += 1;
        }
        self.live.insert(from, size);
        self.bytes += size as u64;
    }

    fn remove_block(&mut self, block: *mut u8) {
        if let Some(size) = self.live.remove(&block.addr()) {
            self.bytes -= size as u64;
        }
    }

    fn point(&mut self) {
        self.curve.point(self.bytes);
    }
}

/// A memory that enters each block in a ledger.
struct CheckedMemory<'a, M> {
    memory: &'a mut M,
    ledger: &'a Mutex<LiveLedger>,
}

impl<M> CheckedMemory<'_, M> {
    fn ledger(&self) -> MutexGuard<'_, LiveLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: ThreadMemory> ThreadMemory for CheckedMemory<'_, M> {
    fn alloc(&mut self, shape: &RoutedShape) -> *mut u8 {
        let block = self.memory.alloc(shape);
        let mut ledger = self.ledger();
        ledger.add(block, shape.layout.size());
        ledger.point();
        drop(ledger);
        block
    }

    unsafe fn free(&mut self, block: *mut u8, shape: &RoutedShape) {
        let mut ledger = self.ledger();
        ledger.remove_block(block);
        ledger.point();
        drop(ledger);
        // SAFETY: the caller's promise.
        unsafe { self.memory.free(block, shape) };
    }

    unsafe fn resize(&mut self, block: *mut u8, old: &RoutedShape, new: &RoutedShape) -> *mut u8 {
        self.ledger().remove_block(block);
        // SAFETY: the caller's promise.
        let block = unsafe { self.memory.resize(block, old, new) };
        let mut ledger = self.ledger();
        ledger.add(block, new.layout.size());
        ledger.point();
        drop(ledger);
        block
    }

    fn reset(&mut self, group: u32) {
        self.memory.reset(group);
    }

    unsafe fn touch(&mut self, block: *mut u8, from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.touch(block, from, to) };
    }
}
