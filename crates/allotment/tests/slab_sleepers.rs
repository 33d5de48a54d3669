//! What a thread that makes no more calls can keep of a slab, in the worst case.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::mpsc;

use allotment::slab::{Lifetime, SlabBuilder};
use allotment::{RawSlab, Release};
use support::slab::{self, GRANULE, Object, by_page, free_all, free_many, layout, stamped, words};

/// The most slots that a thread's cache can hold, by the documentation.
fn cached(cached_bytes: usize, size: usize) -> usize {
    (cached_bytes / size).clamp(8, 4096)
}

/// Adds objects until `pages` pages have no free slot, and one has at least an object.
fn fill_pages(slab: &RawSlab, objects: &mut Vec<Object>, pages: usize) {
    let mut seen = BTreeSet::new();
    // One page more than needed: some slots of the last one may be in this thread's cache.
    while seen.len() < pages + 2 {
        let object = Object::stamp(slab.alloc(), slab.layout(), objects.len() as u64);
        seen.insert(object.range().0 / GRANULE);
        objects.push(object);
    }
}

/// A thread takes and frees so much that its cache grows to its maximum. Then it frees one object
/// of each of many full pages and one of a nearly empty page, allocates a long-lived object, and
/// sleeps while all else is freed. Returns the pages that stay: at most one for each entry of the
/// cache, and eighteen more.
fn pages_kept_by_a_sleeper(
    builder: SlabBuilder<RawSlab>,
    size: usize,
    cache: usize,
    pages: usize,
) -> usize {
    let slab = builder.release(Release::AtOnce).build();
    let (to_sleeper, objects_of_sleeper) = mpsc::channel::<Vec<Object>>();
    let (to_us, from_sleeper) = mpsc::channel();
    std::thread::scope(|scope| {
        let slab = &slab;
        let sleeper = scope.spawn(move || {
            let long = slab.alloc_for(Lifetime::Long);
            free_all(slab, stamped(slab, 2 * cache));
            let grown = stamped(slab, 2 * cache);
            to_us.send(grown).unwrap();
            for _ in 0..2 {
                for object in objects_of_sleeper.recv().unwrap() {
                    slab::free(slab, object);
                }
                to_us.send(Vec::new()).unwrap();
            }
            // SAFETY: allocated above, freed once.
            unsafe { slab.free(long) };
            to_us.send(Vec::new()).unwrap();
            // Sleeps until everything was counted.
            objects_of_sleeper.recv().unwrap_err();
        });
        let mut objects = from_sleeper.recv().unwrap();
        fill_pages(slab, &mut objects, pages);
        let mut full: Vec<_> = by_page(objects).into_values().collect();
        full.sort_by_key(|objects| objects.len());
        let mut last = full.pop().expect("there are pages");
        let theirs: Vec<_> = full.iter_mut().take(pages).filter_map(Vec::pop).collect();
        to_sleeper.send(theirs).unwrap();
        from_sleeper.recv().unwrap();
        let one = last.pop();
        free_many(slab, last);
        to_sleeper.send(one.into_iter().collect()).unwrap();
        from_sleeper.recv().unwrap();
        from_sleeper.recv().unwrap();
        full.into_iter().for_each(|page| free_many(slab, page));
        slab.trim();
        let kept = slab::assert_exact(slab, 0, None).chunks as usize;
        assert!(kept <= cache + 18, "{kept} pages for objects of {size} bytes");
        drop(to_sleeper);
        sleeper.join().unwrap();
        slab::assert_empties(slab);
        kept
    })
}

#[test]
fn a_thread_that_sleeps_keeps_no_more_pages_than_documented() {
    for (size, bytes) in
        [(8, 1 << 12), (64, 1 << 15), (100, 1 << 16), (500, 1 << 16), (2000, 1 << 18)]
    {
        let cache = cached(bytes, size);
        let keeps = |pages| {
            let builder =
                RawSlab::builder(layout(size, 4)).max_page_bytes(0).max_cached_bytes(bytes);
            pages_kept_by_a_sleeper(builder, size, cache, pages)
        };
        // Also a word that it took and has not used up.
        let most = cache - 66;
        let worst = keeps(most);
        assert!(worst >= most, "{worst}: the arrangement is as bad as it is meant to be");
        // Fewer than the cache can hold, and more.
        for pages in [1, cache / 2, cache, cache + 1, cache * 2, cache * 3] {
            keeps(pages);
        }
    }
    for size in [9000, 100_000, 300_000] {
        for pages in [8, 20, 40] {
            let builder = RawSlab::builder(layout(size, 8));
            pages_kept_by_a_sleeper(builder, size, cached(1 << 18, size), pages);
        }
    }
}

#[test]
fn a_sleeper_that_flushed_keeps_nothing() {
    let slab = words().release(Release::AtOnce).max_page_bytes(0).build();
    let (to_sleeper, from_us) = mpsc::channel::<()>();
    let (to_us, from_sleeper) = mpsc::channel();
    std::thread::scope(|scope| {
        let slab = &slab;
        let sleeper = scope.spawn(move || {
            let objects = stamped(slab, 10_000);
            free_all(slab, objects);
            // SAFETY: allocated here, freed once.
            unsafe { slab.free(slab.alloc_for(Lifetime::Long)) };
            slab.flush();
            to_us.send(()).unwrap();
            from_us.recv().unwrap_err();
        });
        from_sleeper.recv().unwrap();
        let statistics = slab::assert_exact(slab, 0, None);
        assert_eq!(statistics.chunks, 0);
        drop(to_sleeper);
        sleeper.join().unwrap();
    });
}

#[test]
fn a_thread_that_only_frees_and_then_sleeps_keeps_no_more_pages_than_its_first_cache_has_entries() {
    let slab = RawSlab::builder(layout(64, 8)).release(Release::AtOnce).max_page_bytes(0).build();
    let first = cached(256 << 10, 64) / 8;
    let (to_sleeper, objects_of_sleeper) = mpsc::channel::<Vec<Object>>();
    let (to_us, from_sleeper) = mpsc::channel();
    std::thread::scope(|scope| {
        let slab = &slab;
        let sleeper = scope.spawn(move || {
            for object in objects_of_sleeper.recv().unwrap() {
                slab::free(slab, object);
            }
            to_us.send(()).unwrap();
            // Sleeps until everything was counted.
            objects_of_sleeper.recv().unwrap_err();
        });
        // Each time that the cache is full, half goes back. So these fill it six times, and it is
        // not emptied.
        let pages = 7 * first / 2;
        let mut objects = Vec::new();
        fill_pages(slab, &mut objects, pages);
        let mut full: Vec<_> = by_page(objects).into_values().collect();
        full.sort_by_key(|objects| objects.len());
        let theirs: Vec<_> = full.iter_mut().rev().take(pages).filter_map(Vec::pop).collect();
        to_sleeper.send(theirs).unwrap();
        from_sleeper.recv().unwrap();
        full.into_iter().for_each(|page| free_many(slab, page));
        slab.trim();
        let kept = slab::assert_exact(slab, 0, None).chunks as usize;
        assert!(kept <= first + 18, "{kept} pages");
        drop(to_sleeper);
        sleeper.join().unwrap();
        slab::assert_empties(slab);
    });
}
