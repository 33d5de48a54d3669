//! Positions, scopes and resets.
//!
//! The invariants are those of `raw.rs`; number 5 is about scopes.

use core::ptr::{self, NonNull};

use super::chunk_header::{ArenaChunkHeader, ChunkList, Chunks, HEADER, end_of, first_of};
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
            before_window: self.before_window.get(),
            current: self.current.get(),
            newest: self.newest.get(),
            outer: self.scope.get(),
            live_objects: record.live_objects.get(),
            live_bytes: record.live_bytes.get(),
            wasted_bytes: record.wasted_bytes.get(),
            next_object: self.checks().map_or(0, ArenaChecks::next_number),
        }
    }

    /// Opens a scope at `position`, which is the arena's current position. A new window begins with
    /// the scope, so that no older object is the last one (invariant 5).
    pub(super) fn open_scope(&self, position: &ArenaPosition) {
        let current = NonNull::new(position.current).filter(|_| !self.is_orphaned());
        let end = current.map(|chunk| {
            self.fold();
            self.open_window(chunk, position.pos.addr());
            end_of(chunk).as_ptr()
        });
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
    #[cfg(system_memory)]
    pub(super) fn first_of_scope(&self) -> u64 {
        self.scope.get().first_object
    }

    /// Whether the object was allocated in the open scope, or no scope is open. Looks at each chunk
    /// of the scope, so only memory tools may ask.
    #[cfg(system_memory)]
    pub(super) fn in_scope(&self, object: NonNull<u8>) -> bool {
        let scope = self.scope.get();
        let object = object.as_ptr();
        if !scope.active || (scope.start <= object && object < scope.end) {
            return true;
        }
        if self.forget_orphaned_chunks() {
            return false;
        }
        // SAFETY: the chunks newer than the scope's are this arena's (invariants 1 and 5).
        let mut newer = unsafe { Chunks::new(self.newest.get(), scope.newest) };
        newer.any(|(chunk, _)| chunk.as_ptr().cast() <= object && object < end_of(chunk).as_ptr())
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
        let newer = self.newest.get();
        let retained = (newer != position.newest).then(|| self.retained());
        self.newest.set(position.newest);
        match NonNull::new(position.current) {
            Some(current) => self.restore_window(current, position.window),
            None => self.close_window(),
        }
        self.before_window.set(position.before_window);
        if let Some(retained) = retained {
            // SAFETY: the chunks from `newer` to `position.newest` are on no list any more, and
            // hold only objects that the caller gave up.
            unsafe { self.retire_chunks(newer, position.newest, retained) };
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

    /// Makes the chunks from `newer` to `stop`, without `stop`, spare ones as far as the retain
    /// policy allows, and releases the others. The policy's limits are `most_bytes` and
    /// `most_chunks`; chunks that hold older objects count first, and earlier spare chunks last.
    ///
    /// The chunk that was taken first becomes the first spare one. So a loop of equal scopes takes
    /// the same chunks in each round.
    ///
    /// # Safety
    /// The chunks are the arena's, on no list, and nothing in them is in use.
    #[cold]
    unsafe fn retire_chunks(
        &self,
        newer: *mut ArenaChunkHeader,
        stop: *mut ArenaChunkHeader,
        (most_bytes, most_chunks): (usize, usize),
    ) {
        // SAFETY: guaranteed by the caller for the newer chunks; the spare ones are the arena's
        // (invariant 1). A chunk is on one list at a time.
        unsafe {
            let newer = || Chunks::new(newer, stop);
            let spare = || Chunks::new(self.spare_chunks.get(), ptr::null_mut());
            let mut bytes_left = self.record().held_bytes.get() as usize;
            let mut chunks_left = self.record().chunks.get() as usize;
            let all_fit = bytes_left <= most_bytes && chunks_left <= most_chunks;
            if !all_fit {
                let mut in_use = (bytes_left, chunks_left);
                for (_, size) in newer().chain(spare()) {
                    in_use = (in_use.0 - size, in_use.1 - 1);
                }
                bytes_left = most_bytes.saturating_sub(in_use.0);
                chunks_left = most_chunks.saturating_sub(in_use.1);
            }
            let mut keeps = |size: usize| {
                let keeps = size <= bytes_left && chunks_left > 0;
                if keeps {
                    (bytes_left, chunks_left) = (bytes_left - size, chunks_left - 1);
                }
                keeps
            };
            let mut kept = ChunkList::EMPTY;
            let mut released = ChunkList::EMPTY;
            for (chunk, size) in newer() {
                if !keeps(size) {
                    released.append(chunk, size);
                    continue;
                }
                kept.prepend(chunk, size);
                if let Some(checks) = self.checks() {
                    checks.fill_free(first_of(chunk).as_ptr(), size - HEADER);
                }
            }
            if all_fit {
                kept.end_with(self.spare_chunks.get());
            } else {
                for (chunk, size) in spare() {
                    let list = if keeps(size) { &mut kept } else { &mut released };
                    list.append(chunk, size);
                }
            }
            self.spare_chunks.set(kept.first);
            if released.bytes > 0 {
                self.release_chunks(released.first, ptr::null_mut(), released.bytes);
            }
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
