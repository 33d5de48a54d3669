//! Positions, scopes and resets.
//!
//! The invariants are those of `raw.rs`; number 5 is about scopes.

use core::ptr::{self, NonNull};

use super::checked_objects::CheckedObjects;
use super::chunks::{Chain, Header, end_of};
use super::raw::RawArena;
use crate::memory::layout::MAX_GROWTH;

/// Where a scope began. `newest` and `start` are null if the arena had no chunk then.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeStart {
    active: bool,
    start: *mut u8,
    end: *mut u8,
    newest: *mut Header,
    /// In a checked arena, the number of the scope's first object.
    first_object: u64,
}

impl ScopeStart {
    pub const NONE: Self = Self {
        active: false,
        start: ptr::null_mut(),
        end: ptr::null_mut(),
        newest: ptr::null_mut(),
        first_object: 0,
    };
}

/// A state of the arena to which it can be rewound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    window: (*mut u8, u64),
    pos: *mut u8,
    bumped: *mut Header,
    newest: *mut Header,
    outer: ScopeStart,
    live_objects: u64,
    live_bytes: u64,
    wasted_bytes: u64,
    /// In a checked arena, the number of the next object.
    next_object: u64,
}

impl RawArena {
    /// The arena's current position.
    pub(crate) fn position(&self) -> Position {
        let record = self.record();
        Position {
            window: self.window(),
            pos: self.pos(),
            bumped: self.bumped.get(),
            newest: self.newest.get(),
            outer: self.scope.get(),
            live_objects: record.live_objects.get(),
            live_bytes: record.live_bytes.get(),
            wasted_bytes: record.wasted_bytes.get(),
            next_object: self.checked().map_or(0, CheckedObjects::next_number),
        }
    }

    /// Opens a scope at `position`, which is the arena's current position.
    pub(crate) fn open_scope(&self, position: &Position) {
        let end = NonNull::new(position.bumped).map(|chunk| end_of(chunk).as_ptr());
        self.scope.set(ScopeStart {
            active: true,
            start: if end.is_some() { position.pos } else { ptr::null_mut() },
            end: end.unwrap_or(ptr::null_mut()),
            newest: position.newest,
            first_object: position.next_object,
        });
    }

    /// In a checked arena, the number of the open scope's first object. Older objects have lower
    /// numbers.
    pub(super) fn first_of_scope(&self) -> u64 {
        self.scope.get().first_object
    }

    /// Whether the object was allocated in the open scope, or no scope is open.
    #[inline]
    pub(super) fn in_scope(&self, object: NonNull<u8>) -> bool {
        let scope = self.scope.get();
        !scope.active || self.in_this_scope(&scope, object.as_ptr())
    }

    fn in_this_scope(&self, scope: &ScopeStart, object: *mut u8) -> bool {
        if scope.start <= object && object < scope.end {
            return true;
        }
        let mut chunk = self.newest.get();
        while chunk != scope.newest {
            let Some(held) = NonNull::new(chunk) else { return false };
            if held.as_ptr().cast() <= object && object < end_of(held).as_ptr() {
                return true;
            }
            // SAFETY: a chunk of our list (invariant 1).
            chunk = unsafe { held.as_ref() }.prev;
        }
        false
    }

    /// Rewinds to a position, and to the scope that was open there.
    ///
    /// # Safety
    /// The position came from this arena's `position`. After that, the arena was not rewound to an
    /// older position and not reset. Nothing allocated after the position is used any more.
    pub(crate) unsafe fn rewind(&self, position: &Position) {
        if let Some(checked) = self.checked() {
            self.checked_rewind(checked, position.next_object);
        }
        let mut total = 0;
        let mut chunk = self.newest.get();
        while chunk != position.newest {
            // SAFETY: chunks newer than the position's are the arena's and not null (invariant 1),
            // until they are given back below.
            unsafe {
                total += (*chunk).size;
                chunk = (*chunk).prev;
            }
        }
        let newer = self.newest.replace(position.newest);
        match NonNull::new(position.bumped) {
            Some(bumped) => self.restore_window(bumped, position.window),
            None => self.close_window(),
        }
        if total > 0 {
            // SAFETY: the chunks from `newer` to `position.newest` hold only objects that the
            // caller gave up.
            unsafe { self.give_back(newer, position.newest, total) };
        }
        // Growth continues from the newest chunk that is still held.
        let grown = NonNull::new(position.newest).map_or(0, |chunk| {
            // SAFETY: a chunk of our list (invariant 1).
            unsafe { chunk.as_ref() }.size.min(MAX_GROWTH)
        });
        self.grown.set(grown);
        let record = self.record();
        record.live_objects.set(position.live_objects);
        record.live_bytes.set(position.live_bytes);
        record.wasted_bytes.set(position.wasted_bytes);
        self.scope.set(position.outer);
        if let Some(checked) = self.checked() {
            checked.now_free(self.pos(), self.left_in_bumped());
        }
    }

    /// Frees every object, and keeps the chunks that the retain policy allows.
    ///
    /// # Safety
    /// No object of the arena is used any more, and no open scope will be rewound.
    pub(crate) unsafe fn reset(&self) {
        if let Some(checked) = self.checked() {
            self.checked_rewind(checked, 0);
            self.check_free_bytes(checked);
        }
        self.scope.set(ScopeStart::NONE);
        let (mut room, mut most) = self.retained();
        let mut staying = Chain::EMPTY;
        let mut going = Chain::EMPTY;
        for list in [self.newest.replace(ptr::null_mut()), self.spare.replace(ptr::null_mut())] {
            let mut next = list;
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: chunks of the arena's lists (invariant 1), which were emptied above.
                let size = unsafe {
                    next = chunk.as_ref().prev;
                    chunk.as_ref().size
                };
                let chain = if size <= room && most > 0 {
                    room -= size;
                    most -= 1;
                    &mut staying
                } else {
                    &mut going
                };
                // SAFETY: the chunk is on no other chain, and its successor was read above.
                unsafe { chain.append(chunk, size) };
            }
        }
        let record = self.record();
        record.word.set(0);
        record.live_objects.set(0);
        record.live_bytes.set(0);
        record.wasted_bytes.set(0);
        if going.total > 0 {
            // SAFETY: these chunks are no longer on a list of the arena, and their objects are
            // given up.
            unsafe { self.give_back(going.first, ptr::null_mut(), going.total) };
        }
        self.start_over(staying.first);
    }
}
