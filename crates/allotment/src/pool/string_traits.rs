//! The standard traits of `PoolString`.
#![forbid(unsafe_code)]

use core::borrow::Borrow;
use core::convert::Infallible;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::AddAssign;
use core::str::FromStr;

use super::boxed::PoolBox;
use super::string::PoolString;

impl From<&str> for PoolString {
    fn from(text: &str) -> Self {
        let mut string = Self::with_capacity(text.len());
        string.push_str(text);
        string
    }
}

impl From<char> for PoolString {
    fn from(character: char) -> Self {
        Self::from(&*character.encode_utf8(&mut [0; 4]))
    }
}

impl From<&str> for PoolBox<str> {
    fn from(text: &str) -> Self {
        PoolString::from(text).into_boxed_str()
    }
}

impl From<PoolString> for PoolBox<str> {
    fn from(string: PoolString) -> Self {
        string.into_boxed_str()
    }
}

impl Clone for PoolBox<str> {
    /// Clones the string into the current pool.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl FromStr for PoolString {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::from(text))
    }
}

macro_rules! extends {
    ($([$($lifetime:lifetime)?] $item:ty, $push:ident;)*) => {$(
        impl$(<$lifetime>)? Extend<$item> for PoolString {
            fn extend<I: IntoIterator<Item = $item>>(&mut self, items: I) {
                items.into_iter().for_each(|item| self.$push(item));
            }
        }

        impl$(<$lifetime>)? FromIterator<$item> for PoolString {
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
    [] char, push;
    ['a] &'a str, push_str;
}

impl AddAssign<&str> for PoolString {
    fn add_assign(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl AsRef<str> for PoolString {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for PoolString {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<str> for PoolString {
    fn borrow(&self) -> &str {
        self
    }
}

impl Hash for PoolString {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

macro_rules! equals {
    ($($left:ty, $right:ty;)*) => {$(
        impl PartialEq<$right> for $left {
            fn eq(&self, other: &$right) -> bool {
                self[..] == other[..]
            }
        }
    )*};
}
equals! {
    PoolString, str;
    PoolString, &str;
    PoolString, String;
    str, PoolString;
    &str, PoolString;
    String, PoolString;
}

impl fmt::Debug for PoolString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for PoolString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
