//! Values, slices and strings that an allocator lends: one body of each call, for arenas and reaps.
//! [`typed_calls!`](super::typed_calls) defines the calls themselves.
//!
//! # Invariant
//!
//! A block of a [`LendingSource`] belongs to the caller of the allocation alone until an unsafe
//! call or its box frees it, or until `'a` ends. So it can be lent for `'a`.

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use core::ptr::{self, NonNull};
use core::slice;

use super::block_source::BlockSource;
use super::boxed::{BoxIn, LendingMemory};
use super::raw_vec::overflow;
use super::vec::VecIn;
use crate::error::{OnFailure, unlikely};

/// Refuses a type that needs drop, at compile time.
pub(crate) struct NoDrop<T>(core::marker::PhantomData<T>);

impl<T> NoDrop<T> {
    pub(crate) const CHECK: () = assert!(
        !needs_drop::<T>(),
        "this type needs drop, and the allocator frees its memory without dropping what is in it: \
         use `alloc_boxed` or `alloc_slice_boxed`, which own what is in it and drop it, \
         or `alloc_undropped`, which says that it is never dropped"
    );
}

/// A block with memory for a slice. Its first `filled` values are initialised. If making a value
/// unwinds or fails, the drop of this guard drops the values and frees the block.
struct PartialSlice<T, S: BlockSource> {
    source: S,
    first: NonNull<T>,
    layout: Layout,
    filled: usize,
}

impl<T, S: BlockSource> Drop for PartialSlice<T, S> {
    fn drop(&mut self) {
        // SAFETY: the first `filled` values were written; the block is of this source, has this
        // layout, and is not lent.
        unsafe {
            ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.filled).drop_in_place();
            self.source.free(self.first.cast(), self.layout);
        }
    }
}

impl<T, S: BlockSource> PartialSlice<T, S> {
    /// Memory for `len` values.
    #[inline]
    fn new<'a, F: OnFailure>(source: S, len: usize) -> Result<Self, F::Error>
    where
        S: LendingSource<'a>,
    {
        let layout = array_layout::<F, T>(len)?;
        let first = source.alloc::<F>(layout)?.cast();
        Ok(Self { source, first, layout, filled: 0 })
    }

    /// Adds a value.
    ///
    /// # Safety
    /// The block has memory for another value.
    #[inline]
    unsafe fn push(&mut self, value: T) {
        // SAFETY: inside the block.
        unsafe { self.first.add(self.filled).write(value) };
        self.filled += 1;
    }

    /// The values. The block is no longer freed with this guard.
    #[inline]
    fn into_raw(self) -> NonNull<[T]> {
        let (first, filled) = (self.first, self.filled);
        core::mem::forget(self);
        NonNull::slice_from_raw_parts(first, filled)
    }
}

fn array_layout<F: OnFailure, T>(len: usize) -> Result<Layout, F::Error> {
    Layout::array::<T>(len).map_err(|_| F::fail(overflow(len)))
}

/// A slice in the memory of a source, with an owner.
type BoxedSlice<'a, T, S> = BoxIn<[T], <S as LendingSource<'a>>::Memory>;

