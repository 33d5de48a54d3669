//! The `Allocator` traits on `&Arena`, so that hashbrown's maps, and the `Vec` and `Box` of `allocator-api2`
//! and of the standard library live in an arena.
//!
//! On the reference only: a collection that owned its arena could be moved with it, while what it handed
//! out must stay where it is.

/// One implementation for each version of the trait; they differ in nothing that matters here.
#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04",
    feature = "nightly-allocator-api",
))]
macro_rules! allocator_on_reference {
    ($allocator:path, $error:path) => {
        // SAFETY: a block stays valid and where it is until it is freed here, or the arena is reset, rewound
        // or dropped, which a borrow of it prevents as long as the collection has one; copies of the
        // reference are the same allocator. The calls do as their names say, and never unwind.
        unsafe impl<const MIN_ALIGN: usize> $allocator for &crate::Arena<MIN_ALIGN> {
            #[inline]
            fn allocate(
                &self,
                layout: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                match self.try_alloc_layout(layout) {
                    Ok(block) => {
                        Ok(::core::ptr::NonNull::slice_from_raw_parts(block, layout.size()))
                    }
                    Err(_) => Err($error),
                }
            }

            #[inline]
            fn allocate_zeroed(
                &self,
                layout: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                match self.try_alloc_layout_zeroed(layout) {
                    Ok(block) => {
                        Ok(::core::ptr::NonNull::slice_from_raw_parts(block, layout.size()))
                    }
                    Err(_) => Err($error),
                }
            }

            #[inline]
            unsafe fn deallocate(
                &self,
                block: ::core::ptr::NonNull<u8>,
                layout: ::core::alloc::Layout,
            ) {
                // SAFETY: the trait's contract is the arena's.
                unsafe { self.free(block, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the trait's contract is the arena's.
                match unsafe { self.try_grow(block, old, new) } {
                    Ok(block) => Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size())),
                    Err(_) => Err($error),
                }
            }

            #[inline]
            unsafe fn grow_zeroed(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the trait's contract is the arena's; the added bytes are the block's.
                unsafe {
                    match self.try_grow(block, old, new) {
                        Ok(block) => {
                            block.add(old.size()).write_bytes(0, new.size() - old.size());
                            Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size()))
                        }
                        Err(_) => Err($error),
                    }
                }
            }

            #[inline]
            unsafe fn shrink(
                &self,
                block: ::core::ptr::NonNull<u8>,
                old: ::core::alloc::Layout,
                new: ::core::alloc::Layout,
            ) -> Result<::core::ptr::NonNull<[u8]>, $error> {
                // SAFETY: the trait's contract is the arena's.
                match unsafe { self.try_shrink(block, old, new) } {
                    Ok(block) => Ok(::core::ptr::NonNull::slice_from_raw_parts(block, new.size())),
                    Err(_) => Err($error),
                }
            }
        }
    };
}

#[cfg(feature = "allocator-api2-02")]
allocator_on_reference!(allocator_api2_02::alloc::Allocator, allocator_api2_02::alloc::AllocError);
#[cfg(feature = "allocator-api2-03")]
allocator_on_reference!(allocator_api2_03::alloc::Allocator, allocator_api2_03::alloc::AllocError);
#[cfg(feature = "allocator-api2-04")]
allocator_on_reference!(allocator_api2_04::alloc::Allocator, allocator_api2_04::alloc::AllocError);
#[cfg(feature = "nightly-allocator-api")]
allocator_on_reference!(std::alloc::Allocator, std::alloc::AllocError);
