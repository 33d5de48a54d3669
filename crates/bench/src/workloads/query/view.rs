//! The virtual chart of one query, in the memory of its task, linked by pointers as in a C program.
//!
//! Invariants:
//!
//! 1. Every `NonNull` in a [`View`], a [`DimensionView`], a [`Group`] or an [`Entry`] came from
//!    `put`, `put_array` or `Text::put` on `View::task`, and is live until `View::free` ends.
//! 2. No Rust reference to any of them is kept across a statement that makes another reference to
//!    the same value.
//! 3. The lists are acyclic: a new value goes to the end of its list, and only `Group::chain` is
//!    relinked, when the buckets are rebuilt.
//! 4. Every value has one owner: the list of dimensions (each with its strings, points and entry),
//!    the list of groups (each with its points), or the map. `View::free` walks each list once and
//!    reads a value's links before it frees the value.
//!
//! Dimensions are freed in the order in which they were made, which is the fastest order for
//! mallocs.

use super::json::{self, Series};
use super::points::{POINTS, Summary, add_points, aggregate};
use super::store;
use crate::peers::Task;
use crate::workloads::task_memory::{Buffer, Text, give_back, give_back_array, put_array};
use std::hash::Hasher;
use std::ptr::NonNull;

type Points = [f64; POINTS];
type Link<V> = Option<NonNull<V>>;

/// One dimension of the virtual chart. 160 bytes.
#[repr(C)]
struct DimensionView {
    next: Link<DimensionView>,
    id: Text,
    name: Text,
    hash: u64,
    points: NonNull<Points>,
    /// Its entry in the map of groups, set when the entry exists.
    entry: Link<Entry>,
    summary: Summary,
    average: f64,
    first: f64,
    last: f64,
    /// The range from the first value to the last.
    change: f64,
    /// The range from the smallest value to the largest.
    range: f64,
    /// The chart of the store that it comes from, and its dimension there.
    chart: u32,
    position: u32,
    values: u64,
    /// The number of missing values.
    missing: u64,
}

const _: () = assert!(size_of::<DimensionView>() == 160);

/// A group's entry for one dimension.
struct Entry {
    next: Link<Entry>,
    dimension: NonNull<DimensionView>,
}

/// The dimensions with one name.
struct Group {
    /// The next group, in the order in which groups were made.
    next: Link<Group>,
    /// The next group in the same bucket.
    chain: Link<Group>,
    /// The name of its first dimension, which owns it.
    name: Text,
    hash: u64,
    first: Link<Entry>,
    last: Link<Entry>,
    members: u64,
    summary: Summary,
    points: NonNull<Points>,
}

/// The map from names to groups: chained buckets, whose number doubles when there are more groups
/// than buckets.
struct GroupMap {
    buckets: NonNull<Link<Group>>,
    /// The number of buckets, a power of two.
    bucket_count: usize,
    first: Link<Group>,
    last: Link<Group>,
    groups: usize,
}

const FIRST_BUCKETS: usize = 16;
const FIRST_REPLY_BYTES: usize = 4096;

/// The virtual chart.
pub struct View<'t, T: Task> {
    task: &'t T,
    first: Link<DimensionView>,
    last: Link<DimensionView>,
    dimensions: u64,
    map: GroupMap,
}

impl<'t, T: Task> View<'t, T> {
    pub fn new(task: &'t T) -> Self {
        let buckets = put_array(task, FIRST_BUCKETS, None);
        let map =
            GroupMap { buckets, bucket_count: FIRST_BUCKETS, first: None, last: None, groups: 0 };
        Self { task, first: None, last: None, dimensions: 0, map }
    }

    /// Adds one dimension of a chart.
    #[inline]
    pub fn add(&mut self, source: &store::Dimension, chart: u32, position: u32) {
        let mut points = [0.0; POINTS];
        let summary = aggregate(&source.values, &mut points);
        let hash = hash(&source.name);
        let name = Text::put(self.task, &source.name);
        let group = self.map.find_or_add(self.task, name, &source.name, hash);
        let first = source.values.first().copied().unwrap_or(f64::NAN);
        let last = source.values.last().copied().unwrap_or(f64::NAN);
        let values = source.values.len() as u64;
        let dimension = self.task.put(DimensionView {
            next: None,
            id: Text::put(self.task, &source.id),
            name,
            hash,
            points: self.task.put(points),
            entry: None,
            summary,
            average: summary.sum / summary.count as f64,
            first,
            last,
            change: last - first,
            range: summary.max - summary.min,
            chart,
            position,
            values,
            missing: values - summary.count,
        });
        let entry = self.task.put(Entry { next: None, dimension });
        // SAFETY: all three are live and distinct (1); no other reference to them exists (2).
        unsafe {
            { dimension }.as_mut().entry = Some(entry);
            match self.last.replace(dimension) {
                Some(mut last) => last.as_mut().next = Some(dimension),
                None => self.first = Some(dimension),
            }
            let group = { group }.as_mut();
            match group.last.replace(entry) {
                Some(mut last) => last.as_mut().next = Some(entry),
                None => group.first = Some(entry),
            }
            group.members += 1;
        }
        self.dimensions += 1;
    }

