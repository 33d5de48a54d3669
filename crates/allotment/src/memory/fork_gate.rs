//! A gate that a fork closes, so that no other thread is in a critical section at the fork.
//!
//! A thread *enters* the gate before it takes a lock, and *leaves* after it has given the lock
//! back. A thread that forks *closes* the gate, waits until every thread inside has left, and opens
//! the gate after the fork. So in the child no lock is held by a thread that the child lacks, and
//! nothing that a lock protects is half written. `fork_mutex.rs` has the gate of the process.
//!
//! # Invariants
//!
//! 1. A thread is counted in `inside` before it reads `closed`. A thread that forks writes `closed`
//!    before it reads `inside` (store, then load, on both sides). So either the entering thread
//!    finds the gate closed and turns back, or the forking thread waits for it.
//! 2. A thread that leaves reads `closed` after it is no longer counted. So either it wakes the
//!    forking thread, or that thread reads the smaller count.
//! 3. A thread inside waits for no thread that is outside: it takes locks, and each lock's holder
//!    is inside, too. So each thread inside leaves.

use crate::sync::{AtomicU32, Ordering, mutant, order, store_before_load};

/// How a thread sleeps on a word, and how other threads wake it. The models have their own.
pub trait Futex {
    /// Sleeps while the word has this value, or returns without cause.
    fn wait_on(&self, word: &AtomicU32, value: u32);
    /// Wakes every thread that sleeps on the word.
    fn wake_all(&self, word: &AtomicU32);
}

/// The counts of the threads inside: threads that use different ones don't slow each other down.
pub const COUNTS: usize = if cfg!(loom) { 2 } else { 16 };

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

#[derive(Debug)]
#[repr(align(128))]
struct Count(AtomicU32);

/// The gate.
#[derive(Debug)]
pub struct ForkGate {
    closed: AtomicU32,
    inside: [Count; COUNTS],
}

impl ForkGate {
    /// An open gate, with no thread inside.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { closed: AtomicU32::new(OPEN), inside: [const { Count(AtomicU32::new(0)) }; COUNTS] }
    }

    /// An open gate, with no thread inside. Loom's atomics have no `const` constructor.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let inside = core::array::from_fn(|_| Count(AtomicU32::new(0)));
        Self { closed: AtomicU32::new(OPEN), inside }
    }

    /// Enters the gate; if it is closed, waits until it is open. `count` is below [`COUNTS`].
    pub fn enter(&self, count: usize, futex: &impl Futex) {
        let inside = &self.inside[count].0;
        loop {
            if mutant("gate: looks before it is counted") && !self.is_closed() {
                inside.fetch_add(1, Ordering::SeqCst);
                return;
            }
            inside.fetch_add(1, Ordering::SeqCst);
            store_before_load();
            if !self.is_closed() {
                return;
            }
            self.leave(count, futex);
            futex.wait_on(&self.closed, CLOSED);
        }
    }

    /// Leaves the gate.
    pub fn leave(&self, count: usize, futex: &impl Futex) {
        let inside = &self.inside[count].0;
        // At least Release, which pairs with the load in `close`: what this thread did inside
        // happens before the fork.
        inside.fetch_sub(1, Ordering::SeqCst);
        store_before_load();
        if self.is_closed() && !mutant("gate: leaves silently") {
            futex.wake_all(inside);
        }
    }

    /// SeqCst for invariants 1 and 2. Also Acquire, which pairs with the Release in `open`: what
    /// the forking thread did while the gate was closed happens before.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) == CLOSED
    }

    /// Closes the gate, and waits until no thread is inside. The caller is not inside. If another
    /// thread has closed the gate, waits until it is open first.
    pub fn close(&self, futex: &impl Futex) {
        let close = || {
            self.closed.compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        while !close() {
            futex.wait_on(&self.closed, CLOSED);
        }
        store_before_load();
        for count in &self.inside {
            loop {
                let inside = count.0.load(Ordering::SeqCst);
                if inside == 0 || mutant("gate: does not wait") {
                    break;
                }
                futex.wait_on(&count.0, inside);
            }
        }
    }

    /// Opens the gate, which the caller closed.
    pub fn open(&self, futex: &impl Futex) {
        self.closed.store(OPEN, order(Ordering::Release, "gate: opened without order"));
        if !mutant("gate: opened silently") {
            futex.wake_all(&self.closed);
        }
    }

    /// Opens the gate in a child made by fork. Threads that found the gate closed may be counted,
    /// which the child lacks.
    #[cfg(not(loom))]
    pub fn reset_in_child(&self) {
        // Relaxed: the child has one thread, and starts the others after this.
        self.inside.iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
        self.closed.store(OPEN, Ordering::Relaxed);
    }
}
