//! Slabs and the lives of threads: objects freed where they were not made, after their makers'
//! ends, after their slab's end, and from destructors of thread-local variables.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};

use allotment::slab::{Lifetime, RawSlabHandle, SlabHandle};
use allotment::{AllocError, Budget, ErrorKind, Malloc, RawSlab, Slab, SlabBox, Source};
use support::slab::{self, Object, Random, layout};
use support::traits::has;

const WORDS: Layout = Layout::new::<[u64; 6]>();

/// Runs `body` on a new thread, to the end of its thread-local destructors.
fn on_a_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// Makes the calling thread detach from slabs that were dropped, as it does when it first uses
/// another slab.
fn detach_from_dropped_slabs() {
    drop(Slab::<u8>::new().alloc(1));
}

fn stamped(slab: &RawSlab, numbers: core::ops::Range<u64>) -> Vec<Object> {
    numbers.map(|number| Object::stamp(slab.alloc(), slab.layout(), number)).collect()
}

#[test]
fn a_box_may_go_where_its_value_may_and_a_handle_stays() {
    const { assert!(has!(SlabBox<u8>: Send) && has!(SlabBox<u8>: Sync)) };
    const { assert!(!has!(SlabBox<std::rc::Rc<u8>>: Send)) };
    const { assert!(!has!(SlabBox<std::rc::Rc<u8>>: Sync)) };
    const { assert!(has!(SlabBox<Cell<u8>>: Send) && !has!(SlabBox<Cell<u8>>: Sync)) };
    const { assert!(has!(Slab<u8>: Send) && has!(Slab<u8>: Sync)) };
    const { assert!(has!(RawSlab: Send) && has!(RawSlab: Sync)) };
    const { assert!(!has!(RawSlabHandle<'static>: Send) && !has!(RawSlabHandle<'static>: Sync)) };
    const { assert!(!has!(SlabHandle<'static, u8>: Send) && !has!(SlabHandle<'static, u8>: Sync)) };
    // A slab owns no values, so it may be shared whatever its type is.
    const { assert!(has!(Slab<std::rc::Rc<u8>>: Sync)) };
}

#[test]
fn a_thread_that_never_allocated_frees() {
    let slab = RawSlab::new(WORDS);
    let objects = stamped(&slab, 0..5000);
    on_a_thread(|| objects.into_iter().for_each(|object| slab::free(&slab, object)));
    slab::assert_empties(&slab);
}

#[test]
fn a_thread_frees_after_the_end_of_the_one_that_allocated() {
    let slab = RawSlab::new(WORDS);
    let objects: Vec<Object> = on_a_thread(|| stamped(&slab, 0..5000));
    slab::assert_exact(&slab, 5000, None);
    slab::assert_apart(&objects);
    objects.into_iter().for_each(|object| slab::free(&slab, object));
    slab::assert_empties(&slab);
}

#[test]
fn a_thread_that_ends_keeps_nothing() {
    let slab = RawSlab::new(WORDS);
    on_a_thread(|| {
        let objects = stamped(&slab, 0..5000);
        objects.into_iter().for_each(|object| slab::free(&slab, object));
        drop(slab.handle());
    });
    slab::assert_empties(&slab);
}

#[test]
fn new_threads_attach_to_the_caches_of_threads_that_ended() {
    let slab = RawSlab::new(WORDS);
    on_a_thread(|| vec![Object::stamp(slab.alloc_for(Lifetime::Long), WORDS, 0)]);
    on_a_thread(|| stamped(&slab, 0..10));
    let structures = slab.statistics().structure_bytes;
    for _ in 0..200 {
        on_a_thread(|| stamped(&slab, 0..10));
    }
    let after = slab::assert_exact(&slab, 2011, None);
    assert_eq!(after.structure_bytes, structures, "no more caches than threads at a time");
}

