//! What the slab's tests share: exact sums, and slabs of words.

use core::alloc::Layout;
use std::collections::BTreeMap;

use allotment::slab::SlabBuilder;
use allotment::{Budget, RawSlab, Statistics};

pub use super::object::{Object, Random, assert_apart, assert_sums, layout};

/// Frees an object and checks it.
pub fn free(slab: &RawSlab, object: Object) {
    // SAFETY: the object is live, from this slab, and ended.
    unsafe { slab.free(object.end()) }
}

/// Asserts the statistics of a slab with this many live objects, while no thread is inside a call.
pub fn assert_exact(slab: &RawSlab, live: usize, budget: Option<&Budget>) -> Statistics {
    let statistics = slab.statistics();
    assert_sums(&statistics);
    assert_eq!(statistics.live_objects, live as u64, "{statistics:?}");
    assert_eq!(statistics.live_bytes, (live * slab.layout().size()) as u64, "{statistics:?}");
    if let Some(budget) = budget {
        assert_eq!(budget.used() as u64, statistics.held_bytes, "the budget is exact");
        assert!(budget.used() <= budget.limit());
    }
    statistics
}

/// Asserts that no object is live, and that after a trim no page is left.
pub fn assert_empties(slab: &RawSlab) -> Statistics {
    assert_exact(slab, 0, None);
    slab.trim();
    let statistics = assert_exact(slab, 0, None);
    assert_eq!(statistics.chunks, 0, "{statistics:?}");
    assert_eq!(statistics.held_bytes, statistics.structure_bytes, "{statistics:?}");
    statistics
}

/// A slab's pages begin at multiples of this.
pub const GRANULE: usize = 64 << 10;
/// An object of 64 bytes.
pub const WORDS: Layout = Layout::new::<[u64; 8]>();

pub fn words() -> SlabBuilder<RawSlab> {
    RawSlab::builder(WORDS)
}

pub fn stamped(slab: &RawSlab, count: usize) -> Vec<Object> {
    (0..count as u64).map(|number| Object::stamp(slab.alloc(), slab.layout(), number)).collect()
}

pub fn free_all(slab: &RawSlab, objects: impl IntoIterator<Item = Object>) {
    objects.into_iter().for_each(|object| free(slab, object));
}

/// Frees all objects in one call, past the caches.
pub fn free_many(slab: &RawSlab, objects: impl IntoIterator<Item = Object>) {
    let slots: Vec<_> = objects.into_iter().map(Object::end).collect();
    // SAFETY: live, from this slab, and ended.
    unsafe { slab.free_many(&slots) };
}

/// The objects of each page, for pages of at most a granule.
pub fn by_page(objects: Vec<Object>) -> BTreeMap<usize, Vec<Object>> {
    let mut pages = BTreeMap::<_, Vec<_>>::new();
    for object in objects {
        pages.entry(object.start.addr().get() / GRANULE).or_default().push(object);
    }
    pages
}
