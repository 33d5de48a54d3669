//! What a build without the standard library promises, as functions that need neither it nor
//! unwinding. `tests/portable_claims.rs` runs them on the host, and `tests/wasm/` in WebAssembly,
//! whose addresses have 32 bits.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{
    AllocError, Arena, ArenaString, ArenaVec, Budget, ErrorKind, FreeList, ListBox, MAX_NAME_LEN,
    Malloc, RawFreeList, Release, Source, format_in,
};

/// All claims, with their names.
pub const CLAIMS: [(&str, fn()); 10] = [
    ("objects keep their bytes and their alignment", objects_keep_their_bytes),
    ("a reset keeps a chunk and frees all objects", a_reset_frees_all_objects),
    ("scopes free what they allocated", scopes_free_what_they_allocated),
    ("a size or an alignment beyond the address space is an error", too_large_is_an_error),
    ("collections grow and shrink", collections_grow_and_shrink),
    ("list objects are apart and reused", list_objects_are_apart),
    ("empty chunks of a list are released", empty_chunks_are_released),
    ("a budget is exact and never exceeded", a_budget_is_exact),
    (
        "a source gets back what it lent, and its refusals leave all as it was",
        a_source_is_paid_back,
    ),
    ("names have a limit", names_have_a_limit),
];

/// A source that counts what it has lent, and refuses from a number of bytes on.
struct Counting {
    lent: AtomicUsize,
    most: usize,
}

impl Counting {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { lent: AtomicUsize::new(0), most })
    }

    fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }
}

// SAFETY: `Malloc` keeps the contract, and this passes its blocks on.
unsafe impl Source for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if self.lent() + layout.size() > self.most {
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        }
        let block = Malloc.acquire(layout)?;
        self.lent.fetch_add(layout.size(), Ordering::Relaxed);
        Ok(block)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        self.lent.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { Malloc.release(block, layout) }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

fn objects_keep_their_bytes() {
    fn check<const MIN_ALIGN: usize>() {
        let mut random = Random(7 + MIN_ALIGN as u64);
        let arena = Arena::<MIN_ALIGN>::with_min_align();
        let mut objects = Vec::new();
        let mut bytes = 0;
        for number in 0..5000 {
            let size = match random.below(100) {
                0 => 1 + random.below(300_000),
                _ => 1 + random.below(100),
            };
            let align = 1 << random.below(if number % 50 == 0 { 13 } else { 5 });
            let object = arena.alloc_layout(layout(size, align));
            assert_eq!(object.addr().get() % align, 0);
            // SAFETY: just allocated with this size.
            unsafe { object.write_bytes(number as u8, size) };
            objects.push((object, size, number as u8));
            bytes += size as u64;
        }
        for (object, size, byte) in &objects {
            // SAFETY: live, and written above.
            let written = unsafe { core::slice::from_raw_parts(object.as_ptr(), *size) };
            assert!(written.iter().all(|found| found == byte));
        }
        let statistics = arena.statistics();
        assert_eq!((statistics.live_objects, statistics.live_bytes), (5000, bytes));
        assert!(statistics.held_bytes >= bytes);
    }
    check::<1>();
    check::<8>();
    check::<16>();
}

fn a_reset_frees_all_objects() {
    let source = Counting::new(usize::MAX);
    let mut arena = Arena::builder().source(source.clone()).retain(Retain::UpTo(64 << 10)).build();
    for _ in 0..3 {
        for number in 0..20_000u32 {
            assert_eq!(*arena.alloc(number), number);
        }
        assert!(source.lent() > 64 << 10);
        arena.reset();
        assert!(source.lent() <= 64 << 10);
        assert_eq!(arena.statistics().live_objects, 0);
    }
    drop(arena);
    assert_eq!(source.lent(), 0);
}

fn scopes_free_what_they_allocated() {
    let mut arena = Arena::new();
    let kept = *arena.alloc(7u64);
    for _ in 0..100 {
        let sum: u64 = arena.scope(|scope| {
            let numbers = ArenaVec::from_iter_in(0..1000u64, scope).into_slice_in(scope);
            scope.scope(|inner| inner.alloc_slice_copy(numbers).iter().sum())
        });
        assert_eq!((kept, sum), (7, 499_500));
    }
    assert_eq!(arena.statistics().live_objects, 1);
}

fn too_large_is_an_error() {
    let arena = Arena::new();
    arena.alloc(1u8);
    let half = 1 << (usize::BITS - 2);
    for (size, align) in [
        (isize::MAX as usize, 1),
        (isize::MAX as usize - 4096, 4096),
        (1, half),
        (half, half),
        (half - 1, 1),
        (1 << (usize::BITS - 3), half),
    ] {
        // An alignment of a large part of the address space may be granted, and is right then.
        if let Ok(object) = arena.try_alloc_layout(layout(size, align)) {
            assert_eq!(object.addr().get() % align, 0);
            assert!(size < half);
        }
        let list = RawFreeList::try_new(layout(size, align));
        if let Ok(object) = list.and_then(|list| list.try_alloc()) {
            assert_eq!(object.addr().get() % align, 0);
        }
    }
    assert!(arena.try_alloc_slice_with(usize::MAX / 8, |_| 0u64).is_err());
    let mut vec = ArenaVec::<u64>::new_in(&arena);
    assert!(vec.try_reserve(usize::MAX / 8).is_err() && vec.try_reserve(usize::MAX).is_err());
    assert_eq!(*arena.alloc(5), 5);
}

