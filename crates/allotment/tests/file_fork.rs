//! A child made by fork does not have the memory of its parent's files. What it does there faults
//! or is refused, and changes nothing of its parent's. What it inherits, it can drop.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::HashSet;
use std::sync::Arc;

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{
    AllocError, Arena, ArenaVec, Budget, ErrorKind, File, FreeList, RawSlab, Reap, ReapBox,
    Release, Slab, Source,
};
use support::fork::{faulted, forked};
use support::kernel::page_size;
use support::list::{passed_through, under_a_tool};
use support::setup::file_directory;

fn unnamed() -> Arc<File> {
    Arc::new(File::in_directory(&file_directory()).expect("a file"))
}

/// Whether nothing lies in a file, because every object is a block of malloc.
fn without_files() -> bool {
    if passed_through() {
        println!("skipped: objects are malloc's, and lie in no file");
    }
    passed_through()
}

#[test]
fn a_child_that_takes_a_spare_chunk_changes_nothing_of_its_parents_arena() {
    if without_files() {
        return;
    }
    let mut arena = Arena::builder().source(unnamed()).retain(Retain::UpTo(1 << 30)).build();
    for bytes in [3000, 6000, 12_000] {
        arena.alloc_slice_copy(&vec![0u8; bytes]);
    }
    arena.reset();
    // The spare chunks need no call to the source.
    let kept = arena.alloc([1u8; 100]);
    let full = arena.alloc_slice_copy(&[3u8; 15_000]);
    let work = || {
        let refused = arena.try_alloc_slice_copy(&[2u8; 7000]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ForkedChild);
    };
    // SAFETY: the child uses its own copy of the arena.
    assert_eq!(unsafe { forked(work) }, 0);
    let first = arena.alloc_slice_copy(&[4u8; 7000]);
    let second = arena.alloc_slice_copy(&[5u8; 14_000]);
    assert!(kept.iter().all(|byte| *byte == 1) && full.iter().all(|byte| *byte == 3));
    assert!(first.iter().all(|byte| *byte == 4) && second.iter().all(|byte| *byte == 5));
}

#[test]
fn an_address_that_an_arena_returns_in_a_child_faults() {
    if without_files() || under_a_tool() {
        return;
    }
    let arena = Arena::builder().source(unnamed()).hint(64 << 10).build();
    let object = arena.alloc(7u64);
    let before = arena.statistics();
    let reads = || assert_eq!(*object, 7);
    let writes = || drop(arena.try_alloc_slice_copy(&[1u8; 1000]));
    for touch in [&reads as &dyn Fn(), &writes] {
        // SAFETY: the child uses its own copy of the arena.
        assert!(faulted(unsafe { forked(touch) }));
    }
    assert_eq!((*object, arena.statistics()), (7, before));
}

#[test]
fn nothing_is_mapped_in_a_child_where_its_parents_blocks_lie() {
    if without_files() {
        return;
    }
    let file = unnamed();
    let blocks: Vec<usize> = (0..300)
        .map(|_| {
            let layout = Layout::from_size_align(page_size(), 1).unwrap();
            file.acquire(layout).unwrap().addr().get()
        })
        .collect();
    // Every second block goes back, so that the others have holes between them.
    let (kept, gone): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| *block % 3 != 0);
    for block in gone {
        let layout = Layout::from_size_align(page_size(), 1).unwrap();
        let block = NonNull::new(ptr::with_exposed_provenance_mut(block)).unwrap();
        // SAFETY: acquired above, and given back once.
        unsafe { file.release(block, layout) };
    }
    let kept: HashSet<usize> = kept.into_iter().collect();
    let work = || {
        for _ in 0..2000 {
            // SAFETY: a new mapping at an address of the kernel's choice.
            let mapped = unsafe {
                let (protection, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                libc::mmap(ptr::null_mut(), page_size(), protection, flags, -1, 0)
            };
            assert_ne!(mapped, libc::MAP_FAILED);
            assert!(!kept.contains(&mapped.addr()), "an address of the parent's file");
        }
    };
    // SAFETY: system calls, and reads of the set.
    assert_eq!(unsafe { forked(work) }, 0);
}

