//! `typed_calls!`: the calls of an arena and of a reap for values, strings and slices.

/// Defines the typed calls of an allocator whose reference is a
/// [`LendingSource`](super::LendingSource), with the name of its box. What is documented before a
/// call's name follows the call's own sentences.
macro_rules! typed_calls {
    (
        impl[$($generics:tt)*] $allocator:ty, $boxed:ident;
        $(#[$alloc:meta])* alloc;
        $(#[$alloc_with:meta])* alloc_with;
        $(#[$alloc_boxed:meta])* alloc_boxed;
        $(#[$alloc_slice_copy:meta])* alloc_slice_copy;
        $(#[$alloc_slice_with:meta])* alloc_slice_with;
    ) => {
        /// # Allocate values, strings and slices
        impl<$($generics)*> $allocator {
            // ---- values ----

            /// Allocates memory for a value, moves the value there, and returns a reference to it.
            ///
            /// Memory is freed without dropping what is in it. So this does not compile for a type
            /// that needs drop. The compiler checks this when it generates code, so `cargo check`
            /// alone does not report it.
            $(#[$alloc])*
            ///
            /// # Panics
            /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
            /// [`AllocError`](crate::AllocError).
            #[inline]
            pub fn alloc<T>(&self, value: T) -> &mut T {
                const { NoDrop::<T>::CHECK };
                always(self.value_or::<PanicOrAbort, T>(value))
            }

            /// Like [`alloc`](Self::alloc), but returns an error instead of panicking or ending the
            /// process. A failed call drops the value.
            ///
            /// # Errors
            /// If a new chunk is needed and the budget or the source refuses it.
            #[inline]
            pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
                const { NoDrop::<T>::CHECK };
                self.value_or::<ReturnError, T>(value)
            }

            /// Allocates memory, then calls `make` to construct the value in it. If `make` panics,
            /// the memory is freed and no partial value is left. `make` may allocate, too.
            $(#[$alloc_with])*
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc), and if `make` panics.
            #[inline]
            pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
                const { NoDrop::<T>::CHECK };
                match always(self.with_or::<PanicOrAbort, T, Infallible>(|| Ok(make()))) {
                    Ok(value) => value,
                }
            }

            /// Like [`alloc_with`](Self::alloc_with), but returns an error instead of panicking or
            /// ending the process. A failed call has not called `make`.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_with<T>(
                &self,
                make: impl FnOnce() -> T,
            ) -> Result<&mut T, AllocError> {
                const { NoDrop::<T>::CHECK };
                self.with_or::<ReturnError, T, Infallible>(|| Ok(make())).map(|made| match made {
                    Ok(value) => value,
                })
            }

            /// Constructs a value in place with a fallible `make`. If `make` fails, its error is
            /// returned and the memory is freed.
            ///
            /// # Errors
            /// The error that `make` returned.
            ///
            /// # Panics
            /// As [`alloc_with`](Self::alloc_with).
            #[inline]
            pub fn alloc_try_with<T, E>(
                &self,
                make: impl FnOnce() -> Result<T, E>,
            ) -> Result<&mut T, E> {
                const { NoDrop::<T>::CHECK };
                always(self.with_or::<PanicOrAbort, T, E>(make))
            }

            /// Like [`alloc_try_with`](Self::alloc_try_with), but returns an error instead of
            /// panicking or ending the process: the outer error is the allocator's, the inner one
            /// that of `make`.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc). `make` has not been called then.
            #[inline]
            pub fn try_alloc_try_with<T, E>(
                &self,
                make: impl FnOnce() -> Result<T, E>,
            ) -> Result<Result<&mut T, E>, AllocError> {
                const { NoDrop::<T>::CHECK };
                self.with_or::<ReturnError, T, E>(make)
            }

            /// Allocates memory for a value, moves the value there, and returns a box that drops
            /// it, for types that need drop.
            $(#[$alloc_boxed])*
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_boxed<T>(&self, value: T) -> $boxed<'_, T> {
                always(self.boxed_or::<PanicOrAbort, T>(value))
            }

            /// Like [`alloc_boxed`](Self::alloc_boxed), but returns an error instead of panicking
            /// or ending the process. A failed call drops the value.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_boxed<T>(&self, value: T) -> Result<$boxed<'_, T>, AllocError> {
                self.boxed_or::<ReturnError, T>(value)
            }

            /// Moves a value into memory of this allocator, and never drops it. This is right for a
            /// structure whose destructor would only give memory back to the same allocator, such
            /// as a `Vec` in it. Anything else that the value owns is leaked.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_undropped<T>(&self, value: T) -> &mut T {
                always(self.value_or::<PanicOrAbort, T>(value))
            }

            /// Like [`alloc_undropped`](Self::alloc_undropped), but returns an error instead of
            /// panicking or ending the process. A failed call drops the value.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_undropped<T>(&self, value: T) -> Result<&mut T, AllocError> {
                self.value_or::<ReturnError, T>(value)
            }

            /// Allocates memory for one value, for the caller to fill. A value written there is
            /// never dropped.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_uninit<T>(&self) -> &mut MaybeUninit<T> {
                always(self.uninit_or::<PanicOrAbort, T>())
            }

            /// Like [`alloc_uninit`](Self::alloc_uninit), but returns an error instead of panicking
            /// or ending the process.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_uninit<T>(&self) -> Result<&mut MaybeUninit<T>, AllocError> {
                self.uninit_or::<ReturnError, T>()
            }

            // ---- strings ----

            /// Copies a string, like strdup.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_str(&self, text: &str) -> &mut str {
                always(self.str_or::<PanicOrAbort>(text))
            }

            /// Like [`alloc_str`](Self::alloc_str), but returns an error instead of panicking or
            /// ending the process.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
                self.str_or::<ReturnError>(text)
            }

            /// Copies a C string, including its nul.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_c_str(&self, text: &CStr) -> &CStr {
                always(self.c_str_or::<PanicOrAbort>(text))
            }

            /// Like [`alloc_c_str`](Self::alloc_c_str), but returns an error instead of panicking
            /// or ending the process.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_c_str(&self, text: &CStr) -> Result<&CStr, AllocError> {
                self.c_str_or::<ReturnError>(text)
            }

            // ---- slices ----

            /// Copies a slice, like memdup.
            $(#[$alloc_slice_copy])*
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc).
            #[inline]
            pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
                always(self.copy_or::<PanicOrAbort, T>(values))
            }

            /// Like [`alloc_slice_copy`](Self::alloc_slice_copy), but returns an error instead of
            /// panicking or ending the process.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            #[inline]
            pub fn try_alloc_slice_copy<T: Copy>(
                &self,
                values: &[T],
            ) -> Result<&mut [T], AllocError> {
                self.copy_or::<ReturnError, T>(values)
            }

            /// Clones a slice. If a clone panics, the clones made before it are dropped and the
            /// memory is freed.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc), and if a clone panics.
            pub fn alloc_slice_clone<T: Clone>(&self, values: &[T]) -> &mut [T] {
                const { NoDrop::<T>::CHECK };
                let clone = |index: usize| values[index].clone();
                always(self.fill_always_or::<PanicOrAbort, T>(values.len(), clone))
            }

            /// Like [`alloc_slice_clone`](Self::alloc_slice_clone), but returns an error instead of
            /// panicking or ending the process.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            pub fn try_alloc_slice_clone<T: Clone>(
                &self,
                values: &[T],
            ) -> Result<&mut [T], AllocError> {
                const { NoDrop::<T>::CHECK };
                self.fill_always_or::<ReturnError, T>(values.len(), |index| values[index].clone())
            }

            /// Makes a slice of `len` values; `make` gets the index of each. If `make` panics, the
            /// values made before are dropped and the memory is freed.
            $(#[$alloc_slice_with])*
            ///
            /// # Panics
            /// If the size overflows or `make` panics, or as [`alloc`](Self::alloc).
            pub fn alloc_slice_with<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> &mut [T] {
                const { NoDrop::<T>::CHECK };
                always(self.fill_always_or::<PanicOrAbort, T>(len, make))
            }

            /// Like [`alloc_slice_with`](Self::alloc_slice_with), but returns an error instead of
            /// panicking or ending the process. A failed call has not called `make`.
            ///
            /// # Errors
            /// [`ErrorKind::SizeOverflow`](crate::ErrorKind::SizeOverflow); otherwise as
            /// [`try_alloc`](Self::try_alloc).
            pub fn try_alloc_slice_with<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> Result<&mut [T], AllocError> {
                const { NoDrop::<T>::CHECK };
                self.fill_always_or::<ReturnError, T>(len, make)
            }

            /// Makes a slice of `len` values with a fallible `make`. The first error of `make` is
            /// returned, and the values made before it are dropped.
            ///
            /// # Errors
            /// The error that `make` returned.
            ///
            /// # Panics
            /// As [`alloc_slice_with`](Self::alloc_slice_with).
            pub fn alloc_slice_try_with<T, E>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> Result<T, E>,
            ) -> Result<&mut [T], E> {
                const { NoDrop::<T>::CHECK };
                always(self.fill_or::<PanicOrAbort, T, E>(len, make)).map(BoxIn::leak)
            }

            /// Like [`alloc_slice_try_with`](Self::alloc_slice_try_with), but returns an error
            /// instead of panicking or ending the process: the outer error is the allocator's, the
            /// inner one that of `make`.
            ///
            /// # Errors
            /// As [`try_alloc_slice_with`](Self::try_alloc_slice_with). `make` has not been called
            /// then.
            pub fn try_alloc_slice_try_with<T, E>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> Result<T, E>,
            ) -> Result<Result<&mut [T], E>, AllocError> {
                const { NoDrop::<T>::CHECK };
                Ok(self.fill_or::<ReturnError, T, E>(len, make)?.map(BoxIn::leak))
            }

            /// Collects an iterator into a slice. The iterator's size hint need not be right, and
            /// the iterator may allocate, too.
            ///
            /// # Panics
            /// As [`alloc`](Self::alloc), and if the iterator panics.
            pub fn alloc_slice_from_iter<T>(
                &self,
                values: impl IntoIterator<Item = T>,
            ) -> &mut [T] {
                const { NoDrop::<T>::CHECK };
                always(self.collect_or::<PanicOrAbort, T>(values))
            }

            /// Like [`alloc_slice_from_iter`](Self::alloc_slice_from_iter), but returns an error
            /// instead of panicking or ending the process. A failed call loses the values that it
            /// has taken from the iterator.
            ///
            /// # Errors
            /// As [`try_alloc`](Self::try_alloc).
            pub fn try_alloc_slice_from_iter<T>(
                &self,
                values: impl IntoIterator<Item = T>,
            ) -> Result<&mut [T], AllocError> {
                const { NoDrop::<T>::CHECK };
                self.collect_or::<ReturnError, T>(values)
            }

            /// Makes a slice of values in a box that drops them.
            ///
            /// # Panics
            /// If the size overflows; otherwise as [`alloc_slice_with`](Self::alloc_slice_with).
            pub fn alloc_slice_boxed<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> $boxed<'_, [T]> {
                always(self.boxed_slice_or::<PanicOrAbort, T>(len, make))
            }

            /// Like [`alloc_slice_boxed`](Self::alloc_slice_boxed), but returns an error instead of
            /// panicking or ending the process. A failed call has not called `make`.
            ///
            /// # Errors
            /// [`ErrorKind::SizeOverflow`](crate::ErrorKind::SizeOverflow); otherwise as
            /// [`try_alloc`](Self::try_alloc).
            pub fn try_alloc_slice_boxed<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> Result<$boxed<'_, [T]>, AllocError> {
                self.boxed_slice_or::<ReturnError, T>(len, make)
            }

            /// Allocates memory for `len` values, for the caller to fill. Values written there are
            /// never dropped.
            ///
            /// # Panics
            /// If the size overflows, or as [`alloc`](Self::alloc).
            pub fn alloc_slice_uninit<T>(&self, len: usize) -> &mut [MaybeUninit<T>] {
                always(self.uninit_slice_or::<PanicOrAbort, T>(len))
            }

            /// Like [`alloc_slice_uninit`](Self::alloc_slice_uninit), but returns an error instead
            /// of panicking or ending the process.
            ///
            /// # Errors
            /// [`ErrorKind::SizeOverflow`](crate::ErrorKind::SizeOverflow); otherwise as
            /// [`try_alloc`](Self::try_alloc).
            pub fn try_alloc_slice_uninit<T>(
                &self,
                len: usize,
            ) -> Result<&mut [MaybeUninit<T>], AllocError> {
                self.uninit_slice_or::<ReturnError, T>(len)
            }
        }
    };
}

pub(crate) use typed_calls;
