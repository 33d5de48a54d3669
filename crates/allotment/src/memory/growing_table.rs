//! Tables that grow and never move an entry.
//!
//! ```text
//! buckets[0] ─▶ FIRST entries         indexes 0, 1, ... FIRST - 1
//! buckets[1] ─▶ 2 × FIRST entries     the next 2 × FIRST indexes
//! buckets[2] ─▶ 4 × FIRST entries     ...
//! ```
//!
//! Statistics records, the numbers of slabs, a slab's page descriptors and ranges, and the mappings
//! of files are entries of such tables. What a bucket is, and where its memory comes from, is up to
//! the user of the table.
//!
//! # Invariants
//!
//! 1. `buckets[k]` is empty, or has a bucket of `FIRST << k` entries, which the table owns and
//!    keeps until it is dropped. So a reference to an entry is valid as long as one to the table.
//! 2. Each index is issued once, after its bucket was made. From then on, either it is on `vacant`,
//!    or one thread took it and has not put it back.
//! 3. No thread waits for another: a loop repeats only because another thread made progress. So a
//!    fork leaves no lock behind. The child loses only the entry that another thread was taking or
//!    putting back.

use core::ops::{Deref, Index};
use core::ptr::NonNull;

use super::index_stack::{IndexStack, Links};
use super::system_array::SystemArray;
use super::table_slot::TableSlot;
use crate::error::{AllocError, ErrorKind};
use crate::sync::{AtomicU32, Ordering};

/// Enough buckets for 2^24 times the entries of the first one.
const BUCKETS: usize = 24;

/// An entry of a [`GrowingTable`].
pub trait TableEntry: 'static {
    /// The entry's link on the stack of vacant entries.
    fn next(&self) -> &AtomicU32;
}

/// A table whose first bucket has `FIRST` entries, and which has at most `LIMIT` entries.
#[derive(Debug)]
pub struct GrowingTable<B, const FIRST: u32, const LIMIT: u32 = { u32::MAX }> {
    buckets: [TableSlot<B>; BUCKETS],
    issued: AtomicU32,
    /// The entries that were issued and have no owner.
    pub vacant: IndexStack,
}

impl<B, const FIRST: u32, const LIMIT: u32> GrowingTable<B, FIRST, LIMIT> {
    /// A table without entries.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { TableSlot::empty() }; BUCKETS],
            issued: AtomicU32::new(0),
            vacant: IndexStack::new(),
        }
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            buckets: core::array::from_fn(|_| TableSlot::empty()),
            issued: AtomicU32::new(0),
            vacant: IndexStack::new(),
        }
    }

    /// The bucket of an index, and the position in that bucket.
    #[must_use]
    pub const fn position_of(index: u32) -> (usize, usize) {
        let bucket = (index / FIRST + 1).ilog2();
        (bucket as usize, (index - Self::first_index(bucket)) as usize)
    }

    const fn first_index(bucket: u32) -> u32 {
        FIRST * ((1 << bucket) - 1)
    }

    /// How many entries were issued.
    pub fn issued(&self) -> u32 {
        // Acquire pairs with the Release in `issue`: the buckets of these entries were made.
        self.issued.load(Ordering::Acquire)
    }
}

impl<T, B, const FIRST: u32, const LIMIT: u32> GrowingTable<B, FIRST, LIMIT>
where
    T: TableEntry,
    B: Deref<Target = [T]> + Send + Sync,
{
    /// A bucket, if it was made.
    pub fn bucket(&self, bucket: usize) -> Option<&B> {
        let bucket = self.buckets.get(bucket)?.get();
        // SAFETY: null, or a bucket that stays until the table is dropped (invariant 1).
        unsafe { bucket.as_ref() }
    }

    /// All buckets that were made.
    pub fn buckets(&self) -> impl Iterator<Item = &B> {
        (0..BUCKETS).map_while(|bucket| self.bucket(bucket))
    }

    /// The entry of an index, if its bucket was made.
    pub fn get(&self, index: u32) -> Option<&T> {
        let (bucket, position) = Self::position_of(index);
        self.bucket(bucket)?.get(position)
    }

    /// All entries that were issued, with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        // `fork` copies the pages of memory one after the other. So a child may have the count, and
        // not the bucket that another thread of its parent has just made.
        (0..self.issued()).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// Takes a vacant entry, or else a new one. Returns its index. `make` makes a bucket from its
    /// first index and its number of entries. If another thread has made the bucket first, this one
    /// is dropped, and its number of entries passed to `unused`.
    ///
    /// # Errors
    /// If `make` fails, or the table is full.
    pub fn take(
        &self,
        make: impl Fn(u32, usize) -> Result<B, AllocError>,
        unused: impl Fn(usize),
    ) -> Result<u32, AllocError> {
        match self.vacant.pop(self) {
            Some(index) => Ok(index),
            None => self.issue(make, unused),
        }
    }

    /// As [`take`](Self::take), without the vacant entries.
    #[cold]
    pub fn issue(
        &self,
        make: impl Fn(u32, usize) -> Result<B, AllocError>,
        unused: impl Fn(usize),
    ) -> Result<u32, AllocError> {
        let mut index = self.issued();
        loop {
            let (bucket, _) = Self::position_of(index);
            if index >= LIMIT || bucket >= BUCKETS {
                return Err(AllocError::new(ErrorKind::LimitReached, size_of::<T>()));
            }
            if self.bucket(bucket).is_none() {
                self.make_bucket(bucket, &make, &unused)?;
            }
            // Release pairs with the Acquire in `issued`. Acquire for the buckets that other
            // threads made before.
            match self.issued.compare_exchange_weak(
                index,
                index + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(index),
                Err(now) => index = now,
            }
        }
    }

    fn make_bucket(
        &self,
        bucket: usize,
        make: impl Fn(u32, usize) -> Result<B, AllocError>,
        unused: impl Fn(usize),
    ) -> Result<(), AllocError> {
        let (first, len) = (Self::first_index(bucket as u32), (FIRST as usize) << bucket);
        let made = SystemArray::try_new(1, |_| make(first, len))?;
        let start = made.as_ptr();
        if self.buckets[bucket].install(made) != start {
            unused(len);
        }
        Ok(())
    }

    /// Puts an entry back that the caller took. It may be taken again.
    pub fn put_back(&self, index: u32) {
        self.vacant.push(self, index);
    }
}

