//! Faithfulness: the replay holds as many bytes after each allocation and each free as the program did.

use super::blocks::Table;
use super::memory::{Form, Memory, Row};
use super::perform::{Common, one};
use super::sequence::{Step, What as Do, Window};
use super::worker::{AbortIfPanicking, Prepared};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use trace_format::raw::Origin;
use trace_format::{Event, TraceError, What};

/// Live bytes after each allocation, free and resize, in the order of the recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    /// How many points it has.
    pub points: u64,
    /// A checksum over all of them.
    pub checksum: u64,
    pub most: u64,
    pub last: u64,
    /// Every so often a point, so that one sees where two curves part.
    pub samples: Vec<u64>,
    /// How many points a sample stands for; 0 for one.
    pub every: u64,
    /// Blocks that overlapped a live one when they were made.
    pub overlaps: u64,
}

/// The most samples.
const MOST_SAMPLES: usize = 2048;

impl Curve {
    fn point(&mut self, bytes: u64) {
        if self.points.is_multiple_of(self.every.max(1)) {
            self.samples.push(bytes);
            if self.samples.len() > MOST_SAMPLES {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every = self.every.max(1) * 2;
            }
        }
        self.points += 1;
        self.checksum = (self.checksum.rotate_left(5) ^ bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.most = self.most.max(bytes);
        self.last = bytes;
    }
}

/// The curve of a recording, straight from its events: a resize is one point.
pub fn recorded(
    events: impl Iterator<Item = Result<Event, TraceError>>,
) -> Result<Curve, TraceError> {
    let mut curve = Curve::default();
    let mut live: Table<u64, u64> = Table::default();
    let mut bytes = 0_u64;
    // By thread: the size of the block that it is about to resize.
    let mut resizing: Table<u32, u64> = Table::default();
    for event in events {
        let event = event?;
        match event.what {
            What::Alloc { address, size, flags, .. } => {
                // malloc gives a byte to who asks for none.
                let size = size.max(1);
                if let Some(old) = resizing.remove(&event.thread) {
                    bytes = bytes.wrapping_sub(old);
                    if flags.origin() != Origin::Realloc {
                        curve.point(bytes);
                    }
                }
                if let Some(lost) = live.insert(address, size) {
                    bytes = bytes.wrapping_sub(lost);
                    curve.point(bytes);
                }
                bytes = bytes.wrapping_add(size);
                curve.point(bytes);
            }
            What::Free { address, by_realloc } => {
                if let Some(old) = resizing.remove(&event.thread) {
                    bytes = bytes.wrapping_sub(old);
                    curve.point(bytes);
                }
                match live.remove(&address) {
                    Some(size) if by_realloc => _ = resizing.insert(event.thread, size),
                    Some(size) => {
                        bytes = bytes.wrapping_sub(size);
                        curve.point(bytes);
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }
    // The program ended within these.
    for old in resizing.into_values() {
        bytes = bytes.wrapping_sub(old);
        curve.point(bytes);
    }
    Ok(curve)
}

/// Does all steps in the order of the recording, each thread's on a thread of its own, with an eye on every block.
pub fn in_order<R: Row>(prepared: &Prepared, row: &R) -> Curve {
    let common = prepared.common();
    let order = Order::new(prepared);
    let ledger = Mutex::default();
    thread::scope(|scope| {
        for crew in prepared.crews() {
            let (common, order, ledger) = (&common, &order, &ledger);
            scope.spawn(move || {
                let guard = AbortIfPanicking;
                for thread in crew.threads {
                    one_thread(prepared, row, thread as usize, common, order, ledger);
                }
                std::mem::forget(guard);
            });
        }
    });
    ledger.into_inner().unwrap_or_else(PoisonError::into_inner).curve
}

fn one_thread<R: Row>(
    prepared: &Prepared,
    row: &R,
    thread: usize,
    common: &Common,
    order: &Order,
    ledger: &Mutex<Ledger>,
) {
    let about = &prepared.sequence.threads[thread];
    let mut own = vec![std::ptr::null_mut(); about.slots as usize];
    let mut resizing = None;
    let mut window = Window::of(about.steps.iter());
    let mut steps = about.steps.iter().flat_map(|piece| prepared.read(&mut window, piece).to_vec());
    let leaves = about.leaves || about.lane == 0;
    row.within(thread, leaves, |memory| {
        let mut memory = Audited { memory, ledger };
        for turn in &order.of[thread] {
            order.wait(thread, *turn);
            for step in steps.by_ref().take(prepared.turns[*turn] as u32 as usize) {
                let step = Step::of(step);
                if step.what() == Do::Epoch {
                    continue;
                }
                let waited = &mut Duration::default();
                // SAFETY: this thread's steps of this sequence, all of them, in their order, with its slots and its memory.
                unsafe {
                    one(
                        step,
                        &prepared.forms,
                        &mut own,
                        common,
                        &mut memory,
                        &mut resizing,
                        waited,
                    );
                }
            }
            order.pass(prepared, *turn + 1);
        }
    });
}

/// Whose turn it is.
#[derive(Debug)]
struct Order {
    /// By thread: its turns.
    of: Vec<Vec<usize>>,
    now: Mutex<usize>,
    /// By thread.
    changed: Vec<Condvar>,
}

impl Order {
    fn new(prepared: &Prepared) -> Self {
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

    fn pass(&self, prepared: &Prepared, turn: usize) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        if let Some(next) = prepared.turns.get(turn) {
            self.changed[(next >> 32) as usize].notify_one();
        }
    }
}

/// What is live, by what an allocator returned.
#[derive(Debug, Default)]
struct Ledger {
    live: BTreeMap<usize, usize>,
    bytes: u64,
    curve: Curve,
}

impl Ledger {
    fn enter(&mut self, block: *mut u8, size: usize) {
        let from = block.addr();
        let below = self.live.range(..from + size).next_back();
        if below.is_some_and(|(at, size)| at + size > from) {
            self.curve.overlaps += 1;
        }
        self.live.insert(from, size);
        self.bytes += size as u64;
    }

    fn leave(&mut self, block: *mut u8) {
        if let Some(size) = self.live.remove(&block.addr()) {
            self.bytes -= size as u64;
        }
    }

    fn point(&mut self) {
        self.curve.point(self.bytes);
    }
}

/// A memory, with a ledger.
struct Audited<'a, M> {
    memory: &'a mut M,
    ledger: &'a Mutex<Ledger>,
}

impl<M> Audited<'_, M> {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Memory> Memory for Audited<'_, M> {
    fn alloc(&mut self, form: &Form) -> *mut u8 {
        let block = self.memory.alloc(form);
        let mut ledger = self.ledger();
        ledger.enter(block, form.layout.size());
        ledger.point();
        drop(ledger);
        block
    }

    unsafe fn free(&mut self, block: *mut u8, form: &Form) {
        let mut ledger = self.ledger();
        ledger.leave(block);
        ledger.point();
        drop(ledger);
        // SAFETY: the caller's promise.
        unsafe { self.memory.free(block, form) };
    }

    unsafe fn resize(&mut self, block: *mut u8, old: &Form, new: &Form) -> *mut u8 {
        self.ledger().leave(block);
        // SAFETY: the caller's promise.
        let block = unsafe { self.memory.resize(block, old, new) };
        let mut ledger = self.ledger();
        ledger.enter(block, new.layout.size());
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
