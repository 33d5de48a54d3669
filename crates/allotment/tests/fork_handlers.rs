//! Handlers of `pthread_atfork`: the library's may fail to register, and another library's may map
//! memory where a child reserves its parent's addresses.
//!
//! Registered handlers belong to the process, so each test runs in a forked process of its own. This
//! process itself uses no allocator.
#![cfg(system_memory)]
#![cfg(target_env = "gnu")]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use allotment::source::SharedSource;
use allotment::{
    AllocError, Arena, ErrorKind, File, LocalPool, RawFreeList, RawSlab, Reap, Source,
};
use support::fork::{faulted, forked, rounds};
use support::kernel::page_size;
use support::list::{passed_through, under_a_tool};
use support::setup::file_directory;

/// A function that `pthread_atfork` registers.
type Handler = Option<extern "C" fn()>;

/// The registrations that fail, counted down.
static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// In the place of the C library's: fails as if it had no memory, or registers the functions.
#[unsafe(no_mangle)]
extern "C" fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> libc::c_int {
    unsafe extern "C" {
        /// glibc's, which its own `pthread_atfork` calls.
        safe fn __register_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
            library: *const core::ffi::c_void,
        ) -> libc::c_int;
    }
    let failing = FAILURES.load(Ordering::Relaxed);
    if failing > 0 {
        FAILURES.store(failing - 1, Ordering::Relaxed);
        return libc::ENOMEM;
    }
    __register_atfork(prepare, parent, child, ptr::null())
}

/// Runs `work` in a process where nothing is registered yet.
fn in_a_process(work: impl FnOnce()) {
    if passed_through() {
        println!("skipped: objects are malloc's, and lie in no file");
        return;
    }
    // SAFETY: this process uses no allocator of the library, and the child has malloc.
    assert_eq!(unsafe { forked(work) }, 0);
}

fn unnamed() -> File {
    File::in_directory(&file_directory()).expect("a file")
}

/// Calls `call` twice: it must return an error while a registration fails, and succeed after that.
fn refused_once<T>(mut call: impl FnMut() -> Result<T, AllocError>) -> T {
    FAILURES.store(1, Ordering::Relaxed);
    let refused = call().map(|_| ()).expect_err("its handler is not registered");
    assert_eq!(refused.kind(), ErrorKind::System(libc::ENOMEM));
    assert_eq!(FAILURES.load(Ordering::Relaxed), 0);
    call().expect("its handler is registered")
}

#[test]
fn a_file_hands_out_nothing_before_its_handlers_are_registered() {
    in_a_process(|| {
        FAILURES.store(1, Ordering::Relaxed);
        let refused = File::in_directory(&file_directory()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory);
        let file = Arc::new(unnamed());
        let arena: Arena = Arena::builder().source(file.clone()).build();
        let object = refused_once(|| arena.try_alloc(7u64));
        let read = || assert_eq!(*object, 7);
        // SAFETY: the child reads its own copy of the arena. (A tool reports the fault in its own way.)
        assert!(under_a_tool() || faulted(unsafe { forked(read) }));
        assert_eq!(*object, 7);
    });
}

#[test]
fn a_slab_is_not_made_before_its_handler_is_registered() {
    in_a_process(|| {
        // Creates the recycler first, so that only handlers of the slab and of the file are refused
        // below.
        let arena: Arena = Arena::new();
        arena.alloc(0_u8);
        let file = Arc::new(unnamed());
        let layout = Layout::new::<[u64; 5]>();
        let make = || RawSlab::builder(layout).source(file.clone()).try_build();
        let slab = refused_once(make);
        let slot = refused_once(|| slab.try_alloc());
        let work = || assert_eq!(slab.try_alloc().unwrap_err().kind(), ErrorKind::ForkedChild);
        // SAFETY: the child uses its own copy of the slab.
        assert_eq!(unsafe { forked(work) }, 0);
        // SAFETY: allocated above, freed once.
        unsafe { slab.free(slot) };
    });
}

