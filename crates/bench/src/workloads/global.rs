//! A global allocator that the environment of the process selects.
//!
//! `handler` runs ordinary code, which uses its program's global allocator. To measure one program
//! with every malloc, [`Global`] passes each call to the malloc that [`VARIABLE`] names. It uses a
//! table of functions: two loads and a jump, the same for every malloc.
//!
//! # Invariants
//!
//! 1. One malloc serves a process from its first allocation to its end, so every block goes back to
//!    the malloc that it came from. The first call chooses it; before that there is nothing to
//!    free. If several threads make the first call at once, they choose the same malloc, because
//!    nothing has changed the environment: code that changes it through Rust's library allocates
//!    before.
//! 2. `CURRENT` points to one of three tables: the table that chooses, the table of the chosen
//!    malloc, or the table that marks the calls of that malloc. All three live as long as the
//!    process.
//! 3. Nothing in this file allocates.

use crate::peers::GlobalCalls;
use crate::workloads::sampled;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The environment variable that names the allocator. If it is not set, or names no known
/// allocator, the C library's malloc is used.
pub const VARIABLE: &str = "ALLOT_GLOBAL";

/// [`VARIABLE`], for the C library.
const VARIABLE_IN_C: &CStr = c"ALLOT_GLOBAL";

/// The global allocator of a program that runs `handler`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Global;

/// The chosen malloc.
static CHOSEN: OnceLock<(&'static str, &'static GlobalCalls)> = OnceLock::new();

static CURRENT: AtomicPtr<GlobalCalls> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// The program's global allocator by name; `None` if that is not [`Global`].
pub fn in_use() -> Option<&'static str> {
    CHOSEN.get().map(|(name, _)| *name)
}

/// While a value of this type lives, the calls of all threads are marked for [`sampled`].
#[derive(Debug)]
pub(crate) struct Sampling(());

/// The number of live [`Sampling`]s.
static SAMPLINGS: Mutex<usize> = Mutex::new(0);

impl Sampling {
    /// Marks the calls of the malloc called `name`, which must be the chosen one.
    pub fn begin<G: crate::peers::Global>(name: &str) -> Self {
        assert_eq!(in_use(), Some(name), "only the program's global allocator can be marked");
        let mut samplings = SAMPLINGS.lock().unwrap_or_else(PoisonError::into_inner);
        *samplings += 1;
        CURRENT.store(ptr::from_ref(SampledCalls::<G>::CALLS).cast_mut(), Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let mut samplings = SAMPLINGS.lock().unwrap_or_else(PoisonError::into_inner);
        *samplings -= 1;
        if *samplings == 0 {
            CURRENT.store(ptr::from_ref(chosen()).cast_mut(), Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn calls() -> &'static GlobalCalls {
    // SAFETY: invariant 2. The tables exist before the program begins, so relaxed ordering
    // suffices.
    unsafe { &*CURRENT.load(Ordering::Relaxed) }
}

// SAFETY: all calls go to one malloc (invariant 1). `GlobalCalls` requires of its functions what
// this trait promises.
unsafe impl GlobalAlloc for Global {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the callee's, here and below.
        unsafe { (calls().alloc)(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the same malloc (invariant 1).
        unsafe { (calls().dealloc)(block, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { (calls().alloc_zeroed)(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from the same malloc (invariant 1).
        unsafe { (calls().realloc)(block, old, new_size) }
    }
}

/// The malloc of this process, which is chosen now if it was not before.
fn chosen() -> &'static GlobalCalls {
    CHOSEN.get_or_init(named).1
}

#[cold]
fn named() -> (&'static str, &'static GlobalCalls) {
    // SAFETY: the name is a string; nothing changes the environment at this time (invariant 1).
    let value = unsafe { libc::getenv(VARIABLE_IN_C.as_ptr()) };
    let named = if value.is_null() {
        None
    } else {
        // SAFETY: a string, which stays valid while nothing changes the environment.
        crate::peers::global_calls(unsafe { CStr::from_ptr(value) }.to_bytes())
    };
    named
        .or_else(|| crate::peers::global_calls(crate::peers::known()[0].name.as_bytes()))
        .unwrap_or_else(|| std::process::abort())
}

/// The table that chooses the malloc and passes the call on.
static FIRST: GlobalCalls = {
    fn choose() -> &'static GlobalCalls {
        let chosen = chosen();
        // If calls are marked already, the table stays.
        let _ = CURRENT.compare_exchange(
            (&raw const FIRST).cast_mut(),
            ptr::from_ref(chosen).cast_mut(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        chosen
    }
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, here and below.
        unsafe { (choose().alloc)(layout) }
    }
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { (choose().alloc_zeroed)(layout) }
    }
    unsafe fn dealloc(block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { (choose().dealloc)(block, layout) }
    }
    unsafe fn realloc(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { (choose().realloc)(block, old, new_size) }
    }
    GlobalCalls { alloc, alloc_zeroed, dealloc, realloc }
};

/// Marks the calls of a malloc. Only the call itself, as in a program, is between the marks.
struct SampledCalls<G>(PhantomData<G>);

impl<G: crate::peers::Global> SampledCalls<G> {
    const CALLS: &'static GlobalCalls = &GlobalCalls {
        alloc: Self::alloc,
        alloc_zeroed: Self::alloc_zeroed,
        dealloc: Self::dealloc,
        realloc: Self::realloc,
    };

    #[inline(always)]
    fn marked<R>(call: impl FnOnce() -> R) -> R {
        sampled::enter();
        let result = call();
        sampled::leave();
        result
    }

    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, here and below.
        Self::marked(|| unsafe { (G::CALLS.alloc)(layout) })
    }

    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Self::marked(|| unsafe { (G::CALLS.alloc_zeroed)(layout) })
    }

    unsafe fn dealloc(block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        Self::marked(|| unsafe { (G::CALLS.dealloc)(block, layout) });
    }

    unsafe fn realloc(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        Self::marked(|| unsafe { (G::CALLS.realloc)(block, old, new_size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{About, GlobalVisitor};

    struct Begin;

    impl GlobalVisitor for Begin {
        type Output = Sampling;

        fn visit<G: crate::peers::Global>(self, about: &'static About) -> Sampling {
            Sampling::begin::<G>(about.name)
        }
    }

    #[test]
    fn without_the_variable_it_is_the_c_librarys() {
        assert_eq!(VARIABLE.as_bytes(), VARIABLE_IN_C.to_bytes());
        let named = std::env::var(VARIABLE).ok();
        let known = named.as_ref().and_then(|name| crate::peers::global_calls(name.as_bytes()));
        let expected = known.map_or(crate::peers::known()[0].name, |(name, _)| name);
        assert_eq!(in_use(), Some(expected));
    }

    #[test]
    fn blocks_move_between_marked_and_unmarked_calls() {
        let before = vec![1u8; 100];
        let mut grown: Vec<u8> = Vec::with_capacity(10);
        let sampling = Begin.with(in_use().unwrap()).unwrap();
        assert!(!ptr::eq(CURRENT.load(Ordering::Relaxed), chosen()));
        grown.extend(0..10);
        grown.reserve_exact(1000);
        let zeroed = vec![0u64; 100];
        drop(before);
        drop(sampling);
        grown.reserve_exact(5000);
        assert!(zeroed.iter().all(|word| *word == 0) && grown.iter().copied().eq(0..10));
        drop((zeroed, grown));
    }
}