/// Runs its work when its thread ends.
struct AtEnd(Box<dyn FnOnce()>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        core::mem::replace(&mut self.0, Box::new(|| ()))();
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

/// Runs `work` in a destructor of a thread-local variable that was first used before the thread's
/// first call of `begin`, or after it. The order decides whether the slab's own destructor runs
/// first.
fn at_a_threads_end(
    first: bool,
    begin: impl FnOnce() + Send,
    work: impl FnOnce() + Send + 'static,
) {
    on_a_thread(|| {
        if first {
            AT_END.with(|end| assert!(end.borrow().is_none()));
        }
        begin();
        AT_END.with(|end| *end.borrow_mut() = Some(AtEnd(Box::new(work))));
    });
}

#[test]
fn a_thread_local_destructor_frees_and_allocates_whichever_comes_first() {
    for first in [true, false] {
        let slab = Arc::new(RawSlab::new(WORDS));
        let (to_destructor, from_thread) = mpsc::channel::<Object>();
        let (to_us, from_destructor) = mpsc::channel::<Object>();
        let (ours, theirs) = (slab.clone(), slab.clone());
        at_a_threads_end(
            first,
            move || {
                stamped(&ours, 0..1000)
                    .into_iter()
                    .for_each(|one| to_destructor.send(one).unwrap());
            },
            move || {
                for object in from_thread.try_iter() {
                    slab::free(&theirs, object);
                }
                let handle = theirs.handle();
                for number in 0..700 {
                    let object = Object::stamp(theirs.alloc(), WORDS, 5000 + number);
                    let other = Object::stamp(handle.alloc(), WORDS, 9000 + number);
                    slab::free(&theirs, other);
                    to_us.send(object).unwrap();
                }
            },
        );
        let objects: Vec<Object> = from_destructor.iter().collect();
        assert_eq!(objects.len(), 700);
        slab::assert_exact(&slab, 700, None);
        slab::assert_apart(&objects);
        objects.into_iter().for_each(|object| slab::free(&slab, object));
        slab::assert_empties(&slab);
    }
}

#[test]
fn a_thread_local_destructor_frees_boxes_of_a_slab_that_is_gone() {
    for first in [true, false] {
        let budget = Budget::new(usize::MAX);
        let slab = Slab::<String>::builder().budget(&budget).build();
        let boxes: Vec<_> = (0..2000).map(|number| slab.alloc(number.to_string())).collect();
        at_a_threads_end(
            first,
            || drop(slab.alloc("this thread knows the slab".to_owned())),
            move || {
                for (number, boxed) in boxes.into_iter().enumerate() {
                    assert_eq!(*boxed, number.to_string());
                }
            },
        );
        slab::assert_exact(slab.raw(), 0, Some(&budget));
        let boxes: Vec<_> = (0..2000).map(|number| slab.alloc(number.to_string())).collect();
        let begin = move || {
            drop(slab.alloc("as above".to_owned()));
            std::thread::spawn(|| drop(slab)).join().unwrap();
        };
        at_a_threads_end(first, begin, move || drop(boxes));
        detach_from_dropped_slabs();
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_slab_may_be_dropped_by_a_thread_local_destructor() {
    for first in [true, false] {
        let budget = Budget::new(usize::MAX);
        let slab = Arc::new(Slab::<u64>::builder().budget(&budget).build());
        let (ours, theirs) = (slab.clone(), slab.clone());
        drop(slab);
        let survivor = ours.alloc(7);
        at_a_threads_end(
            first,
            move || drop(ours.alloc(8)),
            move || {
                let mut slab = Some(theirs);
                let last = slab.take().and_then(Arc::into_inner).expect("the last reference");
                let boxed = last.alloc(9);
                drop(last);
                assert_eq!(*boxed, 9);
            },
        );
        assert_eq!(*survivor, 7);
        assert!(budget.used() > 0);
        drop(survivor);
        detach_from_dropped_slabs();
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_handle_in_a_thread_local_may_outlive_the_threads_table() {
    static SLAB: LazyLock<RawSlab> = LazyLock::new(|| RawSlab::new(WORDS));
    struct Last(RawSlabHandle<'static>, Vec<Object>);
    impl Drop for Last {
        fn drop(&mut self) {
            let Self(handle, objects) = self;
            // More than a cache holds, both ways.
            for number in 0..1500 {
                objects.push(Object::stamp(handle.alloc(), WORDS, 1000 + number));
            }
            slab::assert_apart(&*objects);
            for object in objects.drain(..) {
                // SAFETY: live, from this slab, and ended.
                unsafe { handle.free(object.end()) };
            }
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    for first in [true, false] {
        on_a_thread(|| {
            if first {
                LAST.with(|last| assert!(last.borrow().is_none()));
            }
            let objects = stamped(&SLAB, 0..1000);
            LAST.with(|last| *last.borrow_mut() = Some(Last(SLAB.handle(), objects)));
        });
        slab::assert_empties(&SLAB);
    }
}

#[test]
fn handles_nest_and_the_last_of_them_detaches_from_the_cache() {
    let slab = RawSlab::new(WORDS);
    on_a_thread(|| {
        let one = slab.handle();
        let two = slab.handle();
        let slots: Vec<_> = (0..100).map(|_| one.alloc()).collect();
        drop(one);
        // SAFETY: allocated above, freed once.
        slots.into_iter().for_each(|slot| unsafe { two.free(slot) });
        assert_eq!(two.slab().statistics().live_objects, 0);
    });
    slab::assert_empties(&slab);
}

#[test]
fn boxes_outlive_their_slabs_and_are_dropped_by_other_threads() {
    const SLABS: usize = 40;
    let budget = Budget::new(usize::MAX);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..4).map(|_| mpsc::channel::<(SlabBox<(u64, String)>, u64)>()).unzip();
    std::thread::scope(|scope| {
        let mut droppers = Vec::new();
        for from in receivers {
            droppers.push(scope.spawn(move || {
                let mut later = Vec::new();
                for (boxed, number) in from {
                    assert_eq!((boxed.0, boxed.1.as_str()), (number, number.to_string().as_str()));
                    if number % 7 == 0 { later.push(boxed) } else { drop(boxed) }
                }
            }));
        }
        for number in 0..SLABS {
            let slab = Slab::builder().budget(&budget).build();
            for item in 0..1000u64 {
                let number = number as u64 * 1000 + item;
                let boxed = slab.alloc((number, number.to_string()));
                senders[item as usize % 4].send((boxed, number)).unwrap();
            }
            drop(slab);
        }
        drop(senders);
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
    assert_eq!(budget.used(), 0, "each slab went with its last box");
}

#[test]
fn a_thread_detaches_from_a_dropped_slab_at_its_next_slab() {
    let budget = Budget::new(usize::MAX);
    let slab = Slab::<[u64; 8]>::builder().budget(&budget).build();
    let (to_thread, from_us) = mpsc::channel::<()>();
    let (to_us, from_thread) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let slab_of_thread = &slab;
        let boxed = scope
            .spawn(move || {
                drop((0..100).map(|_| slab_of_thread.alloc([1; 8])).collect::<Vec<_>>());
                slab_of_thread.alloc([2; 8])
            })
            .join()
            .unwrap();
        drop(boxed);
    });
    let slab = Arc::new(slab);
    let theirs = slab.clone();
    let thread = std::thread::spawn(move || {
        drop((0..100).map(|_| theirs.alloc([1; 8])).collect::<Vec<_>>());
        drop(theirs);
        to_us.send(()).unwrap();
        from_us.recv().unwrap();
        detach_from_dropped_slabs();
        to_us.send(()).unwrap();
        from_us.recv().unwrap_err();
    });
    from_thread.recv().unwrap();
    drop(Arc::into_inner(slab).expect("ours is the last"));
    to_thread.send(()).unwrap();
    from_thread.recv().unwrap();
    assert_eq!(budget.used(), 0, "nothing waits for the thread's end");
    drop(to_thread);
    thread.join().unwrap();
}

/// Uses a slab when it is dropped.
struct UsesInDrop(Arc<RawSlab>);

// SAFETY: the blocks are malloc's, each passed on once.
unsafe impl Source for UsesInDrop {
    fn name(&self) -> &str {
        "uses a slab when it is dropped"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        Malloc.acquire(layout)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { Malloc.release(block, layout) }
    }
}

impl Drop for UsesInDrop {
    fn drop(&mut self) {
        let slot = self.0.alloc();
        // SAFETY: allocated above.
        unsafe { self.0.free(slot) };
    }
}

#[test]
fn a_slab_that_is_used_by_the_drop_of_anothers_source_has_one_cache_for_each_thread() {
    let budget = Budget::new(usize::MAX);
    let slab = Arc::new(RawSlab::builder(WORDS).budget(&budget).build());
    let source = Arc::new(UsesInDrop(slab.clone()));
    let other = Arc::new(RawSlab::builder(layout(32, 8)).source(source).build());
    let (end, ends) = mpsc::channel::<()>();
    let (told, has_cache) = mpsc::channel();
    let (theirs, slab_of_thread) = (other.clone(), slab.clone());
    let thread = std::thread::spawn(move || {
        let object = stamped(&theirs, 0..1).pop().unwrap();
        slab::free(&theirs, object);
        drop(theirs);
        told.send(()).unwrap();
        ends.recv().unwrap_err();
        // Detaches from the other slab, whose source then uses this one.
        let object = stamped(&slab_of_thread, 1..2).pop().unwrap();
        slab::free(&slab_of_thread, object);
    });
    has_cache.recv().unwrap();
    drop(other);
    drop(end);
    thread.join().unwrap();
    slab.trim();
    slab::assert_empties(&slab);
    drop(Arc::into_inner(slab).expect("ours is the last"));
    assert_eq!(budget.used(), 0, "every cache left the slab");
}

#[test]
fn a_drop_that_panics_frees_the_slot() {
    struct Throws(u64);
    impl Drop for Throws {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(self.0));
        }
    }
    let slab = Slab::new();
    for number in 0..1000 {
        let boxed = slab.alloc(Throws(number));
        let thrown = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| drop(boxed)));
        assert_eq!(thrown.unwrap_err().downcast_ref(), Some(&number));
        slab::assert_exact(slab.raw(), 0, None);
    }
    // A value moved out of its box is dropped by its new owner alone.
    core::mem::forget(SlabBox::into_inner(slab.alloc(Throws(0))));
    slab::assert_empties(slab.raw());
}

#[test]
fn a_value_is_given_back_where_there_is_no_slot() {
    let slab = Slab::<String>::builder().budget(&Budget::new(4000)).build();
    let mut kept = Vec::new();
    let (error, value) = loop {
        match slab.try_alloc("a value".to_owned()) {
            Ok(boxed) => kept.push(boxed),
            Err(refused) => break refused,
        }
    };
    assert_eq!((error.kind(), value.as_str()), (ErrorKind::BudgetExceeded, "a value"));
    let (_, value) = slab.handle().try_alloc(value).unwrap_err();
    let (_, value) = slab.try_alloc_for(Lifetime::Long, value).unwrap_err();
    assert_eq!(value, "a value");
    slab::assert_exact(slab.raw(), kept.len(), None);
}

#[test]
fn sixteen_threads_pass_objects_to_each_other() {
    const THREADS: usize = 16;
    const ROUNDS: usize = 6000;
    let slab = RawSlab::new(WORDS);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Object>()).unzip();
    let left = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, from) in receivers.into_iter().enumerate() {
            let (slab, senders) = (&slab, senders.clone());
            threads.push(scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                let mut own = Vec::new();
                for round in 0..ROUNDS {
                    let number = (thread * ROUNDS + round) as u64;
                    let object = Object::stamp(slab.alloc(), WORDS, number);
                    if random.one_in(3) {
                        senders[random.below(THREADS)].send(object).unwrap();
                    } else {
                        own.push(object);
                    }
                    from.try_iter().for_each(|object| slab::free(slab, object));
                    if own.len() > 500 {
                        let index = random.below(own.len());
                        slab::free(slab, own.swap_remove(index));
                    }
                }
                slab::assert_apart(&own);
                (own, from)
            }));
        }
        drop(senders);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut objects: Vec<Object> = Vec::new();
    for (own, from) in left {
        objects.extend(own);
        objects.extend(from.try_iter());
    }
    slab::assert_apart(&objects);
    slab::assert_exact(&slab, objects.len(), None);
    objects.into_iter().for_each(|object| slab::free(&slab, object));
    slab::assert_empties(&slab);
}