/// A source whose blocks can be lent for `'a`, with the bodies that a typed call and its `try_`
/// twin share.
///
/// # Safety
/// The blocks are of the memory that [`memory`](Self::memory) returns. `alloc_fast` and
/// `alloc_slow` return blocks as [`BlockSource::alloc`] does.
pub(crate) unsafe trait LendingSource<'a>: BlockSource {
    type Memory: LendingMemory<'a>;

    /// The memory of the blocks, for a box.
    fn memory(self) -> Self::Memory;

    /// As [`BlockSource::alloc`], but only if the source has a block at hand. To be inlined.
    fn alloc_fast(self, layout: Layout) -> Option<NonNull<u8>>;

    /// As [`BlockSource::alloc`], when `alloc_fast` has no block. To call a cold function that is
    /// not inlined.
    fn alloc_slow<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error>;

    // ---- values ----

    /// Puts a value into a new block, and returns what `hand_out` makes of the block. The fast path
    /// writes the value once: a value that must lie in memory before would be written twice.
    #[inline(always)]
    fn place_or<F: OnFailure, T, P>(
        self,
        value: T,
        hand_out: impl FnOnce(NonNull<T>) -> P,
    ) -> Result<P, F::Error> {
        let value = ManuallyDrop::new(value);
        let block = if needs_drop::<T>() || size_of::<T>() <= size_of::<usize>() {
            // The slow path gets the value, and drops it if it unwinds. If the value fits a
            // register, the fast path need not save one across a call either.
            match self.alloc_fast(Layout::new::<T>()) {
                Some(block) => block,
                None => {
                    unlikely();
                    return self.place_slow::<F, T, P>(ManuallyDrop::into_inner(value), hand_out);
                }
            }
        } else {
            // A slow path that unwinds forgets the value, which needs no drop.
            self.alloc::<F>(Layout::new::<T>())?
        };
        let block = block.cast::<T>();
        // SAFETY: a block for one `T`, which nothing else uses.
        unsafe { block.write(ManuallyDrop::into_inner(value)) };
        Ok(hand_out(block))
    }

    #[cold]
    #[inline(never)]
    fn place_slow<F: OnFailure, T, P>(
        self,
        value: T,
        hand_out: impl FnOnce(NonNull<T>) -> P,
    ) -> Result<P, F::Error> {
        let block = self.alloc_slow::<F>(Layout::new::<T>())?.cast::<T>();
        // SAFETY: as in `place_or`.
        unsafe { block.write(value) };
        Ok(hand_out(block))
    }

    #[inline(always)]
    fn value_or<F: OnFailure, T>(self, value: T) -> Result<&'a mut T, F::Error> {
        // SAFETY: the block holds a value, and is lent by the invariant.
        self.place_or::<F, T, _>(value, |block| unsafe { &mut *block.as_ptr() })
    }

    #[inline(always)]
    fn boxed_or<F: OnFailure, T>(self, value: T) -> Result<BoxIn<T, Self::Memory>, F::Error> {
        // SAFETY: a block of this memory that holds a value, and which nothing else owns.
        let boxed = |block| unsafe { BoxIn::from_raw_in(block, self.memory()) };
        self.place_or::<F, T, _>(value, boxed)
    }

    #[inline(always)]
    fn with_or<F: OnFailure, T, E>(
        self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&'a mut T, E>, F::Error> {
        let mut partial = PartialSlice::new::<F>(self, 1)?;
        Ok(match make() {
            // SAFETY: memory for one value, to which none was added before; it is lent by the
            // invariant.
            Ok(value) => unsafe {
                partial.push(value);
                Ok(partial.into_raw().cast().as_mut())
            },
            Err(error) => Err(error),
        })
    }

    #[inline]
    fn uninit_or<F: OnFailure, T>(self) -> Result<&'a mut MaybeUninit<T>, F::Error> {
        let block = self.alloc::<F>(Layout::new::<T>())?;
        // SAFETY: a block for one `T`, possibly uninitialised; lent by the invariant.
        Ok(unsafe { block.cast().as_mut() })
    }

    // ---- slices ----

    #[inline]
    fn uninit_slice_or<F: OnFailure, T>(
        self,
        len: usize,
    ) -> Result<&'a mut [MaybeUninit<T>], F::Error> {
        let block = self.alloc::<F>(array_layout::<F, T>(len)?)?;
        // SAFETY: a block for `len` values, possibly uninitialised; lent by the invariant.
        Ok(unsafe { slice::from_raw_parts_mut(block.cast().as_ptr(), len) })
    }

    #[inline]
    fn copy_or<F: OnFailure, T: Copy>(self, values: &[T]) -> Result<&'a mut [T], F::Error> {
        let block = self.alloc::<F>(Layout::for_value(values))?.cast::<T>();
        // SAFETY: a block for `values.len()` values, which overlaps nothing borrowed; lent by the
        // invariant.
        unsafe {
            block.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
            Ok(slice::from_raw_parts_mut(block.as_ptr(), values.len()))
        }
    }

    #[inline]
    fn str_or<F: OnFailure>(self, text: &str) -> Result<&'a mut str, F::Error> {
        let bytes = self.copy_or::<F, u8>(text.as_bytes())?;
        // SAFETY: a copy of a string's bytes, which are UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    #[inline]
    fn c_str_or<F: OnFailure>(self, text: &CStr) -> Result<&'a CStr, F::Error> {
        let bytes = self.copy_or::<F, u8>(text.to_bytes_with_nul())?;
        // SAFETY: a copy of a C string's bytes, including the nul.
        Ok(unsafe { CStr::from_bytes_with_nul_unchecked(bytes) })
    }

    fn fill_or<F: OnFailure, T, E>(
        self,
        len: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Result<BoxedSlice<'a, T, Self>, E>, F::Error> {
        let mut partial = PartialSlice::new::<F>(self, len)?;
        while partial.filled < len {
            match make(partial.filled) {
                // SAFETY: fewer than `len` values.
                Ok(value) => unsafe { partial.push(value) },
                Err(error) => return Ok(Err(error)),
            }
        }
        // SAFETY: a block of this memory with the layout of `len` values. All of them were written,
        // and nothing else owns the block.
        Ok(Ok(unsafe { BoxIn::from_raw_in(partial.into_raw(), self.memory()) }))
    }

    fn fill_always_or<F: OnFailure, T>(
        self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<&'a mut [T], F::Error> {
        match self.fill_or::<F, T, Infallible>(len, |index| Ok(make(index)))? {
            Ok(values) => Ok(BoxIn::leak(values)),
        }
    }

    fn boxed_slice_or<F: OnFailure, T>(
        self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<BoxedSlice<'a, T, Self>, F::Error> {
        match self.fill_or::<F, T, Infallible>(len, |index| Ok(make(index)))? {
            Ok(values) => Ok(values),
        }
    }

    /// The slice's layout is that of its block, so that the caller can free it early.
    fn collect_or<F: OnFailure, T>(
        self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<&'a mut [T], F::Error> {
        let mut vec = VecIn::from_iter_in_or::<F>(values, self)?;
        vec.shrink_or::<F>()?;
        let mut values = vec.into_raw();
        // SAFETY: initialised, and no longer owned by the vector.
        if size_of_val(unsafe { values.as_ref() }) == 0 {
            // A vector without bytes has no block.
            let block = self.alloc::<F>(Layout::new::<[T; 0]>())?;
            values = NonNull::slice_from_raw_parts(block.cast(), values.len());
        }
        // SAFETY: initialised, or without bytes; lent by the invariant.
        Ok(unsafe { values.as_mut() })
    }
}