#[test]
fn a_childs_child_faults_where_its_grandparents_blocks_lie() {
    if without_files() || under_a_tool() {
        return;
    }
    let arena = Arena::builder().source(unnamed()).build();
    let slab = Slab::<[u64; 5]>::builder().source(unnamed()).build();
    let (object, boxed) = (arena.alloc(7u64), slab.alloc([1; 5]));
    in_a_child(|| {
        // SAFETY: the child's child uses its own copies.
        let touch = |work: &dyn Fn()| unsafe { forked(work) };
        assert!(faulted(touch(&|| assert_eq!(*object, 7))));
        assert!(faulted(touch(&|| assert_eq!(boxed[0], 1))));
        let large = [0u8; 200_000];
        let refuses = || {
            let refused = arena.try_alloc_slice_copy(&large).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ForkedChild);
            assert_eq!(slab.try_alloc([1; 5]).unwrap_err().0.kind(), ErrorKind::ForkedChild);
        };
        assert_eq!(touch(&refuses), 0);
    });
    assert_eq!((*object, boxed[0]), (7, 1));
}

/// What a child does with its copies: each of these ends without a fault.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the callers use the child's own copies, and malloc.
    assert_eq!(unsafe { forked(work) }, 0, "the child neither faulted nor failed");
}

#[test]
fn a_child_drops_resets_and_asks_an_arena_and_what_borrows_it() {
    for hardened in [false, true] {
        let budget = Budget::new(usize::MAX);
        let options = || Arena::builder().source(unnamed()).budget(&budget).hardened(hardened);
        let mut arena: Arena = options().retain(Retain::UpTo(1 << 20)).build();
        for _ in 0..2 {
            arena.reset();
            for bytes in [3000, 6000, 12_000] {
                arena.alloc_slice_copy(&vec![1u8; bytes]);
            }
        }
        let before = (arena.statistics(), budget.used());
        in_a_child(|| {
            let _ = arena.statistics();
            // SAFETY: the child's copy, dropped once.
            drop(unsafe { ptr::read(&arena) });
            assert!(passed_through() || budget.used() == 0);
        });
        in_a_child(|| {
            // SAFETY: the child's copy, used in place of the original.
            let mut arena = unsafe { ptr::read(&arena) };
            arena.reset();
            assert_eq!(arena.statistics().live_objects, 0);
            if !passed_through() {
                let refused = arena.try_alloc(1u8).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ForkedChild);
            }
        });
        assert_eq!((arena.statistics(), budget.used()), before);

        // Scopes and collections that the parent began, and that the child ends.
        let mut mark = arena.mark();
        mark.alloc_slice_copy(&[2u8; 200_000]);
        let outer = &raw const mark;
        let scoped = mark.mark();
        let mut vec = ArenaVec::new_in(&*scoped);
        vec.extend_from_slice(&[3u8; 300_000]);
        let boxed = scoped.alloc_boxed([4u8; 1000]);
        let before = budget.used();
        in_a_child(|| {
            // SAFETY: the child's copies, dropped once, and each before what it borrows.
            unsafe {
                drop(ptr::read(&vec));
                drop(ptr::read(&boxed));
                drop(ptr::read(&scoped));
                let mut outer = ptr::read(outer);
                outer.rewind();
                let _inner = outer.mark();
            }
        });
        assert_eq!(budget.used(), before);
        assert!(vec.iter().all(|byte| *byte == 3) && boxed.iter().all(|byte| *byte == 4));
        drop((vec, boxed));
        drop(scoped);
        mark.rewind();
    }
}