/// Malloc, as a source whose memory children do not have.
struct Foreign;

// SAFETY: malloc's contract. No child uses it.
unsafe impl Source for Foreign {
    fn name(&self) -> &str {
        "foreign"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        allotment::Malloc.acquire(layout)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { allotment::Malloc.release(block, layout) };
    }

    fn is_inherited(&self) -> bool {
        false
    }
}

#[test]
fn a_source_that_children_lack_lends_nothing_before_forks_are_counted() {
    in_a_process(|| {
        FAILURES.store(1, Ordering::Relaxed);
        let shared = SharedSource::from(Arc::new(Foreign));
        assert_eq!(FAILURES.load(Ordering::Relaxed), 0);
        let arena: Arena = Arena::builder().source(shared).build();
        refused_once(|| arena.try_alloc(7u64));
    });
}

#[test]
fn a_checked_allocator_is_not_made_before_its_handlers_are_registered() {
    let layout = Layout::new::<[u64; 5]>();
    in_a_process(|| drop(refused_once(|| Arena::builder().hardened(true).try_build())));
    in_a_process(|| drop(refused_once(|| RawSlab::builder(layout).hardened(true).try_build())));
    in_a_process(|| drop(refused_once(|| RawFreeList::builder(layout).hardened(true).try_build())));
    in_a_process(|| drop(refused_once(|| Reap::builder().hardened(true).try_build())));
    in_a_process(|| drop(refused_once(|| LocalPool::builder().hardened(true).try_build())));
    in_a_process(|| drop(refused_once(|| RawSlab::try_by_size(layout))));
}

// ---- handlers of the program that use checked allocators ----

/// A slab that the program's handlers use.
static SLAB: OnceLock<RawSlab> = OnceLock::new();

/// A lock of the program, which its handlers hold during a fork.
static PROGRAM_LOCK: Mutex<()> = Mutex::new(());

thread_local! {
    static HELD: Cell<Option<MutexGuard<'static, ()>>> = const { Cell::new(None) };
}

extern "C" fn take_program_lock() {
    HELD.set(PROGRAM_LOCK.lock().ok());
}

extern "C" fn release_program_lock() {
    drop(HELD.take());
}

/// Allocates and frees in each of the phases of a fork.
extern "C" fn use_slab() {
    if let Some(slab) = SLAB.get() {
        let slots = [(); 10].map(|()| slab.alloc());
        // SAFETY: allocated above, and freed once.
        slots.into_iter().for_each(|slot| unsafe { slab.free(slot) });
    }
}

/// Forks while three threads use the slab as `use_it` does.
fn forks_while_threads_use_the_slab(use_it: fn()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    use_it();
                }
            });
        }
        // SAFETY: the child uses a slab whose lock no thread holds at a fork.
        let all_ended_well = (0..rounds(30)).all(|_| unsafe { forked(use_it) } == 0);
        stop.store(true, Ordering::Relaxed);
        assert!(all_ended_well, "the child neither hung nor failed");
    });
}

fn make_slab() {
    let slab = RawSlab::builder(Layout::new::<[u64; 5]>()).hardened(true).build();
    assert!(SLAB.set(slab).is_ok());
}

#[test]
fn a_program_whose_handlers_lock_registers_them_after_its_first_checked_allocator() {
    in_a_process(|| {
        make_slab();
        let (before, after) = (Some(take_program_lock as _), Some(release_program_lock as _));
        assert_eq!(pthread_atfork(before, after, after), 0);
        forks_while_threads_use_the_slab(|| {
            take_program_lock();
            use_slab();
            release_program_lock();
            std::thread::sleep(Duration::from_micros(50));
        });
    });
}

