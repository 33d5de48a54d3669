//! Sixteen threads at the recycler, the budgets and the registry at once, then at a slab, then with
//! pools, sealed values and a `Published`, for ThreadSanitizer.
//!
//! The program has its own `main`: the standard library is not instrumented, and the test harness's
//! threads would drown the report in its own. `.ci/sanitizers` builds it with ThreadSanitizer;
//! without one it is a plain stress test. With `ALLOTMENT_SEED_RACE=1` it makes one race in the
//! library's own code, which the tool must find: the control that it sees anything at all.
//!
//! Memory is unmapped only between the phases, while one thread is left. The library's system calls
//! don't go through libc, so the tool does not see that a page which was unmapped and mapped again
//! is another one, and would call the new owner's first write a race with the old owner's last.

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use allotment::slab::Lifetime;
use allotment::{
    Arena, Budget, LocalPool, Malloc, PoolRef, Published, RawSlab, Release, Sealed, owner_of,
    recycler, report,
};

const THREADS: usize = 16;
const ROUNDS: usize = 200;

fn main() {
    if std::env::var_os("ALLOTMENT_SEED_RACE").is_some() {
        seed_a_race();
        println!("the seeded race went through");
        return;
    }
    // Whatever a caller of `cargo test` passed for the harness (a filter, --list) does not apply
    // here.
    let keep = 1 << 30;
    for phase in 0..3 {
        recycler().set_policy(Release::Keep(keep));
        stress(phase);
        recycler().trim();
        assert_eq!(recycler().cached_bytes(), 0, "every chunk was on a stack or unmapped");
    }
    // Pages that go at once and come back: from malloc, whose calls the tool sees. Mappings stay.
    slab_stress(&RawSlab::builder(OBJECT).source(Malloc).release(Release::AtOnce).build());
    slab_stress(&RawSlab::builder(OBJECT).release(Release::Keep(1 << 30)).build());
    // Threads that reserve the pools' range together each map one, and all but one of them unmap it
    // again.
    LocalPool::new().enter(|| drop(allotment::PoolBox::new(7)));
    pool_stress(None);
    pool_stress(Some(&Budget::new(usize::MAX)));
    recycler().set_policy(Release::Keep(keep));
    sealed_stress();
    published_stress();
    println!(
        "{THREADS} threads, {ROUNDS} rounds, 3 phases of arenas, 2 of a slab, 2 of pools, 1 of sealed values, 1 of a `Published`: ok"
    );
}

