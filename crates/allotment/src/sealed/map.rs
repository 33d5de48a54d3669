//! Hash maps and sets in sealed memory: those of hashbrown, which allocate from a [`Sealer`].

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

use super::read_only::ReadOnly;
use super::sealable::Sealable;
use super::sealer::Sealer;

/// A hash map in sealed memory. Create it with `SealMap::with_capacity_in(n, sealer)`, then insert.
///
/// Give the capacity beforehand if it is known: a map that grows leaves its old table behind, as a
/// [`SealVec`](crate::SealVec) does. Don't clone a sealed map: the clone allocates from the same
/// sealer, which refuses with a panic.
///
/// ```
/// use allotment::{SealMap, Sealed};
///
/// let routes = Sealed::<SealMap<'static, &'static str, u32>>::new(|sealer| {
///     let mut routes = SealMap::with_capacity_in(2, sealer);
///     routes.insert(sealer.alloc_str("/"), 1);
///     routes.insert(sealer.alloc_str("/metrics"), 2);
///     routes
/// });
/// assert_eq!(routes.get().get("/metrics"), Some(&2));
/// ```
pub type SealMap<'s, K, V, S = DefaultHashBuilder> = HashMap<K, V, S, Sealer<'s>>;

/// A hash set in sealed memory; see [`SealMap`].
pub type SealSet<'s, T, S = DefaultHashBuilder> = HashSet<T, S, Sealer<'s>>;

// SAFETY: it holds only the seed of a hasher.
unsafe impl ReadOnly for DefaultHashBuilder {}
// SAFETY: its table comes from the sealer and is sealed with it. No method writes through a shared
// reference.
unsafe impl<K: ReadOnly, V: ReadOnly, S: ReadOnly> ReadOnly for HashMap<K, V, S, Sealer<'_>> {}
// SAFETY: as above.
unsafe impl<T: ReadOnly, S: ReadOnly> ReadOnly for HashSet<T, S, Sealer<'_>> {}
// SAFETY: as above.
unsafe impl<T: ReadOnly> ReadOnly for HashTable<T, Sealer<'_>> {}

impl<K: Sealable, V: Sealable, S: ReadOnly + 'static> Sealable
    for HashMap<K, V, S, Sealer<'static>>
{
    type In<'s> = HashMap<K::In<'s>, V::In<'s>, S, Sealer<'s>>;
}

impl<T: Sealable, S: ReadOnly + 'static> Sealable for HashSet<T, S, Sealer<'static>> {
    type In<'s> = HashSet<T::In<'s>, S, Sealer<'s>>;
}

impl<T: Sealable> Sealable for HashTable<T, Sealer<'static>> {
    type In<'s> = HashTable<T::In<'s>, Sealer<'s>>;
}
