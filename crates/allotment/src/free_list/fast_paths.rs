//! Allocating and freeing: the fast paths, and the slow paths that they call.
//!
//! The invariants are those of `raw.rs`.

use core::ptr::NonNull;

use super::raw::RawFreeList;
use crate::error::{AllocError, ErrorKind, OnFailure, PanicOrAbort, ReturnError, always, or_fail};
#[cfg(feature = "std")]
use crate::{standard_error, statistics::printable};

/// At most this many objects, or this many bytes of them if that is fewer, are linked at once.
const MAX_LINKED_OBJECTS: usize = 64;
const MAX_LINKED_BYTES: usize = 4 << 10;

/// # Allocate
impl RawFreeList {
    /// Allocates an uninitialised object, aligned to the list's layout.
    ///
    /// It returns the object freed last or, if none is free, the next object of the newest chunk.
    /// It takes six instructions on x86-64 if an object is free.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<PanicOrAbort>())
    }

    /// Allocates an uninitialised object.
    ///
    /// # Errors
    /// If no object is free and neither the budget nor the source grants a chunk.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<ReturnError>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        match self.alloc_fast() {
            Some(object) => Ok(object),
            None => self.alloc_slowly::<F>(),
        }
    }

    /// Takes the first free object, if there is one.
    #[inline(always)]
    pub(super) fn alloc_fast(&self) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.head.get())?;
        // SAFETY: a free object, which no other code uses, and which holds a link (invariant 2).
        self.head.set(unsafe { first.as_ref() }.0.get());
        self.count.set(self.count.get().wrapping_add(1));
        Some(first.cast())
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        self.refill().map_err(F::fail)
    }

    /// Allocates an object when the first chain is empty: the first of the next chain, or a fresh
    /// one. In the second case, the objects after it are linked as the first chain.
    fn refill(&self) -> Result<NonNull<u8>, AllocError> {
        if self.forget_orphaned_chunks() {
            return Err(AllocError::new(ErrorKind::ForkedChild, self.layout().size()));
        }
        if let Some(checks) = self.checks() {
            return checks.alloc(self);
        }
        self.back_off.note_growth();
        if let Some(first) = self.waiting_chains.pop() {
            // SAFETY: a free object, which no other code uses, and which holds a link (invariant
            // 2).
            self.head.set(unsafe { first.as_ref() }.0.get());
            self.count.set(self.count.get() + 1);
            self.raise_sweep_level(0);
            return Ok(first.cast());
        }
        let first = self.take_fresh(1)?;
        self.count.set(self.count.get() + 1);
        self.set_watermark(self.live());
        let most = (MAX_LINKED_BYTES / self.stride()).min(MAX_LINKED_OBJECTS);
        self.link_fresh(most.min(self.fresh_objects()));
        Ok(first)
    }

    /// Allocates `objects` uninitialised objects next to each other, [`stride`](Self::stride) bytes
    /// apart.
    ///
    /// Their memory has held no object after its chunk was taken, or after the list was last
    /// without live objects. Each object is freed separately. For 0 objects the address is
    /// dangling.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_run`](Self::try_alloc_run) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn alloc_run(&self, objects: usize) -> NonNull<u8> {
        or_fail(self.try_alloc_run(objects))
    }

    /// Fallible version of [`alloc_run`](Self::alloc_run).
    ///
    /// # Errors
    /// If neither the budget nor the source grants a chunk with that much room. An error changes
    /// nothing, except that spare chunks, which hold no live objects, may have been released. In
    /// pass-through mode, where malloc provides each object separately, any run of more than one
    /// object is an error.
    pub fn try_alloc_run(&self, objects: usize) -> Result<NonNull<u8>, AllocError> {
        match (objects, self.checks()) {
            (0, _) => Ok(self.sizes.dangling()),
            (_, Some(checks)) => checks.alloc_run(self, objects),
            (_, None) => {
                let run = self.take_fresh(objects)?;
                self.count.set(self.count.get() + objects as isize);
                Ok(run)
            }
        }
    }

    /// Allocates one uninitialised object after the fresh object that was taken last, and skips
    /// the objects that were freed. Use it for objects that should lie in the order of their
    /// allocation.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_fresh`](Self::try_alloc_fresh) returns an error:
    /// see [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn alloc_fresh(&self) -> NonNull<u8> {
        self.alloc_run(1)
    }

    /// Fallible version of [`alloc_fresh`](Self::alloc_fresh).
    ///
    /// # Errors
    /// Same as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_fresh(&self) -> Result<NonNull<u8>, AllocError> {
        self.try_alloc_run(1)
    }
}

/// # Free
impl RawFreeList {
    /// Frees an object.
    ///
    /// It takes five instructions on x86-64. As the number of live objects falls, three kinds
    /// of calls do more:
    ///
    /// - When it falls below the level for the next sweep, the call sweeps for empty chunks. The
    ///   level is at most half of what was live when the level was set. It is low enough that a
    ///   sweep takes at most two steps for each object freed after the last sweep.
    /// - When fewer objects are live than one for each 16 MiB of the list, or than four, each call
    ///   reads the clock for a while. If as few are live for as long as a sweep may take, the call sweeps.
    /// - When it has fallen by a sixteenth, the call starts another chain of free objects, for a
    ///   later sweep to follow.
    ///
    /// # Safety
    /// The object came from this list, is freed once, and is not used afterwards.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let count = self.count.get().wrapping_sub(1);
        self.count.set(count);
        if count < 0 {
            // SAFETY: the caller upholds the contract.
            return unsafe { self.free_slowly(object) };
        }
        // SAFETY: the caller upholds the contract.
        unsafe { self.push(object) };
    }

    /// # Safety
    /// As for [`free`](Self::free), which has already counted the object.
    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(&self, object: NonNull<u8>) {
        if self.forget_orphaned_chunks() {
            return;
        }
        if let Some(checks) = self.checks() {
            self.count.set(0);
            return checks.free(self, object);
        }
        let sweep_due = self.live() < self.sweep_below.get() || self.is_watched();
        if !sweep_due {
            self.start_chain();
        }
        // SAFETY: the caller upholds the contract.
        unsafe { self.push(object) };
        if !sweep_due {
            self.watched_since.set(None);
            self.set_watermark(self.live());
        } else if self.watches() {
            self.watch();
        } else {
            self.sweep_or_skip();
        }
    }

    #[cfg(feature = "std")]
    /// Reports live objects on standard error, if that was requested and there are any.
    fn report_live_objects(&self) {
        let live = self.live();
        if self.settings.common.reports_live() && live > 0 {
            let name = self.name().filter(|name| !name.is_empty()).unwrap_or("(no name)");
            let name = printable(name);
            let size = self.layout().size();
            standard_error::print(format_args!(
                "allotment: free list '{name}' dropped with {live} live objects of {size} bytes each\n"
            ));
        }
    }
}

impl Drop for RawFreeList {
    /// Releases all memory, including that of live objects.
    fn drop(&mut self) {
        if !self.forget_orphaned_chunks() {
            #[cfg(feature = "std")]
            self.report_live_objects();
            if let Some(checks) = self.checks() {
                checks.end(self);
            }
            self.release_all();
        }
        self.record.release();
    }
}
