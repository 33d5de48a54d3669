//! What the free list's tests share: stamped objects, exact sums.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::Arc;

use allotment::free_list::FreeListBuilder;
use allotment::{Budget, FreeList, Malloc, RawFreeList, Statistics};

use super::object::{Object, Random, assert_sums, layout};
use super::sources::{Recorder, Refuse};

/// Whether every list is checked, because a memory tool is present. Such a list releases no chunk
/// while an object is live.
pub fn under_a_tool() -> bool {
    std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_some()
}

/// Whether every object of a list that is made in this process is a block of malloc.
pub fn passed_through() -> bool {
    std::env::var_os("ALLOTMENT_PASSTHROUGH").is_some()
}

/// Asserts that a list has `live` live objects, and that its figures are exact.
pub fn assert_exact(list: &RawFreeList, live: usize, budget: Option<&Budget>) -> Statistics {
    let statistics = list.statistics();
    assert_sums(&statistics);
    assert_eq!(list.live(), live);
    assert_eq!(statistics.live_objects, live as u64, "{statistics:?}");
    assert_eq!(statistics.live_bytes, (live * list.layout().size()) as u64, "{statistics:?}");
    if let Some(budget) = budget {
        assert_eq!(budget.used() as u64, statistics.held_bytes, "the budget is exact");
        assert!(budget.used() <= budget.limit());
    }
    statistics
}

/// Asserts that nothing is live, and that after a trim nothing is held.
pub fn assert_empties(list: &RawFreeList) {
    let before = assert_exact(list, 0, None);
    let given = list.trim();
    let after = assert_exact(list, 0, None);
    assert_eq!((after.chunks, after.held_bytes), (0, 0), "{after:?}");
    assert_eq!(given as u64, before.held_bytes, "what went is what was held");
}

/// Allocates and stamps, numbered from 0.
pub fn stamped(list: &RawFreeList, count: usize) -> Vec<Object> {
    (0..count as u64).map(|number| Object::stamp(list.alloc(), list.layout(), number)).collect()
}

/// Allocates a run and stamps its objects, in the order of their addresses.
pub fn stamped_run(list: &RawFreeList, count: usize) -> Vec<Object> {
    let first = list.alloc_run(count);
    objects_of(list, first, count)
        .zip(0..)
        .map(|(object, number)| stamp(list, object, number))
        .collect()
}

fn stamp(list: &RawFreeList, object: NonNull<u8>, number: u64) -> Object {
    Object::stamp(object, list.layout(), number)
}

/// The objects of a run.
pub fn objects_of(
    list: &RawFreeList,
    first: NonNull<u8>,
    count: usize,
) -> impl Iterator<Item = NonNull<u8>> {
    let stride = list.stride();
    // SAFETY: the run has `count` objects.
    (0..count).map(move |index| unsafe { first.add(index * stride) })
}

/// Frees an object and checks it.
pub fn free(list: &RawFreeList, object: Object) {
    // SAFETY: the object is live, from this list, and ended.
    unsafe { list.free(object.end()) }
}

pub fn free_all(list: &RawFreeList, objects: impl IntoIterator<Item = Object>) {
    objects.into_iter().for_each(|object| free(list, object));
}

pub fn address(object: &Object) -> usize {
    object.start.addr().get()
}

/// The objects of each block that the source has lent, by the block's address.
pub fn by_block(objects: Vec<Object>, source: &Recorder) -> BTreeMap<usize, Vec<Object>> {
    let mut blocks = BTreeMap::<_, Vec<_>>::new();
    for object in objects {
        let block = source.block_of(address(&object)).expect("in a block of the source");
        blocks.entry(block).or_default().push(object);
    }
    blocks
}

/// A list of objects of 64 bytes, and the source of its chunks, which records what it has lent.
pub fn recorded() -> (Arc<Recorder>, FreeListBuilder<RawFreeList>) {
    let source = Recorder::new(Malloc, Refuse::None);
    (source.clone(), RawFreeList::builder(layout(64, 8)).source(source))
}

/// Whether a test of what an ordinary list alone does is left out.
pub fn skipped() -> bool {
    let skipped = under_a_tool();
    if skipped {
        println!(
            "skipped under a memory tool: a checked list keeps its chunks while an object is live"
        );
    }
    skipped
}

/// The live objects of a list of values, whose figures are exact.
pub fn live<T>(list: &FreeList<T>) -> usize {
    let live = list.raw().live();
    assert_exact(list.raw(), live, None);
    live
}