#[test]
fn a_child_drops_trims_and_asks_a_free_list() {
    for hardened in [false, true] {
        let budget = Budget::new(usize::MAX);
        let options = || FreeList::<[u64; 5]>::builder().source(unnamed()).budget(&budget);
        let list = options().hardened(hardened).report_live(false).release(Release::Keep(1 << 20));
        let list = list.build();
        let mut boxes: Vec<_> = (0..5000).map(|number| list.alloc([number; 5])).collect();
        boxes.truncate(10);
        let before = (list.statistics(), budget.used());
        in_a_child(|| {
            list.trim();
            let statistics = list.statistics();
            let sums = (statistics.live_objects, statistics.held_bytes, budget.used());
            assert!(passed_through() || sums == (0, 0, 0));
            assert!(
                passed_through()
                    || list.try_alloc([1; 5]).unwrap_err().0.kind() == ErrorKind::ForkedChild
            );
        });
        in_a_child(|| {
            // SAFETY: the child's copy, dropped once. Its boxes are not.
            drop(unsafe { ptr::read(&list) });
            assert!(passed_through() || budget.used() == 0);
        });
        assert_eq!((list.statistics(), budget.used()), before);
        assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == [number as u64; 5]));
        let more: Vec<_> = (0..5000).map(|_| list.alloc([9; 5])).collect();
        assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == [number as u64; 5]));
        drop((more, boxes));
    }
}

#[test]
fn a_child_drops_resets_trims_and_asks_a_reap() {
    for hardened in [false, true] {
        let budget = Budget::new(usize::MAX);
        let reap = Reap::builder().source(unnamed()).budget(&budget).hardened(hardened).build();
        let small: Vec<ReapBox<'_, u64>> =
            (0..1000).map(|number| reap.alloc_boxed(number)).collect();
        let large = reap.alloc_boxed([7u8; 100_000]);
        drop((0..1000).map(|number| reap.alloc_boxed([number; 9])).collect::<Vec<_>>());
        let before = (reap.statistics(), budget.used());
        in_a_child(|| {
            let _ = reap.statistics();
            reap.trim();
            assert!(passed_through() || budget.used() == 0);
            assert!(
                passed_through()
                    || reap.try_alloc_layout(Layout::new::<u64>()).unwrap_err().kind()
                        == ErrorKind::ForkedChild
            );
        });
        in_a_child(|| {
            // SAFETY: the child's copy, used in place of the original. Its boxes are not.
            let mut reap = unsafe { ptr::read(&reap) };
            reap.reset();
            let statistics = reap.statistics();
            assert_eq!((statistics.live_objects, statistics.held_bytes), (0, 0));
            drop(reap);
            assert!(passed_through() || budget.used() == 0);
        });
        assert_eq!((reap.statistics(), budget.used()), before);
        assert!(small.iter().enumerate().all(|(number, boxed)| **boxed == number as u64));
        assert!(large.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_child_drops_a_slab_and_its_boxes() {
    let budget = Budget::new(usize::MAX);
    let slab = Slab::<[u64; 5]>::builder().source(unnamed()).budget(&budget).build();
    let boxes: Vec<_> = (0..1000).map(|number| slab.alloc([number; 5])).collect();
    let before = (slab.statistics(), budget.used());
    in_a_child(|| {
        // SAFETY: the child's copies, dropped once.
        let (slab, boxes) = unsafe { (ptr::read(&slab), ptr::read(&boxes)) };
        drop(boxes);
        slab.trim();
        drop(slab);
    });
    assert_eq!((slab.statistics(), budget.used()), before);
    assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == [number as u64; 5]));
}

/// Ends the other threads' work when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_asks_and_drops_a_file_that_its_parents_threads_were_inside() {
    if without_files() {
        return;
    }
    let file = unnamed();
    let arena = Arena::builder().source(file.clone()).build();
    let address = ptr::from_ref(arena.alloc(7u64));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let arena = Arena::builder().source(file.clone()).build();
                    arena.alloc(1u8);
                }
            });
        }
        for _ in 0..50 {
            let work = || {
                assert_eq!((file.offset_of(address), file.used_bytes()), (None, 0));
                let layout = Layout::new::<u64>();
                assert_eq!(file.acquire(layout).unwrap_err().kind(), ErrorKind::ForkedChild);
                // SAFETY: the child's copy, which nothing uses after this.
                drop(unsafe { ptr::read(Arc::as_ptr(&file)) });
            };
            in_a_child(work);
        }
        drop(stops);
    });
    assert!(file.offset_of(address).is_some());
}