#[test]
fn slabs_come_and_go_while_threads_free_what_others_left() {
    const THREADS: usize = 4;
    let budget = Budget::new(usize::MAX);
    let made = AtomicUsize::new(0);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<(SlabBox<u64>, u64)>()).unzip();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, from) in receivers.into_iter().enumerate() {
            let (senders, budget, made) = (senders.clone(), &budget, &made);
            threads.push(scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                let mut slabs: Vec<Slab<u64>> = Vec::new();
                for _ in 0..1500 {
                    if slabs.len() < 3 || random.one_in(10) {
                        slabs.push(Slab::builder().budget(budget).build());
                    }
                    if slabs.len() > 12 {
                        drop(slabs.swap_remove(random.below(12)));
                    }
                    let slab = &slabs[random.below(slabs.len())];
                    for _ in 0..random.below(20) {
                        let number = made.fetch_add(1, Ordering::Relaxed) as u64;
                        senders[random.below(THREADS)].send((slab.alloc(number), number)).unwrap();
                    }
                    for (boxed, number) in from.try_iter() {
                        assert_eq!(*boxed, number);
                    }
                }
                drop((slabs, senders));
                for (boxed, number) in from {
                    assert_eq!(*boxed, number);
                }
            }));
        }
        drop(senders);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(budget.used(), 0);
}
