//! serde's traits for vectors, strings and boxes (feature `serde`).
//!
//! `Deserialize` gets no argument, so only a collection with a default memory, the current pool,
//! can implement it. For other memory there are [`StringSeed`] and [`VecSeed`], which carry it.
//!
//! A refused allocation is an error of the deserializer. A length that the input claims reserves at
//! most 1 MiB before its values arrive.
#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::block_source::BlockSource;
use super::boxed::{BoxIn, BoxMemory};
use super::string::StringIn;
use super::vec::VecIn;
use crate::memory::layout::MAX_GROWTH;

// ---- serialize ----

impl<T: Serialize, S: BlockSource> Serialize for VecIn<T, S> {
    /// Serializes the values as a sequence.
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<S: BlockSource> Serialize for StringIn<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.as_str().serialize(serializer)
    }
}

impl<T: ?Sized + Serialize, M: BoxMemory> Serialize for BoxIn<T, M> {
    /// Serializes the value.
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (**self).serialize(serializer)
    }
}

// ---- deserialize ----

/// A seed that deserializes a string into the memory that it holds, such as an
/// [`Arena`](crate::Arena). For a `&mut str` in an arena, call `into_str` on the result.
///
/// ```
/// use allotment::Arena;
/// use allotment::collections::StringSeed;
/// use serde::de::DeserializeSeed;
///
/// let arena = Arena::new();
/// let mut json = serde_json::Deserializer::from_str(r#""one\ttwo""#);
/// let text: &str = StringSeed::new_in(&arena).deserialize(&mut json)?.into_str();
/// assert_eq!(text, "one\ttwo");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StringSeed<S> {
    source: S,
}

impl<S: BlockSource> StringSeed<S> {
    /// A seed for strings in this memory.
    #[must_use]
    pub const fn new_in(source: S) -> Self {
        Self { source }
    }
}

impl<'de, S: BlockSource> DeserializeSeed<'de> for StringSeed<S> {
    type Value = StringIn<S>;

    /// # Errors
    /// Those of the deserializer, and one if the memory is refused.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<StringIn<S>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<S: BlockSource> Visitor<'_> for StringSeed<S> {
    type Value = StringIn<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StringIn<S>, E> {
        StringIn::try_from_str_in(text, self.source).map_err(E::custom)
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<StringIn<S>, E> {
        match core::str::from_utf8(bytes) {
            Ok(text) => self.visit_str(text),
            Err(_) => Err(E::invalid_value(de::Unexpected::Bytes(bytes), &self)),
        }
    }
}

/// A seed that deserializes a vector into the memory that it holds, such as an
/// [`Arena`](crate::Arena). Each value comes from another seed, so vectors and strings nest. The seed of a type that
/// implements `Deserialize` is `PhantomData`.
///
/// ```
/// use std::marker::PhantomData;
///
/// use allotment::collections::{StringSeed, VecSeed};
/// use allotment::{Arena, ArenaString, ArenaVec};
/// use serde::de::DeserializeSeed;
///
/// let arena = Arena::new();
/// let mut json = serde_json::Deserializer::from_str("[1, 2, 3]");
/// let numbers: ArenaVec<'_, u32> =
///     VecSeed::new_in(PhantomData, &arena).deserialize(&mut json)?;
/// assert_eq!(numbers, [1, 2, 3]);
///
/// let mut json = serde_json::Deserializer::from_str(r#"["one", "two"]"#);
/// let words: ArenaVec<'_, ArenaString<'_>> =
///     VecSeed::new_in(StringSeed::new_in(&arena), &arena).deserialize(&mut json)?;
/// assert_eq!(words, ["one", "two"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VecSeed<E, S> {
    value: E,
    source: S,
}

impl<E, S: BlockSource> VecSeed<E, S> {
    /// A seed for vectors in this memory, whose values come from the seed `value`.
    #[must_use]
    pub const fn new_in(value: E, source: S) -> Self {
        Self { value, source }
    }
}

impl<'de, E: DeserializeSeed<'de> + Clone, S: BlockSource> DeserializeSeed<'de> for VecSeed<E, S> {
    type Value = VecIn<E::Value, S>;

    /// # Errors
    /// Those of the deserializer and of the values, and one if the memory is refused.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, E: DeserializeSeed<'de> + Clone, S: BlockSource> Visitor<'de> for VecSeed<E, S> {
    type Value = VecIn<E::Value, S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let most = MAX_GROWTH / size_of::<E::Value>().max(1);
        let hint = values.size_hint().unwrap_or(0).min(most);
        // The hint may be wrong, so its memory is optional.
        let mut vec = VecIn::try_with_capacity_in(hint, self.source)
            .unwrap_or_else(|_| VecIn::new_in(self.source));
        while let Some(value) = values.next_element_seed(self.value.clone())? {
            vec.try_push(value).map_err(de::Error::custom)?;
        }
        Ok(vec)
    }
}

impl<'de, T: Deserialize<'de>, S: BlockSource + Default> Deserialize<'de> for VecIn<T, S> {
    /// Deserializes into the current pool.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        VecSeed::new_in(PhantomData, S::default()).deserialize(deserializer)
    }
}

impl<'de, S: BlockSource + Default> Deserialize<'de> for StringIn<S> {
    /// Deserializes into the current pool.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StringSeed::new_in(S::default()).deserialize(deserializer)
    }
}
