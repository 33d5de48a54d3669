//! `Sealer`: puts values into memory that will be sealed.
//!
//! # Invariants
//!
//! 1. `chunks` were begun, and end after `'s`.
//! 2. A block from the chunks belongs to the caller alone until it is freed, or until `'s` ends.

use core::alloc::Layout;
use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::chunks::SealedChunks;
use super::read_only::ReadOnly;
use crate::collections::{BlockSource, StringIn, VecIn};
use crate::error::{AllocError, OnFailure, OnRefusal, PanicOrAbort, ReturnError, always};

/// Allocates memory for an initialiser. Everything allocated here is sealed with the value.
///
/// A copy is the same sealer. A sealer works only on the thread that runs the initialiser, and only
/// while it runs. Any other use is an [`ErrorKind::Sealed`](crate::ErrorKind) error. So a
/// collection that holds a sealer (a [`SealVec`](crate::SealVec), a map) can be part of the sealed
/// value, and other threads can read it.
///
/// With the feature for their version of the `Allocator` trait, a `Sealer` is also an allocator for
/// the collections of other crates.
///
/// The calls without `try_` fail as [`AllocError`](crate::AllocError) says.
#[derive(Clone, Copy)]
pub struct Sealer<'s> {
    chunks: NonNull<SealedChunks>,
    lifetime: PhantomData<&'s ()>,
}

// SAFETY: only the building thread touches the cells of the chunks; every call checks that it runs
// on that thread (invariant 4 of `SealedChunks`).
unsafe impl Send for Sealer<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sealer<'_> {}

impl<'s> Sealer<'s> {
    /// # Safety
    /// The chunks were begun, and do not end before `'s`.
    pub(super) const unsafe fn new(chunks: NonNull<SealedChunks>) -> Self {
        Self { chunks, lifetime: PhantomData }
    }

