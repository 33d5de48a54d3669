//! `Sealable`: the type that a `Sealed` holds, at any lifetime of the sealed memory.

use core::cmp::{Ordering, Reverse};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::num::NonZero;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;
use std::time::{Instant, SystemTime};

use super::collections::{SealString, SealVec};
use super::read_only::ReadOnly;

/// A type that a [`Sealed`](crate::Sealed) can hold. It stands for the same type at any lifetime of
/// the sealed memory.
///
/// `#[derive(ReadOnly)] struct Config<'s> { … }` implements it for `Config<'static>`, so that a
/// `Sealed<Config<'static>>` lends a `&'a Config<'a>`. A type without a lifetime stands for itself.
/// References, arrays, tuples and options of such types implement it too.
#[diagnostic::on_unimplemented(
    message = "`Sealed` can't hold `{Self}`",
    note = "`#[derive(allotment::ReadOnly)]` on `struct Config<'s>` lets it hold `Config<'static>`"
)]
pub trait Sealable: 'static {
    /// The same type, in sealed memory that lives for `'s`.
    type In<'s>: ReadOnly;
}

macro_rules! itself {
    ($($type:ty),* $(,)?) => {
        $(
            impl Sealable for $type {
                type In<'s> = $type;
            }
        )*
    };
}

itself!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char, ());
itself!(NonZero<u8>, NonZero<u16>, NonZero<u32>, NonZero<u64>, NonZero<u128>, NonZero<usize>);
itself!(NonZero<i8>, NonZero<i16>, NonZero<i32>, NonZero<i64>, NonZero<i128>, NonZero<isize>);
itself!(Duration, Instant, SystemTime, Ordering);
itself!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6);

impl Sealable for &'static str {
    type In<'s> = &'s str;
}

impl<T: Sealable> Sealable for &'static [T] {
    type In<'s> = &'s [T::In<'s>];
}

impl<T: Sealable> Sealable for &'static T {
    type In<'s> = &'s T::In<'s>;
}

impl<T: Sealable, const N: usize> Sealable for [T; N] {
    type In<'s> = [T::In<'s>; N];
}

impl<T: Sealable> Sealable for Option<T> {
    type In<'s> = Option<T::In<'s>>;
}

impl<T: Sealable, E: Sealable> Sealable for Result<T, E> {
    type In<'s> = Result<T::In<'s>, E::In<'s>>;
}

impl<T: Sealable> Sealable for Range<T> {
    type In<'s> = Range<T::In<'s>>;
}

impl<T: Sealable> Sealable for RangeInclusive<T> {
    type In<'s> = RangeInclusive<T::In<'s>>;
}

impl<T: Sealable> Sealable for Reverse<T> {
    type In<'s> = Reverse<T::In<'s>>;
}

impl<T: Sealable> Sealable for SealVec<'static, T> {
    type In<'s> = SealVec<'s, T::In<'s>>;
}

impl Sealable for SealString<'static> {
    type In<'s> = SealString<'s>;
}

macro_rules! tuple {
    ($($part:ident)+) => {
        impl<$($part: Sealable),+> Sealable for ($($part,)+) {
            type In<'s> = ($($part::In<'s>,)+);
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);
tuple!(A B C D E F G H I);
tuple!(A B C D E F G H I J);
tuple!(A B C D E F G H I J K);
tuple!(A B C D E F G H I J K L);
