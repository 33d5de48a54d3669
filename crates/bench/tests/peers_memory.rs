//! What every allocator of the table must do, or a row of it means nothing.

use std::alloc::Layout;
use std::mem;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use bench::peers::{
    About, Allocator, Collections, CollectionsVisitor, Line, SCOPED, Scopes, ScopesVisitor,
    Service, TYPED_ARENA_SIZES, Task, TaskVisitor, known,
};

const THREADS: usize = 4;
const TASKS: usize = 3;
const OBJECTS: usize = 1_500;

/// A sequence that is the same in each run: xorshift.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Mostly small sizes up to 64 KiB, every alignment up to 64.
    fn layout(&mut self, about: &About) -> Layout {
        let (size, align) = if about.any_size {
            let most = 1 << self.below(17);
            (1 + self.below(most), 1 << self.below(7))
        } else {
            (TYPED_ARENA_SIZES[self.below(4)], 1 << self.below(4))
        };
        Layout::from_size_align(size, align).unwrap()
    }
}

/// A live object: every byte of it was written.
struct Object {
    at: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

impl Object {
    fn new<T: Task>(task: &T, layout: Layout, mark: u8) -> Self {
        let at = task.alloc(layout);
        // Where nothing lies needs no alignment.
        assert!(
            layout.size() == 0 || at.addr().get().is_multiple_of(layout.align()),
            "{layout:?} at {at:?}"
        );
        // SAFETY: the block is as long as its layout.
        unsafe { at.write_bytes(mark, layout.size()) };
        Self { at, layout, mark }
    }

    fn check(&self) {
        // SAFETY: the object is live, and its bytes were written.
        let bytes = unsafe { NonNull::slice_from_raw_parts(self.at, self.layout.size()).as_ref() };
        let Some((first, rest)) = bytes.split_first() else { return };
        // All are the mark, by comparing with itself one on: fast in a build without optimisation
        // too.
        let all_the_same = *rest == bytes[..rest.len()];
        assert!(*first == self.mark && all_the_same, "{:?} was overwritten", self.layout);
    }

    fn grow<T: Task>(&mut self, task: &T, new_size: usize) {
        // SAFETY: the object is live, with this layout.
        self.at = unsafe { task.grow(self.at, self.layout, new_size) };
        self.check();
        self.layout = Layout::from_size_align(new_size, self.layout.align()).unwrap();
        assert!(
            new_size == 0 || self.at.addr().get().is_multiple_of(self.layout.align()),
            "{:?} at {:?}, grown",
            self.layout,
            self.at
        );
        // SAFETY: the block is as long as its layout.
        unsafe { self.at.write_bytes(self.mark, new_size) };
    }

    fn free<T: Task>(self, task: &T) {
        self.check();
        // SAFETY: the object is live, with this layout, and is not used again.
        unsafe { task.free(self.at, self.layout) }
    }
}

fn assert_apart(objects: &[Object]) {
    let mut ranges: Vec<_> = objects
        .iter()
        .map(|object| {
            let start = object.at.addr().get();
            (start, start + object.layout.size())
        })
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "overlap: {pair:x?}");
    }
}

/// One piece of work: allocate, free some, allocate more, grow some, and free as the allocator
/// does.
fn work<T: Task>(task: &T, about: &About, sequence: &mut Sequence) {
    let mut objects = Vec::new();
    for i in 0..OBJECTS {
        let layout = sequence.layout(about);
        objects.push(Object::new(task, layout, i as u8));
    }
    assert_apart(&objects);
    for _ in 0..OBJECTS / 2 {
        let chosen = sequence.below(objects.len());
        objects.swap_remove(chosen).free(task);
    }
    for i in 0..OBJECTS / 2 {
        let layout = sequence.layout(about);
        objects.push(Object::new(task, layout, !(i as u8)));
    }
    assert_apart(&objects);
    if about.any_size {
        for object in &mut objects {
            let more = sequence.below(3) * sequence.below(1_000);
            object.grow(task, object.layout.size() + more);
        }
        assert_apart(&objects);
    }
    for object in objects {
        if T::FREED_TOGETHER {
            object.check();
        } else {
            object.free(task);
        }
    }
}

/// Runs a claim with each allocator of this build, and names the one that does not hold it.
fn for_each_allocator<V: TaskVisitor + Copy>(claim: V) {
    for about in known().iter().filter(|about| about.serves(Service::Tasks)) {
        eprintln!("{}", about.name);
        claim.with(about.name).unwrap();
    }
}

#[test]
fn vectors_and_strings_are_made_in_task_after_task() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl CollectionsVisitor for Claim {
        type Output = ();

        fn visit<C: Collections>(self, _: &'static About) {
            let mut own = C::start();
            for numbers in [0, 1, 10_000] {
                own.push(numbers);
                let line = |number| Line { name: "disk", number, value: numbers << number };
                own.format((0..numbers.min(40) as u32).map(line));
            }
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::Collections)) {
        eprintln!("{}", about.name);
        Claim.with(about.name).unwrap();
    }
}

