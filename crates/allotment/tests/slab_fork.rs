//! Slabs in a child made by fork, while the parent's other threads were inside them.
//!
//! The slots that the parent's other threads cached, and the pages that they had claimed, are lost
//! to the child. `checked_fork.rs` has what is particular to hardened slabs.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use allotment::slab::Lifetime;
use allotment::source::SharedSource;
use allotment::{AllocError, Budget, ErrorKind, File, Malloc, Mmap, RawSlab, Slab, Source};
use support::fork::{forked, rounds};
use support::setup::file_directory;
use support::slab::{self, Object, Random, WORDS, free_all, stamped, words};

/// Allocates, frees and checks while `continues` returns `true`.
fn churn(slab: &RawSlab, seed: u64, continues: impl Fn() -> bool) {
    let mut random = Random::new(seed);
    let mut objects = Vec::new();
    let mut number = seed << 40;
    while continues() {
        for _ in 0..1 + random.below(100) {
            number += 1;
            let lifetime = if random.one_in(20) { Lifetime::Long } else { Lifetime::Short };
            objects.push(Object::stamp(slab.alloc_for(lifetime), slab.layout(), number));
        }
        while objects.len() > 1500 {
            let index = random.below(objects.len());
            slab::free(slab, objects.swap_remove(index));
        }
        if random.one_in(20) {
            slab.trim();
        }
    }
    free_all(slab, objects);
}

/// Ends the other threads' work when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_forked_child_uses_slabs_while_the_parents_threads_were_inside() {
    a_forked_child_uses_slabs(false);
}

#[test]
fn a_forked_child_uses_hardened_slabs_while_the_parents_threads_were_inside() {
    a_forked_child_uses_slabs(true);
}

fn a_forked_child_uses_slabs(hardened: bool) {
    for source in [SharedSource::from(Mmap::new()), Malloc.into()] {
        let slab = words().source(source).name("inherited").hardened(hardened).build();
        let ours = stamped(&slab, 2000);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Also if the test fails.
            let stops = Stops(&stop);
            let threads: Vec<_> = (1..=3)
                .map(|thread| {
                    let (slab, stop) = (&slab, &stop);
                    scope.spawn(move || churn(slab, thread, || !stop.load(Ordering::Relaxed)))
                })
                .collect();
            for round in 0..rounds(12) {
                let work = || {
                    let left = core::cell::Cell::new(if hardened { 20 } else { 200 });
                    let mut objects = stamped(&slab, 3000);
                    slab::assert_apart(objects.iter().chain(&ours));
                    objects.iter().chain(&ours).for_each(Object::assert_intact);
                    let rest = objects.split_off(1000);
                    free_all(&slab, rest);
                    assert!(slab.statistics().live_objects >= 3000);
                    slab::assert_sums(&slab.statistics());
                    churn(&slab, 100 + round, || left.replace(left.get() - 1) > 0);
                    free_all(&slab, objects);
                    // The child's own threads, which attach to caches that other threads may have
                    // left.
                    std::thread::scope(|scope| {
                        let more = |seed: usize| {
                            let slab = &slab;
                            scope.spawn(move || free_all(slab, stamped(slab, 500 + seed)))
                        };
                        for thread in [more(1), more(2)] {
                            thread.join().unwrap();
                        }
                    });
                    slab.trim();
                    assert!(
                        allotment::report().allocators.iter().any(|one| one.name == "inherited")
                    );
                    // A slab of the child's own.
                    let fresh = words().hardened(hardened).build();
                    free_all(&fresh, stamped(&fresh, 1000));
                    slab::assert_empties(&fresh);
                };
                // SAFETY: slabs, threads and malloc alone.
                assert_eq!(unsafe { forked(work) }, 0, "the child neither hung nor failed");
            }
            drop(stops);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        slab::assert_exact(&slab, ours.len(), None);
        free_all(&slab, ours);
        slab::assert_empties(&slab);
    }
}

#[test]
fn a_child_of_a_quiet_parent_drops_the_slab_and_has_everything_back() {
    let budget = Budget::new(usize::MAX);
    let slab = Slab::<String>::builder().budget(&budget).build();
    let boxes: Vec<_> = (0..3000).map(|number| slab.alloc(number.to_string())).collect();
    drop(slab.alloc("cached".to_owned()));
    let work = || {
        // SAFETY: the child's copies of what the parent keeps; each is dropped once in this
        // process.
        let (slab, boxes) = unsafe { (core::ptr::read(&slab), core::ptr::read(&boxes)) };
        assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == number.to_string()));
        slab.alloc("the child's".to_owned());
        drop(slab);
        drop(boxes);
        assert_eq!(budget.used(), 0);
    };
    // SAFETY: as above.
    assert_eq!(unsafe { forked(work) }, 0);
    assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == number.to_string()));
    drop(boxes);
    slab::assert_exact(slab.raw(), 0, Some(&budget));
    slab::assert_empties(slab.raw());
}