#[test]
fn handlers_of_the_program_use_checked_allocators_in_each_phase_of_a_fork() {
    in_a_process(|| {
        let handler: Handler = Some(use_slab);
        assert_eq!(pthread_atfork(handler, handler, handler), 0);
        make_slab();
        assert_eq!(pthread_atfork(handler, handler, handler), 0);
        forks_while_threads_use_the_slab(use_slab_once);
    });
}

fn use_slab_once() {
    use_slab();
}

/// How often threads have used the slab.
static USES: AtomicUsize = AtomicUsize::new(0);

/// Whether threads used the slab after the fork within a fork.
static USED_WITHIN: AtomicBool = AtomicBool::new(false);

fn use_slab_counted() {
    use_slab();
    USES.fetch_add(1, Ordering::Relaxed);
}

/// A handler that forks itself, as a signal handler may do here.
extern "C" fn fork_within() {
    static HAS_FORKED: AtomicBool = AtomicBool::new(false);
    if HAS_FORKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the child does nothing.
    assert_eq!(unsafe { forked(|| ()) }, 0);
    // Threads that have used the slab before may count that now.
    std::thread::sleep(Duration::from_millis(10));
    let uses = USES.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    USED_WITHIN.store(USES.load(Ordering::Relaxed) != uses, Ordering::Relaxed);
}

#[test]
fn a_fork_within_a_fork_does_not_let_the_other_threads_on() {
    in_a_process(|| {
        // Registered first, it runs after the library's.
        assert_eq!(pthread_atfork(Some(fork_within), None, None), 0);
        make_slab();
        forks_while_threads_use_the_slab(use_slab_counted);
        assert!(!USED_WITHIN.load(Ordering::Relaxed));
    });
}

/// The page that `map_in_child` maps.
static FOREIGN_PAGE: AtomicUsize = AtomicUsize::new(0);

/// Another library's handler, which maps a page in the child at an address that is free there.
extern "C" fn map_in_child() {
    let address = FOREIGN_PAGE.load(Ordering::Relaxed);
    if address != 0 {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let wanted = ptr::without_provenance_mut(address);
        // SAFETY: a new mapping, which replaces none.
        let mapped = unsafe { libc::mmap(wanted, page_size(), protection, flags, -1, 0) };
        assert_eq!(mapped, wanted, "the child does not have its parent's page");
    }
}

/// The child of a process with a handler that maps a page at this address.
fn ends_with_foreign_memory_at(address: usize, touch: impl FnOnce()) {
    FOREIGN_PAGE.store(address & !(page_size() - 1), Ordering::Relaxed);
    // SAFETY: the child ends before it touches anything.
    let status = unsafe { forked(touch) };
    let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(aborted, "the child reaches foreign memory: {status:#x}");
    FOREIGN_PAGE.store(0, Ordering::Relaxed);
    // SAFETY: the child does nothing.
    assert_eq!(unsafe { forked(|| ()) }, 0, "without foreign memory a child goes on");
}

#[test]
fn a_child_with_foreign_memory_at_an_arenas_address_ends_before_it_reads_it() {
    in_a_process(|| {
        assert_eq!(pthread_atfork(None, None, Some(map_in_child)), 0);
        let arena = Arena::builder().source(unnamed()).build();
        let object = arena.alloc(7u64);
        ends_with_foreign_memory_at(ptr::from_ref(object).addr(), || assert_ne!(*object, 8));
        assert_eq!(*object, 7);
    });
}

#[test]
fn a_child_with_foreign_memory_at_a_slabs_address_ends_before_it_reads_it() {
    in_a_process(|| {
        assert_eq!(pthread_atfork(None, None, Some(map_in_child)), 0);
        let slab = allotment::Slab::<[u64; 5]>::builder().source(unnamed()).build();
        let boxed = slab.alloc([7; 5]);
        let address = ptr::from_ref(&*boxed).addr();
        ends_with_foreign_memory_at(address, || assert_ne!(boxed[0], 8));
        assert_eq!(boxed[0], 7);
    });
}