fn collections_grow_and_shrink() {
    let arena = Arena::new();
    let mut vec = ArenaVec::new_in(&arena);
    let mut model = Vec::new();
    let mut random = Random(3);
    for number in 0..20_000u32 {
        match random.below(10) {
            0 if !model.is_empty() => {
                let at = random.below(model.len());
                assert_eq!(vec.swap_remove(at), model.swap_remove(at));
            }
            1 => {
                let at = random.below(model.len() + 1);
                vec.insert(at, number);
                model.insert(at, number);
            }
            _ => {
                vec.push(number);
                model.push(number);
            }
        }
    }
    assert_eq!(vec, model);
    vec.truncate(10);
    vec.shrink_to_fit();
    assert_eq!(vec, model[..10]);
    let mut text: ArenaString<'_> = format_in!(&arena, "{} of {}", 3, "ten");
    text.push_str(" ☂");
    assert_eq!(text, "3 of ten ☂");
    let boxed = arena.alloc_boxed(Vec::from([1, 2, 3]));
    assert_eq!(boxed.len(), 3);
}

fn list_objects_are_apart() {
    let list = FreeList::<[u32; 5]>::new();
    let mut random = Random(11);
    let mut live: Vec<(ListBox<'_, [u32; 5]>, u32)> = Vec::new();
    for number in 0..50_000 {
        if live.len() > random.below(3000) {
            let (object, number) = live.swap_remove(random.below(live.len()));
            assert_eq!(*object, [number; 5]);
        } else {
            live.push((list.alloc([number; 5]), number));
        }
    }
    assert_eq!(list.statistics().live_objects, live.len() as u64);
    for (object, number) in live {
        assert_eq!(*object, [number; 5]);
    }
    assert_eq!(list.statistics().live_objects, 0);
}

fn empty_chunks_are_released() {
    let source = Counting::new(usize::MAX);
    let list = RawFreeList::builder(layout(100, 4))
        .source(source.clone())
        .release(Release::AtOnce)
        .build();
    for _ in 0..5 {
        let mut objects: Vec<_> = (0..30_000).map(|_| list.alloc()).collect();
        let held = source.lent();
        let mut random = Random(5);
        while objects.len() > 2 {
            let object = objects.swap_remove(random.below(objects.len()));
            // SAFETY: live, freed once.
            unsafe { list.free(object) };
        }
        list.trim();
        assert!(source.lent() < held);
        for object in objects {
            // SAFETY: as above.
            unsafe { list.free(object) };
        }
    }
    list.trim();
    assert_eq!((source.lent(), list.statistics().held_bytes), (0, 0));
}

fn a_budget_is_exact() {
    let server = Budget::new(1 << 20);
    let request = server.child(256 << 10);
    let arena = Arena::builder().budget(&request).build();
    let mut allocated = 0;
    while arena.try_alloc([0u8; 1000]).is_ok() {
        allocated += 1;
        assert_eq!(request.used() as u64, arena.statistics().held_bytes);
        assert!(request.used() <= request.limit() && server.used() == request.used());
    }
    assert!(allocated > 100);
    let error = arena.try_alloc([0u8; 100_000]).expect_err("over the limit");
    assert_eq!((error.kind(), error.budget_limit()), (ErrorKind::BudgetExceeded, Some(256 << 10)));
    drop(arena);
    assert_eq!((server.used(), request.used()), (0, 0));
}

fn a_source_is_paid_back() {
    let source = Counting::new(100_000);
    let arena = Arena::builder().source(source.clone()).build();
    let mut objects = 0;
    while arena.try_alloc([1u8; 500]).is_ok() {
        objects += 1;
    }
    let statistics = arena.statistics();
    assert_eq!((statistics.live_objects, statistics.held_bytes as usize), (objects, source.lent()));
    let list = FreeList::<[u64; 9]>::builder().source(source.clone()).build();
    assert!(list.try_alloc([1; 9]).is_err() || source.lent() <= 100_000);
    drop((arena, list));
    assert_eq!(source.lent(), 0);
    let shared = SharedSource::try_new(Malloc).expect("memory for the source");
    assert_eq!(*Arena::builder().source(shared).build().alloc(3), 3);
}

fn names_have_a_limit() {
    let name = |len| (0..len).map(|_| 'n').collect::<String>();
    let arena = Arena::builder().name(name(MAX_NAME_LEN)).build();
    assert_eq!(arena.name().map(str::len), Some(MAX_NAME_LEN));
    let error = Arena::builder().name(name(MAX_NAME_LEN + 1)).try_build().expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::NameTooLong);
}
