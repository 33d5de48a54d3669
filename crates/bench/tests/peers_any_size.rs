//! What every allocator of objects of any size that belong to no task must do, every allocator of
//! requests, and every global one.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Barrier, mpsc};
use std::thread;

use bench::peers::{
    About, AnySize, AnySizeVisitor, FreedBy, Global, GlobalVisitor, Requests, RequestsVisitor,
    Service, global_calls, known,
};

const OBJECTS: usize = 3_000;

/// Sizes of 1 to 4096 bytes, mostly small, at alignments up to 64.
fn layout(number: usize) -> Layout {
    let size = 1 + number * 7 % (16 << (number % 9));
    Layout::from_size_align(size, 1 << (number % 7)).unwrap()
}

/// A live object, all bytes of which are its mark.
struct Object {
    at: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

// SAFETY: an address and what is known of it.
unsafe impl Send for Object {}

impl Object {
    fn new(at: NonNull<u8>, layout: Layout, mark: u8) -> Self {
        assert!(at.addr().get().is_multiple_of(layout.align()), "{layout:?} at {at:?}");
        // SAFETY: the block is as long as its layout.
        unsafe { at.write_bytes(mark, layout.size()) };
        Self { at, layout, mark }
    }

    fn check(&self) {
        self.check_first(self.layout.size());
    }

    fn check_first(&self, length: usize) {
        // SAFETY: the object is live, and its bytes were written.
        let bytes = unsafe { NonNull::slice_from_raw_parts(self.at, length).as_ref() };
        assert!(bytes.iter().all(|byte| *byte == self.mark), "{:?} was overwritten", self.layout);
    }
}

fn fill<A: AnySize>(own: &A) -> Vec<Object> {
    fill_with(own, OBJECTS)
}

fn fill_with<A: AnySize>(own: &A, objects: usize) -> Vec<Object> {
    let objects: Vec<_> = (0..objects)
        .map(|number| Object::new(own.alloc(layout(number)), layout(number), number as u8))
        .collect();
    let mut places: Vec<_> =
        objects.iter().map(|one| (one.at.addr().get(), one.layout.size())).collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "they overlap");
    objects
}

fn for_each_any_size<V: AnySizeVisitor + Copy>(claim: V, serves: impl Fn(FreedBy) -> bool) {
    let rows =
        known().iter().filter(|about| about.serves(Service::AnySize) && serves(about.freed_by));
    let mut served = 0;
    for about in rows {
        eprintln!("{}", about.name);
        claim.with(about.name).unwrap();
        served += 1;
    }
    assert!(served > 0);
}

#[test]
fn objects_are_apart_and_keep_what_was_written_while_others_come_and_go() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl AnySizeVisitor for Claim {
        type Output = ();

        fn visit<A: AnySize>(self, _: &'static About) {
            // The thread may leave it and come back.
            for _ in 0..2 {
                let own = A::start();
                let mut objects = fill(&own);
                for number in 0..2 * OBJECTS {
                    let object = &mut objects[number * 13 % OBJECTS];
                    object.check();
                    // SAFETY: live, of this layout, and replaced at once.
                    unsafe { own.free(object.at, object.layout) };
                    let layout = layout(number * 5);
                    *object = Object::new(own.alloc(layout), layout, number as u8);
                }
                for object in objects {
                    object.check();
                    // SAFETY: live, of this layout, and not used after.
                    unsafe { own.free(object.at, object.layout) };
                }
            }
        }
    }

    for_each_any_size(Claim, |_| true);
}

#[test]
fn each_thread_has_its_own_objects() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl AnySizeVisitor for Claim {
        type Output = ();

        fn visit<A: AnySize>(self, _: &'static About) {
            let barrier = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let own = A::start();
                        barrier.wait();
                        let objects = fill(&own);
                        barrier.wait();
                        for object in objects {
                            object.check();
                            // SAFETY: live, of this layout, and not used after.
                            unsafe { own.free(object.at, object.layout) };
                        }
                    });
                }
            });
        }
    }

    for_each_any_size(Claim, |_| true);
}

