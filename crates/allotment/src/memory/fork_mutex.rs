//! `ForkMutex`: a mutex that no other thread holds when a thread forks.
//!
//! All mutexes of the process share one gate (`fork_gate.rs`). Handlers of `pthread_atfork` close
//! it before a fork and open it afterwards.
//!
//! # Lock order
//!
//! The gate, then the mutexes, then the locks of the global allocator. Code that holds a mutex
//! calls no code of the program except its global allocator, and registers no fork handler: some C
//! libraries hold a lock while they run the handlers. The C library's `fork` takes malloc's locks
//! after the gate. If a handler of the program takes a lock of its own before the fork, it must run
//! before the gate is closed. It does so if it was registered later than the gate's handlers, for
//! which the documentation asks.
//!
//! # Invariants
//!
//! 1. A thread that holds a `ForkMutex`, or waits for one, has `locks > 0`, and is counted in the
//!    gate if `counted`.
//! 2. Only a thread that forks holds a `ForkMutex` without being counted: it is between the handlers
//!    before and after its fork, and `forks` is not 0.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fork_gate::{COUNTS, ForkGate, Futex};
use super::os;
use crate::error::AllocError;

static GATE: ForkGate = ForkGate::new();

/// Whether this is a child that was forked by a thread inside, so that the gate's counts may be
/// wrong. Its forks wait for no thread.
static FORKED_INSIDE: AtomicBool = AtomicBool::new(false);

struct SystemFutex;

impl Futex for SystemFutex {
    fn wait_on(&self, word: &AtomicU32, value: u32) {
        os::wait_on(word, value);
    }

    fn wake_all(&self, word: &AtomicU32) {
        os::wake_all(word);
    }
}

/// The calling thread at the gate. It has no destructor, so it is there as long as the thread.
struct ThreadAtGate {
    /// The mutexes that the thread holds or waits for.
    locks: Cell<usize>,
    /// Whether it is counted in the gate.
    counted: Cell<bool>,
    /// The number of its forks that are under way: those between the handlers before and after them.
    /// A signal handler may fork during a fork.
    forks: Cell<u32>,
    /// Whether it closed the gate for that fork.
    has_closed: Cell<bool>,
    /// 0, or 1 plus the number of the gate's count that it uses.
    count: Cell<usize>,
}

thread_local! {
    static AT_GATE: ThreadAtGate = const {
        ThreadAtGate {
            locks: Cell::new(0),
            counted: Cell::new(false),
            forks: Cell::new(0),
            has_closed: Cell::new(false),
            count: Cell::new(0),
        }
    };
}

impl ThreadAtGate {
    /// The gate's count that this thread uses.
    fn count(&self) -> usize {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        if self.count.get() == 0 {
            self.count.set(LAST.fetch_add(1, Ordering::Relaxed) % COUNTS + 1);
        }
        self.count.get() - 1
    }

    fn enter(&self) {
        let locks = self.locks.get();
        self.locks.set(locks + 1);
        if locks == 0 && self.forks.get() == 0 {
            // A signal handler that forks here must not wait for its own thread.
            compiler_fence(Ordering::SeqCst);
            GATE.enter(self.count(), &SystemFutex);
            self.counted.set(true);
        }
    }

    fn leave(&self) {
        let locks = self.locks.get() - 1;
        if locks == 0 && self.counted.replace(false) {
            GATE.leave(self.count(), &SystemFutex);
            compiler_fence(Ordering::SeqCst);
        }
        self.locks.set(locks);
    }
}

/// The presence of the calling thread behind the gate.
struct Inside(PhantomData<*const ()>);

impl Inside {
    fn enter() -> Self {
        AT_GATE.with(ThreadAtGate::enter);
        Self(PhantomData)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        AT_GATE.with(ThreadAtGate::leave);
    }
}

/// Has every later fork wait until no other thread holds a [`ForkMutex`]. Called before the first
/// of them is locked.
///
/// A fork by a thread that holds a `ForkMutex` itself does not wait: only a signal handler, or the
/// program's global allocator, can do that. Its child must not use what the mutexes protect.
pub(crate) fn watch_forks() -> Result<(), AllocError> {
    extern "C" fn before() {
        AT_GATE.with(|thread| {
            // The handlers may have been registered twice: the second call only counts.
            let waits = thread.locks.get() == 0 && !FORKED_INSIDE.load(Ordering::Relaxed);
            let forks = thread.forks.get();
            thread.forks.set(forks + 1);
            if forks == 0 && waits {
                GATE.close(&SystemFutex);
                thread.has_closed.set(true);
            }
        });
    }
    extern "C" fn in_parent() {
        AT_GATE.with(|thread| {
            // A fork that began before the handlers were registered is not counted.
            let forks = thread.forks.get().saturating_sub(1);
            thread.forks.set(forks);
            if forks == 0 && thread.has_closed.replace(false) {
                GATE.open(&SystemFutex);
            }
        });
    }
    extern "C" fn in_child() {
        AT_GATE.with(|thread| {
            thread.forks.set(thread.forks.get().saturating_sub(1));
            // In any case: a fork that began before the handlers were registered did not wait.
            GATE.reset_in_child();
            if thread.locks.get() > 0 {
                FORKED_INSIDE.store(true, Ordering::Relaxed);
            }
            if thread.forks.get() == 0 {
                thread.has_closed.set(false);
            }
        });
    }
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    os::around_fork(before, in_parent, in_child, &REGISTERED)
}

/// A mutex that no other thread holds when a thread forks. So it is free in the child, and what it
/// protects is whole. A panic does not poison it.
#[derive(Debug, Default)]
pub(crate) struct ForkMutex<T>(Mutex<T>);

/// Access to the value of a [`ForkMutex`].
pub(crate) struct ForkMutexGuard<'m, T> {
    // The mutex is unlocked first: fields are dropped in this order.
    value: MutexGuard<'m, T>,
    _inside: Inside,
}

impl<T> ForkMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread holds the mutex and no fork is under way. [`watch_forks`] has
    /// returned `Ok` before.
    pub(crate) fn lock(&self) -> ForkMutexGuard<'_, T> {
        let inside = Inside::enter();
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ForkMutexGuard { value, _inside: inside }
    }
}

impl<T> Deref for ForkMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ForkMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
