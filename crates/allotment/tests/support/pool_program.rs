//! Operation programs on reaps and pools: bytes decoded into calls, each checked against the live
//! blocks.
//!
//! Every byte string is a program, as for arenas, slabs and lists.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use allotment::pool::current;
use allotment::source::SharedSource;
use allotment::{
    AllocError, Budget, ErrorKind, LocalPool, Malloc, Mmap, PoolRef, Reap, Release, Statistics,
};

use super::input::Input;
use super::list::{passed_through, under_a_tool};
use super::slab::{Object, assert_apart, layout};
use super::sources::{Recorder, Refuse};

/// What a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramTarget {
    Pool,
    ReapOnMmap,
    ReapOnMalloc,
    /// A reap on a source that refuses some calls.
    ReapRefused,
}

enum Subject {
    Pool(LocalPool),
    Reap(Box<Reap>),
}

/// A block's bytes in the statistics: those of its class, as the documentation has it.
pub fn bytes_of_class(layout: Layout) -> usize {
    let (size, align) = (layout.size(), layout.align());
    if size > 32 << 10 || align > 32 << 10 {
        size
    } else if align > 16 {
        size.next_power_of_two().max(align)
    } else if size <= 256 {
        size.max(1).next_multiple_of(16)
    } else {
        size.next_multiple_of(
            ((size - 1).next_power_of_two() / 16).max(size.next_power_of_two() / 16),
        )
    }
}

/// A live block.
struct Block {
    object: Object,
    layout: Layout,
    number: u64,
}

impl Block {
    fn stamp(start: NonNull<u8>, layout: Layout, number: u64) -> Self {
        Self { object: Object::stamp(start, layout, number), layout, number }
    }
}

/// A program, the allocator that it runs on, and what that depends on.
struct Run<'b> {
    subject: Subject,
    input: Input<'b>,
    blocks: Vec<Block>,
    next_number: u64,
    budget: Option<Budget>,
    recorder: Option<Arc<Recorder>>,
    hardened: bool,
    reserved: usize,
}

fn release(input: &mut Input<'_>) -> Release {
    match input.below(4) {
        0 => Release::AtOnce,
        1 => Release::Keep(usize::from(input.word()) * 8),
        2 => Release::Keep(usize::MAX),
        _ => Release::Adaptive,
    }
}

fn refuse(input: &mut Input<'_>) -> Refuse {
    let nth = u64::from(input.byte() % 12) + 1;
    match input.below(4) {
        0 => Refuse::Only(nth),
        1 => Refuse::From(nth),
        2 => Refuse::Every(nth + 1),
        _ => Refuse::OneIn(nth + 1),
    }
}

fn build<'b>(on: ProgramTarget, hardened: bool, bytes: &'b [u8]) -> Option<Run<'b>> {
    let mut input = Input::new(bytes);
    let budget = match input.below(4) {
        0 => Some(Budget::new(usize::from(input.word()) * 32)),
        1 => None,
        _ => Some(Budget::new(usize::MAX)),
    };
    let release = release(&mut input);
    let initial = if input.one_in(2) { usize::from(input.word()) * 4 } else { 0 };
    let increment = if input.one_in(3) { usize::from(input.word()) * 4 } else { 0 };
    let reserved = if input.one_in(4) { usize::from(input.word()) * 4 } else { 0 };
    let mut recorder = None;
    let subject = if on == ProgramTarget::Pool {
        let mut builder = LocalPool::builder()
            .release(release)
            .initial(initial)
            .increment(increment)
            .reserved(reserved)
            .hardened(hardened);
        if let Some(budget) = &budget {
            builder = builder.budget(budget);
        }
        builder.try_build().map(Subject::Pool)
    } else {
        let source: SharedSource = match on {
            ProgramTarget::ReapOnMalloc => Malloc.into(),
            ProgramTarget::ReapRefused => {
                let refuse = refuse(&mut input);
                let made = match input.below(2) {
                    0 => Recorder::new(Malloc, refuse),
                    _ => Recorder::new(Mmap::new(), refuse),
                };
                recorder = Some(made.clone());
                made.into()
            }
            _ => Mmap::new().into(),
        };
        let mut builder = Reap::builder()
            .source(source)
            .release(release)
            .initial(initial)
            .increment(increment)
            .reserved(reserved)
            .hardened(hardened);
        if let Some(budget) = &budget {
            builder = builder.budget(budget);
        }
        builder.try_build().map(|reap| Subject::Reap(Box::new(reap)))
    };
    let Ok(subject) = subject else {
        assert!(reserved > 0, "nothing is taken yet, so nothing can be refused");
        assert_eq!(budget.map_or(0, |budget| budget.used()), 0);
        assert_eq!(recorder.map_or(0, |recorder| recorder.lent_blocks()), 0);
        return None;
    };
    let (blocks, next_number) = (Vec::new(), 0);
    Some(Run { subject, input, blocks, next_number, budget, recorder, hardened, reserved })
}

