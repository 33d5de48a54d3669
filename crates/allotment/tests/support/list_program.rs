//! Operation programs on free lists: bytes decoded into calls, each checked against the live
//! objects.
//!
//! Every byte string is a program, as for arenas and slabs.

use core::time::Duration;
use std::sync::Arc;

use allotment::source::SharedSource;
use allotment::{AllocError, Budget, ErrorKind, Malloc, RawFreeList, Release, Statistics};
#[cfg(any(system_memory, not(test)))]
use allotment::{File, Mmap};

#[cfg(all(test, not(system_memory)))]
use super::absent_options::*;
use super::input::Input;
use super::list;
use super::object::{Object, assert_apart, assert_refusal, layout};
#[cfg(any(system_memory, not(test)))]
use super::setup::file_directory;
use super::sources::{Recorder, Refuse};

/// Where chunks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    #[cfg(any(system_memory, not(test)))]
    Mmap,
    #[cfg(any(system_memory, not(test)))]
    HugePages,
    Malloc,
    #[cfg(any(system_memory, not(test)))]
    File,
    /// Blocks, of a source that refuses some.
    Refusing,
}

/// The choices that a test fixes; the others come from the program's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub from: From,
    pub hardened: bool,
}

/// A list and its surroundings.
pub struct Setup {
    pub list: RawFreeList,
    budgets: Vec<Budget>,
    recorder: Option<Arc<Recorder>>,
    /// It releases chunks only when nothing is live and `trim` is called.
    watched: bool,
    passthrough: bool,
}

const SIZES: [usize; 8] = [0, 1, 8, 24, 64, 100, 4096, 100_000];

fn refuse(input: &mut Input<'_>) -> Refuse {
    let nth = u64::from(input.byte() % 12) + 1;
    match input.below(4) {
        0 => Refuse::Only(nth),
        1 => Refuse::From(nth),
        2 => Refuse::Every(nth + 1),
        _ => Refuse::OneIn(nth + 1),
    }
}

fn release(input: &mut Input<'_>) -> Release {
    match input.below(7) {
        0 => Release::AtOnce,
        1 => Release::Keep(0),
        2 => Release::Keep(usize::from(input.word()) * 8),
        3 => Release::Keep(usize::MAX),
        4 => Release::Decay(Duration::from_millis(u64::from(input.byte() % 4))),
        _ => Release::Adaptive,
    }
}

/// Builds the list that the bytes ask for.
pub fn build(fixed: Fixed, input: &mut Input<'_>) -> Setup {
    let size = match input.below(3) {
        0 => usize::from(input.word()) % 700,
        _ => SIZES[input.below(SIZES.len())],
    };
    let align = match input.below(4) {
        0 => 1 << input.below(14),
        _ => 1 << input.below(5),
    };
    let mut recorder = None;
    let source: SharedSource = match fixed.from {
        #[cfg(any(system_memory, not(test)))]
        From::Mmap => Mmap::new().into(),
        #[cfg(any(system_memory, not(test)))]
        From::HugePages => Mmap::huge_pages().into(),
        From::Malloc => Malloc.into(),
        #[cfg(any(system_memory, not(test)))]
        From::File => File::in_directory(&file_directory()).expect("a file").into(),
        From::Refusing => {
            let refuse = refuse(input);
            let made = match input.below(2) {
                #[cfg(any(system_memory, not(test)))]
                1 => Recorder::new(Mmap::new(), refuse),
                _ => Recorder::new(Malloc, refuse),
            };
            recorder = Some(made.clone());
            made.into()
        }
    };
    let budgets = match input.below(4) {
        0 => vec![Budget::new(usize::from(input.word()) * 16)],
        1 => vec![Budget::new(usize::MAX)],
        2 => {
            let parent = Budget::new(1 << 20);
            vec![parent.child(usize::from(input.word()) * 64), parent]
        }
        _ => Vec::new(),
    };
    let mut builder = RawFreeList::builder(layout(size, align))
        .name("program")
        .source(source)
        .release(release(input))
        .report_live(false)
        .objects_per_chunk(match input.below(4) {
            0 => 1,
            1 => input.below(40),
            2 => 1000,
            _ => 0,
        })
        .hardened(fixed.hardened);
    if let Some(budget) = budgets.first() {
        builder = builder.budget(budget);
    }
    let passthrough = list::passed_through();
    let watched = fixed.hardened || passthrough || list::under_a_tool();
    let list = builder.try_build().expect("nothing is taken yet");
    assert_eq!(list.stride() % align, 0);
    assert!(list.stride() >= size.max(size_of::<usize>()));
    Setup { list, budgets, recorder, watched, passthrough }
}

