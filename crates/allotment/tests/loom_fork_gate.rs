//! Models of the gate that a fork closes (`src/memory/fork_gate.rs`), explored by loom; `.ci/loom`
//! runs them.
//!
//! Loom has no fork. In its place the forking thread reads what the critical sections write: the
//! kernel copies it. Loom fails if that read and a write are unordered, and if a thread is never
//! woken.
#![cfg(loom)]

use std::collections::BTreeMap;

use allotment::for_loom::Mutant;
use allotment::for_loom::fork_gate::{ForkGate, Futex};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// The kernel's sleeping threads: it compares a word and wakes under one lock.
struct Kernel {
    threads: Mutex<Threads>,
    woken: Condvar,
    /// In the models of mutants, a thread that is never woken fails the model by a panic of its
    /// own: loom's panic at a deadlock would end the test program.
    watched: bool,
}

struct Threads {
    /// Those that have not ended.
    running: usize,
    /// For each word by its address: the number of threads that sleep on it, and of wakes so far.
    words: BTreeMap<usize, (usize, u32)>,
}

impl Threads {
    fn word(&mut self, word: &AtomicU32) -> &mut (usize, u32) {
        self.words.entry(core::ptr::from_ref(word).addr()).or_default()
    }
}

impl Kernel {
    fn new(running: usize, watched: bool) -> Self {
        let threads = Mutex::new(Threads { running, words: BTreeMap::new() });
        Self { threads, woken: Condvar::new(), watched }
    }

    /// The calling thread sleeps and wakes no more.
    fn end_thread(&self) {
        self.threads.lock().unwrap().running -= 1;
    }
}

impl Futex for Kernel {
    fn wait_on(&self, word: &AtomicU32, value: u32) {
        let mut threads = self.threads.lock().unwrap();
        if word.load(Ordering::SeqCst) != value {
            return;
        }
        threads.word(word).0 += 1;
        let before = threads.word(word).1;
        while threads.word(word).1 == before {
            if !self.watched {
                threads = self.woken.wait(threads).unwrap();
                continue;
            }
            let asleep: usize = threads.words.values().map(|(asleep, _)| asleep).sum();
            assert!(asleep < threads.running, "a thread is never woken");
            drop(threads);
            thread::yield_now();
            threads = self.threads.lock().unwrap();
        }
    }

    fn wake_all(&self, word: &AtomicU32) {
        let mut threads = self.threads.lock().unwrap();
        let (asleep, wakes) = threads.word(word);
        *asleep = 0;
        *wakes += 1;
        self.woken.notify_all();
    }
}

struct Process {
    gate: ForkGate,
    kernel: Kernel,
    /// What each of two threads writes in its critical section: two words that are equal outside of
    /// it.
    states: [UnsafeCell<(u32, u32)>; 2],
}

// SAFETY: the gate orders the accesses to the states, and loom checks that it does.
unsafe impl Sync for Process {}

impl Process {
    fn new(kernel: Kernel) -> Arc<Self> {
        let states = [UnsafeCell::new((0, 0)), UnsafeCell::new((0, 0))];
        Arc::new(Self { gate: ForkGate::new(), kernel, states })
    }

    /// A critical section of one of the two threads, each of which has a count of its own.
    fn change(&self, number: usize) {
        self.gate.enter(number, &self.kernel);
        self.states[number].with_mut(|state| {
            // SAFETY: the one thread of this number is inside, so no thread forks.
            unsafe {
                (*state).0 += 1;
                (*state).1 += 1;
            }
        });
        self.gate.leave(number, &self.kernel);
    }

    fn fork(&self) {
        self.gate.close(&self.kernel);
        for state in &self.states {
            // SAFETY: the gate is closed, and no thread is inside.
            let (first, second) = state.with(|state| unsafe { *state });
            assert_eq!(first, second, "nothing is half written at the fork");
        }
        self.gate.open(&self.kernel);
    }
}

fn spawn(process: &Arc<Process>, run: impl FnOnce(&Process) + 'static) -> thread::JoinHandle<()> {
    let process = Arc::clone(process);
    thread::spawn(move || {
        run(&process);
        process.kernel.end_thread();
    })
}

/// One thread forks while another has critical sections.
fn a_thread_forks_while_another_enters(times: usize, watched: bool) {
    explore(3, move || {
        let process = Process::new(Kernel::new(2, watched));
        let other = spawn(&process, move |process| (0..times).for_each(|_| process.change(0)));
        process.fork();
        process.kernel.end_thread();
        other.join().unwrap();
    });
}

#[test]
fn at_a_fork_no_thread_is_inside() {
    a_thread_forks_while_another_enters(2, false);
}

#[test]
fn at_a_fork_neither_of_two_threads_is_inside() {
    explore(2, || {
        let process = Process::new(Kernel::new(3, false));
        let others = [0, 1].map(|number| spawn(&process, move |process| process.change(number)));
        process.fork();
        process.kernel.end_thread();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn of_two_threads_that_fork_one_waits() {
    explore(2, || {
        let process = Process::new(Kernel::new(3, false));
        let other = spawn(&process, |process| process.change(0));
        let forking = spawn(&process, Process::fork);
        process.fork();
        process.kernel.end_thread();
        other.join().unwrap();
        forking.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thread_that_is_counted_after_its_look_is_inside_at_a_fork() {
    let _mutant = Mutant::new("gate: looks before it is counted");
    a_thread_forks_while_another_enters(1, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thread_that_forks_without_waiting_forks_while_another_is_inside() {
    let _mutant = Mutant::new("gate: does not wait");
    a_thread_forks_while_another_enters(1, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_gate_that_is_opened_without_order_lets_a_write_overtake_the_fork() {
    let _mutant = Mutant::new("gate: opened without order");
    a_thread_forks_while_another_enters(1, true);
}

#[test]
#[should_panic(expected = "a thread is never woken")]
fn a_thread_that_leaves_silently_leaves_the_forking_thread_asleep() {
    let _mutant = Mutant::new("gate: leaves silently");
    a_thread_forks_while_another_enters(1, true);
}

#[test]
#[should_panic(expected = "a thread is never woken")]
fn a_gate_that_is_opened_silently_leaves_a_thread_asleep_before_it() {
    let _mutant = Mutant::new("gate: opened silently");
    a_thread_forks_while_another_enters(1, true);
}
