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
        allocator!($allocator, $error, $may_panic, [] &crate::Reap);
        allocator!($allocator, $error, $may_panic, [] &crate::LocalPool);
        allocator!($allocator, $error, $may_panic, [] crate::PoolRef);
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
                let block = BlockSource::alloc::<ReturnError>(*self, layout);
                let block = block.map_err(|error| refused(*self, error, $may_panic, $error))?;
                Ok(::core::ptr::NonNull::slice_from_raw_parts(block, layout.size()))
            }

            #[inline]
            fn allocate_zeroed(
                &self,
                layout: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
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
                // SAFETY: the trait's contract is that of `BlockSource`.
                unsafe { BlockSource::free(*self, block, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the trait's contract is that of `BlockSource`.
                let grown = unsafe { BlockSource::resize::<ReturnError>(*self, block, old, new) };
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
                // SAFETY: the trait's contract is that of `BlockSource`; the added bytes belong to
                // the block.
                unsafe {
                    let grown = BlockSource::resize::<ReturnError>(*self, block, old, new);
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
                // SAFETY: the trait's contract is that of `BlockSource`.
                let shrunk = unsafe { BlockSource::resize::<ReturnError>(*self, block, old, new) };
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
use crate::{
    collections::BlockSource,
    error::{AllocError, ErrorKind, OnRefusal, ReturnError, fail},
};

/// Returns the trait's error, or panics if the program itself refused and the builder chose so.
#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
#[cold]
#[inline(never)]
fn refused<E>(source: impl BlockSource, error: AllocError, may_panic: bool, returned: E) -> E {
    let by_program = matches!(error.kind(), ErrorKind::BudgetExceeded | ErrorKind::SizeOverflow);
    if may_panic && by_program && source.on_refusal() == OnRefusal::Panic {
        fail(error)
    }
    returned
}

// The documentation of `allocator-api2` allows a panic. So does that of the standard library, but its
// collections are not prepared for one (rust-lang/rust#156490).
#[cfg(feature = "allocator-api2-02")]
allocator!(allocator_api2_02::alloc::Allocator, allocator_api2_02::alloc::AllocError, true);
#[cfg(feature = "allocator-api2-03")]
allocator!(allocator_api2_03::alloc::Allocator, allocator_api2_03::alloc::AllocError, true);
#[cfg(feature = "allocator-api2-04")]
allocator!(allocator_api2_04::alloc::Allocator, allocator_api2_04::alloc::AllocError, true);
#[cfg(feature = "nightly-allocator-api")]
allocator!(std::alloc::Allocator, std::alloc::AllocError, false);

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
#[cfg(all(doctest, feature = "allocator-api2-02"))]
struct Borrows;
