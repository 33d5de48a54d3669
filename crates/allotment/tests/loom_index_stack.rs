//! Models of the lock-free stack (`src/memory/index_stack.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! Each model is a claim about the stack that ships. Beside it is a broken version of the stack, as
//! a test that must fail. It shows that the model detects the error that it is made for.
#![cfg(loom)]

use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

/// The operations that the models need: of the real stack, and of the broken ones below.
trait Stack: Send + Sync + 'static {
    fn push(&self, table: &Table, index: u32);
    fn pop(&self, table: &Table) -> Option<u32>;
}

impl Stack for IndexStack {
    fn push(&self, table: &Table, index: u32) {
        table.gate.pass();
        IndexStack::push(self, table, index);
    }

    fn pop(&self, table: &Table) -> Option<u32> {
        table.gate.pass();
        IndexStack::pop(self, table)
    }
}

/// The stack without one of its precautions.
struct Broken {
    head: AtomicU64,
    counted: bool,
    on_push: Ordering,
    on_pop: Ordering,
}

impl Broken {
    fn new(counted: bool, on_push: Ordering, on_pop: Ordering) -> Self {
        Self { head: AtomicU64::new(u64::from(NIL)), counted, on_push, on_pop }
    }

    fn next_head(&self, head: u64, top: u32) -> u64 {
        let tag = if self.counted { (head >> 32).wrapping_add(1) } else { 0 };
        (tag << 32) | u64::from(top)
    }
}

impl Stack for Broken {
    fn push(&self, table: &Table, index: u32) {
        table.gate.pass();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            table.next(index).store(head as u32, Ordering::Relaxed);
            let wanted = self.next_head(head, index);
            match self.head.compare_exchange(head, wanted, self.on_push, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, table: &Table) -> Option<u32> {
        table.gate.pass();
        let mut head = self.head.load(self.on_pop);
        while head as u32 != NIL {
            let next = table.next(head as u32).load(Ordering::Relaxed);
            let wanted = self.next_head(head, next);
            match self.head.compare_exchange(head, wanted, self.on_pop, self.on_pop) {
                Ok(_) => return Some(head as u32),
                Err(now) => head = now,
            }
        }
        None
    }
}

/// One thread writes a chunk and pushes it; another takes it and reads.
fn hand_over(stack: impl Stack) {
    let shared = Arc::new((stack, Table::new(1)));
    let other = Arc::clone(&shared);
    let pusher = thread::spawn(move || {
        other.1.write(0, 7);
        other.0.push(&other.1, 0);
    });
    if let Some(index) = shared.0.pop(&shared.1) {
        assert_eq!(shared.1.read(index), 7);
    }
    pusher.join().unwrap();
}

#[test]
fn a_thread_that_takes_a_chunk_sees_what_its_former_owner_wrote() {
    explore(3, || hand_over(IndexStack::new()));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_push_hands_over_a_chunk_without_its_bytes() {
    explore(3, || hand_over(Broken::new(true, Ordering::Relaxed, Ordering::Acquire)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_pop_takes_a_chunk_without_its_bytes() {
    explore(3, || hand_over(Broken::new(true, Ordering::Release, Ordering::Relaxed)));
}

/// Two chunks are on the stack, 0 above 1. One thread takes one. Another takes both, uses them and
/// pushes the upper one back. At the end each chunk must be in exactly one place.
fn take_use_push_while_another_pops(stack: impl Stack) {
    let table = Table::new(2);
    stack.push(&table, 1);
    stack.push(&table, 0);
    let shared = Arc::new((stack, table));
    let other = Arc::clone(&shared);
    let popper = thread::spawn(move || {
        let (stack, table) = &*other;
        let taken = stack.pop(table);
        if let Some(index) = taken {
            table.write(index, 1);
        }
        taken
    });
    let (stack, table) = &*shared;
    let first = stack.pop(table);
    let second = stack.pop(table);
    for index in [first, second].into_iter().flatten() {
        table.write(index, 2);
    }
    if let Some(first) = first {
        stack.push(table, first);
    }
    let theirs = popper.join().unwrap();

    let mut places = [0; 2];
    for index in [second, theirs].into_iter().flatten() {
        places[index as usize] += 1;
    }
    while let Some(index) = stack.pop(table) {
        table.write(index, 3);
        places[index as usize] += 1;
    }
    assert_eq!(places, [1, 1], "each chunk has one place");
}

#[test]
fn a_chunk_that_came_back_while_another_thread_popped_is_not_taken_twice() {
    explore(3, || take_use_push_while_another_pops(IndexStack::new()));
}

#[test]
#[should_panic(expected = "each chunk has one place")]
fn an_uncounted_stack_suffers_from_aba() {
    explore(3, || {
        take_use_push_while_another_pops(Broken::new(false, Ordering::Release, Ordering::Acquire));
    });
}

#[test]
fn two_threads_that_push_and_pop_lose_and_duplicate_nothing() {
    explore(3, || {
        let shared = Arc::new((IndexStack::new(), Table::new(2)));
        let threads: Vec<_> = (0..2u32)
            .map(|mine| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (stack, table) = &*shared;
                    table.write(mine, mine + 10);
                    Stack::push(stack, table, mine);
                    let taken =
                        Stack::pop(stack, table).expect("two were pushed at most one was taken");
                    assert_eq!(table.read(taken), taken + 10);
                    taken
                })
            })
            .collect();
        let mut taken: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert!(shared.0.is_empty());
    });
}

/// The second chunk is taken by an exchange that reads another thread's pop. The release of its
/// pusher continues through the exchanges in between.
#[test]
fn a_chunk_below_another_threads_push_is_handed_over_as_well() {
    explore(3, || {
        let shared = Arc::new((IndexStack::new(), Table::new(2)));
        let threads: Vec<_> = (0..2u32)
            .map(|mine| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.write(mine, mine + 10);
                    Stack::push(&shared.0, &shared.1, mine);
                })
            })
            .collect();
        let (stack, table) = &*shared;
        for index in std::iter::from_fn(|| Stack::pop(stack, table)) {
            assert_eq!(table.read(index), index + 10);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_chain_is_pushed_whole_and_taken_whole() {
    explore(3, || {
        let shared = Arc::new((IndexStack::new(), Table::new(4)));
        let pushing = Arc::clone(&shared);
        let pusher = thread::spawn(move || {
            let (stack, table) = &*pushing;
            for index in [0, 1, 2] {
                table.write(index, index + 10);
            }
            table.next(0).store(1, Ordering::Relaxed);
            table.next(1).store(2, Ordering::Relaxed);
            table.gate.pass();
            stack.push_chain(table, 0, 2);
        });
        let taking = Arc::clone(&shared);
        let taker = thread::spawn(move || walk(&taking.0, &taking.1));
        let (stack, table) = &*shared;
        table.write(3, 13);
        Stack::push(stack, table, 3);
        let popped = Stack::pop(stack, table);
        if let Some(index) = popped {
            assert_eq!(table.read(index), index + 10);
        }
        pusher.join().unwrap();
        let mut seen = taker.join().unwrap();
        seen.extend(popped);
        seen.extend(walk(stack, table));
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}

/// Takes the whole chain and reads every chunk on it.
fn walk(stack: &IndexStack, table: &Table) -> Vec<u32> {
    let mut seen = Vec::new();
    table.gate.pass();
    let mut index = stack.take_all();
    while index != NIL {
        assert_eq!(table.read(index), index + 10);
        seen.push(index);
        index = table.next(index).load(Ordering::Relaxed);
    }
    seen
}