/// How the children in the next test say that the kernel refused a namespace.
const REFUSED: libc::c_int = 77;

fn is_refused(status: libc::c_int) -> bool {
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REFUSED
}

/// Forks a child that is the first process of a new PID namespace, so its id is 1. The calling
/// process has one thread, and exits if it may not make a namespace.
fn forked_as_first(work: impl FnOnce()) {
    // SAFETY: only this process and its children get the namespace; the child uses its own copies.
    let status = unsafe {
        // Without the right to do so, a process needs a user namespace first.
        let with_user = libc::CLONE_NEWPID | libc::CLONE_NEWUSER;
        if libc::unshare(libc::CLONE_NEWPID) != 0 && libc::unshare(with_user) != 0 {
            libc::_exit(REFUSED);
        }
        forked(|| {
            assert_eq!(std::process::id(), 1);
            work();
        })
    };
    if is_refused(status) {
        // SAFETY: ends this child of the test.
        unsafe { libc::_exit(REFUSED) };
    }
    assert_eq!(status, 0, "the child neither faulted nor failed");
}

#[test]
fn a_child_with_the_same_process_id_changes_nothing_of_its_parents_file() {
    if without_files() {
        return;
    }
    let work = || {
        let file = unnamed();
        let layout = Layout::from_size_align(page_size(), 1).unwrap();
        let block = file.acquire(layout).unwrap();
        // SAFETY: acquired above.
        unsafe { block.write(7) };
        let mut arena = Arena::builder().source(file.clone()).build();
        let object = ptr::from_ref(arena.alloc(9u64));
        let excluded = Arc::new(Excluded::new());
        let list = FreeList::<[u64; 5]>::builder().source(excluded.clone()).build();
        core::mem::forget(list.alloc([1; 5]));
        let before = (file.used_bytes(), excluded.calls());
        forked_as_first(|| {
            assert_eq!((file.offset_of(object), file.used_bytes()), (None, 0));
            assert_eq!(file.acquire(layout).unwrap_err().kind(), ErrorKind::ForkedChild);
            // SAFETY: acquired above, and released once in this process. The others are the child's
            // copies, used in place of the originals.
            unsafe {
                file.release(block, layout);
                let mut arena = ptr::read(&arena);
                arena.reset();
                assert_eq!(arena.try_alloc(1u8).unwrap_err().kind(), ErrorKind::ForkedChild);
                drop((arena, ptr::read(&list)));
            }
            assert_eq!(excluded.calls(), before.1);
        });
        // SAFETY: the block and the object are still there.
        assert_eq!(unsafe { (block.read(), object.read()) }, (7, 9));
        assert!(file.offset_of(object).is_some());
        arena.reset();
        assert_eq!((file.used_bytes(), excluded.calls()), before);
    };
    // SAFETY: files, allocators and malloc alone.
    let status = unsafe { forked(|| forked_as_first(work)) };
    if is_refused(status) {
        eprintln!("skipped: this process may make no PID namespace");
    } else {
        assert_eq!(status, 0);
    }
}

/// A source whose memory a child does not have, and which counts its calls.
struct Excluded {
    process: u32,
    /// The requests in another process, which are refused.
    refused: AtomicUsize,
    acquired: AtomicUsize,
    released: AtomicUsize,
}

impl Excluded {
    fn new() -> Self {
        let (refused, acquired, released) = Default::default();
        Self { process: std::process::id(), refused, acquired, released }
    }

    /// The numbers of blocks acquired and released.
    fn calls(&self) -> (usize, usize) {
        (self.acquired.load(Ordering::Relaxed), self.released.load(Ordering::Relaxed))
    }
}

