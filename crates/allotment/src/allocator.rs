//! The `Allocator` traits for `&Arena`, `&Reap`, `&LocalPool`, `PoolRef` and `Sealer`: with them
//! hashbrown's maps and the `Vec` and `Box` of `allocator-api2` and of the standard library can
//! allocate there.
//!
//! An allocator that owns its memory implements the trait on its reference only. A collection that
//! owned the allocator could be moved together with it, but the blocks that it handed out must stay
//! where they are. A `PoolRef` and a `Sealer` own no memory, and their blocks stay where they are
//! when the `PoolRef` or `Sealer` is moved or dropped.

/// One implementation for each version of the trait. The versions differ in nothing that matters
/// here.
#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
macro_rules! allocator {
    ($allocator:path, $error:path, $may_panic:expr) => {
        allocator!($allocator, $error, $may_panic, [const MIN_ALIGN: usize] &crate::Arena<MIN_ALIGN>);
        #[cfg(system_memory)]
        allocator!($allocator, $error, $may_panic, [] &crate::Reap);
        #[cfg(system_memory)]
        allocator!($allocator, $error, $may_panic, [] &crate::LocalPool);
        #[cfg(system_memory)]
        allocator!($allocator, $error, $may_panic, [] crate::PoolRef);
        #[cfg(system_memory)]
        allocator!($allocator, $error, $may_panic, [] crate::Sealer<'_>);
    };
    ($allocator:path, $error:path, $may_panic:expr, [$($generics:tt)*] $source:ty) => {
        // SAFETY: a block of a `BlockSource` stays valid and in place until it is freed here, or
        // until what the `BlockSource` borrows ends. A collection borrows its arena or reap, which
        // can't be reset, rewound or dropped meanwhile. All copies of a `BlockSource` are the same
        // one. The calls do what their names say. One that unwinds has changed nothing.
        unsafe impl<$($generics)*> $allocator for $source {
            #[inline]
            fn allocate(
                &self,
                layout: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                let block = alloc(*self, layout);
                let block = block.map_err(|error| refused(*self, error, $may_panic, $error))?;
                Ok(::core::ptr::NonNull::slice_from_raw_parts(block, layout.size()))
            }

            #[inline]
            fn allocate_zeroed(
                &self,
                layout: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                if layout.size() == 0 {
                    return self.allocate(layout);
                }
                let block = BlockSource::alloc_zeroed(*self, layout);
                let block = block.map_err(|error| refused(*self, error, $may_panic, $error))?;
                Ok(::core::ptr::NonNull::slice_from_raw_parts(block, layout.size()))
            }

            #[inline]
            unsafe fn deallocate(
                &self,
                block: ::core::ptr::NonNull<u8>,
                layout: ::core::alloc::Layout,
            ) {
                // SAFETY: the contract of the trait is passed on.
                unsafe { free(*self, block, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the contract of the trait is passed on.
                let grown = unsafe { resize(*self, block, old, new) };
                let block = grown.map_err(|error| refused(*self, error, $may_panic, $error))?;
                Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size()))
            }

            #[inline]
            unsafe fn grow_zeroed(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the contract of the trait is passed on; the added bytes belong to the
                // block.
                unsafe {
                    let grown = resize(*self, block, old, new);
                    let block = grown.map_err(|error| refused(*self, error, $may_panic, $error))?;
                    block.add(old.size()).write_bytes(0, new.size() - old.size());
                    Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size()))
                }
            }

            #[inline]
            unsafe fn shrink(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the contract of the trait is passed on.
                let shrunk = unsafe { resize(*self, block, old, new) };
                let block = shrunk.map_err(|error| refused(*self, error, $may_panic, $error))?;
                Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size()))
            }
        }
    };
}

#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
use blocks::{alloc, free, refused, resize};

/// The calls of the trait on a [`BlockSource`](crate::collections::BlockSource).
///
/// # Invariant
///
/// A block of no bytes is an address without memory, and no [`BlockSource`] sees it. For the
/// collections use such addresses in their own way: a `Box` of `allocator-api2` frees one that was
/// never allocated, and a `Vec` never frees one that it shrank to.
#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
mod blocks {
    use core::alloc::Layout;
    use core::ptr::{self, NonNull};

