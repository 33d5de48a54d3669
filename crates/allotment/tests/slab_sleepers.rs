//! What a thread that makes no more calls can keep of a slab, in the worst case.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex, RwLock, mpsc};

use allotment::slab::{Lifetime, SlabBuilder};
use allotment::{Budget, RawSlab, Release, Slab, SlabBox};
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

/// The slabs of the tests in which slabs end.
type Small = Slab<[u64; 8]>;

fn slabs(budget: &Budget, count: usize) -> Vec<Small> {
    (0..count).map(|_| Slab::builder().budget(budget).build()).collect()
}

/// Four threads do `work` with each of `count` slabs, which share a budget, and sleep. Then `end`
/// gets the budget and the slabs. The threads do `after` when they wake, and end.
fn while_threads_sleep(
    count: usize,
    work: impl Fn(&Small) + Sync,
    end: impl FnOnce(&Budget, &mut Vec<Small>),
    after: impl Fn() + Sync,
) -> Budget {
    const THREADS: usize = 4;
    let budget = Budget::new(1 << 30);
    let slabs = RwLock::new(slabs(&budget, count));
    let (worked, slept) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        let thread = || {
            slabs.read().unwrap().iter().for_each(&work);
            worked.wait();
            slept.wait();
            after();
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
        worked.wait();
        end(&budget, &mut slabs.write().unwrap());
        slept.wait();
        // Waits for the ends of the threads, which the scope does not.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    budget
}

fn use_slab(slab: &Small) {
    let objects: Vec<_> = (0..100).map(|index| slab.alloc([index; 8])).collect();
    assert!(objects.iter().enumerate().all(|(index, object)| object[7] == index as u64));
    drop(objects);
    drop(slab.alloc_for(Lifetime::Long, [0; 8]));
}

/// Whether the kernel runs fences on all threads of a process, which taking caches over needs.
fn has_process_fences() -> bool {
    // SAFETY: a query, which has no pointers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0) };
    let allowed = commands > 0 && commands & 8 != 0;
    if !allowed {
        println!("skipped: this kernel has no fences for a process");
    }
    allowed
}

#[test]
fn slabs_that_end_leave_nothing_with_threads_that_sleep() {
    if !has_process_fences() {
        return;
    }
    let end = |budget: &Budget, slabs: &mut Vec<Small>| {
        assert!(budget.used() > 1 << 20);
        slabs.clear();
        assert_eq!(budget.used(), 0, "all came back while the threads slept");
    };
    while_threads_sleep(300, use_slab, end, || ());
}

#[test]
fn threads_that_wake_use_the_slabs_that_were_made_meanwhile() {
    let made = RwLock::new(Vec::new());
    let end = |budget: &Budget, ended: &mut Vec<Small>| {
        ended.clear();
        *made.write().unwrap() = slabs(budget, 300);
    };
    let after = || made.read().unwrap().iter().for_each(use_slab);
    let budget = while_threads_sleep(300, use_slab, end, after);
    made.write().unwrap().clear();
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_slab_that_ends_before_its_objects_goes_with_the_threads_that_used_it() {
    let objects = Mutex::new(Vec::new());
    let work = |slab: &Small| {
        use_slab(slab);
        objects.lock().unwrap().extend((0..3).map(|index| slab.alloc([index; 8])));
    };
    let end = |budget: &Budget, slabs: &mut Vec<Small>| {
        slabs.clear();
        assert!(budget.used() > 0, "objects are left");
    };
    let after = || {
        while let Some(object) = { objects.lock().unwrap().pop() } {
            assert!(object[0] < 3);
        }
    };
    let budget = while_threads_sleep(50, work, end, after);
    assert_eq!(budget.used(), 0);
}

#[test]
fn the_last_objects_are_freed_while_their_slab_ends() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 3_000;
    let budget = Budget::new(1 << 30);
    let (start, ended) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let objects: [Mutex<Vec<SlabBox<[u64; 8]>>>; THREADS] = Default::default();
    std::thread::scope(|scope| {
        let (start, ended) = (&start, &ended);
        let threads = objects.each_ref().map(|objects| {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    start.wait();
                    let mine = std::mem::take(&mut *objects.lock().unwrap());
                    for (index, object) in mine.into_iter().enumerate() {
                        assert_eq!(object[0], index as u64);
                    }
                    ended.wait();
                }
            })
        });
        for round in 0..ROUNDS {
            let slab = slabs(&budget, 1).pop().unwrap();
            for objects in &objects {
                let made = (0..=round % 70).map(|index| slab.alloc([index; 8]));
                *objects.lock().unwrap() = made.collect();
            }
            start.wait();
            drop(slab);
            ended.wait();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(budget.used(), 0);
}