    fn chunks(&self) -> &'s SealedChunks {
        // SAFETY: invariant 1.
        unsafe { self.chunks.as_ref() }
    }

    fn value_or<F: OnFailure, T>(self, value: T) -> Result<&'s mut T, F::Error> {
        let address = BlockSource::alloc::<F>(self, Layout::new::<T>())?.cast::<T>();
        // SAFETY: a fresh block for one `T`, which belongs to this call alone for `'s`
        // (invariant 2).
        unsafe {
            address.write(value);
            Ok(&mut *address.as_ptr())
        }
    }

    fn slice_or<F: OnFailure, T>(
        self,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<&'s [T], F::Error> {
        let mut vec = VecIn::with_capacity_in_or::<F>(values.len(), self)?;
        vec.extend_or::<F>(values)?;
        Ok(Self::lend(vec))
    }

    fn copy_or<F: OnFailure, T: Copy>(self, values: &[T]) -> Result<&'s [T], F::Error> {
        let mut vec = VecIn::with_capacity_in_or::<F>(values.len(), self)?;
        vec.extend_copied_or::<F>(values)?;
        Ok(Self::lend(vec))
    }

    /// Lends the values of a vector for as long as the memory is there, and never drops them.
    pub(super) fn lend<T>(mut vec: VecIn<T, Self>) -> &'s [T] {
        // Give unused capacity back if the vector is the last block. Otherwise it stays, which is
        // fine.
        let _ = vec.try_shrink_to_fit();
        // SAFETY: initialised, and the memory belonged to the vector alone for `'s` (invariant 2).
        unsafe { vec.into_raw().as_ref() }
    }

    /// As [`lend`](Self::lend), for a string.
    pub(super) fn lend_str(string: StringIn<Self>) -> &'s str {
        // SAFETY: the bytes of a string.
        unsafe { core::str::from_utf8_unchecked(Self::lend(string.into_bytes())) }
    }

    /// A copy of this string.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_str`](Self::try_alloc_str) returns an error: see
    /// [`AllocError`](crate::AllocError).
    pub fn alloc_str(self, text: &str) -> &'s str {
        let bytes = always(self.copy_or::<PanicOrAbort, u8>(text.as_bytes()));
        // SAFETY: a copy of a string.
        unsafe { core::str::from_utf8_unchecked(bytes) }
    }

    /// Like [`alloc_str`](Self::alloc_str), but returns an error instead of panicking or ending the
    /// process.
    ///
    /// # Errors
    /// If the string needs a new page, and the budget or the system refuses it.
    /// [`ErrorKind::Sealed`](crate::ErrorKind) on a thread that does not run the initialiser, or
    /// when the initialiser has ended.
    pub fn try_alloc_str(self, text: &str) -> Result<&'s str, AllocError> {
        let bytes = self.copy_or::<ReturnError, u8>(text.as_bytes())?;
        // SAFETY: a copy of a string.
        Ok(unsafe { core::str::from_utf8_unchecked(bytes) })
    }

    /// Moves these values into a slice. They come from an array, a vector, or any other iterator
    /// that knows its length.
    ///
    /// # Panics
    /// If the iterator panics. Panics or ends the process if
    /// [`try_alloc_slice_from_iter`](Self::try_alloc_slice_from_iter) returns an error: see
    /// [`AllocError`](crate::AllocError).
    pub fn alloc_slice_from_iter<T: ReadOnly, I>(self, values: I) -> &'s [T]
    where
        I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    {
        always(self.slice_or::<PanicOrAbort, T>(values.into_iter()))
    }

    /// Like [`alloc_slice_from_iter`](Self::alloc_slice_from_iter), but returns an error instead of
    /// panicking or ending the process.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as
    /// [`try_alloc_str`](Self::try_alloc_str).
    pub fn try_alloc_slice_from_iter<T: ReadOnly, I>(self, values: I) -> Result<&'s [T], AllocError>
    where
        I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    {
        self.slice_or::<ReturnError, T>(values.into_iter())
    }

    /// A copy of these values.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_slice_copy`](Self::try_alloc_slice_copy) returns
    /// an error: see [`AllocError`](crate::AllocError).
    pub fn alloc_slice_copy<T: ReadOnly + Copy>(self, values: &[T]) -> &'s [T] {
        always(self.copy_or::<PanicOrAbort, T>(values))
    }

    /// Like [`alloc_slice_copy`](Self::alloc_slice_copy), but returns an error instead of panicking
    /// or ending the process.
    ///
    /// # Errors
    /// As [`try_alloc_str`](Self::try_alloc_str).
    pub fn try_alloc_slice_copy<T: ReadOnly + Copy>(
        self,
        values: &[T],
    ) -> Result<&'s [T], AllocError> {
        self.copy_or::<ReturnError, T>(values)
    }

    /// Moves a value into sealed memory. The initialiser may change it while it runs. The sealed
    /// value refers to it as a `&'s T`.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[allow(clippy::mut_from_ref, reason = "each call lends other memory")]
    pub fn alloc<T: ReadOnly>(self, value: T) -> &'s mut T {
        always(self.value_or::<PanicOrAbort, T>(value))
    }

    /// Like [`alloc`](Self::alloc), but returns an error instead of panicking or ending the
    /// process.
    ///
    /// # Errors
    /// As [`try_alloc_str`](Self::try_alloc_str).
    pub fn try_alloc<T: ReadOnly>(self, value: T) -> Result<&'s mut T, AllocError> {
        self.value_or::<ReturnError, T>(value)
    }

    /// Formats into a string: `sealer.alloc_format(format_args!("{host}:{port}"))`.
    ///
    /// # Panics
    /// As for [`alloc_str`](Self::alloc_str), and if a formatting implementation returns an error.
    pub fn alloc_format(self, arguments: fmt::Arguments<'_>) -> &'s str {
        Self::lend_str(StringIn::format_in(self, arguments))
    }

    /// Like [`alloc_format`](Self::alloc_format), but returns an error if there is no memory.
    ///
    /// # Errors
    /// As [`try_alloc_str`](Self::try_alloc_str).
    ///
    /// # Panics
    /// If a formatting implementation returns an error.
    pub fn try_alloc_format(self, arguments: fmt::Arguments<'_>) -> Result<&'s str, AllocError> {
        /// Keeps the allocation error, which `fmt::Error` can't carry.
        struct StringOrError<'s> {
            string: StringIn<Sealer<'s>>,
            result: Result<(), AllocError>,
        }
        impl Write for StringOrError<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.result = self.string.try_push_str(text);
                self.result.map_err(|_| fmt::Error)
            }
        }
        let mut output = StringOrError { string: self.string(), result: Ok(()) };
        let formatted = output.write_fmt(arguments);
        output.result?;
        formatted.expect("a formatting implementation returned an error");
        Ok(Self::lend_str(output.string))
    }

    /// Uninitialised memory of this layout, for what the other calls can't express. It is sealed
    /// with the rest, and must not be written to after that. For a size of zero, returns an aligned
    /// address without memory.
    ///
    /// ```
    /// use allotment::Sealed;
    /// use core::alloc::Layout;
    ///
    /// let squares = Sealed::<&'static [u32]>::new(|sealer| {
    ///     let layout = Layout::array::<u32>(100).unwrap();
    ///     let start = sealer.alloc_layout(layout).cast::<u32>();
    ///     // SAFETY: memory for 100 numbers, which only this initialiser has. All are written before
    ///     // they are lent.
    ///     unsafe {
    ///         (0..100).for_each(|number| start.add(number as usize).write(number * number));
    ///         core::slice::from_raw_parts(start.as_ptr(), 100)
    ///     }
    /// });
    /// assert_eq!(squares.get()[99], 9801);
    /// ```
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_layout`](Self::try_alloc_layout) returns an error:
    /// see [`AllocError`](crate::AllocError).
    #[must_use]
    pub fn alloc_layout(self, layout: Layout) -> NonNull<u8> {
        always(BlockSource::alloc::<PanicOrAbort>(self, layout))
    }

    /// Like [`alloc_layout`](Self::alloc_layout), but returns an error instead of panicking or
    /// ending the process.
    ///
    /// # Errors
    /// As [`try_alloc_str`](Self::try_alloc_str).
    pub fn try_alloc_layout(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        BlockSource::alloc::<ReturnError>(self, layout)
    }

    /// An empty vector that grows in sealed memory. If the length is known, use
    /// [`alloc_slice_from_iter`](Self::alloc_slice_from_iter): a vector that has to move leaves its
    /// old memory behind.
    #[must_use]
    pub const fn vec<T>(self) -> VecIn<T, Self> {
        VecIn::new_in(self)
    }

    /// An empty string that grows in sealed memory.
    #[must_use]
    pub const fn string(self) -> StringIn<Self> {
        StringIn::new_in(self)
    }
}

// SAFETY: it is an address and writes nothing: its calls check that they run on the building
// thread, and there are none once the memory is sealed.
unsafe impl ReadOnly for Sealer<'_> {}

impl fmt::Debug for Sealer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("name", &self.chunks().name()).finish_non_exhaustive()
    }
}

// SAFETY: blocks stay valid until they are freed, or until `'s` ends (invariant 2).
// A call that unwinds does so before it changes anything.
unsafe impl BlockSource for Sealer<'_> {
    #[inline]
    fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.chunks().alloc(layout).map_err(F::fail)
    }

    #[inline]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.chunks().free(block, layout) }
    }

    fn on_refusal(self) -> OnRefusal {
        self.chunks().on_refusal()
    }

    unsafe fn resize<F: OnFailure>(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        let in_place = old.align() == new.align() && old.size() > 0 && new.size() > 0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if in_place {
                match self.chunks().resize_in_place(block, old.size(), new.size()) {
                    Ok(true) => return Ok(block),
                    Ok(false) => {}
                    Err(error) => return Err(F::fail(error)),
                }
            }
            self.move_to::<F>(block, old, new)
        }
    }
}