    /// Sums each group's dimensions.
    pub fn sum_groups(&mut self) {
        // SAFETY: every link is live (1); groups, points and dimensions are different values, and
        // each reference made here ends before the next one to the same value is made (2).
        unsafe {
            let mut next_group = self.map.first;
            while let Some(mut group) = next_group {
                let group = group.as_mut();
                let sums = group.points.as_mut();
                let mut next_entry = group.first;
                while let Some(entry) = next_entry {
                    let entry = entry.as_ref();
                    let dimension = entry.dimension.as_ref();
                    add_points(sums, dimension.points.as_ref());
                    group.summary.merge(dimension.summary);
                    next_entry = entry.next;
                }
                next_group = group.next;
            }
        }
    }

    /// Renders the summed groups as JSON into the task's memory.
    pub fn render(&self, context: &str) -> Buffer<'t, T> {
        let mut reply = Buffer::with_capacity(self.task, FIRST_REPLY_BYTES);
        let mut next = self.map.first;
        let series = std::iter::from_fn(|| {
            // SAFETY: live (1), and nothing changes a group while the view is borrowed (2).
            let group = unsafe { next?.as_ref() };
            next = group.next;
            // SAFETY: as above, for the group's name and points.
            let (name, points) = unsafe { (group.name.as_str(), group.points.as_ref()) };
            Some(Series { name, dimensions: group.members, summary: group.summary, points })
        });
        json::write(&mut reply, context, self.dimensions, series).expect("a buffer takes any text");
        reply
    }

    /// The number of dimensions.
    pub fn dimensions(&self) -> u64 {
        self.dimensions
    }

    /// The number of groups.
    pub fn groups(&self) -> u64 {
        self.map.groups as u64
    }

    /// Frees every object, unless the task frees them all together.
    pub fn free(self) {
        if T::FREED_TOGETHER {
            return;
        }
        // SAFETY: each value has one owner, whose list is walked once, and its links are read
        // before it is given back (4); `self` ends here, so nothing reads them after.
        unsafe {
            let mut next = self.first;
            while let Some(dimension) = next {
                let DimensionView { id, name, points, entry, next: following, .. } =
                    dimension.read();
                next = following;
                name.give_back(self.task);
                id.give_back(self.task);
                give_back(self.task, points);
                give_back(self.task, dimension);
                if let Some(entry) = entry {
                    give_back(self.task, entry);
                }
            }
            let mut next = self.map.first;
            while let Some(group) = next {
                let Group { points, next: following, .. } = group.read();
                next = following;
                give_back(self.task, points);
                give_back(self.task, group);
            }
            give_back_array(self.task, self.map.buckets, self.map.bucket_count);
        }
    }
}

impl GroupMap {
    /// The group with this name. A new group uses `text` as its name.
    #[inline]
    fn find_or_add<T: Task>(
        &mut self,
        task: &T,
        text: Text,
        name: &str,
        hash: u64,
    ) -> NonNull<Group> {
        // SAFETY: the bucket is inside the array (`bucket_count` is a power of two), and every link
        // is live (1); the references end with each turn (2).
        unsafe {
            let mut next = self.bucket(hash).read();
            while let Some(found) = next {
                let group = found.as_ref();
                if group.hash == hash && group.name.as_str() == name {
                    return found;
                }
                next = group.chain;
            }
        }
        self.add(task, text, hash)
    }

    #[cold]
    fn add<T: Task>(&mut self, task: &T, name: Text, hash: u64) -> NonNull<Group> {
        if self.groups == self.bucket_count {
            self.double(task);
        }
        let bucket = self.bucket(hash);
        // SAFETY: the bucket is inside the array, the last group is live (1), and no other
        // reference to either exists (2).
        unsafe {
            let group = task.put(Group {
                next: None,
                chain: bucket.read(),
                name,
                hash,
                first: None,
                last: None,
                members: 0,
                summary: Summary::EMPTY,
                points: task.put([f64::NAN; POINTS]),
            });
            bucket.write(Some(group));
            match self.last.replace(group) {
                Some(mut last) => last.as_mut().next = Some(group),
                None => self.first = Some(group),
            }
            self.groups += 1;
            group
        }
    }

    fn double<T: Task>(&mut self, task: &T) {
        let (old, old_count) = (self.buckets, self.bucket_count);
        self.bucket_count = old_count * 2;
        self.buckets = put_array(task, self.bucket_count, None);
        let mut next = self.first;
        while let Some(mut group) = next {
            // SAFETY: the group is live (1), the bucket inside the new array, and no other
            // reference to either exists (2).
            unsafe {
                let bucket = self.bucket(group.as_ref().hash);
                group.as_mut().chain = bucket.replace(Some(group));
                next = group.as_ref().next;
            }
        }
        if !T::FREED_TOGETHER {
            // SAFETY: made by `put_array` with this count; replaced above, so nothing uses it
            // again.
            unsafe { give_back_array(task, old, old_count) };
        }
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> NonNull<Link<Group>> {
        let index = hash as usize & (self.bucket_count - 1);
        // SAFETY: `index` is below `bucket_count`, the array's length.
        unsafe { self.buckets.add(index) }
    }
}

/// A hash that is the same in every run, unlike the standard library's.
fn hash(name: &str) -> u64 {
    let mut hasher = FoldHasher(0);
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// Eight bytes in each step: xor, multiply, fold.
struct FoldHasher(u64);

impl Hasher for FoldHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.step(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.step(u64::from_le_bytes(last) ^ ((rest.len() as u64) << 56));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl FoldHasher {
    #[inline(always)]
    fn step(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