impl Setup {
    /// The figures are exact, and what the source has lent is what they say.
    pub fn check(&self, live: usize) -> Statistics {
        let statistics = list::assert_exact(&self.list, live, self.budgets.first());
        for budget in &self.budgets {
            assert_eq!(budget.used() as u64, statistics.held_bytes, "at each level");
        }
        if self.passthrough {
            assert_eq!((statistics.chunks, statistics.free_bytes), (0, 0));
            return statistics;
        }
        if let Some(recorder) = &self.recorder {
            assert_eq!(recorder.lent_blocks() as u64, statistics.chunks, "chunks");
            assert_eq!(recorder.lent_bytes() as u64, statistics.held_bytes, "bytes");
        }
        statistics
    }

    /// The list is dropped, whatever is live: everything went back.
    pub fn finish(self) {
        drop(self.list);
        for budget in self.budgets {
            assert_eq!(budget.used(), 0);
        }
        if let Some(recorder) = self.recorder {
            assert_eq!(recorder.lent_blocks(), 0);
        }
    }
}

/// A program on its way.
pub struct Run<'s, 'b> {
    pub input: Input<'b>,
    setup: &'s Setup,
    pub objects: Vec<Object>,
    next_number: u64,
    /// The maximum number of live objects: small if the objects are large.
    most: usize,
}

impl<'s, 'b> Run<'s, 'b> {
    pub fn new(setup: &'s Setup, bytes: &'b [u8]) -> Self {
        let most = (4 << 20) / setup.list.stride() + 4;
        Self { input: Input::new(bytes), setup, objects: Vec::new(), next_number: 0, most }
    }

    fn room(&self) -> usize {
        self.most.saturating_sub(self.objects.len())
    }

    fn adopt(&mut self, start: core::ptr::NonNull<u8>) {
        let layout = self.setup.list.layout();
        let object = Object::stamp(start, layout, self.next_number);
        self.next_number += 1;
        if let (Some(recorder), false) = (&self.setup.recorder, self.setup.passthrough) {
            let (first, end) = object.range();
            assert!(recorder.holds(first, end - first), "{object:?} is in a chunk");
        }
        self.objects.push(object);
    }

    /// A call that may be refused, and then has changed nothing.
    fn take<R>(&self, call: impl FnOnce(&RawFreeList) -> Result<R, AllocError>) -> Option<R> {
        let before = self.setup.list.statistics();
        match call(&self.setup.list) {
            Ok(taken) => Some(taken),
            Err(error) => {
                assert_refusal(error);
                let after = self.setup.list.statistics();
                if after.held_bytes < before.held_bytes {
                    // Spare chunks were released, and that was not enough.
                    let released = before.chunks - after.chunks;
                    assert!(released > 0, "{before:?} {after:?}");
                    // Objects of no size have no bytes that could be free.
                    let sized = self.setup.list.layout().size() > 0;
                    assert_eq!(after.free_bytes < before.free_bytes, sized, "{before:?} {after:?}");
                    assert_eq!(after.live_objects, before.live_objects, "{error}");
                    return None;
                }
                assert_eq!(after, before, "{error}");
                None
            }
        }
    }

