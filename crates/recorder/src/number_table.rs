//! A hash table on memory from the kernel, which numbers its keys.
//!
//! A table can have millions of slots, and most frames of a program's next stack were numbered at
//! the same time. A key is therefore searched first near a slot that its parent's number
//! determines, where the keys of about the same time are, and by its hash only if those slots are
//! full. A walk through a large table then touches few cache lines instead of one for each frame.

use crate::sys;

/// A key of a [`NumberTable`].
pub trait TableKey: Copy + PartialEq {
    /// A number that usually differs for different keys.
    fn hash(self) -> u64;
    /// A number that is close for keys that are searched one after the other.
    fn locality(self) -> usize;
}

/// Slots that are searched by locality before those by hash.
const LOCAL_SLOTS: usize = 4;

/// Numbers keys in the order of their arrival.
///
/// Invariants: `slots` is `capacity` slots of zeroed memory from [`sys::map`], or null with a
/// capacity of 0. `capacity` is a power of two. At most half of the slots are used; a used slot has
/// a number that is not zero.
#[derive(Debug)]
pub struct NumberTable<K> {
    slots: *mut TableSlot<K>,
    capacity: usize,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct TableSlot<K> {
    key: K,
    /// One more than the key's number; 0 in a free slot.
    number: u32,
}

const FIRST_CAPACITY: usize = 1024;

impl<K: TableKey> NumberTable<K> {
    /// An empty table. Zeroed memory is one as well.
    pub const fn new() -> Self {
        Self { slots: core::ptr::null_mut(), capacity: 0, len: 0 }
    }

    /// The number of keys.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot that has the key, or the free slot that it would get.
    ///
    /// # Safety
    ///
    /// `slots` is the array of a table with this capacity, which is not zero.
    #[inline]
    unsafe fn find(slots: *mut TableSlot<K>, capacity: usize, key: K) -> *mut TableSlot<K> {
        let matching = |index: usize| {
            // SAFETY: the masked index is below the capacity.
            unsafe {
                let slot = slots.add(index & (capacity - 1));
                ((*slot).number == 0 || (*slot).key == key).then_some(slot)
            }
        };
        // A used slot stays used, and a key is in the first slot that was free when it arrived. So
        // a free slot ends the search.
        let first = key.locality();
        for i in 0..LOCAL_SLOTS {
            if let Some(slot) = matching(first.wrapping_add(i)) {
                return slot;
            }
        }
        let mut index = key.hash() as usize;
        loop {
            if let Some(slot) = matching(index) {
                return slot;
            }
            index = index.wrapping_add(1);
        }
    }

    /// The number of a key, if it has one.
    #[inline]
    pub fn get(&self, key: K) -> Option<u32> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: the capacity is not zero.
        let number = unsafe { (*Self::find(self.slots, self.capacity, key)).number };
        number.checked_sub(1)
    }

    /// Numbers a key that has no number yet. Returns `None` if there is no memory.
    pub fn add(&mut self, key: K) -> Option<u32> {
        if self.len as usize >= self.capacity / 2 {
            self.grow()?;
        }
        self.len += 1;
        // SAFETY: there are slots now, and the slot found is free.
        unsafe {
            *Self::find(self.slots, self.capacity, key) = TableSlot { key, number: self.len }
        };
        Some(self.len - 1)
    }

    fn grow(&mut self) -> Option<()> {
        let capacity = (self.capacity * 2).max(FIRST_CAPACITY);
        let slots = sys::map(capacity * size_of::<TableSlot<K>>()).ok()?.cast::<TableSlot<K>>();
        for i in 0..self.capacity {
            // SAFETY: both are slots of their tables, and the new table has enough for all keys.
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

    /// Removes all keys, and returns the memory to the kernel.
    pub fn clear(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the memory was mapped for the slots.
            unsafe { sys::unmap(self.slots.cast(), self.capacity * size_of::<TableSlot<K>>()) };
        }
        *self = Self::new();
    }
}

impl<K: TableKey> Default for NumberTable<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Spreads a number's bits over all bits of the result.
#[inline]
pub fn mix(number: u64) -> u64 {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TableKey for u64 {
        fn hash(self) -> u64 {
            // Three keys share a hash, for collisions.
            mix(self / 3)
        }

        fn locality(self) -> usize {
            (self / 11) as usize
        }
    }

    #[test]
    fn keys_are_numbered_in_the_order_of_their_arrival() {
        let mut table = NumberTable::<u64>::new();
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
