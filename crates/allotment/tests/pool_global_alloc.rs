//! `PoolGlobalAlloc` as the program's global allocator: ordinary code in pools, on any thread,
//! through panics and futures.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::alloc::{Layout, System};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use allotment::pool::current;
use allotment::{Budget, LocalPool, OnRefusal, PoolGlobalAlloc, PoolRef, PoolVec, pool};
use support::child::{self, Child};
use support::list::passed_through;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

/// Whether a value lies in a pool's memory.
fn in_pool<T: ?Sized>(value: &T) -> bool {
    passed_through() || LocalPool::any_holds(core::ptr::from_ref(value).cast::<u8>())
}

fn in_global<T: ?Sized>(value: &T) -> bool {
    !LocalPool::any_holds(core::ptr::from_ref(value).cast::<u8>())
}

/// Two pools that report their live blocks at their end; one is hardened. Such a pool takes over no
/// live block of an ended pool, so its statistics are exact.
fn pools() -> [LocalPool; 2] {
    [false, true].map(|hardened| LocalPool::builder().report_live(true).hardened(hardened).build())
}

#[test]
fn ordinary_code_runs_in_a_pool_and_what_outlives_it_stays_valid() {
    for pool in pools() {
        let kept: HashMap<u32, String> =
            pool.enter(|| (0..1000).map(|n| (n, format!("number {n}"))).collect());
        assert!(in_pool(kept[&7].as_str()));
        assert!(in_global(&*Box::new(7)));
        drop(pool);
        let other = thread::spawn(move || {
            assert_eq!(kept[&999], "number 999");
            kept
        });
        drop(other.join().unwrap());
    }
}

#[test]
fn values_of_all_kinds_move_between_threads_and_grow_there() {
    for pool in pools() {
        let (send, receive) = mpsc::channel();
        let values = pool.enter(|| {
            let map: HashMap<String, Vec<u32>> =
                (0..200).map(|n| (n.to_string(), vec![n; 10])).collect();
            let tree: BTreeMap<u32, Box<[u8]>> =
                (0..200).map(|n| (n, vec![n as u8; 30].into())).collect();
            let shared: Vec<Arc<String>> = (0..50).map(|n| Arc::new(n.to_string())).collect();
            (map, tree, shared, "text".to_owned(), (0..3000).collect::<VecDeque<u32>>())
        });
        let shared = values.2.clone();
        send.send(values).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let (mut map, mut tree, shared, mut text, mut ring) = receive.recv().unwrap();
                let mut grow = |round: u32| {
                    for n in 0..300 {
                        map.entry(n.to_string()).or_default().extend([round; 20]);
                        tree.insert(n + round * 100, vec![1; 2000].into());
                        ring.push_back(round);
                    }
                    text.push_str(&"more ".repeat(20_000));
                    ring.make_contiguous();
                    map.values_mut().for_each(Vec::shrink_to_fit);
                };
                grow(1);
                let mine = LocalPool::new();
                mine.enter(|| grow(2));
                drop(mine);
                grow(3);
                assert_eq!(map["7"][..10], [7; 10]);
                assert!(text.starts_with("textmore ") && text.len() == 4 + 3 * 100_000);
                assert_eq!(ring.iter().take(3000).copied().sum::<u32>(), 2999 * 1500);
                assert!(shared.iter().zip(0..).all(|(text, n)| **text == n.to_string()));
                (map, tree, ring)
            });
            let (map, tree, ring) = thread.join().unwrap();
            assert_eq!((tree[&350].len(), map.len(), ring.len()), (2000, 300, 3900));
        });
        drop(shared);
        assert_eq!(pool.statistics().live_objects, 0, "everything came back");
    }
}

#[test]
fn a_panic_inside_leaves_the_pool_as_a_return_does() {
    for [outer, inner] in [pools(), pools()] {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            outer.enter(|| {
                let _dropped = vec![1; 100];
                inner.enter(|| -> () {
                    let _dropped = "dropped by the panic".repeat(3);
                    std::panic::resume_unwind(Box::new("the payload".to_owned()));
                });
            });
        }));
        assert_eq!(current(), PoolRef::GLOBAL);
        assert!(in_global(&*Box::new(1)));
        let payload = caught.unwrap_err().downcast::<String>().unwrap();
        assert!(in_pool(&*payload), "it was made inside, and stays");
        drop((outer, inner));
        assert_eq!(*payload, "the payload");
        // Caught inside the outer pool.
        let [outer, inner] = pools();
        outer.enter(|| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                inner.enter(|| panic!("seen {}", std::hint::black_box(7)))
            }));
            assert_eq!(current(), outer.reference());
            assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), "seen 7");
        });
        // (What the hook printed was captured inside the inner pool.)
        assert_eq!(current(), PoolRef::GLOBAL);
    }
}

