//! Models of the lock-free stack (`src/memory/index_stack.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! Each model is a claim about the stack. A mutant of the stack, with one step wrong, must fail.
//! That shows that the model detects the error that it is made for.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// Links, and for each a chunk whose bytes only the owner may access: loom reports an access by two
/// threads.
struct Table {
    gate: Gate,
    next: Vec<AtomicU32>,
    chunks: Vec<UnsafeCell<u32>>,
}

impl Table {
    fn new(len: usize) -> Self {
        Self {
            gate: Gate::new(),
            next: (0..len).map(|_| AtomicU32::new(NIL)).collect(),
            chunks: (0..len).map(|_| UnsafeCell::new(0)).collect(),
        }
    }

    /// Accesses a chunk as its owner.
    fn write(&self, index: u32, value: u32) {
        // SAFETY: the caller owns the chunk. Loom fails the model if another thread accesses it
        // meanwhile.
        self.chunks[index as usize].with_mut(|chunk| unsafe { *chunk = value });
    }

    fn read(&self, index: u32) -> u32 {
        // SAFETY: as above.
        self.chunks[index as usize].with(|chunk| unsafe { *chunk })
    }
}

impl Links for Table {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.next[index as usize]
    }
}

/// A stack and its table.
struct Model {
    stack: IndexStack,
    table: Table,
}

impl Model {
    fn new(len: usize) -> Arc<Self> {
        Arc::new(Self { stack: IndexStack::new(), table: Table::new(len) })
    }

    fn push(&self, index: u32) {
        self.table.gate.pass();
        self.stack.push(&self.table, index);
    }

    fn pop(&self) -> Option<u32> {
        self.table.gate.pass();
        self.stack.pop(&self.table)
    }

    /// Takes the whole chain and reads every chunk on it.
    fn walk(&self) -> Vec<u32> {
        let mut seen = Vec::new();
        self.table.gate.pass();
        let mut index = self.stack.take_all();
        while index != NIL {
            assert_eq!(self.table.read(index), index + 10);
            seen.push(index);
            index = self.table.next(index).load(Ordering::Relaxed);
        }
        seen
    }
}

/// One thread writes a chunk and pushes it; another takes it and reads.
fn a_chunk_is_handed_over() {
    let model = Model::new(1);
    let other = Arc::clone(&model);
    let pusher = thread::spawn(move || {
        other.table.write(0, 7);
        other.push(0);
    });
    if let Some(index) = model.pop() {
        assert_eq!(model.table.read(index), 7);
    }
    pusher.join().unwrap();
}

#[test]
fn a_thread_that_takes_a_chunk_sees_what_its_former_owner_wrote() {
    explore(3, a_chunk_is_handed_over);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_push_hands_over_a_chunk_without_its_bytes() {
    let _mutant = Mutant::new("stack push: relaxed");
    explore(3, a_chunk_is_handed_over);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_pop_takes_a_chunk_without_its_bytes() {
    let _mutant = Mutant::new("stack pop: relaxed");
    explore(3, a_chunk_is_handed_over);
}

/// Two chunks are on the stack, 0 above 1. One thread takes one. Another takes both, uses them and
/// pushes the upper one back. At the end each chunk must be in exactly one place.
fn take_use_push_while_another_pops() {
    let model = Model::new(2);
    model.push(1);
    model.push(0);
    let other = Arc::clone(&model);
    let popper = thread::spawn(move || {
        let taken = other.pop();
        if let Some(index) = taken {
            other.table.write(index, 1);
        }
        taken
    });
    let first = model.pop();
    let second = model.pop();
    for index in [first, second].into_iter().flatten() {
        model.table.write(index, 2);
    }
    if let Some(first) = first {
        model.push(first);
    }
    let theirs = popper.join().unwrap();

    let mut places = [0; 2];
    for index in [second, theirs].into_iter().flatten() {
        places[index as usize] += 1;
    }
    while let Some(index) = model.pop() {
        model.table.write(index, 3);
        places[index as usize] += 1;
    }
    assert_eq!(places, [1, 1], "each chunk has one place");
}

#[test]
fn a_chunk_that_came_back_while_another_thread_popped_is_not_taken_twice() {
    explore(3, take_use_push_while_another_pops);
}

#[test]
#[should_panic(expected = "each chunk has one place")]
fn an_uncounted_stack_suffers_from_aba() {
    let _mutant = Mutant::new("stack: not counted");
    explore(3, take_use_push_while_another_pops);
}

#[test]
fn two_threads_that_push_and_pop_lose_and_duplicate_nothing() {
    explore(3, || {
        let model = Model::new(2);
        let threads: Vec<_> = (0..2u32)
            .map(|mine| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    model.table.write(mine, mine + 10);
                    model.push(mine);
                    let taken = model.pop().expect("two were pushed at most one was taken");
                    assert_eq!(model.table.read(taken), taken + 10);
                    taken
                })
            })
            .collect();
        let mut taken: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert!(model.stack.is_empty());
    });
}

/// The second chunk is taken by an exchange that reads another thread's pop. The release of its
/// pusher continues through the exchanges in between.
#[test]
fn a_chunk_below_another_threads_push_is_handed_over_as_well() {
    explore(3, || {
        let model = Model::new(2);
        let threads: Vec<_> = (0..2u32)
            .map(|mine| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    model.table.write(mine, mine + 10);
                    model.push(mine);
                })
            })
            .collect();
        for index in std::iter::from_fn(|| model.pop()) {
            assert_eq!(model.table.read(index), index + 10);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_chain_is_pushed_whole_and_taken_whole() {
    explore(3, || {
        let model = Model::new(4);
        let pushing = Arc::clone(&model);
        let pusher = thread::spawn(move || {
            for index in [0, 1, 2] {
                pushing.table.write(index, index + 10);
            }
            pushing.table.next(0).store(1, Ordering::Relaxed);
            pushing.table.next(1).store(2, Ordering::Relaxed);
            pushing.table.gate.pass();
            pushing.stack.push_chain(&pushing.table, 0, 2);
        });
        let taking = Arc::clone(&model);
        let taker = thread::spawn(move || taking.walk());
        model.table.write(3, 13);
        model.push(3);
        let popped = model.pop();
        if let Some(index) = popped {
            assert_eq!(model.table.read(index), index + 10);
        }
        pusher.join().unwrap();
        let mut seen = taker.join().unwrap();
        seen.extend(popped);
        seen.extend(model.walk());
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}
