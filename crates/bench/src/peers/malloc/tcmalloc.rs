//! `tcmalloc`: Google's allocator, with its `malloc`, its `aligned_alloc` and C23's `free_sized`
//! and `free_aligned_sized`. (Its crate's `GlobalAlloc` always calls the functions behind the
//! aligned `operator new`, which are a tenth slower, and grows by copying. The plain `operator new`
//! is as fast, but can't be combined with `realloc`: the two disagree on the size class of 8
//! bytes.)
//!
//! Its crate compiles only these internal functions, under names of their own, so it replaces
//! neither `malloc` nor `operator new`. As the crate requires, the row starts the thread for
//! tcmalloc's background work. That thread resizes the per-CPU caches; it releases no memory,
//! because the release rate is 0.
//!
//! **Per-CPU caches.** They need Linux's restartable sequences, for which a thread can be
//! registered only once, and glibc (2.35 and later) registers every thread for itself. Only
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`, set before the process starts, leaves them to tcmalloc.
//! Without it, every call takes a lock, at half the speed or less. [`About::environment`] requests
//! the variable, and
//! [`About::handicap`] reports whether it took effect.
//!
//! **Address space.** An initialiser of tcmalloc, which runs before `main`, reserves 1 GiB at a
//! multiple of 1 GiB, and aborts the process if it can't. Where a limit (`ulimit -v`) forbids that,
//! an earlier initialiser ends the process with an error that names the limit.
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::thread;

use libtcmalloc_sys as tc;

use super::{Heap, Malloc, plain, resize_by_copy, zeroed_by_writing};
use crate::peers::{About, PeerKind};

pub(crate) type Tcmalloc = Malloc<TcmallocCalls>;

// Entry points that the crate links without declaring them; signatures from tcmalloc's own
// `tcmalloc.h` and `internal_malloc_extension.h`.
unsafe extern "C" {
    fn TCMallocInternalMalloc(size: usize) -> *mut c_void;
    fn TCMallocInternalCalloc(count: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalFreeSized(block: *mut c_void, size: usize);
    fn TCMallocInternalAlignedAlloc(align: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalFreeAlignedSized(block: *mut c_void, align: usize, size: usize);
    fn TCMallocInternalRealloc(block: *mut c_void, size: usize) -> *mut c_void;
    /// Whether the per-CPU caches are in use.
    fn MallocExtension_Internal_GetPerCpuCachesActive() -> bool;
    /// Empties a CPU's cache.
    fn MallocExtension_Internal_ReleaseCpuMemory(cpu: c_int) -> usize;
    /// Releases up to `bytes` unused bytes to the system.
    fn MallocExtension_Internal_ReleaseMemoryToSystem(bytes: usize) -> usize;
}

/// What a process with tcmalloc needs at its start: the addresses among which 1 GiB is aligned, and
/// room for everything else.
const ADDRESS_SPACE: u64 = (2 << 30) + (256 << 20);
const TOO_LITTLE_ADDRESS_SPACE: &[u8] = b"allot: the limit on address space (ulimit -v) is less than the 2.25 GiB that a build with tcmalloc needs; raise the limit, or build without the feature all-peers\n";

/// Ends the process with an error if it may not have [`ADDRESS_SPACE`].
extern "C" fn check_address_space() {
    // SAFETY: zero is a valid value, and the C library writes to it. The message is a slice. Nothing
    // has been initialised yet that `_exit` would have to end.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0 && limit.rlim_cur < ADDRESS_SPACE {
            let message = TOO_LITTLE_ADDRESS_SPACE;
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(1);
        }
    }
}

/// Runs before all initialisers of C++.
#[used]
#[unsafe(link_section = ".preinit_array")]
static CHECK_ADDRESS_SPACE: extern "C" fn() = check_address_space;

pub(crate) enum TcmallocCalls {}

impl Heap for TcmallocCalls {
    const ABOUT: About = About {
        environment: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        handicap,
        ..About::peer(
            PeerKind::Malloc,
            "tcmalloc",
            "Google's tcmalloc of June 2025, 8 KiB pages, from libtcmalloc-sys 0.1.14",
            "tcmalloc's defaults: per-CPU caches; free memory is kept (background release rate 0); its \
             background thread runs",
        )
    };

    type Entered = ();

    fn enter() {
        static BACKGROUND: Once = Once::new();
        BACKGROUND.call_once(|| {
            // SAFETY: may be called at any time.
            if unsafe { tc::NeedsProcessBackgroundActions() } {
                // If the process can't start another thread, it measures without it. The thread
                // sleeps most of the time, and ends with the process.
                let _ = thread::Builder::new()
                    .name("tcmalloc".to_owned())
                    // SAFETY: the function is made for a thread of its own, and is called once.
                    .spawn(|| unsafe { tc::ProcessBackgroundActions() });
            }
        });
    }

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: malloc takes any size; the alignment is a power of two.
        unsafe {
            if plain(layout.size(), layout.align()) {
                TCMallocInternalMalloc(layout.size())
            } else {
                TCMallocInternalAlignedAlloc(layout.align(), layout.size())
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: calloc takes any size.
            return unsafe { TCMallocInternalCalloc(1, layout.size()) }.cast();
        }
        // SAFETY: the same promise as the caller's.
        unsafe { zeroed_by_writing::<Self>(layout) }
    }

    #[inline]
    unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: the block came from this heap (invariant 2), and from the variant that matches
        // the free: both choose by the layout in the same way.
        unsafe {
            if plain(layout.size(), layout.align()) {
                TCMallocInternalFreeSized(block.cast(), layout.size());
            } else {
                TCMallocInternalFreeAlignedSized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        if plain(old.size(), old.align()) && plain(new_size, old.align()) {
            // SAFETY: the block came from this heap (invariant 2), from `malloc`. Its new layout is
            // plain too, so `free` chooses the matching variant.
            return unsafe { TCMallocInternalRealloc(block.cast(), new_size) }.cast();
        }
        // SAFETY: the same promise as the caller's.
        unsafe { resize_by_copy::<Self>(block, old, new_size) }
    }

    unsafe fn trim() -> bool {
        // SAFETY: may be called at any time.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        for cpu in 0..c_int::try_from(cpus).unwrap_or(0) {
            // SAFETY: the CPU exists; may be called at any time.
            unsafe { MallocExtension_Internal_ReleaseCpuMemory(cpu) };
        }
        // SAFETY: any number of bytes is allowed.
        unsafe { MallocExtension_Internal_ReleaseMemoryToSystem(usize::MAX) };
        true
    }
}

fn handicap() -> Option<&'static str> {
    let layout = Layout::new::<u64>();
    // SAFETY: this heap needs no entry of the thread; the block is freed once, with its layout.
    // The first allocation decides whether per-CPU caches are used, so there must have been one.
    let per_cpu = unsafe {
        let block = TcmallocCalls::alloc(layout);
        if !block.is_null() {
            TcmallocCalls::free(block, layout);
        }
        MallocExtension_Internal_GetPerCpuCachesActive()
    };
    (!per_cpu).then_some(
        "tcmalloc runs without its per-CPU caches: start the process with \
         GLIBC_TUNABLES=glibc.pthread.rseq=0 (and a kernel that has restartable sequences)",
    )
}