impl Run<'_> {
    fn statistics(&self) -> Statistics {
        match &self.subject {
            Subject::Pool(pool) => pool.statistics(),
            Subject::Reap(reap) => reap.statistics(),
        }
    }

    fn is_checked(&self) -> bool {
        self.hardened || passed_through() || under_a_tool()
    }

    /// In pass-through mode a pool holds nothing.
    fn has_statistics(&self) -> bool {
        !(passed_through() && matches!(self.subject, Subject::Pool(_)))
    }

    /// Checks that the statistics are exact.
    fn check(&self) -> Statistics {
        let statistics = self.statistics();
        if !self.has_statistics() {
            assert_eq!(statistics, Statistics::default());
            return statistics;
        }
        let bytes = |block: &Block| match self.is_checked() {
            true => block.layout.size(),
            false => bytes_of_class(block.layout),
        };
        let live = self.blocks.iter().map(bytes).sum::<usize>() as u64;
        assert_eq!(statistics.live_objects, self.blocks.len() as u64, "{statistics:?}");
        assert_eq!(statistics.live_bytes, live, "{statistics:?}");
        assert!(statistics.held_bytes >= live, "{statistics:?}");
        assert!(statistics.peak_held_bytes >= statistics.held_bytes, "{statistics:?}");
        if let Some(budget) = &self.budget {
            assert_eq!(budget.used() as u64, statistics.held_bytes, "the budget is exact");
            assert!(statistics.peak_held_bytes <= budget.limit() as u64, "{statistics:?}");
        }
        if let (Some(recorder), false) = (&self.recorder, passed_through()) {
            assert_eq!(recorder.lent_bytes() as u64, statistics.held_bytes, "{statistics:?}");
            assert_eq!(recorder.lent_blocks() as u64, statistics.chunks, "{statistics:?}");
        }
        statistics
    }

    fn check_blocks(&self) {
        self.blocks.iter().for_each(|block| block.object.assert_intact());
        assert_apart(self.blocks.iter().map(|block| &block.object));
    }

    fn layout(&mut self) -> Layout {
        let size = match self.input.below(8) {
            0..=2 => usize::from(self.input.byte()),
            3 | 4 => usize::from(self.input.word()) % 2000,
            5 => usize::from(self.input.word()) % 40_000,
            6 => (usize::from(self.input.word()) * 2) % 100_000,
            _ => 1 << self.input.below(17),
        };
        let align =
            if self.input.one_in(4) { 1 << self.input.below(14) } else { 1 << self.input.below(5) };
        layout(size, align)
    }

    fn try_alloc(&self, layout: Layout, variant: u8) -> Result<NonNull<u8>, AllocError> {
        match &self.subject {
            Subject::Reap(reap) => reap.try_alloc_layout(layout),
            Subject::Pool(pool) => match variant % 4 {
                0 => pool.enter(|| current().try_alloc_layout(layout)),
                1 => pool.reference().try_alloc_layout(layout),
                _ => pool.try_alloc_layout(layout),
            },
        }
    }

    /// Checks that a refused call has changed nothing.
    fn refused(&self, error: AllocError, before: Statistics) {
        let words = format!("{error}: {before:?}");
        assert!(self.budget.is_some() || self.recorder.is_some(), "{words}");
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::BudgetExceeded | ErrorKind::SourceRefused), "{words}");
        let after = self.check();
        if !self.is_checked() {
            // The thread may have left a pool meanwhile, and a refused pool releases empty chunks.
            // Those that an ended pool left count as source calls only.
            let is_pool = matches!(self.subject, Subject::Pool(_));
            let calls = before.source_calls..=if is_pool { u64::MAX } else { before.source_calls };
            assert!(calls.contains(&after.source_calls), "{words} {after:?}");
            let mut alike = after;
            alike.source_calls = before.source_calls;
            assert!(
                alike == before || is_pool && after.held_bytes < before.held_bytes,
                "{words} {after:?}"
            );
        }
    }

    fn alloc(&mut self, layout: Layout) {
        let before = self.statistics();
        let variant = self.input.byte();
        match self.try_alloc(layout, variant) {
            Ok(start) => {
                self.next_number += 1;
                self.blocks.push(Block::stamp(start, layout, self.next_number));
            }
            Err(error) => self.refused(error, before),
        }
    }

    fn alloc_absurd(&mut self) {
        let before = self.check();
        let size = isize::MAX as usize - (4 << 20) - usize::from(self.input.word());
        let layout = layout(size, 1 << self.input.below(20));
        let variant = self.input.byte();
        assert!(self.try_alloc(layout, variant).is_err());
        let after = self.check();
        assert!(self.is_checked() || after.held_bytes <= before.held_bytes);
    }

    fn free(&mut self, index: usize) {
        let variant = self.input.byte();
        let block = self.blocks.swap_remove(index);
        let (start, layout) = (block.object.end(), block.layout);
        // SAFETY: live until now, of this subject, with this layout.
        unsafe {
            match &self.subject {
                Subject::Reap(reap) => reap.free_layout(start, layout),
                Subject::Pool(pool) => match variant % 8 {
                    0..=2 => PoolRef::free_anywhere(start, layout),
                    3 => pool.enter(|| PoolRef::free_anywhere(start, layout)),
                    4 => {
                        let other = LocalPool::new();
                        other.enter(|| PoolRef::free_anywhere(start, layout));
                    }
                    _ => pool.free_layout(start, layout),
                },
            }
        }
    }

    /// Frees some blocks on another thread, which may be in a pool.
    fn free_elsewhere(&mut self) {
        let count = self.input.below(1 + self.blocks.len().min(80));
        let gone = self.blocks.split_off(self.blocks.len() - count);
        let in_a_pool = self.input.one_in(2);
        std::thread::scope(|scope| {
            let free = move || {
                for Block { object, layout, .. } in gone {
                    // SAFETY: live until now.
                    unsafe { PoolRef::free_anywhere(object.end(), layout) };
                }
            };
            let thread = scope.spawn(move || match in_a_pool {
                true => LocalPool::new().enter(free),
                false => free(),
            });
            thread.join().unwrap();
        });
    }

    fn resize(&mut self, index: usize) {
        let before = self.statistics();
        let new_size = match self.input.below(4) {
            0 => usize::from(self.input.byte()),
            1 => usize::from(self.input.word()) % 5000,
            2 => self.blocks[index].layout.size() + usize::from(self.input.byte()),
            _ => (usize::from(self.input.word()) * 2) % 100_000,
        };
        let variant = self.input.byte();
        let Block { object, layout: old, number } = self.blocks.swap_remove(index);
        object.assert_intact();
        let start = object.start;
        let new = layout(new_size, old.align());
        // SAFETY: live until now, of this subject, with this layout.
        let resized = unsafe {
            match &self.subject {
                Subject::Reap(reap) => reap.try_resize(start, old, new),
                Subject::Pool(pool) => match variant % 3 {
                    0 => PoolRef::GLOBAL.try_resize(start, old, new),
                    1 => pool.enter(|| pool.reference().try_resize(start, old, new)),
                    _ => pool.try_resize(start, old, new),
                },
            }
        };
        match resized {
            Ok(moved) => {
                assert_eq!(moved.addr().get() % old.align(), 0);
                let kept = layout(old.size().min(new_size) & !7, 1);
                // The first bytes are those of the old stamp.
                Object::claim(moved, kept, number).assert_intact();
                self.next_number += 1;
                self.blocks.push(Block::stamp(moved, new, self.next_number));
            }
            Err(error) => {
                object.assert_intact();
                self.blocks.push(Block { object, layout: old, number });
                self.refused(error, before);
            }
        }
    }

    fn reset(&mut self) {
        if let Subject::Reap(reap) = &mut self.subject {
            self.blocks.clear();
            reap.reset();
        }
    }

    fn trim(&mut self) {
        let before = self.statistics().held_bytes;
        let given = match &self.subject {
            Subject::Pool(pool) => pool.trim(),
            Subject::Reap(reap) => reap.trim(),
        };
        let less = before - self.check().held_bytes;
        // A pool with a budget counts no chunk that an ended pool left until it uses it.
        let left_by_others = matches!(self.subject, Subject::Pool(_)) && self.budget.is_some();
        assert!(less == given as u64 || left_by_others && less < given as u64, "{less} {given}");
    }

    /// One call.
    fn step(&mut self) {
        let most = 300;
        match self.input.byte() % 32 {
            0..=9 if self.blocks.len() < most => {
                let layout = self.layout();
                self.alloc(layout);
            }
            10..=13 if self.blocks.len() < most => {
                let layout = self.layout();
                for _ in 0..=self.input.below(20) {
                    self.alloc(layout);
                }
            }
            14..=19 if !self.blocks.is_empty() => {
                let index = self.input.below(self.blocks.len());
                self.free(index);
            }
            20 | 21 => {
                for _ in 0..self.input.below(1 + self.blocks.len()) {
                    self.free(self.blocks.len() - 1);
                }
            }
            22..=26 if !self.blocks.is_empty() => {
                let index = self.input.below(self.blocks.len());
                self.resize(index);
            }
            27 => self.trim(),
            28 => self.alloc_absurd(),
            29 => self.reset(),
            30 if matches!(self.subject, Subject::Pool(_)) => self.free_elsewhere(),
            _ => {
                if let Subject::Pool(pool) = &self.subject {
                    pool.enter(|| {
                        pool.enter(|| assert!(passed_through() || current().is_usable()))
                    });
                }
            }
        }
    }
}

