//! Operation programs: bytes decoded into calls on an arena, each checked against the model.
//!
//! Every byte string is a program, so that fuzzers, saved corpora and random tests share this one
//! decoder.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use allotment::arena::{ArenaPosition, Mark, Scope};
use allotment::{AllocError, Arena, ErrorKind, Statistics};

use super::input::Input;
use super::model::Model;
use super::setup::{Fixed, Setup, build};

#[path = "constructors.rs"]
mod constructors;

/// What a panicking constructor or scope of the program throws; anything else is a failed check.
pub struct Thrown;

/// Throws without the message that the panic hook would print thousands of times.
pub fn throw() -> ! {
    resume_unwind(Box::new(Thrown))
}

/// Runs `work`, which may throw. `None` if it did.
pub fn caught<R>(work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Thrown>() => None,
        Err(failed) => resume_unwind(failed),
    }
}

/// An arena, a mark or a scope: whatever allocates and can be nested in.
pub trait Place<const M: usize> {
    fn arena(&self) -> &Arena<M>;
    fn scope(&mut self, work: &mut dyn FnMut(&mut dyn Place<M>));
    fn mark(&mut self, forget: bool, work: &mut dyn FnMut(&mut dyn Place<M>));
    /// Frees everything that was allocated here, if this place can without ending.
    fn start_over(&mut self) -> bool;
}

macro_rules! place {
    ($type:ty, $place:ident => $start_over:expr) => {
        impl<const M: usize> Place<M> for $type {
            fn arena(&self) -> &Arena<M> {
                self
            }

            fn scope(&mut self, work: &mut dyn FnMut(&mut dyn Place<M>)) {
                self.scope(|scope| work(scope));
            }

            fn mark(&mut self, forget: bool, work: &mut dyn FnMut(&mut dyn Place<M>)) {
                let mut mark = self.mark();
                work(&mut mark);
                if forget {
                    core::mem::forget(mark);
                }
            }

            fn start_over(&mut self) -> bool {
                let $place = self;
                $start_over
            }
        }
    };
}

place!(Arena<M>, arena => { arena.reset(); true });
place!(Mark<'_, M>, mark => { mark.rewind(); true });
place!(Scope<'_, M>, _scope => false);

/// A position that may be rewound to, and the model's part of it.
struct Position {
    place: ArenaPosition,
    serial: u64,
    scope: u64,
}

/// One run of a program.
pub struct Run<'b> {
    input: Input<'b>,
    setup: Setup,
    model: Model,
    positions: Vec<Position>,
    /// Positions below this one were taken outside the scope that is open.
    first_position: usize,
    /// The number of the first object of this place; 0 for the arena.
    first_serial: u64,
    depth: usize,
}

#[cfg(any(system_memory, not(test)))]
/// Runs a program whose first bytes choose the kind of arena.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let fixed = Fixed::from_input(&mut input);
    match input.below(4) {
        0 => run_on::<8>(fixed, input),
        1 => run_on::<16>(fixed, input),
        _ => run_on::<1>(fixed, input),
    }
}

/// Runs a program on a kind of arena that the caller fixes.
pub fn run_fixed<const M: usize>(fixed: Fixed, bytes: &[u8]) {
    run_on::<M>(fixed, Input::new(bytes));
}

fn run_on<const M: usize>(fixed: Fixed, mut input: Input<'_>) {
    let (setup, arena) = build::<M>(fixed, &mut input);
    let Some(mut arena) = arena else { return setup.check_empty() };
    let mut run = Run {
        input,
        setup,
        model: Model::default(),
        positions: Vec::new(),
        first_position: 0,
        first_serial: 0,
        depth: 0,
    };
    run.check(&arena);
    while !run.input.is_empty() {
        run.steps(&mut arena);
    }
    drop(arena);
    run.setup.check_empty();
}

