//! `ReadOnly`: which types may be sealed.
//!
//! # Invariant
//!
//! No type that is named here writes through a shared reference or owns anything outside of itself.

use core::cmp::{Ordering, Reverse};
use core::ffi::CStr;
use core::hash::BuildHasherDefault;
use core::marker::{PhantomData, PhantomPinned};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::num::{NonZero, Saturating, Wrapping};
use core::ops::{
    Bound, ControlFlow, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};
use core::time::Duration;
use std::any::TypeId;
use std::hash::RandomState;
use std::path::Path;
use std::time::{Instant, SystemTime};

/// A type that may be sealed: no code writes to it through a shared reference, and it owns nothing
/// outside of itself.
///
/// Derive it with `#[derive(allotment::ReadOnly)]` (feature `derive`), which requires the same of
/// every field.
///
/// | instead of | seal |
/// |---|---|
/// | `String` | `&'s str` from [`Sealer::alloc_str`](crate::Sealer::alloc_str), or a [`SealString`](crate::SealString) |
/// | `Vec<T>`, `Box<[T]>` | `&'s [T]` from [`Sealer::alloc_slice_from_iter`](crate::Sealer::alloc_slice_from_iter), or a [`SealVec`](crate::SealVec) |
/// | `Box<T>`, `Rc<T>`, `Arc<T>` | `&'s T` from [`Sealer::alloc`](crate::Sealer::alloc) |
/// | `std::collections::HashMap` | a `SealMap` (feature `hashbrown-017`), or a sorted slice |
/// | `PathBuf`, `CString` | `&'s Path` (`Path::new` of a sealed `&'s str`), `&'s CStr` |
/// | `Cell`, `RefCell`, `Mutex`, atomics, `OnceLock` | a shared object beside the sealed one |
/// | a raw pointer | a reference |
///
/// # Safety
/// - No byte of the value is ever written through a shared reference, nor is any byte that the
///   value's own methods reach from it. Neither the value nor what it points to contains an
///   `UnsafeCell` (a cell, lock or atomic).
/// - The destructor is never run, and that loses nothing: the value owns no memory, file or thread
///   outside of the sealed pages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be sealed",
    label = "not `ReadOnly`",
    note = "sealed memory is read-only and never dropped: it holds no cell, lock, atomic or raw pointer, and nothing that owns memory elsewhere",
    note = "for a `String` take `&'s str` or `SealString<'s>`, for a `Vec` `&'s [T]` or `SealVec<'s, T>`, for a `Box`, `Rc` or `Arc` `&'s T`; what changes belongs into a shared object beside the sealed one",
    note = "a type of your own: `#[derive(allotment::ReadOnly)]` (feature `derive`)"
)]
pub unsafe trait ReadOnly: Send + Sync {}

macro_rules! read_only {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: the module's invariant.
            unsafe impl ReadOnly for $type {}
        )*
    };
}

/// The same for types with parameters.
macro_rules! read_only_of {
    ($([$($parameter:tt)*] $type:ty),* $(,)?) => {
        $(
            // SAFETY: the module's invariant. It also holds for the types that the parameters
            // stand for.
            unsafe impl<$($parameter)*> ReadOnly for $type {}
        )*
    };
}

read_only!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
read_only!(NonZero<u8>, NonZero<u16>, NonZero<u32>, NonZero<u64>, NonZero<u128>, NonZero<usize>);
read_only!(NonZero<i8>, NonZero<i16>, NonZero<i32>, NonZero<i64>, NonZero<i128>, NonZero<isize>);
read_only!(bool, char, (), str, CStr, Path, TypeId, Ordering, PhantomPinned, RangeFull);
read_only!(Duration, Instant, SystemTime, RandomState);
read_only!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6);
read_only!(core::convert::Infallible, core::alloc::Layout);

read_only_of!(
    [T: ReadOnly + ?Sized] &T,
    [T: ReadOnly] [T],
    [T: ReadOnly, const N: usize] [T; N],
    [T: ReadOnly] Option<T>,
    [T: ReadOnly, E: ReadOnly] Result<T, E>,
    [T: Send + Sync + ?Sized] PhantomData<T>,
    [T: ReadOnly] Wrapping<T>,
    [T: ReadOnly] Saturating<T>,
    [T: ReadOnly] Reverse<T>,
    [T: ReadOnly] Range<T>,
    [T: ReadOnly] RangeFrom<T>,
    [T: ReadOnly] RangeInclusive<T>,
    [T: ReadOnly] RangeTo<T>,
    [T: ReadOnly] RangeToInclusive<T>,
    [T: ReadOnly] Bound<T>,
    [B: ReadOnly, C: ReadOnly] ControlFlow<B, C>,
    [H] BuildHasherDefault<H>,
    [R] fn() -> R,
    [A, R] fn(A) -> R,
    [A, B, R] fn(A, B) -> R,
    [A, B, C, R] fn(A, B, C) -> R,
    [A, B, C, D, R] fn(A, B, C, D) -> R,
);

macro_rules! read_only_tuple {
    ($($part:ident)+) => {
        read_only_of!([$($part: ReadOnly),+] ($($part,)+));
    };
}

read_only_tuple!(A);
read_only_tuple!(A B);
read_only_tuple!(A B C);
read_only_tuple!(A B C D);
read_only_tuple!(A B C D E);
read_only_tuple!(A B C D E F);
read_only_tuple!(A B C D E F G);
read_only_tuple!(A B C D E F G H);
read_only_tuple!(A B C D E F G H I);
read_only_tuple!(A B C D E F G H I J);
read_only_tuple!(A B C D E F G H I J K);
read_only_tuple!(A B C D E F G H I J K L);