/// Runs a program. The statistics must be exact after each call.
pub fn run(on: ProgramTarget, hardened: bool, bytes: &[u8]) {
    let Some(mut run) = build(on, hardened, bytes) else { return };
    let ends_empty = run.input.one_in(2);
    let mut calls = 0u32;
    while !run.input.is_empty() {
        run.step();
        run.check();
        calls += 1;
        if calls % 8 == 0 {
            run.check_blocks();
        }
    }
    run.check_blocks();
    if ends_empty {
        while !run.blocks.is_empty() {
            run.free(run.blocks.len() - 1);
        }
        run.check();
        if !run.is_checked() {
            // Everything but reserved memory is released.
            run.trim();
            let held = run.check().held_bytes as usize;
            assert!(if run.reserved > 0 { held >= run.reserved } else { held == 0 }, "{held}");
        }
    }
    let Run { subject, blocks, budget, recorder, .. } = run;
    let is_pool = matches!(subject, Subject::Pool(_));
    drop(subject);
    if is_pool {
        // These blocks outlive their pool.
        for Block { object, layout, .. } in blocks {
            // SAFETY: live until now.
            unsafe { PoolRef::free_anywhere(object.end(), layout) };
        }
    }
    assert_eq!(budget.map_or(0, |budget| budget.used()), 0);
    assert_eq!(recorder.map_or(0, |recorder| recorder.lent_blocks()), 0);
}

/// Runs `check` on random byte strings.
pub fn programs(cases: u32, check: impl Fn(&[u8])) {
    use proptest::test_runner::{Config, TestError, TestRunner};

    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: given.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..300);
    let result = TestRunner::new(config).run(&bytes, |bytes| {
        check(&bytes);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => panic!("{reason}, smallest program: {bytes:?}"),
        Err(abort) => panic!("{abort}"),
    }
}