// SAFETY: each block is a separate mapping.
unsafe impl Source for Excluded {
    fn name(&self) -> &str {
        "excluded"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if std::process::id() != self.process {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(AllocError::new(ErrorKind::ForkedChild, layout.size()));
        }
        self.acquired.fetch_add(1, Ordering::Relaxed);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, whose start and end are unmapped; the advice changes what forks copy.
        let block = unsafe {
            let (size, align) = (layout.size(), layout.align().max(page_size()));
            let start = libc::mmap(ptr::null_mut(), size + align, protection, flags, -1, 0);
            let before = start.addr().next_multiple_of(align) - start.addr();
            let block = start.byte_add(before);
            assert!(before == 0 || libc::munmap(start, before) == 0);
            assert_eq!(libc::munmap(block.byte_add(size), align - before), 0);
            assert_eq!(libc::madvise(block, size, libc::MADV_DONTFORK), 0);
            block
        };
        Ok(NonNull::new(block.cast()).unwrap())
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        self.released.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        assert_eq!(unsafe { libc::munmap(block.as_ptr().cast(), layout.size()) }, 0);
    }

    fn is_inherited(&self) -> bool {
        false
    }
}

#[test]
fn a_child_calls_no_source_whose_memory_it_does_not_have() {
    if without_files() {
        return;
    }
    let source = Arc::new(Excluded::new());
    let shared = SharedSource::from(source.clone());
    let arena: Arena = Arena::builder().source(shared.clone()).build();
    arena.alloc_slice_copy(&[1u8; 100_000]);
    let list = FreeList::<[u64; 5]>::builder().source(shared.clone()).build();
    core::mem::forget(list.alloc([1; 5]));
    let reap = Reap::builder().source(shared.clone()).build();
    let layout = Layout::new::<[u64; 5]>();
    let _ = reap.alloc_layout(layout);
    let slab = RawSlab::builder(layout).source(shared.clone()).build();
    let (slot, other) = (slab.alloc(), slab.alloc());
    let handle = slab.handle();
    let before = source.calls();
    in_a_child(|| {
        assert_eq!(slab.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
        assert_eq!(handle.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
        assert_eq!(slab.try_reserve(100).unwrap_err().kind(), ErrorKind::ForkedChild);
        // SAFETY: the child's copies, freed and dropped once.
        unsafe {
            slab.free(slot);
            drop((ptr::read(&arena), ptr::read(&list), ptr::read(&reap), ptr::read(&slab)));
            slab.free(other);
        }
        // Allocators of the child's own, on what it inherited.
        let fresh: Arena = Arena::builder().source(shared.clone()).build();
        assert_eq!(fresh.try_alloc(1u8).unwrap_err().kind(), ErrorKind::ForkedChild);
        let fresh = RawSlab::builder(layout).source(shared.clone()).build();
        assert_eq!(fresh.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
        assert_eq!(source.refused.load(Ordering::Relaxed), 0);
        assert_eq!(source.calls(), before);
    });
    // SAFETY: allocated above, freed once.
    unsafe {
        slab.free(slot);
        slab.free(other);
    }
    drop(handle);
    drop((arena, list, reap, slab));
    let (acquired, released) = source.calls();
    assert_eq!(acquired, released);
}

#[test]
fn a_source_refuses_a_child_that_converts_it_again() {
    if without_files() {
        return;
    }
    let source = Arc::new(Excluded::new());
    let file = unnamed();
    let arena: Arena = Arena::builder().source(source.clone()).build();
    arena.alloc([1u8; 100]);
    let before = source.calls();
    in_a_child(|| {
        let converted = || [SharedSource::from(source.clone()), SharedSource::from(file.clone())];
        for shared in converted() {
            let arena: Arena = Arena::builder().source(shared).build();
            assert_eq!(arena.try_alloc(1u8).unwrap_err().kind(), ErrorKind::ForkedChild);
        }
        assert_eq!(source.refused.load(Ordering::Relaxed), 1, "the source itself was asked");
        for shared in converted() {
            let slab = RawSlab::builder(Layout::new::<[u64; 5]>()).source(shared).build();
            assert_eq!(slab.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
        }
        assert!(source.refused.load(Ordering::Relaxed) > 1);
        assert_eq!(source.calls(), before);
    });
    assert_eq!(file.used_bytes(), 0);
}
