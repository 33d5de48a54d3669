//! A hash table on memory from the kernel, for the numbers of nodes and kinds.
//!
//! A table can have millions of slots, and a program's next stack is mostly made of frames that were numbered at the same time.
//! So a key is looked for near a place that its parent's number says, where its neighbours in time are, and only where that
//! is full by its hash: a walk through a large table then touches few lines of memory instead of one for each frame.

use crate::sys;

/// What a table can be asked for.
pub trait Key: Copy + PartialEq {
    /// A number that differs for different keys, mostly.
    fn hash(self) -> u64;
    /// A number that is close for keys that are asked for one behind the other.
    fn near(self) -> usize;
}

/// Slots that are looked at where keys are near each other.
const NEAR: usize = 4;

/// Numbers for keys in the order in which they came.
///
/// Invariants: `slots` are `capacity` slots of zeroed memory from [`sys::map`], or there are none; `capacity` is a power
/// of two, and at most half of the slots are taken, whose number is not zero.
#[derive(Debug)]
pub struct Table<K> {
    slots: *mut Slot<K>,
    capacity: usize,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot<K> {
    key: K,
    /// One more than the number; 0 for none.
    number: u32,
}

const FIRST_CAPACITY: usize = 1024;

impl<K: Key> Table<K> {
    /// An empty table. Zeroed memory is one as well.
    pub const fn new() -> Self {
        Self { slots: core::ptr::null_mut(), capacity: 0, len: 0 }
    }

    /// How many keys it has.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot that has the key, or the one where it would be.
    ///
    /// # Safety
    ///
    /// There are slots.
    #[inline]
    unsafe fn find(slots: *mut Slot<K>, capacity: usize, key: K) -> *mut Slot<K> {
        let is_it = |at: usize| {
            // SAFETY: the index is below the capacity.
            unsafe {
                let slot = slots.add(at & (capacity - 1));
                ((*slot).number == 0 || (*slot).key == key).then_some(slot)
            }
        };
        // A slot that was taken stays so, and a key lies in the first that was free when it came.
        let near = key.near();
        for i in 0..NEAR {
            if let Some(slot) = is_it(near.wrapping_add(i)) {
                return slot;
            }
        }
        let mut at = key.hash() as usize;
        loop {
            // A free slot ends the search.
            if let Some(slot) = is_it(at) {
                return slot;
            }
            at = at.wrapping_add(1);
        }
    }

    /// The number of a key, if it has one.
    #[inline]
    pub fn get(&self, key: K) -> Option<u32> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: there are slots.
        let number = unsafe { (*Self::find(self.slots, self.capacity, key)).number };
        number.checked_sub(1)
    }

    /// Gives a key that has none the next number. `None`: there is no memory.
    pub fn add(&mut self, key: K) -> Option<u32> {
        if self.len as usize >= self.capacity / 2 {
            self.grow()?;
        }
        self.len += 1;
        // SAFETY: there are slots now, and the found one is free.
        unsafe { *Self::find(self.slots, self.capacity, key) = Slot { key, number: self.len } };
        Some(self.len - 1)
    }

    fn grow(&mut self) -> Option<()> {
        let capacity = (self.capacity * 2).max(FIRST_CAPACITY);
        let slots = sys::map(capacity * size_of::<Slot<K>>()).ok()?.cast::<Slot<K>>();
        for i in 0..self.capacity {
            // SAFETY: both are slots of their tables, and the new one has room for all.
            unsafe {
                let slot = self.slots.add(i).read();
                if slot.number != 0 {
                    *Self::find(slots, capacity, slot.key) = slot;
                }
            }
        }
        let len = self.len;
        self.clear();
        *self = Self { slots, capacity, len };
        Some(())
    }

    /// Forgets all keys, and gives the memory back.
    pub fn clear(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the memory was mapped for the slots.
            unsafe { sys::unmap(self.slots.cast(), self.capacity * size_of::<Slot<K>>()) };
        }
        *self = Self::new();
    }
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Spreads a number's bits.
#[inline]
pub fn mix(number: u64) -> u64 {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Key for u64 {
        fn hash(self) -> u64 {
            // Many keys with one hash, to meet collisions.
            mix(self / 3)
        }

        fn near(self) -> usize {
            (self / 11) as usize
        }
    }

    #[test]
    fn keys_keep_the_numbers_in_which_they_came() {
        let mut table = Table::<u64>::new();
        assert_eq!(table.get(7), None);
        for i in 0..10_000_u64 {
            assert_eq!(table.get(i * 7), None);
            assert_eq!(table.add(i * 7), Some(i as u32));
        }
        for i in 0..10_000_u64 {
            assert_eq!(table.get(i * 7), Some(i as u32));
            assert_eq!(table.get(i * 7 + 1), None);
        }
        assert_eq!(table.len(), 10_000);
        table.clear();
        assert!(table.is_empty());
        assert_eq!(table.get(7), None);
        assert_eq!(table.add(7), Some(0));
    }
}
