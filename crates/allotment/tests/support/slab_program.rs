//! Operation programs on slabs: bytes decoded into calls, each checked against the live objects.
//!
//! Every byte string is a program, so that random tests, saved corpora and fuzzers share this one
//! decoder.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use allotment::slab::{Lifetime, RawSlabHandle};
use allotment::source::SharedSource;
use allotment::{AllocError, Budget, ErrorKind, File, Malloc, Mmap, RawSlab, Release, Statistics};

use super::input::Input;
use super::object::assert_refusal;
use super::setup::file_directory;
use super::slab::{self, Object};
use super::slab_sources::PagedRecorder;
use super::sources::{Recorder, Refuse};

/// Where pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Mmap,
    Malloc,
    File,
    /// Blocks, of a source that refuses some.
    RefusingBlocks,
    /// Ranges, of a source that refuses some ranges and some memory in them.
    RefusingSegments,
}

/// The choices that a test fixes; the others come from the program's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub pages: Pages,
    pub hardened: bool,
}

/// A slab and its surroundings.
pub struct Setup {
    pub slab: RawSlab,
    pub budget: Option<Budget>,
    blocks: Option<Arc<Recorder>>,
    ranges: Option<Arc<PagedRecorder>>,
    /// Every object is a block of malloc.
    passthrough: bool,
}

fn refuse(input: &mut Input<'_>) -> Refuse {
    let nth = u64::from(input.byte() % 24) + 1;
    match input.below(4) {
        0 => Refuse::Only(nth),
        1 => Refuse::From(nth),
        2 => Refuse::Every(nth + 1),
        _ => Refuse::OneIn(nth + 1),
    }
}

fn release(input: &mut Input<'_>) -> Release {
    match input.below(6) {
        0 => Release::AtOnce,
        1 => Release::Keep(usize::from(input.word()) * 8),
        2 => Release::Keep(usize::MAX),
        3 => Release::Decay(Duration::from_millis(u64::from(input.byte() % 4))),
        _ => Release::Adaptive,
    }
}

/// Builds the slab that the bytes ask for; `None` if its budget has no room for the slab itself.
pub fn build(fixed: Fixed, input: &mut Input<'_>) -> Option<Setup> {
    let size = match input.below(8) {
        0 => 0,
        1..=3 => usize::from(input.byte()) + 1,
        4 | 5 => usize::from(input.word()) % 1000 + 1,
        _ => usize::from(input.word()) % 9000 + 1,
    };
    let align = match input.below(4) {
        0 => 1 << input.below(13),
        _ => 1 << input.below(5),
    };
    let (mut blocks, mut ranges) = (None, None);
    let source: SharedSource = match fixed.pages {
        Pages::Mmap => Mmap::new().into(),
        Pages::Malloc => Malloc.into(),
        Pages::File => File::in_directory(&file_directory()).expect("a file").into(),
        Pages::RefusingBlocks => {
            let refuse = refuse(input);
            let made = match input.below(2) {
                0 => Recorder::new(Malloc, refuse),
                // A recorder passes no pages on, so these too are blocks.
                _ => Recorder::new(Mmap::new(), refuse),
            };
            blocks = Some(made.clone());
            made.into()
        }
        Pages::RefusingSegments => {
            let made = PagedRecorder::new(Mmap::new(), refuse(input));
            ranges = Some(made.clone());
            made.into()
        }
    };
    let budget = match input.below(4) {
        0 => Some(Budget::new(usize::from(input.word()) * 16)),
        1 => Some(Budget::new(usize::MAX)),
        2 => Some(Budget::new(1 << 20).child(usize::from(input.word()) * 64)),
        _ => None,
    };
    let mut builder = RawSlab::builder(slab::layout(size, align))
        .name("program")
        .source(source)
        .release(release(input))
        .packing(input.one_in(3))
        .max_page_bytes(match input.below(4) {
            0 => 0,
            1 => usize::from(input.word()) * 4,
            2 => usize::MAX,
            _ => 64 << 10,
        })
        .hardened(fixed.hardened);
    if let Some(budget) = &budget {
        builder = builder.budget(budget);
    }
    match builder.try_build() {
        Ok(slab) => {
            let passthrough = std::env::var_os("ALLOTMENT_PASSTHROUGH").is_some();
            Some(Setup { slab, budget, blocks, ranges, passthrough })
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
            assert_eq!(budget.expect("it refused").used(), 0, "nothing is left of the slab");
            None
        }
    }
}

impl Setup {
    /// Asserts that the statistics are exact while no thread is inside a call.
    pub fn check(&self, live: usize) -> Statistics {
        let statistics = slab::assert_exact(&self.slab, live, self.budget.as_ref());
        if self.passthrough {
            assert_eq!(statistics.chunks, 0);
            return statistics;
        }
        let page_bytes = statistics.held_bytes - statistics.structure_bytes;
        if let Some(blocks) = &self.blocks {
            assert_eq!(blocks.lent_blocks() as u64, statistics.chunks, "pages");
            assert_eq!(blocks.lent_bytes() as u64, page_bytes, "bytes of pages");
        }
        if let Some(ranges) = &self.ranges {
            assert_eq!(ranges.committed_bytes() as u64, page_bytes, "bytes of pages");
            assert!(statistics.chunks > 0 || ranges.lent_ranges() == 0, "no page, no range");
        }
        statistics
    }

