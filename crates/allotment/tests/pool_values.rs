//! `PoolBox`, `PoolVec` and `PoolString`: which pool their memory comes from, on other threads and
//! after the pool's end.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use allotment::collections::{Drain, IntoIter};
use allotment::pool::current;
use allotment::{Budget, ErrorKind, LocalPool, PoolBox, PoolRef, PoolString, PoolVec};
use support::traits::has;

/// A pool that reports its live blocks at its end. It takes over no live block of an ended pool, so
/// its statistics are exact.
fn counted(hardened: bool) -> LocalPool {
    LocalPool::builder().report_live(true).hardened(hardened).build()
}

/// A pool with default options, and a hardened one.
fn pools() -> [LocalPool; 2] {
    [false, true].map(counted)
}

fn live(pool: &LocalPool) -> u64 {
    pool.statistics().live_objects
}

// ---- which pool ----

#[test]
fn values_live_in_the_current_pool_by_default() {
    for pool in pools() {
        let reference = pool.reference();
        pool.enter(|| {
            let boxed = PoolBox::new(7u32);
            let vec: PoolVec<u32> = (0..10).collect();
            let string = PoolString::from("in the pool");
            assert_eq!(live(&pool), 3);
            assert_eq!(PoolBox::pool(&boxed), reference);
            assert_eq!((vec.pool(), string.pool()), (reference, reference));
            // A clone, and what is parsed, formatted or collected there, too.
            let clones = (boxed.clone(), vec.clone(), string.clone());
            let parsed: PoolString = "parsed".parse().unwrap();
            let collected: PoolString = ["a", "b"].into_iter().collect();
            assert_eq!(live(&pool), 8);
            assert_eq!(clones, (boxed, vec, string));
            assert_eq!((parsed.pool(), collected.pool()), (reference, reference));
        });
        assert_eq!(live(&pool), 0);
    }
}

#[test]
fn values_are_the_innermost_pools_and_outside_the_global_heaps() {
    let [outer, inner] = pools();
    let vec = outer.enter(|| {
        let vec = inner.enter(|| PoolVec::from([1, 2, 3]));
        assert_eq!(PoolVec::<u8>::new().pool(), outer.reference());
        vec
    });
    assert_eq!(vec.pool(), inner.reference());
    let clone = vec.clone();
    assert_eq!(clone.pool(), PoolRef::GLOBAL, "a clone is the current pool's, not the original's");
    assert_eq!(PoolBox::pool(&PoolBox::new(1)), PoolRef::GLOBAL);
    assert_eq!((live(&outer), live(&inner)), (0, 1));
}

#[test]
fn a_value_may_be_put_into_a_pool_that_is_not_current() {
    for pool in pools() {
        let reference = pool.reference();
        let boxed = PoolBox::new_in([1u64; 4], reference);
        let vec = PoolVec::from_iter_in(0..5u8, reference);
        let string = PoolString::from_str_in("text", reference);
        assert_eq!(live(&pool), 3);
        assert_eq!((boxed[3], vec.len(), string.len()), (1, 5, 4));
        let boxed = vec.into_boxed_slice();
        assert_eq!(PoolBox::pool(&boxed), reference);
        assert_eq!(PoolBox::pool(&string.into_boxed_str()), reference);
    }
}

#[test]
fn empty_values_take_no_memory() {
    let pool = counted(false);
    pool.enter(|| {
        let values = (PoolVec::<String>::new(), PoolString::new(), PoolVec::<u8>::with_capacity(0));
        let boxed = (PoolBox::new(()), PoolVec::<u64>::new().into_boxed_slice());
        assert_eq!(PoolBox::pool(&boxed.1), PoolRef::GLOBAL);
        assert_eq!(live(&pool), 0);
        drop((values, boxed));
    });
    assert_eq!(size_of::<Option<PoolBox<u8>>>(), size_of::<usize>());
    assert_eq!(size_of::<PoolVec<u8>>(), 4 * size_of::<usize>());
    assert_eq!(size_of::<PoolString>(), size_of::<PoolVec<u8>>());
}

// ---- on other threads, and after the pool's end ----