#[test]
fn a_child_gets_no_slot_of_its_parents_file_and_leaves_the_bytes_alone() {
    let file = Arc::new(File::in_directory(&file_directory()).unwrap());
    let slab = words().source(file.clone()).build();
    let mut objects = stamped(&slab, 3000);
    // Cached slots, and pages with free slots.
    let gone = objects.split_off(2000);
    free_all(&slab, gone);
    let handle = slab.handle();
    let used = file.used_bytes();
    let work = || {
        for _ in 0..1000 {
            assert_eq!(slab.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
            assert_eq!(handle.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
            let long = slab.try_alloc_for(Lifetime::Long);
            assert_eq!(long.unwrap_err().kind(), ErrorKind::ForkedChild);
        }
        let mut slots = [core::mem::MaybeUninit::uninit(); 10];
        assert_eq!(slab.try_alloc_many(&mut slots).unwrap_err().kind(), ErrorKind::ForkedChild);
        assert_eq!(slab.try_reserve(100).unwrap_err().kind(), ErrorKind::ForkedChild);
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| slab.try_alloc().unwrap_err().kind()).join().unwrap();
            assert_eq!(refused, ErrorKind::ForkedChild);
        });
        slab.flush();
        slab.trim();
        slab::assert_sums(&slab.statistics());
        // SAFETY: the child's copy, dropped once in this process; its handle is not used again.
        drop(unsafe { core::ptr::read(&slab) });
        // A slab in a file of its own.
        let own = words().source(File::in_directory(&file_directory()).unwrap()).build();
        free_all(&own, stamped(&own, 1000));
        slab::assert_empties(&own);
    };
    // SAFETY: as above.
    assert_eq!(unsafe { forked(work) }, 0);
    objects.iter().for_each(Object::assert_intact);
    slab::assert_exact(&slab, objects.len(), None);
    assert_eq!(file.used_bytes(), used);
    let more = stamped(&slab, 2000);
    slab::assert_apart(objects.iter().chain(&more));
    drop(handle);
    free_all(&slab, objects);
    free_all(&slab, more);
    slab::assert_empties(&slab);
}

#[test]
fn a_child_frees_what_is_in_its_parents_file_without_effect_there() {
    let file = Arc::new(File::in_directory(&file_directory()).unwrap());
    let slab = words().source(file.clone()).build();
    let objects = stamped(&slab, 3000);
    let work = || {
        for object in &objects {
            // SAFETY: the child's copy of the object, freed once in this process. Its bytes are not
            // there.
            unsafe { slab.free(object.start) };
        }
        slab.trim();
    };
    // SAFETY: as above.
    assert_eq!(unsafe { forked(work) }, 0);
    objects.iter().for_each(Object::assert_intact);
    slab::assert_exact(&slab, 3000, None);
    free_all(&slab, objects);
    slab::assert_empties(&slab);
}

#[test]
fn a_childs_touch_of_an_object_in_its_parents_file_faults() {
    let slab = words().source(File::in_directory(&file_directory()).unwrap()).build();
    let object = Object::stamp(slab.alloc(), WORDS, 1);
    let start = object.start;
    // SAFETY: none: this is the misuse, in the child.
    let status = unsafe { forked(|| start.write_volatile(0)) };
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
    slab::free(&slab, object);
}

#[test]
fn a_child_that_drops_its_slab_keeps_its_objects_while_a_parents_thread_was_flushing() {
    let slab = words().max_page_bytes(0).build();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            let mut random = Random::new(1);
            while !stop.load(Ordering::Relaxed) {
                let mut objects = stamped(&slab, 4000);
                random.shuffle(&mut objects);
                free_all(&slab, objects);
                slab.flush();
            }
        });
        for _ in 0..rounds(100) {
            let work = || {
                // Slots that were free at the fork, as long as no page has to be made.
                let pages = slab.statistics().chunks;
                let mut objects = Vec::new();
                while slab.statistics().chunks == pages && objects.len() < 4000 {
                    objects.extend(stamped(&slab, 20));
                }
                // SAFETY: the child's own copy, which is not used any more.
                drop(unsafe { core::ptr::read(&slab) });
                objects.iter().for_each(Object::assert_intact);
            };
            // SAFETY: the child uses its own copy of the slab, which takes no lock.
            assert_eq!(unsafe { forked(work) }, 0);
        }
    });
}

/// Memory that children lack, and the blocks that any process gives back.
struct Excluded {
    process: u32,
    released: AtomicUsize,
}

// SAFETY: malloc's contract. No child uses a block.
unsafe impl Source for Excluded {
    fn name(&self) -> &str {
        "excluded"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if std::process::id() != self.process {
            return Err(AllocError::new(ErrorKind::ForkedChild, layout.size()));
        }
        Malloc.acquire(layout)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        self.released.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on to the caller.
        unsafe { Malloc.release(block, layout) };
    }

    fn is_inherited(&self) -> bool {
        false
    }
}

#[test]
fn a_child_that_drops_a_slab_of_memory_that_it_lacks_gives_none_back() {
    let source = Arc::new(Excluded { process: std::process::id(), released: AtomicUsize::new(0) });
    let shared = SharedSource::from(Arc::clone(&source));
    let slab = words().source(shared).build();
    let (asleep, forked_now) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // All slots of the slab are in this thread's cache.
            free_all(&slab, stamped(&slab, 100));
            asleep.wait();
            forked_now.wait();
        });
        asleep.wait();
        let released = source.released.load(Ordering::Relaxed);
        let work = || {
            // SAFETY: the child's own copy, which is not used any more.
            drop(unsafe { core::ptr::read(&slab) });
            assert_eq!(source.released.load(Ordering::Relaxed), released);
        };
        // SAFETY: the child uses its own copy of the slab, which takes no lock.
        assert_eq!(unsafe { forked(work) }, 0);
        forked_now.wait();
    });
}
