//! Positions, scopes and resets.
//!
//! The invariants are those of `raw.rs`; number 5 is about scopes.

use core::ptr::{self, NonNull};

use super::chunk_header::{ChunkList, end_of};
use super::position::{ArenaPosition, OpenScope};
use super::raw::{ArenaChecks, RawArena};
use crate::memory::layout::MAX_GROWTH;

impl RawArena {
    /// The arena's current position.
    pub(super) fn position(&self) -> ArenaPosition {
        self.forget_orphaned_chunks();
        let record = self.record();
        ArenaPosition {
            window: self.window(),
            pos: self.pos(),
            current: self.current.get(),
            newest: self.newest.get(),
            outer: self.scope.get(),
            live_objects: record.live_objects.get(),
            live_bytes: record.live_bytes.get(),
            wasted_bytes: record.wasted_bytes.get(),
            next_object: self.checks().map_or(0, ArenaChecks::next_number),
        }
    }

    /// Opens a scope at `position`, which is the arena's current position.
    pub(super) fn open_scope(&self, position: &ArenaPosition) {
        let current = NonNull::new(position.current).filter(|_| !self.is_orphaned());
        let end = current.map(|chunk| end_of(chunk).as_ptr());
        self.scope.set(OpenScope {
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
        !scope.active || self.lies_in(&scope, object.as_ptr())
    }

    fn lies_in(&self, scope: &OpenScope, object: *mut u8) -> bool {
        if scope.start <= object && object < scope.end {
            return true;
        }
        if self.forget_orphaned_chunks() {
            return false;
        }
        let mut chunk = self.newest.get();
        while chunk != scope.newest {
            let Some(held) = NonNull::new(chunk) else { return false };
            if held.as_ptr().cast() <= object && object < end_of(held).as_ptr() {
                return true;
            }
            // SAFETY: a chunk of this arena (invariant 1).
            chunk = unsafe { held.as_ref() }.prev;
        }
        false
    }

    /// Rewinds to a position, and to the scope that was open there.
    ///
    /// # Safety
    /// The position came from this arena's `position`. After that, the arena was not rewound to an
    /// older position and not reset. Nothing allocated after the position is used any more.
    pub(super) unsafe fn rewind(&self, position: &ArenaPosition) {
        if self.forget_orphaned_chunks() {
            self.scope.set(position.outer);
            return;
        }
        if let Some(checks) = self.checks() {
            checks.rewound(self, position.next_object);
        }
        let mut total = 0;
        let mut chunk = self.newest.get();
        while chunk != position.newest {
            // SAFETY: chunks newer than the position's are the arena's and not null (invariant 1),
            // until they are released below.
            unsafe {
                total += (*chunk).size;
                chunk = (*chunk).prev;
            }
        }
        let newer = self.newest.replace(position.newest);
        match NonNull::new(position.current) {
            Some(current) => self.restore_window(current, position.window),
            None => self.close_window(),
        }
        if total > 0 {
            // SAFETY: the chunks from `newer` to `position.newest` hold only objects that the
            // caller gave up.
            unsafe { self.release_chunks(newer, position.newest, total) };
        }
        // Growth continues from the newest chunk that is still held.
        let growth_size = NonNull::new(position.newest).map_or(0, |chunk| {
            // SAFETY: a chunk of this arena (invariant 1).
            unsafe { chunk.as_ref() }.size.min(MAX_GROWTH)
        });
        self.growth_size.set(growth_size);
        let record = self.record();
        record.live_objects.set(position.live_objects);
        record.live_bytes.set(position.live_bytes);
        record.wasted_bytes.set(position.wasted_bytes);
        self.scope.set(position.outer);
        if let Some(checks) = self.checks() {
            checks.fill_free(self.pos(), self.left_in_current());
        }
    }

    /// Frees every object, and keeps the chunks that the retain policy allows.
    ///
    /// # Safety
    /// No object of the arena is used any more, and no open scope will be rewound.
    pub(super) unsafe fn reset(&self) {
        if self.forget_orphaned_chunks() {
            self.scope.set(OpenScope::NONE);
            return;
        }
        if let Some(checks) = self.checks() {
            checks.rewound(self, 0);
            self.check_free_bytes(checks);
        }
        self.scope.set(OpenScope::NONE);
        let (mut bytes_left, mut chunks_left) = self.retained();
        let mut kept = ChunkList::EMPTY;
        let mut released = ChunkList::EMPTY;
        for list in
            [self.newest.replace(ptr::null_mut()), self.spare_chunks.replace(ptr::null_mut())]
        {
            let mut next = list;
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: chunks of the arena's lists (invariant 1), which were emptied above.
                let size = unsafe {
                    next = chunk.as_ref().prev;
                    chunk.as_ref().size
                };
                let list = if size <= bytes_left && chunks_left > 0 {
                    bytes_left -= size;
                    chunks_left -= 1;
                    &mut kept
                } else {
                    &mut released
                };
                // SAFETY: the chunk is on no other list, and its successor was read above.
                unsafe { list.append(chunk, size) };
            }
        }
        let record = self.record();
        record.position_word.set(0);
        record.live_objects.set(0);
        record.live_bytes.set(0);
        record.wasted_bytes.set(0);
        if released.bytes > 0 {
            // SAFETY: these chunks are no longer on a list of the arena, and their objects are
            // given up.
            unsafe { self.release_chunks(released.first, ptr::null_mut(), released.bytes) };
        }
        self.start_over(kept.first);
    }
}