#[test]
fn a_collection_grown_after_the_pools_end_is_on_the_global_heap_and_keeps_its_contents() {
    for pool in pools() {
        let reference = pool.reference();
        let (mut vec, mut string) = pool.enter(|| {
            (PoolVec::from_iter(0..1000u32), PoolString::from("made in a pool that has ended"))
        });
        drop(pool);
        assert!(!reference.is_usable());
        vec.extend(1000..100_000);
        for number in 0..5000 {
            write!(string, " {number}").unwrap();
        }
        assert!(!LocalPool::any_holds(vec.as_ptr()) && !LocalPool::any_holds(string.as_ptr()));
        assert!(vec.iter().copied().eq(0..100_000));
        assert!(string.starts_with("made in a pool that has ended 0 1 2"));
        assert!(string.ends_with(" 4999"));
        assert_eq!(vec.pool(), reference, "the pool that it was created with");
    }
}

#[test]
fn a_vector_grown_on_another_thread_is_on_the_global_heap_and_its_old_block_is_freed() {
    for pool in pools() {
        let vec = pool.enter(|| PoolVec::from_iter(0..10_000u64));
        let grown = thread::spawn(move || {
            let mut vec = vec;
            vec.extend(10_000..20_000);
            assert!(!LocalPool::any_holds(vec.as_ptr()));
            vec
        });
        let mut grown = grown.join().unwrap();
        assert_eq!(live(&pool), 0);
        // On the pool's own thread again: a block of the global heap grows there.
        grown.extend(20_000..40_000);
        assert!(grown.into_iter().eq(0..40_000));
        assert_eq!(live(&pool), 0);
    }
}

#[test]
fn a_value_dropped_on_another_thread_is_freed_in_its_pool() {
    for pool in pools() {
        let made = pool.enter(|| {
            let boxes: Vec<PoolBox<[u64; 3]>> = (0..500).map(|n| PoolBox::new([n; 3])).collect();
            let strings: PoolVec<PoolString> =
                (0..500).map(|n| n.to_string().parse().unwrap()).collect();
            (boxes, strings)
        });
        let objects = live(&pool);
        assert!(objects >= 1001);
        thread::spawn(move || {
            // Inside a pool of its own, the thread sends remote frees in batches.
            LocalPool::new().enter(|| {
                assert!(made.0.iter().enumerate().all(|(n, boxed)| **boxed == [n as u64; 3]));
                drop(made);
            });
        })
        .join()
        .unwrap();
        assert_eq!(live(&pool), 0);
    }
}

#[test]
fn sixteen_threads_pass_values_round_and_each_is_dropped_once() {
    const THREADS: usize = 16;
    let drops = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>, #[allow(dead_code, reason = "weight")] [u64; 5]);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    type Message = (PoolVec<u32>, PoolString, PoolBox<Counts>);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| std::sync::mpsc::channel::<Message>()).unzip();
    thread::scope(|scope| {
        for (index, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(index + 1) % THREADS].clone();
            let drops = drops.clone();
            scope.spawn(move || {
                for round in 0..20u32 {
                    let pool = LocalPool::new();
                    pool.enter(|| {
                        for number in 0..20 {
                            let vec = (0..round + number).collect();
                            let string = round.to_string().parse().unwrap();
                            let boxed = PoolBox::new(Counts(drops.clone(), [7; 5]));
                            next.send((vec, string, boxed)).unwrap();
                        }
                    });
                    // The pool ends while most of its values wait in the queues of other threads.
                    for _ in 0..20 {
                        let (mut vec, mut string, boxed) = receiver.recv().unwrap();
                        vec.extend_from_slice(&[1; 100]);
                        string.push_str(" and more than the capacity");
                        assert_eq!(vec[vec.len() - 100..], [1; 100]);
                        assert!(string.ends_with("the capacity") && boxed.1 == [7; 5]);
                    }
                }
            });
        }
    });
    assert_eq!(drops.load(Ordering::Relaxed), THREADS * 400);
}