    /// Drops the slab, and asserts that everything was given back.
    pub fn finish(self) {
        drop(self.slab);
        if let Some(budget) = self.budget {
            assert_eq!(budget.used(), 0);
        }
        if let Some(blocks) = self.blocks {
            assert_eq!(blocks.lent_blocks(), 0);
        }
        if let Some(ranges) = self.ranges {
            assert_eq!((ranges.lent_ranges(), ranges.committed_bytes()), (0, 0));
        }
    }
}

/// One thread's part of a program: its calls and its objects.
pub struct Run<'s, 'b> {
    pub input: Input<'b>,
    slab: &'s RawSlab,
    handle: Option<RawSlabHandle<'s>>,
    pub objects: Vec<Object>,
    next_number: u64,
}

impl<'s, 'b> Run<'s, 'b> {
    /// Each thread of a slab gives its objects different numbers.
    pub fn new(slab: &'s RawSlab, bytes: &'b [u8], thread: u64) -> Self {
        Self {
            input: Input::new(bytes),
            slab,
            handle: None,
            objects: Vec::new(),
            next_number: thread << 40,
        }
    }

    fn adopt(&mut self, slot: NonNull<u8>) {
        self.objects.push(Object::stamp(slot, self.slab.layout(), self.next_number));
        self.next_number += 1;
    }

    fn adopt_or_refused(&mut self, slot: Result<NonNull<u8>, AllocError>) {
        match slot {
            Ok(slot) => self.adopt(slot),
            Err(error) => assert_refusal(error),
        }
    }

    fn pick(&mut self) -> Option<Object> {
        let count = self.objects.len();
        if count == 0 {
            return None;
        }
        let index = match self.input.byte() {
            0..=99 => count - 1,
            100..=139 => 0,
            other => usize::from(other) * 7919 % count,
        };
        Some(self.objects.swap_remove(index))
    }

    fn pick_some(&mut self) -> Vec<Object> {
        let count = self.input.below(1 + self.objects.len().min(600));
        // From the end, in the order of allocation or in reverse, or scattered.
        let mut some = self.objects.split_off(self.objects.len() - count);
        match self.input.below(3) {
            0 => some.reverse(),
            1 if count > 1 => (0..count).for_each(|index| some.swap(index, index * 37 % count)),
            _ => {}
        }
        some
    }

    /// One call on the slab.
    pub fn step(&mut self) {
        let slab = self.slab;
        match self.input.byte() % 32 {
            0..=3 => self.adopt_or_refused(slab.try_alloc()),
            4 => self.adopt_or_refused(slab.try_alloc_for(Lifetime::Long)),
            5 => self.adopt_or_refused(slab.try_alloc_for(Lifetime::Short)),
            6..=8 => {
                let handle = self.handle.get_or_insert_with(|| slab.handle());
                let slot = handle.try_alloc();
                self.adopt_or_refused(slot);
            }
            9..=12 => self.alloc_burst(),
            13 | 14 => self.alloc_many(),
            15..=18 => {
                if let Some(object) = self.pick() {
                    slab::free(slab, object);
                }
            }
            19 | 20 => {
                if let Some(object) = self.pick() {
                    let handle = self.handle.get_or_insert_with(|| slab.handle());
                    // SAFETY: the object is live, from this slab, and ended.
                    unsafe { handle.free(object.end()) };
                }
            }
            21..=23 => {
                for object in self.pick_some() {
                    slab::free(slab, object);
                }
            }
            24..=26 => {
                let slots: Vec<_> = self.pick_some().into_iter().map(Object::end).collect();
                // SAFETY: as above, for each.
                unsafe { slab.free_many(&slots) };
            }
            27 => slab.flush(),
            28 => {
                slab.trim();
            }
            29 => {
                if let Err(error) = slab.try_reserve(self.input.below(500)) {
                    assert_refusal(error);
                }
            }
            30 => slab.set_packing(self.input.one_in(2)),
            _ => self.handle = None,
        }
    }

    fn alloc_burst(&mut self) {
        for _ in 0..self.input.below(200) {
            let slot = self.slab.try_alloc();
            let refused = slot.is_err();
            self.adopt_or_refused(slot);
            if refused {
                break;
            }
        }
    }

    fn alloc_many(&mut self) {
        let count = match self.input.below(4) {
            0 => self.input.below(700),
            _ => self.input.below(80),
        };
        let mut slots = vec![MaybeUninit::uninit(); count];
        match self.slab.try_alloc_many(&mut slots) {
            // SAFETY: written, says the result.
            Ok(()) => slots.iter().for_each(|slot| self.adopt(unsafe { slot.assume_init() })),
            Err(error) => assert_refusal(error),
        }
    }

    /// Asserts that every object is as it was stamped.
    pub fn check_objects(&self) {
        self.objects.iter().for_each(Object::assert_intact);
        slab::assert_apart(&self.objects);
    }

    /// Frees everything.
    pub fn end(&mut self) {
        for object in self.objects.drain(..) {
            slab::free(self.slab, object);
        }
        self.handle = None;
    }
}

/// Runs a program on one thread, with exact statistics after each call.
pub fn run_alone(fixed: Fixed, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some(setup) = build(fixed, &mut input) else { return };
    let mut run = Run::new(&setup.slab, input.rest(), 0);
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
    run.end();
    drop(run);
    setup.check(0);
    setup.slab.trim();
    let empty = setup.check(0);
    assert_eq!((empty.chunks, empty.free_bytes), (0, 0), "{empty:?}");
    setup.finish();
}
