//! `handle_traits!`: the standard traits of a handle, which are those of its value.

/// Implements the traits of a handle that derefs to `T`.
macro_rules! handle_traits {
    ([$($generics:tt)*] $handle:ty) => {
        impl<$($generics)*> AsRef<T> for $handle {
            fn as_ref(&self) -> &T {
                self
            }
        }

        impl<$($generics)*> core::borrow::Borrow<T> for $handle {
            fn borrow(&self) -> &T {
                self
            }
        }

        impl<$($generics)*> PartialEq for $handle
        where
            T: PartialEq,
        {
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl<$($generics)*> Eq for $handle where T: Eq {}

        impl<$($generics)*> PartialOrd for $handle
        where
            T: PartialOrd,
        {
            fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
                (**self).partial_cmp(&**other)
            }
        }

        impl<$($generics)*> Ord for $handle
        where
            T: Ord,
        {
            fn cmp(&self, other: &Self) -> core::cmp::Ordering {
                (**self).cmp(&**other)
            }
        }

        impl<$($generics)*> core::hash::Hash for $handle
        where
            T: core::hash::Hash,
        {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl<$($generics)*> core::fmt::Debug for $handle
        where
            T: core::fmt::Debug,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(&**self, f)
            }
        }

        impl<$($generics)*> core::fmt::Display for $handle
        where
            T: core::fmt::Display,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&**self, f)
            }
        }

        impl<$($generics)*> core::fmt::Pointer for $handle {
            /// Prints the value's address.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Pointer::fmt(&core::ptr::from_ref::<T>(self), f)
            }
        }

        #[cfg(feature = "serde")]
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<$($generics)*> serde::Serialize for $handle
        where
            T: serde::Serialize,
        {
            /// Serializes the value.
            fn serialize<Z: serde::Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                (**self).serialize(serializer)
            }
        }
    };
}

pub(super) use handle_traits;
