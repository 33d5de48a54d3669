//! `layout_calls!`: the calls of an arena, a reap, a pool and a reference to a pool for raw
//! layouts.

/// Defines the calls for raw layouts of an allocator that is a [`BlockSource`](super::BlockSource),
/// by reference (`[&] self`) or by value (`[] self`). What is documented before a call's name
/// follows the call's own sentences. `try_alloc_layout { … }` replaces that call.
macro_rules! layout_calls {
    (
        impl[$($generics:tt)*] $allocator:ty, [$($reference:tt)?] $this:ident;
        $(#[$alloc_layout:meta])* alloc_layout;
        try_alloc_layout { $($try_alloc_layout:tt)* }
        $(#[$free_layout:meta])* free_layout;
        $(#[$resize:meta])* resize;
    ) => {
        /// # Allocate, resize and free by layout
        impl<$($generics)*> $allocator {
            /// Allocates an uninitialised block of this layout.
            $(#[$alloc_layout])*
            ///
            /// # Panics
            /// Panics or ends the process if [`try_alloc_layout`](Self::try_alloc_layout) returns
            /// an error: see [`AllocError`](crate::AllocError).
            #[inline]
            #[must_use]
            pub fn alloc_layout($($reference)? $this, layout: Layout) -> NonNull<u8> {
                $crate::error::always($crate::collections::BlockSource::alloc::<
                    $crate::error::PanicOrAbort,
                >($this, layout))
            }

            $($try_alloc_layout)*

            /// Allocates a zeroed block of this layout.
            ///
            /// # Panics
            /// As [`alloc_layout`](Self::alloc_layout).
            #[inline]
            #[must_use]
            #[track_caller]
            pub fn alloc_layout_zeroed($($reference)? $this, layout: Layout) -> NonNull<u8> {
                $crate::error::or_fail($this.try_alloc_layout_zeroed(layout))
            }

            /// Fallible version of [`alloc_layout_zeroed`](Self::alloc_layout_zeroed).
            ///
            /// # Errors
            /// As [`try_alloc_layout`](Self::try_alloc_layout).
            #[inline]
            pub fn try_alloc_layout_zeroed(
                $($reference)? $this,
                layout: Layout,
            ) -> Result<NonNull<u8>, AllocError> {
                $crate::collections::BlockSource::alloc_zeroed($this, layout)
            }

            /// Resizes a block, in place where possible. The contents are kept up to the smaller of
            /// the two sizes. If the returned address differs, the old block is freed.
            $(#[$resize])*
            ///
            /// # Panics
            /// Panics or ends the process if [`try_resize`](Self::try_resize) returns an error: see
            /// [`AllocError`](crate::AllocError).
            ///
            /// # Safety
            /// As for [`free_layout`](Self::free_layout), with the layout `old`. In the scope of an
            /// arena, the block belongs to that scope.
            #[inline]
            #[must_use]
            pub unsafe fn resize(
                $($reference)? $this,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> NonNull<u8> {
                // SAFETY: passed on to the caller.
                $crate::error::always(unsafe {
                    $crate::collections::BlockSource::resize::<$crate::error::PanicOrAbort>(
                        $this, block, old, new,
                    )
                })
            }

            /// Fallible version of [`resize`](Self::resize).
            ///
            /// # Errors
            /// As [`try_alloc_layout`](Self::try_alloc_layout). The block is then unchanged.
            ///
            /// # Safety
            /// As for [`resize`](Self::resize).
            #[inline]
            pub unsafe fn try_resize(
                $($reference)? $this,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<u8>, AllocError> {
                // SAFETY: passed on to the caller.
                unsafe {
                    $crate::collections::BlockSource::resize::<$crate::error::ReturnError>(
                        $this, block, old, new,
                    )
                }
            }

            /// Frees a block.
            $(#[$free_layout])*
            ///
            /// # Safety
            /// `block` is the pointer that this allocator returned for this layout, or for a resize
            /// to it. A pointer that was made from a reference to a value in the block does not
            /// meet this requirement: it may access the value's bytes only, and a block can be
            /// larger. The block has not been freed, neither by a free nor by a reset or a rewind,
            /// and is not used again.
            #[inline]
            pub unsafe fn free_layout($($reference)? $this, block: NonNull<u8>, layout: Layout) {
                // SAFETY: passed on to the caller.
                unsafe { $crate::collections::BlockSource::free($this, block, layout) }
            }
        }
    };
    (
        impl[$($generics:tt)*] $allocator:ty, [$($reference:tt)?] $this:ident;
        $(#[$alloc_layout:meta])* alloc_layout;
        $($others:tt)*
    ) => {
        $crate::collections::layout_calls! {
            impl[$($generics)*] $allocator, [$($reference)?] $this;
            $(#[$alloc_layout])* alloc_layout;
            try_alloc_layout {
                /// Fallible version of [`alloc_layout`](Self::alloc_layout).
                ///
                /// # Errors
                /// If a new chunk is needed and the budget or the source refuses it, or if the size
                /// exceeds the address space.
                #[inline]
                pub fn try_alloc_layout(
                    $($reference)? $this,
                    layout: Layout,
                ) -> Result<NonNull<u8>, AllocError> {
                    $crate::collections::BlockSource::alloc::<$crate::error::ReturnError>($this, layout)
                }
            }
            $($others)*
        }
    };
}

pub(crate) use layout_calls;
