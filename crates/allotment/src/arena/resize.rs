//! Freeing, growing and shrinking one object.
//!
//! The invariants are those of `raw.rs`; numbers 2, 3, 7 and 8 are about the window and the object
//! before it.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::chunk_header::end_of;
use super::raw::{ArenaChecks, RawArena};
use crate::error::OnFailure;
use crate::memory::layout::align_up;
use crate::memory::position_word::{self, MAX_STEP};

/// Whether an object is the last one, so that its end can still move.
enum LastObject {
    /// The last object; it ends at `pos`, in the window.
    InWindow,
    /// The last object; it ends where the window begins, and the window is empty.
    BeforeWindow,
    No,
}

impl RawArena {
    #[inline]
    fn last(&self, object: NonNull<u8>, size: usize, min_align: usize) -> LastObject {
        let (start, base) = (object.addr().get(), self.base.get().addr());
        let end = align_up(start + size, min_align);
        let word = self.record().position_word.get();
        if start >= base {
            if end == base + position_word::offset(word) {
                LastObject::InWindow
            } else {
                LastObject::No
            }
        } else if word == 0 && object.as_ptr().addr() == self.before_window.get().addr() {
            LastObject::BeforeWindow
        } else {
            LastObject::No
        }
    }

    /// Gives the last object another size, if its chunk has room for it. Returns whether it did; an
    /// object that is not the last one is left as it is.
    ///
    /// # Safety
    /// The object is this arena's, is live, and has `old` bytes. The arena is not checked.
    #[inline]
    unsafe fn resize_last<const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: usize,
        new: usize,
    ) -> bool {
        let record = self.record();
        match self.last(object, old, MIN_ALIGN) {
            LastObject::No => return false,
            LastObject::InWindow => {
                let before = record.position_word.get() - position_word::object(old, MIN_ALIGN);
                if new <= MAX_STEP {
                    let after = before + position_word::object(new, MIN_ALIGN);
                    if after < self.limit.get() {
                        record.position_word.set(after);
                        return true;
                    }
                }
            }
            LastObject::BeforeWindow => {}
        }
        self.resize_over_window::<MIN_ALIGN>(object, old, new)
    }

    /// As `resize_last`, for an object that lies before the window or will reach beyond it.
    #[cold]
    fn resize_over_window<const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: usize,
        new: usize,
    ) -> bool {
        if self.forget_orphaned_chunks() {
            return false;
        }
        let Some(current) = NonNull::new(self.current.get()) else { return false };
        let available = end_of(current).addr().get() - object.addr().get();
        if new > available {
            return false;
        }
        if object.as_ptr() >= self.base.get() {
            let word = self.record().position_word.get() - position_word::object(old, MIN_ALIGN);
            if self.extend_window(object.addr().get() + new.next_multiple_of(MIN_ALIGN)) {
                let grown = word + position_word::object(new, MIN_ALIGN);
                self.record().position_word.set(grown);
                return true;
            }
            self.record().position_word.set(word);
            self.place_before_window(current, object, new);
        } else {
            self.record().live_bytes.add((new as u64).wrapping_sub(old as u64));
            self.open_window(current, object.addr().get() + new);
            self.before_window.set(object.as_ptr());
        }
        true
    }

    /// Frees one object. If it is the last one, its bytes go back to the chunk; otherwise only the
    /// counters change. An object of an outer scope is never the last one.
    ///
    /// # Safety
    /// The object is this arena's and live, and was allocated or last resized with this layout and
    /// `MIN_ALIGN`.
    #[inline]
    pub(crate) unsafe fn free<const MIN_ALIGN: usize>(&self, object: NonNull<u8>, layout: Layout) {
        let size = layout.size();
        if size == 0 {
            return;
        }
        if let Some(checks) = self.checks() {
            return self.free_checked(checks, object, layout);
        }
        match self.last(object, size, MIN_ALIGN) {
            LastObject::InWindow => {
                let word =
                    self.record().position_word.get() - position_word::object(size, MIN_ALIGN);
                self.record().position_word.set(word);
            }
            LastObject::BeforeWindow => self.free_before_window(object, size),
            LastObject::No => self.count_freed(size),
        }
    }

    #[cold]
    fn free_checked(&self, checks: &dyn ArenaChecks, object: NonNull<u8>, layout: Layout) {
        if !self.forget_orphaned_chunks() {
            checks.free(self, object, layout);
        }
    }

    #[inline]
    fn count_freed(&self, size: usize) {
        self.record().live_objects.sub(1);
        self.record().live_bytes.sub(size as u64);
    }

    /// Frees the object that ends where the window begins: the window begins at its start then.
    #[cold]
    fn free_before_window(&self, object: NonNull<u8>, size: usize) {
        if self.forget_orphaned_chunks() {
            return;
        }
        if let Some(current) = NonNull::new(self.current.get()) {
            self.open_window(current, object.addr().get());
        }
        self.count_freed(size);
    }

    /// Makes one object larger. If it is the last one and there is room, it grows in place;
    /// otherwise it moves.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the layout `old`. The object is in the open scope, and
    /// `new` is at least as large as `old`.
    #[inline]
    pub(crate) unsafe fn grow<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        debug_assert!(new.size() >= old.size());
        let aligned = new.align() <= old.align() || object.addr().get() % new.align() == 0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if old.size() > 0
                && aligned
                && self.checks().is_none()
                && self.resize_last::<MIN_ALIGN>(object, old.size(), new.size())
            {
                // The window is in the same chunk, so its provenance reaches the added bytes.
                let object = self.base.get().with_addr(object.addr().get());
                return Ok(NonNull::new_unchecked(object));
            }
            let moved = self.alloc_grown::<F, MIN_ALIGN>(new)?;
            self.copy_and_free::<MIN_ALIGN>(object, old, moved, old.size());
            Ok(moved)
        }
    }

    /// Makes one object smaller, in place. If it is the last one, the difference goes back to the
    /// chunk. The object moves only if `new` asks for a larger alignment than its address has, or
    /// for no bytes.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the layout `old`. The object is in the open scope, and
    /// `new` is at most as large as `old`.
    #[inline]
    pub(crate) unsafe fn shrink<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        debug_assert!(new.size() <= old.size());
        let aligned = object.addr().get() % new.align() == 0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if new.size() == 0 || !aligned {
                let moved = self.alloc::<F, MIN_ALIGN>(new)?;
                self.copy_and_free::<MIN_ALIGN>(object, old, moved, new.size());
                return Ok(moved);
            }
            if let Some(checks) = self.checks().filter(|_| !self.forget_orphaned_chunks()) {
                return Ok(checks.shrink(self, object, old, new));
            }
            if !self.resize_last::<MIN_ALIGN>(object, old.size(), new.size()) {
                let difference = (old.size() - new.size()) as u64;
                let address = object.addr();
                if self.base.get().addr() <= address.get() && address.get() < self.pos().addr() {
                    // The object is counted in the word, and may be the last one again when it is
                    // freed (invariant 7).
                    self.record()
                        .position_word
                        .set(position_word::shrunk(self.record().position_word.get(), difference));
                } else {
                    self.record().live_bytes.sub(difference);
                }
            }
        }
        Ok(object)
    }

    /// Copies an object's first `len` bytes to the memory that it moves to, and frees it.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the layout `old`. Both objects have `len` bytes.
    unsafe fn copy_and_free<const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: Layout,
        moved: NonNull<u8>,
        len: usize,
    ) {
        // SAFETY: both objects have the copied bytes, and don't overlap (invariant 4). The old
        // object is freed once, and its caller gives it up.
        unsafe {
            moved.copy_from_nonoverlapping(object, len);
            self.free::<MIN_ALIGN>(object, old);
        }
    }
}