    use crate::collections::BlockSource;
    use crate::error::{AllocError, OnRefusal, ReturnError, fail};

    fn without_bytes(layout: Layout) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not 0")
    }

    #[inline]
    pub(super) fn alloc(
        source: impl BlockSource,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Ok(without_bytes(layout));
        }
        source.alloc::<ReturnError>(layout)
    }

    /// # Safety
    /// As for `Allocator::deallocate`.
    #[inline]
    pub(super) unsafe fn free(source: impl BlockSource, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the block has bytes, so it came from the source (the invariant). The rest is
            // the trait's contract.
            unsafe { source.free(block, layout) }
        }
    }

    /// # Safety
    /// As for `Allocator::grow` and `Allocator::shrink`.
    #[inline]
    pub(super) unsafe fn resize(
        source: impl BlockSource,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if old.size() == 0 {
            return alloc(source, new);
        }
        // SAFETY: as in `free`.
        unsafe {
            if new.size() == 0 {
                source.free(block, old);
                return Ok(without_bytes(new));
            }
            source.resize::<ReturnError>(block, old, new)
        }
    }

    /// Returns the trait's error, or panics if the program can go on and `on_refusal` is `Panic`.
    #[cold]
    #[inline(never)]
    pub(super) fn refused<E>(
        source: impl BlockSource,
        error: AllocError,
        may_panic: bool,
        returned: E,
    ) -> E {
        let can_go_on = !error.is_out_of_memory();
        if may_panic && can_go_on && source.on_refusal() != OnRefusal::ReturnError {
            fail(error)
        }
        returned
    }
}

#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
use crate::collections::BlockSource;

// The documentation of `allocator-api2` allows a panic. So does that of the standard library, but
// its collections are not prepared for one (rust-lang/rust#156490).
#[cfg(feature = "allocator-api2-02")]
allocator!(allocator_api2_02::alloc::Allocator, allocator_api2_02::alloc::AllocError, true);
#[cfg(feature = "allocator-api2-03")]
allocator!(allocator_api2_03::alloc::Allocator, allocator_api2_03::alloc::AllocError, true);
#[cfg(feature = "allocator-api2-04")]
allocator!(allocator_api2_04::alloc::Allocator, allocator_api2_04::alloc::AllocError, true);
#[cfg(feature = "nightly-allocator-api")]
allocator!(alloc::alloc::Allocator, core::alloc::AllocError, false);

/// A collection can't outlive its allocator, and the allocator can't be reset while the collection
/// is alive:
///
/// ```compile_fail,E0597
/// let numbers = {
///     let reap = allotment::Reap::new();
///     allocator_api2_02::vec::Vec::<u32, _>::new_in(&reap)
/// };
/// ```
///
/// ```compile_fail,E0502
/// let mut reap = allotment::Reap::new();
/// let mut numbers = allocator_api2_02::vec::Vec::new_in(&reap);
/// reap.reset();
/// numbers.push(1);
/// ```
///
/// ```compile_fail,E0597
/// let numbers = {
///     let pool = allotment::LocalPool::new();
///     allocator_api2_02::vec::Vec::<u32, _>::new_in(&pool)
/// };
/// ```
///
/// A collection on `&LocalPool` stays on its thread. One on a `PoolRef` can move to another thread:
///
/// ```compile_fail,E0277
/// let pool = allotment::LocalPool::new();
/// let numbers = allocator_api2_02::vec::Vec::<u32, _>::new_in(&pool);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(numbers));
/// });
/// ```
///
/// ```
/// let pool = allotment::LocalPool::new();
/// let numbers = allocator_api2_02::vec::Vec::<u32, _>::new_in(pool.reference());
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(numbers));
/// });
/// ```
#[cfg(all(doctest, system_memory, feature = "allocator-api2-02"))]
struct CollectionsBorrowTheirAllocator;