#[test]
fn another_thread_frees_objects_where_they_say_so() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl AnySizeVisitor for Claim {
        type Output = ();

        fn visit<A: AnySize>(self, _: &'static About) {
            let barrier = Barrier::new(2);
            let (to_left, from_right) = mpsc::channel();
            let (to_right, from_left) = mpsc::channel();
            thread::scope(|scope| {
                for (into, from) in [(to_right, from_right), (to_left, from_left)] {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let own = A::start();
                        for _ in 0..3 {
                            into.send(fill(&own)).unwrap();
                            for object in from.recv().unwrap() {
                                object.check();
                                // SAFETY: live, of this layout, not used after; its thread waits
                                // below.
                                unsafe { own.free_elsewhere(object.at, object.layout) };
                            }
                        }
                        barrier.wait();
                    });
                }
            });
        }
    }

    for_each_any_size(Claim, |freed_by| freed_by == FreedBy::AnyThread);
}

#[test]
fn what_outlives_its_request_keeps_its_bytes_and_a_later_request_of_any_thread_frees_it() {
    struct Claim;

    impl RequestsVisitor for Claim {
        type Output = ();

        fn visit<A: Requests>(self, _: &'static About) {
            /// Objects of a request, which stay below the limit of a request.
            const IN_REQUEST: usize = 300;

            /// Serves requests that free every object but one in ten.
            fn serve<A: Requests>(allocator: &A) -> Vec<Object> {
                let mut left = Vec::new();
                for _ in 0..5 {
                    left.extend(allocator.request(|memory| {
                        let (left, rest): (Vec<_>, Vec<_>) = fill_with(memory, IN_REQUEST)
                            .into_iter()
                            .partition(|one| one.mark % 10 == 0);
                        for object in rest {
                            object.check();
                            // SAFETY: live, of this layout, and not used after.
                            unsafe { memory.free(object.at, object.layout) };
                        }
                        left
                    }));
                }
                left
            }
            let barrier = Barrier::new(2);
            let (to_left, from_right) = mpsc::channel();
            let (to_right, from_left) = mpsc::channel();
            thread::scope(|scope| {
                for (into, from) in [(to_right, from_right), (to_left, from_left)] {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let allocator = A::start();
                        into.send(serve(&allocator)).unwrap();
                        let others = from.recv().unwrap();
                        let own = serve(&allocator);
                        allocator.request(|memory| {
                            for object in others.into_iter().chain(own) {
                                object.check();
                                // SAFETY: live, of this layout, and not used after; the allocators
                                // live until the barrier.
                                unsafe { memory.free_elsewhere(object.at, object.layout) };
                            }
                        });
                        barrier.wait();
                    });
                }
            });
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::Requests)) {
        eprintln!("{}", about.name);
        Claim.with(about.name).unwrap();
    }
}

#[test]
fn the_calls_of_a_global_allocator_do_what_global_alloc_asks() {
    for about in known().iter().filter(|about| about.serves(Service::Global)) {
        eprintln!("{}", about.name);
        let (_, calls) = global_calls(about.name.as_bytes()).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                // These threads have entered nothing.
                scope.spawn(|| {
                    let fresh = |block| NonNull::new(block).expect("there is memory");
                    // SAFETY: no size is zero; all blocks are live, have their layouts, and are
                    // freed once.
                    unsafe {
                        for number in 0..OBJECTS {
                            let layout = layout(number);
                            // Zeros, where something else may have been.
                            let dirty = Object::new(fresh((calls.alloc)(layout)), layout, 0xEE);
                            (calls.dealloc)(dirty.at.as_ptr(), layout);
                            let at = fresh((calls.alloc_zeroed)(layout));
                            Object { at, layout, mark: 0 }.check();
                            let mut object = Object::new(at, layout, number as u8);
                            // Larger, smaller, the same, and smaller than its alignment.
                            for size in [layout.size() * 3, 1, 1, 5_000, layout.size(), 2] {
                                let kept = object.layout.size().min(size);
                                let block = object.at.as_ptr();
                                object.at = fresh((calls.realloc)(block, object.layout, size));
                                object.check_first(kept);
                                let layout = Layout::from_size_align(size, layout.align()).unwrap();
                                object = Object::new(object.at, layout, object.mark);
                            }
                            (calls.dealloc)(object.at.as_ptr(), object.layout);
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_request_is_served_once_and_answered() {
    struct Claim;

    impl GlobalVisitor for Claim {
        type Output = i32;

        fn visit<G: Global>(self, _: &'static About) -> i32 {
            let allocator = G::start();
            let mut served = 0;
            let answer = allocator.request(|| {
                served += 1;
                42
            });
            answer * served
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::Global)) {
        assert_eq!(Claim.with(about.name).unwrap(), 42, "{}", about.name);
    }
}