    fn alloc(&mut self, fresh: bool) -> bool {
        let call = if fresh { RawFreeList::try_alloc_fresh } else { RawFreeList::try_alloc };
        let taken = self.take(call);
        taken.into_iter().for_each(|object| self.adopt(object));
        taken.is_some()
    }

    fn alloc_some(&mut self, fresh: bool) {
        let count = self.input.below(400).min(self.room());
        for _ in 0..count {
            if !self.alloc(fresh) {
                break;
            }
        }
    }

    fn alloc_run(&mut self) {
        let wanted = match self.input.below(4) {
            0 => self.input.below(3000),
            _ => self.input.below(60),
        };
        let count = wanted.min(self.room());
        let list = &self.setup.list;
        if self.setup.passthrough && count > 1 {
            let error = list.try_alloc_run(count).unwrap_err();
            return assert_eq!(error.kind(), ErrorKind::LimitReached);
        }
        let Some(first) = self.take(|list| list.try_alloc_run(count)) else { return };
        assert_eq!(first.addr().get() % list.layout().align(), 0);
        list::objects_of(list, first, count).for_each(|object| self.adopt(object));
    }

    fn free_one(&mut self) {
        let count = self.objects.len();
        if count > 0 {
            let index = match self.input.byte() {
                0..=99 => count - 1,
                100..=139 => 0,
                other => usize::from(other) * 7919 % count,
            };
            list::free(&self.setup.list, self.objects.swap_remove(index));
        }
    }

    fn free_some(&mut self) {
        let count = self.input.below(1 + self.objects.len().min(3000));
        // The last or the first, in the order of allocation or the other way round, or scattered.
        if self.input.one_in(2) {
            let len = self.objects.len();
            self.objects.rotate_left(count.min(len));
        }
        let mut some = self.objects.split_off(self.objects.len() - count);
        match self.input.below(3) {
            0 => some.reverse(),
            1 if count > 1 => (0..count).for_each(|index| some.swap(index, index * 37 % count)),
            _ => {}
        }
        list::free_all(&self.setup.list, some);
    }

    fn trim(&mut self) {
        let list = &self.setup.list;
        let before = list.statistics().held_bytes;
        let given = list.trim();
        let after = list.statistics();
        assert_eq!(before - after.held_bytes, given as u64);
        let live = self.objects.len() as u64;
        if live == 0 || !self.setup.watched {
            assert!(after.chunks <= live, "each chunk that stays holds an object: {after:?}");
        }
    }

    /// One call on the list.
    pub fn step(&mut self) {
        match self.input.byte() % 24 {
            0..=2 => drop(self.room() > 0 && self.alloc(false)),
            3..=7 => self.alloc_some(false),
            8 | 9 => drop(self.room() > 0 && self.alloc(true)),
            10 => self.alloc_some(true),
            11..=13 => self.alloc_run(),
            14..=16 => self.free_one(),
            17..=20 => self.free_some(),
            21 => list::free_all(&self.setup.list, self.objects.drain(..)),
            _ => self.trim(),
        }
    }

    /// Every object is as it was stamped.
    pub fn check_objects(&self) {
        self.objects.iter().for_each(Object::assert_intact);
        assert_apart(&self.objects);
    }
}

/// Runs a program, exact figures after each call.
pub fn run(fixed: Fixed, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let setup = build(fixed, &mut input);
    let ends_empty = input.one_in(2);
    let mut run = Run::new(&setup, input.rest());
    let mut calls = 0u32;
    while !run.input.is_empty() {
        run.step();
        setup.check(run.objects.len());
        calls += 1;
        if calls % 8 == 0 {
            run.check_objects();
        }
    }
    run.check_objects();
    if ends_empty {
        list::free_all(&setup.list, run.objects.drain(..));
        setup.check(0);
        list::assert_empties(&setup.list);
    }
    drop(run);
    setup.finish();
}