impl<T, B, const FIRST: u32, const LIMIT: u32> Index<u32> for GrowingTable<B, FIRST, LIMIT>
where
    T: TableEntry,
    B: Deref<Target = [T]> + Send + Sync,
{
    type Output = T;

    /// The entry of an index that was issued.
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("the bucket of an issued entry was made")
    }
}

impl<T, B, const FIRST: u32, const LIMIT: u32> Links for GrowingTable<B, FIRST, LIMIT>
where
    T: TableEntry,
    B: Deref<Target = [T]> + Send + Sync,
{
    fn next(&self, index: u32) -> &AtomicU32 {
        self[index].next()
    }
}

impl<B, const FIRST: u32, const LIMIT: u32> Drop for GrowingTable<B, FIRST, LIMIT> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            if let Some(bucket) = NonNull::new(bucket.get()) {
                // SAFETY: `make_bucket` made it as one value, and gave it to the table (invariant
                // 1).
                drop(unsafe { SystemArray::adopt(bucket, 1) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Entry {
        next: AtomicU32,
        users: AtomicU32,
    }

    impl TableEntry for Entry {
        fn next(&self) -> &AtomicU32 {
            &self.next
        }
    }

    fn entries(_: u32, len: usize) -> Result<SystemArray<Entry>, AllocError> {
        SystemArray::new(len, |_| Entry::default())
    }

    #[test]
    fn every_index_has_its_own_bucket_and_position() {
        type Table = GrowingTable<SystemArray<Entry>, 8>;
        let mut expected = Vec::new();
        for bucket in 0..5 {
            expected.extend((0..8 << bucket).map(|position| (bucket, position)));
        }
        assert!(
            (0..expected.len()).all(|index| Table::position_of(index as u32) == expected[index])
        );
    }

    #[test]
    fn a_table_that_is_full_refuses_until_an_entry_is_put_back() {
        let table = GrowingTable::<_, 2, 5>::new();
        let take = || table.take(entries, |_| ());
        assert!((0..5).all(|index| take() == Ok(index)));
        assert_eq!(take().unwrap_err().kind(), ErrorKind::LimitReached);
        table.put_back(3);
        assert_eq!((take(), table.issued(), table.buckets().count()), (Ok(3), 5, 2));
    }

    #[test]
    fn a_bucket_that_is_refused_changes_nothing() {
        let table = GrowingTable::<SystemArray<Entry>, 1>::new();
        let refused = AllocError::new(ErrorKind::SourceRefused, 1);
        assert_eq!(table.take(|_, _| Err(refused), |_| ()), Err(refused));
        assert_eq!((table.issued(), table.buckets().count()), (0, 0));
    }

    #[test]
    fn an_entry_has_one_owner_and_a_bucket_is_made_once() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 2000) };
        let table = GrowingTable::<_, 1>::new();
        let (made, unused) = (AtomicU32::new(0), AtomicU32::new(0));
        let make = |first, len| {
            made.fetch_add(1, Ordering::Relaxed);
            entries(first, len)
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for round in 0..rounds {
                        let mut taken = [0; 5];
                        for index in &mut taken[..1 + round % 5] {
                            *index = table
                                .take(make, |_| _ = unused.fetch_add(1, Ordering::Relaxed))
                                .unwrap();
                            assert_eq!(table[*index].users.fetch_add(1, Ordering::Relaxed), 0);
                        }
                        for index in &taken[..1 + round % 5] {
                            table[*index].users.store(0, Ordering::Relaxed);
                            table.put_back(*index);
                        }
                    }
                });
            }
        });
        assert!(table.issued() <= threads * 5 && table.iter().count() == table.issued() as usize);
        let kept = made.into_inner() - unused.into_inner();
        assert_eq!(kept as usize, table.buckets().count());
    }
}