#[test]
fn collections_are_send_and_sync_where_their_values_are() {
    assert!(has!(PoolVec<u32>: Send) && has!(PoolVec<u32>: Sync));
    assert!(has!(PoolString: Send) && has!(PoolString: Sync));
    assert!(has!(PoolBox<dyn Fn() + Send>: Send) && !has!(PoolBox<dyn Fn() + Send>: Sync));
    assert!(has!(Drain<'static, u8, PoolRef>: Send) && has!(IntoIter<u8, PoolRef>: Sync));
    assert!(!has!(PoolVec<Rc<u32>>: Send) && !has!(PoolBox<Rc<u32>>: Sync));
    assert!(has!(PoolVec<Cell<u32>>: Send) && !has!(PoolVec<Cell<u32>>: Sync));
    assert!(!has!(Drain<'static, Rc<u8>, PoolRef>: Send) && !has!(IntoIter<Rc<u8>, PoolRef>: Send));
}

// ---- limits ----

#[test]
fn ranges_and_indices_beyond_the_end_panic_and_change_nothing() {
    fn panics(work: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
    }
    let mut vec = PoolVec::from([1, 2, 3]);
    #[allow(clippy::reversed_empty_ranges, reason = "that is the case")]
    {
        assert!(panics(|| drop(vec.drain(2..1))));
    }
    assert!(panics(|| drop(vec.drain(..4))));
    assert!(panics(|| drop(vec.drain(..=usize::MAX))));
    assert!(panics(|| vec.insert(4, 0)));
    assert!(panics(|| _ = vec.remove(3)));
    assert!(panics(|| _ = vec.swap_remove(3)));
    assert!(panics(|| _ = PoolVec::<u8>::new().swap_remove(0)));
    assert_eq!(vec, [1, 2, 3]);
    let mut string = PoolString::from("☂");
    assert!(panics(|| string.truncate(1)));
    assert_eq!(string, "☂");
}

#[test]
fn a_capacity_beyond_the_address_space_is_a_typed_error() {
    for pool in pools() {
        pool.enter(|| {
            let overflow = |error: allotment::AllocError| error.kind() == ErrorKind::SizeOverflow;
            let mut vec = PoolVec::from([1u64, 2]);
            for more in [usize::MAX, usize::MAX - 1, usize::MAX / 8, isize::MAX as usize / 8] {
                assert!(overflow(vec.try_reserve(more).unwrap_err()), "{more}");
                assert!(overflow(vec.try_reserve_exact(more).unwrap_err()), "{more}");
            }
            assert!(overflow(PoolVec::<u16>::try_with_capacity(usize::MAX / 2 + 1).err().unwrap()));
            assert!(overflow(PoolString::try_with_capacity(usize::MAX).unwrap_err()));
            let mut units = PoolVec::from([(), ()]);
            units.try_reserve(usize::MAX - 2).unwrap();
            assert!(overflow(units.try_reserve(usize::MAX - 1).unwrap_err()));
            assert_eq!((&vec[..], live(&pool)), (&[1, 2][..], 1));
        });
    }
}

#[test]
fn a_used_up_budget_is_a_typed_error_and_the_value_is_as_it_was() {
    let budget = Budget::new(64 << 10);
    let pool = LocalPool::builder().budget(&budget).build();
    pool.enter(|| {
        let mut vec = PoolVec::new();
        let refused = loop {
            if let Err(error) = vec.try_push(vec.len()) {
                break error;
            }
        };
        assert_eq!(refused.kind(), ErrorKind::BudgetExceeded);
        assert!(vec.iter().copied().eq(0..vec.len()) && vec.len() >= 1000);
        let mut string = PoolString::new();
        let long = "x".repeat(70_000);
        assert_eq!(string.try_push_str(&long).unwrap_err().kind(), ErrorKind::BudgetExceeded);
        assert!(string.write_str(&long).is_err() && string.is_empty());
        assert!(PoolBox::try_new([0u8; 70_000]).is_err());
        assert!(PoolString::try_from_str_in(&long, current()).is_err());
        assert!(PoolVec::try_from_iter_in(0..70_000u32, current()).is_err());
        let mut bytes = PoolVec::<u8>::new();
        let error = std::io::Write::write(&mut bytes, long.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        // The global heap has no such limit.
        let mut elsewhere = PoolString::new_in(PoolRef::GLOBAL);
        elsewhere.try_push_str(&long).unwrap();
    });
    assert_eq!(live(&pool), 0);
}

#[test]
fn growth_doubles_and_shrinking_fits() {
    let pool = counted(false);
    pool.enter(|| {
        let mut vec = PoolVec::new();
        let mut moves = 0;
        for number in 0..100_000u32 {
            let before = vec.capacity();
            vec.push(number);
            moves += usize::from(vec.capacity() != before);
            assert!(vec.capacity() == before || vec.capacity() == (2 * before).max(4));
        }
        assert!(moves < 20);
        vec.truncate(100);
        vec.shrink_to_fit();
        assert_eq!(vec.capacity(), 100);
        vec.reserve_exact(1);
        assert_eq!(vec.capacity(), 101);
        vec.clear();
        vec.shrink_to_fit();
        assert_eq!((vec.capacity(), live(&pool)), (0, 0));
        let mut large = PoolVec::new();
        large.push([0u8; 5000]);
        assert_eq!(large.capacity(), 1, "one large value takes no extra capacity");
    });
}

// ---- boxes ----

#[test]
fn boxes_of_any_kind_of_value() {
    for pool in pools() {
        pool.enter(|| {
            #[repr(align(256))]
            #[derive(Clone, Debug, PartialEq)]
            struct Aligned([u8; 300]);
            let aligned = PoolBox::new(Aligned([3; 300]));
            assert_eq!(*PoolBox::<u32>::default(), 0);
            assert_eq!(std::ptr::from_ref(&*aligned).addr() % 256, 0);
            assert_eq!(aligned.clone(), aligned);
            let huge = PoolBox::new([7u8; 200_000]);
            assert_eq!(PoolBox::into_inner(huge)[199_999], 7);
            let text: PoolBox<str> = "größe".into();
            assert_eq!(&*text.clone(), "größe");
            let slice: PoolBox<[String]> = ["a", "b"].map(String::from).into_iter().collect();
            assert_eq!(slice.clone(), slice);
            let number = Cell::new(1);
            let call = PoolBox::into_raw(PoolBox::new(|| number.set(number.get() + 1)));
            // SAFETY: from `into_raw`, with the same layout, for one box.
            let call: PoolBox<dyn Fn() + '_> =
                unsafe { PoolBox::from_raw(NonNull::new_unchecked(call.as_ptr() as *mut _)) };
            call();
            assert_eq!(number.get(), 2);
            let mut set = HashSet::new();
            set.insert(PoolBox::new(3));
            assert!(set.contains(&3), "a box hashes as what it holds");
            let leaked: &mut Aligned = PoolBox::leak(PoolBox::new(Aligned([1; 300])));
            leaked.0[0] = 2;
        });
        assert_eq!(live(&pool), 1, "the leaked value");
    }
}

#[test]
fn a_future_is_pinned_in_a_pool() {
    let pool = counted(false);
    let mut future: Pin<PoolBox<_>> = pool.enter(|| {
        PoolBox::pin(async {
            let text = PoolString::from("across");
            let lent = &text;
            std::future::ready(()).await;
            lent.len()
        })
    });
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(6));
    drop(future);
    assert_eq!(live(&pool), 0);
}

#[test]
fn values_of_no_size_are_counted_and_dropped() {
    thread_local!(static DROPS: Cell<usize> = const { Cell::new(0) });
    struct Unit;
    impl Drop for Unit {
        fn drop(&mut self) {
            DROPS.with(|drops| drops.set(drops.get() + 1));
        }
    }
    let dropped = || DROPS.with(Cell::take);
    let pool = counted(false);
    pool.enter(|| {
        let mut vec: PoolVec<Unit> = (0..10).map(|_| Unit).collect();
        assert_eq!((vec.len(), vec.capacity()), (10, usize::MAX));
        vec.drain(3..5);
        drop(vec.remove(0));
        vec.truncate(6);
        assert_eq!(dropped(), 4);
        vec.insert(2, Unit);
        let mut index = 0;
        vec.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        assert_eq!((vec.len(), dropped()), (3, 4));
        vec.shrink_to_fit();
        let mut values = vec.into_iter();
        drop(values.next_back());
        drop(values);
        assert_eq!(dropped(), 3);
        drop(PoolBox::new(Unit));
        let boxed = PoolVec::from([Unit, Unit]).into_boxed_slice();
        assert_eq!(boxed.len(), 2);
        drop(boxed);
        assert_eq!(dropped(), 3);
        assert_eq!(live(&pool), 0);
    });
}

// ---- strings ----

#[test]
fn a_string_compares_prints_and_hashes_as_its_text() {
    let string = PoolString::from("key");
    let text = String::from("key");
    assert_eq!(string, "key");
    assert_eq!("key", string);
    assert_eq!(string, text);
    assert_eq!(text, string);
    assert_eq!(format!("{string:>5}|{string:?}"), "  key|\"key\"");
    let state = RandomState::new();
    assert_eq!(state.hash_one(&string), state.hash_one("key"));
    let set: HashSet<PoolString> = [string].into();
    assert!(set.contains("key"));
    let mut text: PoolString = "größe".chars().rev().collect();
    text += "!";
    text.extend(["a", "b"]);
    assert_eq!(text, "eßörg!ab");
    let bytes = text.into_bytes();
    assert_eq!(PoolString::from_utf8(bytes).unwrap(), "eßörg!ab");
    let (bytes, _) = PoolString::from_utf8(PoolVec::from([0xff])).unwrap_err();
    assert_eq!(bytes, [0xff]);
}