/// Threads that read, hold what they read and come and go, while others publish. The values are
/// plain memory: a generation that ends beside its reader is a race.
fn published_stress() {
    let published = Published::new(vec![0usize; 32]);
    let writing = AtomicUsize::new(THREADS / 4);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (published, writing) = (&published, &writing);
            threads.push(scope.spawn(move || {
                if thread % 4 == 3 {
                    for round in 0..ROUNDS {
                        if round % 8 == 0 {
                            let next = |values: &Vec<usize>| values.iter().map(|n| n + 1).collect();
                            published.update(next);
                        } else {
                            published.publish(vec![round; 32]);
                        }
                    }
                    writing.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                while writing.load(Ordering::Relaxed) > 0 {
                    let readings: Vec<_> = (0..=thread).map(|_| published.read()).collect();
                    for reading in &readings {
                        assert!(reading.iter().all(|value| *value == reading[0]));
                    }
                    drop(readings);
                    // A thread that gives up its slots for the next ones.
                    let read = || assert_eq!(published.read().len(), 32);
                    std::thread::scope(|scope| scope.spawn(read).join().unwrap());
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(published.retired(), 0);
    assert_eq!(published.generation(), (THREADS / 4 * ROUNDS) as u64 + 1);
}

/// Values that are built on one thread, and read and dropped on another, whose chunks serve a
/// third.
fn sealed_stress() {
    type Value = Sealed<&'static [usize]>;
    let letters: Vec<AtomicPtr<Value>> = (0..64).map(|_| AtomicPtr::default()).collect();
    let read_and_drop = |letter: *mut Value| {
        if !letter.is_null() {
            // SAFETY: made by `Box::into_raw` below, and taken out once.
            let sealed = unsafe { Box::from_raw(letter) };
            let values = *sealed.get();
            assert!(values.iter().all(|&value| value == values.len()));
            assert_eq!(owner_of(values.as_ptr()).unwrap().name, sealed.name().unwrap());
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let letters = &letters;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let length = 1 + (thread * 7919 + round * 613) % 20_000;
                        let builder = Value::builder().name(format!("of thread {thread}"));
                        let sealed = builder
                            .build(|sealer| sealer.alloc_slice_from_iter(vec![length; length]));
                        let letter = &letters[(thread + round * 5) % letters.len()];
                        let new = Box::into_raw(Box::new(sealed));
                        read_and_drop(letter.swap(new, Ordering::AcqRel));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    letters.into_iter().for_each(|letter| read_and_drop(letter.into_inner()));
}

/// Pools that end while their blocks are with other threads, which free them in pools of their own
/// or in none; the memory of ended pools goes from thread to thread.
fn pool_stress(budget: Option<&Budget>) {
    const WORDS: usize = 8;
    let letters: Vec<AtomicPtr<usize>> =
        (0..256).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
    let free = |block: NonNull<usize>| {
        // SAFETY: allocated below, freed once; eight words, ours.
        unsafe {
            let thread = block.read();
            assert!((0..WORDS).all(|word| block.add(word).read() == thread));
            PoolRef::free_anywhere(block.cast(), OBJECT);
        }
    };
    let request = |thread: usize, round: usize| {
        for step in 0..200 {
            let block =
                allotment::pool::current().try_alloc_layout(OBJECT).unwrap().cast::<usize>();
            // SAFETY: eight words, ours.
            unsafe { (0..WORDS).for_each(|word| block.add(word).write(thread)) };
            if step % 3 == 0 {
                free(block);
                continue;
            }
            let letter = &letters[(step * 7 + thread * 31 + round) % letters.len()];
            if let Some(before) = NonNull::new(letter.swap(block.as_ptr(), Ordering::AcqRel)) {
                free(before);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let request = &request;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if thread % 4 == 3 {
                            request(thread, round);
                            continue;
                        }
                        let mut builder = LocalPool::builder();
                        if let (Some(budget), 1) = (budget, round % 2) {
                            builder = builder.budget(budget);
                        }
                        builder.build().enter(|| request(thread, round));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    letters.iter().filter_map(|letter| NonNull::new(letter.load(Ordering::Acquire))).for_each(free);
    assert_eq!(budget.map_or(0, Budget::used), 0);
}

const OBJECT: Layout = Layout::new::<[usize; 8]>();

/// The array allocator's stress shape: all, then parts and strides, freed and allocated again; and
/// every seventh object is freed by whichever thread finds it.
fn slab_stress(slab: &RawSlab) {
    let letters: Vec<AtomicPtr<usize>> = (0..64).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let letters = &letters;
            threads.push(scope.spawn(move || {
                let mut objects = Vec::new();
                for round in 0..ROUNDS / 10 {
                    objects.resize_with(400, || allocate(slab, thread, round));
                    for part in [5, 4, 3, 2] {
                        for place in &mut objects[..400 / part] {
                            free(slab, *place);
                            *place = allocate(slab, thread, round);
                        }
                    }
                    for stride in [50, 30, 10] {
                        objects.iter().step_by(stride).for_each(|object| free(slab, *object));
                        let places = objects.iter_mut().step_by(stride);
                        places.for_each(|place| *place = allocate(slab, thread, round));
                    }
                    slab.set_packing(round % 2 == 0);
                    for (index, object) in objects.drain(..).enumerate() {
                        if index % 7 == 0 {
                            let letter = &letters[(index + thread) % letters.len()];
                            let before = letter.swap(object.as_ptr(), Ordering::AcqRel);
                            if let Some(before) = NonNull::new(before) {
                                free(slab, before);
                            }
                        } else {
                            free(slab, object);
                        }
                    }
                    if round % 4 == 0 {
                        slab.trim();
                        assert_eq!(slab.layout(), OBJECT);
                        let _ = slab.statistics();
                    }
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    for letter in &letters {
        if let Some(object) = NonNull::new(letter.swap(ptr::null_mut(), Ordering::AcqRel)) {
            free(slab, object);
        }
    }
    slab.trim();
    assert_eq!(slab.statistics().live_objects, 0);
}

fn allocate(slab: &RawSlab, thread: usize, round: usize) -> NonNull<usize> {
    let lifetime = if round % 5 == 0 { Lifetime::Long } else { Lifetime::Short };
    let object = slab.alloc_for(lifetime).cast::<usize>();
    // SAFETY: eight words, ours.
    unsafe {
        for word in 0..8 {
            object.add(word).write(thread);
        }
    }
    object
}

fn free(slab: &RawSlab, object: NonNull<usize>) {
    // SAFETY: allocated here, freed once; eight words, ours.
    unsafe {
        let thread = object.read();
        assert!((0..8).all(|word| object.add(word).read() == thread));
        slab.free(object.cast());
    }
}

fn stress(phase: usize) {
    let server = Budget::new(64 << 20);
    let finished = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (server, finished, done) = (&server, &finished, &done);
            threads.push(scope.spawn(move || {
                let request = server.child(8 << 20);
                for round in 0..ROUNDS {
                    one_request(&request, thread, round);
                }
                assert_eq!(request.used(), 0);
                if finished.fetch_add(1, Ordering::Relaxed) + 1 == THREADS {
                    done.store(true, Ordering::Relaxed);
                }
            }));
        }
        let done = &done;
        threads.push(scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for allocator in report().allocators {
                    assert!(allocator.name.starts_with("request "), "{}", allocator.name);
                }
                // Every value keeps all there is: what changes is the bookkeeping.
                let policies = [Release::Keep(1 << 30), Release::Decay(Duration::from_secs(3600))];
                recycler().set_policy(policies[phase % 2]);
                recycler().set_limit(1 << 30);
            }
        }));
        // By hand: the end of a scope waits on atomics of the standard library, which the tool
        // can't see.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(server.used(), 0);
}

fn one_request(budget: &Budget, thread: usize, round: usize) {
    let hardened = round % 32 == 0;
    let mut arena = Arena::builder()
        .name(format!("request {thread}"))
        .budget(budget)
        // A hardened arena unmaps its chunks.
        .hardened(hardened && std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_none())
        .build();
    let numbers = arena.alloc_slice_with(5000, |index| index + round);
    let sum: usize = numbers.iter().sum();
    assert_eq!(sum, 5000 * round + 4999 * 5000 / 2);
    if let Some(owner) = owner_of(numbers.as_ptr()) {
        assert_eq!(owner.name, format!("request {thread}"));
    }
    arena.scope(|scope| {
        for size in [10, 1000, 40_000] {
            scope.alloc_slice_with(size, |index| index as u8);
        }
    });
    arena.reset();
    // Another thread may drop it.
    if round % 8 == 0 {
        std::thread::scope(|scope| scope.spawn(move || drop(arena)).join().unwrap());
    }
}

/// Two threads in one arena, which only a lie to the compiler makes possible.
fn seed_a_race() {
    struct Shared(Arena);
    // SAFETY: none: this is the race that the tool must find.
    unsafe impl Sync for Shared {}
    let shared = Shared(Arena::with_capacity(64 << 20));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let shared = &shared;
            scope.spawn(move || {
                // Larger than a window: each moves the arena's base, a plain write. Nothing orders
                // the two threads, so the tool sees the race even where one runs after the other;
                // small objects move the record's word alone, which is atomic.
                for _ in 0..8 {
                    shared.0.alloc_uninit::<[u8; 3 << 19]>();
                }
            });
        }
    });
}
