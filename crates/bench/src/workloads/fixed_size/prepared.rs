//! Arrays that are prepared before the measured part: places for objects, and random orders.
//!
//! # Invariants
//!
//! 1. Every index of an [`Indices`] is below the bound that it was made with.
//! 2. A place is read only after an object was put there. The workloads promise this, in each of
//!    their unsafe blocks.

use crate::peers::FixedSizeLocal;
use crate::workloads::random::Random;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// An array of places for objects.
pub struct ObjectSlots<O>(Box<[MaybeUninit<O>]>);

impl<O: Copy> ObjectSlots<O> {
    /// `length` empty places, with every page written.
    pub fn touched(length: usize) -> Self {
        let mut places = Box::new_uninit_slice(length);
        // Without this, the compiler requests zeroed memory and touches none of it.
        black_box(&mut places);
        places.fill(MaybeUninit::zeroed());
        black_box(&mut places);
        Self(places)
    }

    /// All places.
    #[inline(always)]
    pub fn all(&mut self) -> &mut [MaybeUninit<O>] {
        &mut self.0
    }

    /// The place with this index.
    ///
    /// # Safety
    /// The index comes from an [`Indices`] whose bound is at most the number of places.
    #[inline(always)]
    pub unsafe fn at(&mut self, index: u32) -> &mut MaybeUninit<O> {
        debug_assert!((index as usize) < self.0.len());
        // SAFETY: the caller's promise and invariant 1.
        unsafe { self.0.get_unchecked_mut(index as usize) }
    }
}

/// An empty vector with room for `capacity` values, with every page written.
pub fn touched_vec<T>(capacity: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(capacity);
    // Without this, the compiler omits the writes.
    black_box(&mut values);
    values.spare_capacity_mut().fill_with(MaybeUninit::zeroed);
    black_box(&mut values);
    values
}

/// ObjectSlots in an order that was drawn beforehand.
pub struct Indices(Vec<u32>);

impl Indices {
    /// All numbers below `bound`, each once, in random order.
    pub fn shuffled(bound: usize, random: &mut Random) -> Self {
        let mut indices: Vec<u32> = (0..count(bound)).collect();
        for last in (1..indices.len()).rev() {
            indices.swap(last, random.below(count(last + 1)) as usize);
        }
        Self(indices)
    }

    /// `length` numbers below `bound`, drawn independently.
    pub fn drawn(length: usize, bound: usize, random: &mut Random) -> Self {
        Self((0..length).map(|_| random.below(count(bound))).collect())
    }

    /// `length` of these indices, drawn independently.
    pub fn drawn_from(&self, length: usize, random: &mut Random) -> Self {
        let bound = count(self.0.len());
        Self((0..length).map(|_| self.0[random.below(bound) as usize]).collect())
    }

    /// Keeps the indices before `first` and returns the rest.
    pub fn split_off(&mut self, first: usize) -> Self {
        Self(self.0.split_off(first))
    }

    /// The indices in their order.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

/// Puts an object into each place.
#[inline(never)]
pub fn fill<L: FixedSizeLocal>(local: &L, places: &mut [MaybeUninit<L::Object>]) {
    for (word, place) in (0..).zip(&mut *places) {
        place.write(local.alloc(word));
    }
    black_box(places);
}

/// Frees the objects of the places with these indices, in this order.
///
/// # Safety
/// Each of these places has an object of this allocator, which is not used afterwards. The indices
/// were made for at most as many places.
#[inline(never)]
pub unsafe fn empty<L: FixedSizeLocal>(
    local: &L,
    places: &mut ObjectSlots<L::Object>,
    order: &Indices,
) {
    for index in order.as_slice() {
        // SAFETY: the caller's promise.
        unsafe { local.free(places.at(*index).assume_init()) };
    }
}

/// Replaces the object of each place in turn.
///
/// # Safety
/// Each of these places has an object of this allocator, which is not used afterwards. The indices
/// were made for at most as many places.
#[inline(never)]
pub unsafe fn replace<L: FixedSizeLocal>(
    local: &L,
    places: &mut ObjectSlots<L::Object>,
    order: &Indices,
) {
    for index in order.as_slice() {
        // SAFETY: the caller's promise.
        unsafe {
            let place = places.at(*index);
            local.free(place.assume_init());
            place.write(local.alloc(u64::from(*index)));
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a workload has less than 2^32 objects")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffled_order_has_every_index_once_and_is_the_same_each_time() {
        let order = |stream| Indices::shuffled(1000, &mut Random::stream(stream)).0;
        let mut sorted = order(1);
        assert_ne!(sorted, (0..1000).collect::<Vec<u32>>());
        assert_eq!(sorted, order(1));
        assert_ne!(sorted, order(2));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn what_is_drawn_is_below_the_bound_or_from_the_rest() {
        let mut random = Random::stream(0);
        assert!(Indices::drawn(1000, 10, &mut random).0.iter().all(|index| *index < 10));
        let mut order = Indices::shuffled(100, &mut random);
        let rest = order.split_off(90);
        let drawn = rest.drawn_from(1000, &mut random);
        assert!(rest.0.iter().all(|index| drawn.0.contains(index)));
        assert!(order.0.iter().all(|index| !drawn.0.contains(index)));
    }
}