#[test]
fn each_scope_has_objects_apart_from_each_other_in_memory_of_scopes_before_it() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl ScopesVisitor for Claim {
        type Output = ();

        fn visit<S: Scopes>(self, _: &'static About) {
            let mut own = S::start();
            let mut firsts = Vec::new();
            for _ in 0..20 {
                let mut places = vec![NonNull::<u8>::dangling(); OBJECTS];
                own.scope(&mut places);
                firsts.push(places[0]);
                places.sort_unstable();
                let apart = |pair: &[NonNull<u8>]| {
                    pair[1].addr().get() - pair[0].addr().get() >= SCOPED.size()
                };
                assert!(places.windows(2).all(apart));
            }
            firsts.sort_unstable();
            firsts.dedup();
            assert!(firsts.len() < 20, "{firsts:?}");
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::Scopes)) {
        eprintln!("{}", about.name);
        Claim.with(about.name).unwrap();
    }
}

#[test]
fn values_and_texts_keep_what_was_put_in() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            let mut own = A::start();
            for _ in 0..TASKS {
                let task = own.begin();
                let values: Vec<_> = (0..200u64).map(|word| task.put([word; 8])).collect();
                let texts = ["a", "name", "a longer name, with a comma"];
                let texts = about.any_size.then(|| texts.map(|text| (text, task.put_str(text))));
                for (word, value) in (0..).zip(&values) {
                    // SAFETY: live, and put in above.
                    assert_eq!(unsafe { value.read() }, [word; 8], "{}", about.name);
                }
                for (text, at) in texts.iter().flatten() {
                    // SAFETY: live, and as long as the text.
                    let kept = unsafe { NonNull::slice_from_raw_parts(*at, text.len()).as_ref() };
                    assert_eq!(kept, text.as_bytes(), "{}", about.name);
                }
                if !<A::Task<'_> as Task>::FREED_TOGETHER {
                    for value in values {
                        // SAFETY: of this task and layout, and not used after.
                        unsafe { task.free(value.cast(), Layout::new::<[u64; 8]>()) };
                    }
                    for (text, at) in texts.iter().flatten() {
                        // SAFETY: as above.
                        unsafe { task.free(*at, Layout::for_value(*text)) };
                    }
                }
            }
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn objects_are_distinct_aligned_and_keep_what_was_written() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            let barrier = Barrier::new(THREADS);
            thread::scope(|scope| {
                for i in 0..THREADS {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let mut sequence = Sequence(i as u64 + 1);
                        let mut allocator = A::start();
                        barrier.wait();
                        for _ in 0..TASKS {
                            work(&allocator.begin(), about, &mut sequence);
                        }
                    });
                }
            });
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn an_object_can_grow_from_one_byte_to_a_mebibyte() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            if !about.any_size {
                return;
            }
            let mut allocator = A::start();
            for align in [1, 8, 16, 64] {
                let task = allocator.begin();
                // Two in turns, so that neither is always the last one.
                let layout = Layout::from_size_align(1, align).unwrap();
                let mut objects = [1, 2].map(|mark| Object::new(&task, layout, mark));
                while objects[0].layout.size() < 1 << 20 {
                    for object in &mut objects {
                        let size = object.layout.size();
                        object.grow(&task, size + size / 3 + 1);
                    }
                    assert_apart(&objects);
                }
                for object in objects {
                    object.free(&task);
                }
            }
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn growing_by_nothing_keeps_the_bytes() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, _: &'static About) {
            let mut allocator = A::start();
            let task = allocator.begin();
            let mut object = Object::new(&task, Layout::new::<[u64; 5]>(), 7);
            object.grow(&task, 40);
            object.free(&task);
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn an_object_of_no_bytes_can_be_grown_and_freed() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            if !about.any_size {
                return;
            }
            let mut allocator = A::start();
            let task = allocator.begin();
            for align in [1, 8, 64] {
                let empty = Layout::from_size_align(0, align).unwrap();
                Object::new(&task, empty, 0).free(&task);
                let mut grown = Object::new(&task, empty, 3);
                grown.grow(&task, 0);
                grown.grow(&task, 100);
                grown.free(&task);
            }
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn a_thread_may_come_back_to_an_allocator() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            for seed in 1..4 {
                work(&A::start().begin(), about, &mut Sequence(seed));
            }
        }
    }

    for_each_allocator(Claim);
}

#[test]
fn a_forgotten_task_leaves_the_next_one_whole() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, about: &'static About) {
            let mut allocator = A::start();
            let task = allocator.begin();
            let kept: Vec<_> =
                (0..100).map(|i| Object::new(&task, Layout::new::<[u64; 8]>(), i)).collect();
            kept.iter().for_each(Object::check);
            mem::forget(task);
            work(&allocator.begin(), about, &mut Sequence(5));
        }
    }

    for_each_allocator(Claim);
}

#[test]
#[should_panic(expected = "typed-arena serves objects of [192, 24, 40, 64] bytes")]
fn typed_arena_says_which_sizes_it_serves() {
    struct Claim;

    impl TaskVisitor for Claim {
        type Output = ();

        fn visit<A: Allocator>(self, _: &'static About) {
            A::start().begin().alloc(Layout::new::<[u64; 6]>());
        }
    }

    Claim.with("typed-arena").unwrap();
}

#[test]
fn an_arena_says_that_it_frees_together() {
    struct IsFreedTogether;

    impl TaskVisitor for IsFreedTogether {
        type Output = bool;

        fn visit<A: Allocator>(self, _: &'static About) -> bool {
            <A::Task<'_> as Task>::FREED_TOGETHER
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::Tasks)) {
        let together = IsFreedTogether.with(about.name).unwrap();
        assert_eq!(together, about.kind == bench::peers::PeerKind::Arena, "{}", about.name);
    }
}