impl Run<'_> {
    fn check<const M: usize>(&self, arena: &Arena<M>) {
        self.model.check(&arena.statistics());
        self.setup.check(arena, self.model.set_aside_bytes());
        for object in self.model.objects() {
            self.setup.assert_in_chunk(object.start.addr().get(), object.layout.size());
        }
    }

    /// Steps until the input ends, or the program leaves this place.
    fn steps<const M: usize>(&mut self, place: &mut dyn Place<M>) {
        while !self.input.is_empty() {
            match self.input.byte() % 32 {
                op @ 0..=16 => self.construct(op, place.arena()),
                17..=19 => self.resize(place.arena(), true),
                20 | 21 => self.resize(place.arena(), false),
                22..=24 => self.free(place.arena()),
                25 => self.nest_scope(place),
                26 | 27 => self.nest_mark(place),
                28 => self.take_position(place.arena()),
                29 => self.rewind(place.arena()),
                30 => self.nonsense(place.arena()),
                _ => {
                    if self.start_over_or_leave(place) {
                        return;
                    }
                }
            }
            self.check(place.arena());
        }
    }

    /// A new object of the model, from a pointer and a layout.
    fn adopt<const M: usize>(&mut self, start: NonNull<u8>, layout: Layout) {
        self.model.add(start, layout, M);
    }

    /// Asserts that a call that failed changed nothing.
    fn unchanged<const M: usize>(&self, arena: &Arena<M>, before: &Statistics, error: AllocError) {
        assert_eq!(arena.statistics(), *before, "{error}: the arena is as it was");
        let kind = error.kind();
        let known = matches!(
            kind,
            ErrorKind::BudgetExceeded | ErrorKind::SourceRefused | ErrorKind::System(_)
        );
        assert!(known, "{kind:?} is what a source or a budget says");
    }

    /// Which object the next step is about: the last or any.
    fn pick(&mut self) -> Option<usize> {
        let count = self.model.objects().len();
        if count == 0 {
            return None;
        }
        Some(match self.input.byte() {
            0..=99 => {
                let newest = self.model.objects().iter().enumerate();
                newest.max_by_key(|(_, object)| object.serial).expect("there is one").0
            }
            other => usize::from(other) % count,
        })
    }

    fn resize<const M: usize>(&mut self, arena: &Arena<M>, larger: bool) {
        let Some(index) = self.pick() else { return };
        let object = self.model.objects()[index];
        let (old, size) = (object.layout, object.layout.size());
        let align = if self.input.one_in(8) { self.input.align() } else { old.align() };
        let (new_size, align) = match larger {
            // Growing keeps the alignment; shrinking may ask for another.
            true => (size + self.input.size(), old.align().max(align)),
            false => (self.input.size().min(size), align),
        };
        let new = Layout::from_size_align(new_size, align).expect("a valid layout");
        let before = arena.statistics();
        // SAFETY: the object is live in the model, with this layout.
        let result = unsafe { arena.try_resize(object.start, old, new) };
        self.forget_positions_above(object.serial);
        let start = match result {
            Ok(start) => start,
            Err(error) => return self.unchanged(arena, &before, error),
        };
        let kept = size.min(new_size);
        if kept > 0 {
            super::model::Object { start, ..object }.assert_intact(kept);
        }
        if self.model.in_scope(&object) {
            self.model.resize(index, start, new);
        } else if start != object.start {
            // An object from outside the scope stays as it is; what came is new, and the scope's.
            self.model.set_aside(index, None);
            self.adopt::<M>(start, new);
        } else {
            self.model.set_aside(index, Some(new_size));
        }
    }

    fn free<const M: usize>(&mut self, arena: &Arena<M>) {
        let Some(index) = self.pick() else { return };
        let object = self.model.objects()[index];
        object.assert_intact(object.layout.size());
        self.forget_positions_above(object.serial);
        // SAFETY: the object is live in the model, with this layout.
        unsafe { arena.free_layout(object.start, object.layout) };
        if self.model.in_scope(&object) {
            self.model.remove(index);
        } else {
            self.model.set_aside(index, None);
        }
    }

    /// A position doesn't survive a change of what is older than it.
    fn forget_positions_above(&mut self, serial: u64) {
        self.positions.retain(|position| position.serial <= serial);
        self.first_position = self.first_position.min(self.positions.len());
    }

    fn nest_scope<const M: usize>(&mut self, place: &mut dyn Place<M>) {
        if self.depth == 8 {
            return;
        }
        let panics = self.input.one_in(6);
        let frame = self.enter();
        caught(|| {
            place.scope(&mut |inner| {
                self.steps(inner);
                if panics {
                    throw();
                }
            });
        });
        self.leave(&frame);
        self.model.rewind(frame.serial);
    }

    fn nest_mark<const M: usize>(&mut self, place: &mut dyn Place<M>) {
        if self.depth == 8 {
            return;
        }
        let forget = self.input.one_in(4);
        let frame = self.enter();
        place.mark(forget, &mut |inner| self.steps(inner));
        let scope_within = self.model.scope;
        self.leave(&frame);
        if forget {
            // Nothing is rewound, and the scope stays open: what is older stays as it is. Positions
            // taken before have a scope above them that never ended.
            self.model.scope = scope_within;
            self.positions.truncate(self.first_position);
        } else {
            self.model.rewind(frame.serial);
        }
    }

    fn enter(&mut self) -> Frame {
        self.depth += 1;
        let frame = Frame {
            serial: self.model.next_serial,
            scope: self.model.scope,
            first_position: self.first_position,
            first_serial: self.first_serial,
        };
        self.model.scope = frame.serial;
        self.first_serial = frame.serial;
        self.first_position = self.positions.len();
        frame
    }

    fn leave(&mut self, frame: &Frame) {
        self.depth -= 1;
        self.model.scope = frame.scope;
        self.positions.truncate(self.first_position);
        self.first_position = frame.first_position.min(self.positions.len());
        self.first_serial = frame.first_serial;
    }

    fn take_position<const M: usize>(&mut self, arena: &Arena<M>) {
        self.positions.push(Position {
            place: arena.position(),
            serial: self.model.next_serial,
            scope: self.model.scope,
        });
    }

    fn rewind<const M: usize>(&mut self, arena: &Arena<M>) {
        let own = self.positions.len() - self.first_position;
        if own == 0 {
            return;
        }
        let index = self.first_position + self.input.below(own);
        let position = &self.positions[index];
        // SAFETY: this arena's, and newer than every reset, rewind, scope and mark since; what came
        // after is dropped from the model, and nothing older changed (`forget_positions_above`).
        unsafe { arena.rewind(&position.place) };
        self.model.rewind(position.serial);
        self.model.scope = position.scope;
        self.positions.truncate(index + 1);
    }

    /// Requests that can't be met, whatever the source has.
    fn nonsense<const M: usize>(&mut self, arena: &Arena<M>) {
        let before = arena.statistics();
        let huge = usize::MAX - usize::from(self.input.byte());
        let (error, kind) = match self.input.below(6) {
            0 => (arena.try_alloc_bytes(huge, 8).unwrap_err(), ErrorKind::SizeOverflow),
            1 => (arena.try_calloc(huge, 16).unwrap_err(), ErrorKind::SizeOverflow),
            2 => (arena.try_alloc_bytes(8, 24).unwrap_err(), ErrorKind::BadAlignment),
            3 => (arena.try_alloc_bytes(8, 0).unwrap_err(), ErrorKind::BadAlignment),
            4 => {
                let made = arena.try_alloc_slice_with(huge, |index| index);
                (made.unwrap_err(), ErrorKind::SizeOverflow)
            }
            _ => {
                let made = arena.try_alloc_slice_uninit::<[u64; 4]>(huge / 2);
                (made.map(|_| ()).unwrap_err(), ErrorKind::SizeOverflow)
            }
        };
        assert_eq!(error.kind(), kind);
        assert_eq!(arena.statistics(), before);
    }

    /// Whether the program leaves this place.
    fn start_over_or_leave<const M: usize>(&mut self, place: &mut dyn Place<M>) -> bool {
        if self.depth > 0 && self.input.one_in(2) {
            return true;
        }
        if place.start_over() {
            // Of an arena: no scope is open any more, not even one whose mark was forgotten.
            self.model.rewind(self.first_serial);
            self.model.scope = self.first_serial;
            self.positions.truncate(self.first_position);
        }
        false
    }
}

/// What a scope or mark restores.
struct Frame {
    serial: u64,
    scope: u64,
    first_position: usize,
    first_serial: u64,
}
