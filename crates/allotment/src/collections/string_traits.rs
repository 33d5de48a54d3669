//! The standard traits of `StringIn`.
#![forbid(unsafe_code)]

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::convert::Infallible;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::AddAssign;
use core::str::FromStr;

use super::block_source::BlockSource;
use super::string::StringIn;

// ---- where there is a default memory: the current pool ----

impl<S: BlockSource + Default> Default for StringIn<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: BlockSource + Default> Clone for StringIn<S> {
    /// Clones the string into the current pool.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<S: BlockSource + Default> From<&str> for StringIn<S> {
    /// Copies the string into the current pool.
    fn from(text: &str) -> Self {
        Self::from_str_in(text, S::default())
    }
}

impl<S: BlockSource + Default> From<char> for StringIn<S> {
    fn from(character: char) -> Self {
        Self::from(&*character.encode_utf8(&mut [0; 4]))
    }
}

impl<S: BlockSource + Default> FromStr for StringIn<S> {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::from(text))
    }
}

// ---- appending ----

macro_rules! extends {
    ($([$($lifetime:lifetime)?] $item:ty, $push:ident(|$name:ident| $item_of:expr);)*) => {$(
        impl<$($lifetime,)? S: BlockSource> Extend<$item> for StringIn<S> {
            fn extend<I: IntoIterator<Item = $item>>(&mut self, items: I) {
                items.into_iter().for_each(|$name| self.$push($item_of));
            }
        }

        impl<$($lifetime,)? S: BlockSource + Default> FromIterator<$item> for StringIn<S> {
            /// Collects in the current pool.
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                let mut string = Self::new();
                string.extend(items);
                string
            }
        }
    )*};
}
extends! {
    [] char, push(|character| character);
    ['a] &'a char, push(|character| *character);
    ['a] &'a str, push_str(|text| text);
    [] String, push_str(|text| &text);
    [] Box<str>, push_str(|text| &text);
    ['a] Cow<'a, str>, push_str(|text| &text);
}

impl<S: BlockSource> AddAssign<&str> for StringIn<S> {
    fn add_assign(&mut self, text: &str) {
        self.push_str(text);
    }
}

// ---- as a `str` ----

impl<S: BlockSource> AsRef<str> for StringIn<S> {
    fn as_ref(&self) -> &str {
        self
    }
}

impl<S: BlockSource> AsRef<[u8]> for StringIn<S> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<S: BlockSource> AsMut<str> for StringIn<S> {
    fn as_mut(&mut self) -> &mut str {
        self
    }
}

impl<S: BlockSource> Borrow<str> for StringIn<S> {
    fn borrow(&self) -> &str {
        self
    }
}

impl<S: BlockSource> BorrowMut<str> for StringIn<S> {
    fn borrow_mut(&mut self) -> &mut str {
        self
    }
}

macro_rules! equals {
    ($([$($generics:tt)*] $left:ty, $right:ty;)*) => {$(
        impl<S: BlockSource $($generics)*> PartialEq<$right> for $left {
            fn eq(&self, other: &$right) -> bool {
                self[..] == other[..]
            }
        }
    )*};
}
equals! {
    [, R: BlockSource] StringIn<S>, StringIn<R>;
    [] StringIn<S>, str;
    [] StringIn<S>, &str;
    [] StringIn<S>, String;
    [] str, StringIn<S>;
    [] &str, StringIn<S>;
    [] String, StringIn<S>;
}

impl<S: BlockSource> Eq for StringIn<S> {}

impl<S: BlockSource, R: BlockSource> PartialOrd<StringIn<R>> for StringIn<S> {
    fn partial_cmp(&self, other: &StringIn<R>) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<S: BlockSource> Ord for StringIn<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<S: BlockSource> Hash for StringIn<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<S: BlockSource> fmt::Debug for StringIn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<S: BlockSource> fmt::Display for StringIn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