#[test]
fn pools_nest_and_a_pool_may_be_entered_inside_itself() {
    let [first, second] = pools();
    first.enter(|| {
        let one = Box::new(1);
        second.enter(|| {
            assert_eq!(current(), second.reference());
            let two = Box::new(2);
            first.enter(|| {
                assert_eq!(current(), first.reference());
                first.enter(|| drop(Box::new(3)));
                assert_eq!(current(), first.reference());
                drop(two);
            });
            assert_eq!(current(), second.reference());
            drop(one);
        });
        assert_eq!(current(), first.reference());
        assert!(LocalPool::new().enter(|| in_pool(&*Box::new(7))));
    });
    assert_eq!(first.statistics().live_objects + second.statistics().live_objects, 0);
}

#[test]
fn what_a_budget_refuses_comes_from_the_global_heap() {
    if passed_through() {
        return;
    }
    for hardened in [false, true] {
        let budget = Budget::new(128 << 10);
        let pool = LocalPool::builder().budget(&budget).hardened(hardened).build();
        pool.enter(|| {
            let mut vec = Vec::new();
            let (mut inside, mut outside) = (0, 0);
            for n in 0..500_000u64 {
                vec.push(n);
                *(if in_pool(&vec[0]) { &mut inside } else { &mut outside }) += 1;
            }
            assert!(inside > 0 && outside > 0, "{inside} {outside}");
            assert!(vec.iter().copied().eq(0..500_000));
            vec.truncate(10);
            vec.shrink_to_fit();
            assert!(in_global(&vec[0]), "a block stays with its owner");
            let mut boxes = pool::outside(|| Vec::with_capacity(10_000));
            boxes.extend((0..10_000).map(|n| Box::new([n; 4])));
            assert!(boxes.iter().any(|boxed| in_pool(&**boxed)));
            assert!(boxes.iter().any(|boxed| in_global(&**boxed)));
            assert!(boxes.iter().zip(0..).all(|(boxed, n)| **boxed == [n; 4]));
            boxes.retain(|boxed| boxed[0] % 3 == 0);
            assert!(budget.used() <= budget.limit());
        });
        drop(pool);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn zeroed_memory_is_zero_though_the_blocks_were_written_before() {
    for pool in pools() {
        pool.enter(|| {
            for size in [1, 16, 100, 1000, 5000, 40_000, 300_000, 3 << 20] {
                for _ in 0..3 {
                    let dirty: Vec<_> = (0..5).map(|_| vec![0xAAu8; size]).collect();
                    drop(dirty);
                    let zeros: Vec<_> = (0..5).map(|_| vec![0u8; size]).collect();
                    assert!(zeros.iter().flatten().all(|byte| *byte == 0), "{size}");
                }
            }
        });
    }
}

#[test]
fn alignments_hold_and_values_of_size_zero_work() {
    #[repr(align(4096))]
    #[derive(Clone)]
    struct Page(u8);
    #[repr(align(131072))]
    struct Large(u8);
    for pool in pools() {
        pool.enter(|| {
            let pages = vec![Page(7); 10];
            assert!(pages.as_ptr().addr() % 4096 == 0 && pages[9].0 == 7);
            let large = Box::new(Large(8));
            assert!(core::ptr::from_ref(&*large).addr() % 131_072 == 0 && large.0 == 8);
            assert!(in_pool(&*large) && in_pool(&pages[0]));
            let nothing: Vec<()> = vec![(); 1000];
            assert_eq!((nothing.len(), Box::new(())), (1000, Box::new(())));
        });
        assert_eq!(pool.statistics().live_objects, 0);
    }
}

#[test]
fn threads_and_thread_locals_that_begin_inside_a_pool_work_as_elsewhere() {
    thread_local! {
        static TEXTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    for hardened in [false, true] {
        thread::spawn(move || {
            let pool = LocalPool::builder().hardened(hardened).build();
            pool.enter(|| {
                // Outlives the pool: dropped by the thread's end.
                TEXTS.with_borrow_mut(|texts| texts.push("in the pool".repeat(10)));
                thread::spawn(|| {
                    assert_eq!(current(), PoolRef::GLOBAL);
                    TEXTS.with_borrow_mut(|texts| texts.push("elsewhere".repeat(10)));
                })
                .join()
                .unwrap();
                thread::scope(|scope| {
                    for n in 0..4 {
                        scope.spawn(move || LocalPool::new().enter(|| vec![n; 1000]));
                    }
                });
                println!("what is printed may be kept by the standard library");
            });
            drop(pool);
            TEXTS.with_borrow_mut(|texts| texts.push(texts[0].clone()));
        })
        .join()
        .unwrap();
    }
}

// ---- futures ----

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// A future that is pending once.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[test]
fn a_future_is_in_its_pool_while_it_is_polled_and_no_longer() {
    let [first, second] = pools();
    let (at_first, at_second) = (first.reference(), second.reference());
    let one = first.enter_future(async {
        let mut text = "one".to_owned();
        for _ in 0..10 {
            assert_eq!(current(), at_first);
            Yield::default().await;
            text.push_str(" more");
            assert!(in_pool(text.as_str()));
        }
        let inner = second.enter_future(async {
            Yield::default().await;
            assert_eq!(current(), at_second);
            Box::new(7)
        });
        assert_eq!(*inner.await, 7);
        assert_eq!(current(), at_first);
        text
    });
    let other = async {
        for _ in 0..20 {
            assert_eq!(current(), PoolRef::GLOBAL);
            Yield::default().await;
        }
    };
    let (mut one, mut other) = (Box::pin(one), Box::pin(other));
    let mut text = None;
    block_on(std::future::poll_fn(|context| {
        if text.is_none() {
            if let Poll::Ready(done) = one.as_mut().poll(context) {
                text = Some(done);
            }
        }
        other.as_mut().poll(context)
    }));
    drop(one);
    assert_eq!(text.unwrap().len(), 3 + 50);
    assert_eq!(first.statistics().live_objects + second.statistics().live_objects, 0);
}

#[test]
fn a_future_that_panics_or_is_dropped_unfinished_leaves_its_pool() {
    for pool in pools() {
        let panics = pool.enter_future(async {
            Yield::default().await;
            std::panic::resume_unwind(Box::new(7u8))
        });
        let caught = catch_unwind(AssertUnwindSafe(|| block_on::<_>(panics)));
        let caught: Result<(), _> = caught;
        assert_eq!(current(), PoolRef::GLOBAL);
        drop(caught);
        let mut half = Box::pin(pool.enter_future(async {
            let text = "kept over the wait".to_owned();
            Yield::default().await;
            drop(text);
        }));
        assert!(half.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(passed_through() || pool.statistics().live_objects > 0);
        drop(half);
        assert_eq!((pool.statistics().live_objects, current()), (0, PoolRef::GLOBAL));
    }
}

#[test]
fn the_claims_hold_in_pass_through_mode() {
    let test = "the_claims_hold_in_pass_through_mode";
    if child::is(test) {
        assert!(LocalPool::new().enter(|| in_global(&*Box::new(7))));
        ordinary_code_runs_in_a_pool_and_what_outlives_it_stays_valid();
        values_of_all_kinds_move_between_threads_and_grow_there();
        a_panic_inside_leaves_the_pool_as_a_return_does();
        pools_nest_and_a_pool_may_be_entered_inside_itself();
        zeroed_memory_is_zero_though_the_blocks_were_written_before();
        alignments_hold_and_values_of_size_zero_work();
        threads_and_thread_locals_that_begin_inside_a_pool_work_as_elsewhere();
        return;
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn a_pool_with_a_maximum_of_zero_sends_everything_on_to_the_global_heap() {
    let pool = LocalPool::builder().maximum(0).build();
    let (boxed, mut vector) = pool.enter(|| (Box::new([7_u8; 40]), vec![7_u8; 100]));
    assert!(in_global(&*boxed) && in_global(&*vector));
    assert_eq!(pool.refused_bytes(), if passed_through() { 0 } else { 140 });
    pool.enter(|| vector.extend_from_slice(&[8; 1000]));
    assert!(in_global(&*vector));
    assert_eq!((pool.statistics().held_bytes, pool.statistics().live_objects), (0, 0));
    pool.enter(|| drop((boxed, vector)));
}

#[test]
fn what_a_limit_refuses_is_counted_and_comes_from_the_global_heap_where_the_builder_says_so() {
    let build = |on_refusal| LocalPool::builder().maximum(128 << 10).on_refusal(on_refusal).build();
    for on_refusal in [OnRefusal::Panic, OnRefusal::ReturnError, OnRefusal::UseGlobalHeap] {
        let pool = build(on_refusal);
        assert_eq!(pool.refused_bytes(), 0);
        let uses_global_heap = on_refusal == OnRefusal::UseGlobalHeap;
        // The library's collections.
        let long = PoolVec::<u8>::try_with_capacity_in(1 << 20, pool.reference());
        assert_eq!(long.is_ok(), uses_global_heap);
        let mut counted = if uses_global_heap { 1 << 20 } else { 0 };
        assert!(long.is_err() || passed_through() || pool.refused_bytes() == counted);
        let mut grows = PoolVec::new_in(pool.reference());
        while grows.try_reserve(grows.capacity() + 1).is_ok() {
            let length = grows.capacity();
            grows.resize(length, 7u8);
            if in_global(&*grows) {
                break;
            }
        }
        assert_eq!(in_global(&*grows), uses_global_heap || passed_through());
        assert!(grows.iter().all(|byte| *byte == 7));
        drop((long, grows));
        // Everybody's.
        counted = pool.refused_bytes();
        let (long, zeroed) = pool.enter(|| (vec![1u8; 1 << 20], vec![0u8; 1 << 20]));
        assert!(in_global(&*long) && in_global(&*zeroed));
        assert!(passed_through() || pool.refused_bytes() == counted + (2 << 20));
        drop(pool);
        assert_eq!(build(on_refusal).refused_bytes(), 0, "the next one has a count of its own");
    }
}

#[test]
fn each_thread_has_a_pool_of_its_own_for_what_it_polls_and_runs() {
    if passed_through() {
        return;
    }
    let reference = || pool::enter_thread_pool(current);
    let mine = reference();
    assert_ne!(mine, PoolRef::GLOBAL);
    assert_eq!(reference(), mine, "it is made once");
    assert_eq!(current(), PoolRef::GLOBAL);
    // A task whose polls are on two threads.
    let mut polls = 0;
    let mut places = Vec::new();
    let mut task = Box::pin(pool::poll_in_thread_pools(std::future::poll_fn(move |_| {
        polls += 1;
        places.push((current(), Box::new(polls)));
        if polls == 2 { Poll::Ready(std::mem::take(&mut places)) } else { Poll::Pending }
    })));
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let there = thread::spawn(move || {
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(places) = polled else { panic!("the second poll") };
        (places, reference())
    });
    let (places, others) = there.join().unwrap();
    assert_eq!((places[0].0, places[1].0), (mine, others));
    assert_ne!(mine, others);
    assert_eq!((*places[0].1, *places[1].1), (1, 2), "the other thread has ended");
    assert!(places.iter().all(|(_, boxed)| in_pool(&**boxed)));
}

thread_local! {
    /// Made before the thread's pool, and so dropped after it.
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

struct Late(mpsc::Sender<(PoolRef, bool)>);

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.0.send(pool::enter_thread_pool(|| (current(), in_global(&*Box::new(7)))));
    }
}

#[test]
fn a_thread_whose_own_pool_has_ended_runs_in_no_pool() {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        LATE.with(|late| *late.borrow_mut() = Some(Late(send)));
        pool::enter_thread_pool(|| drop(Box::new(7)));
    });
    assert_eq!(receive.recv().unwrap(), (PoolRef::GLOBAL, true));
    thread.join().unwrap();
}

#[test]
fn a_block_that_its_pool_refuses_to_grow_counts_as_refused_wherever_its_thread_is() {
    for hardened in [false, true] {
        grows_beyond_its_pool(3_000_000, hardened);
    }
}

/// Grows blocks of limited pools beyond the limit, while their thread is in each place.
fn grows_beyond_its_pool(grown: usize, hardened: bool) {
    let limited = |on_refusal| {
        let builder = LocalPool::builder().maximum(1 << 20).on_refusal(on_refusal);
        builder.hardened(hardened).build()
    };
    let other = LocalPool::new();
    let full = limited(OnRefusal::ReturnError);
    let grow = |vec: &mut Vec<u8>| vec.reserve_exact(grown);
    // The thread's current pool while the block grows, and what is refused at the block's pool.
    type Grow<'a> = &'a dyn Fn(&LocalPool, &mut Vec<u8>);
    let places: [(Grow<'_>, usize); 4] = [
        (&|_, vec| grow(vec), grown),
        (&|pool, vec| pool.enter(|| grow(vec)), grown),
        (&|_, vec| full.enter(|| grow(vec)), grown),
        (&|_, vec| other.enter(|| grow(vec)), 0),
    ];
    for (number, (grow, refused)) in places.into_iter().enumerate() {
        let pool = limited(OnRefusal::ReturnError);
        let mut vec: Vec<u8> = pool.enter(|| Vec::with_capacity(900_000));
        grow(&pool, &mut vec);
        if !passed_through() {
            assert_eq!(LocalPool::any_holds(vec.as_ptr()), refused == 0, "place {number}");
            assert_eq!(pool.refused_bytes(), refused, "place {number}");
        }
    }
    // A reference to the global heap, or to another pool, resizes a block of the pool.
    let (old, refused) = (Layout::array::<u8>(900_000).unwrap(), [grown, 0]);
    for (reference, refused) in [PoolRef::GLOBAL, other.reference()].into_iter().zip(refused) {
        let pool = limited(OnRefusal::UseGlobalHeap);
        let block = pool.reference().alloc_layout(old);
        let new = Layout::array::<u8>(grown).unwrap();
        // SAFETY: allocated above with this layout; resized and freed once.
        unsafe {
            let block = reference.resize(block, old, new);
            PoolRef::free_anywhere(block, new);
        }
        assert!(passed_through() || pool.refused_bytes() == refused);
    }
}
