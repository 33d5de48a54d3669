//! The next definitions of the functions that the hooks replace, and the blocks that are handed out
//! while these are looked up.
//!
//! Invariants: a function's address is stored once it was found, and never changes. Blocks of
//! `EARLY_MEMORY` are never freed.

use crate::dynamic_symbols::{Definition, ObjectSymbols};
use crate::unwind::loader;
use crate::{clock, operator_new, raw_file, sys, threads};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The next definition of a function, in another library.
#[derive(Debug)]
pub struct NextFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address. Null if there is no such function, or while this thread looks it up.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        look_up_all();
        self.address.load(Ordering::Acquire)
    }
}

macro_rules! functions {
    ($($static:ident = $name:literal;)*) => {
        $(#[doc = concat!("`", stringify!($name), "`.")]
          pub static $static: NextFunction = NextFunction::new($name);)*
        /// All of them. The first is [`MALLOC`].
        static ALL: [&NextFunction; [$($name),*].len()] = [$(&$static),*];
    };
}

functions! {
    MALLOC = c"malloc";
    CALLOC = c"calloc";
    REALLOC = c"realloc";
    REALLOCARRAY = c"reallocarray";
    FREE = c"free";
    CFREE = c"cfree";
    MEMALIGN = c"memalign";
    ALIGNED_ALLOC = c"aligned_alloc";
    POSIX_MEMALIGN = c"posix_memalign";
    VALLOC = c"valloc";
    PVALLOC = c"pvalloc";
    USABLE_SIZE = c"malloc_usable_size";
    MUTEX_LOCK = c"pthread_mutex_lock";
    MUTEX_TRYLOCK = c"pthread_mutex_trylock";
    MUTEX_TIMEDLOCK = c"pthread_mutex_timedlock";
    MUTEX_CLOCKLOCK = c"pthread_mutex_clocklock";
    READ_LOCK = c"pthread_rwlock_rdlock";
    READ_TIMEDLOCK = c"pthread_rwlock_timedrdlock";
    READ_CLOCKLOCK = c"pthread_rwlock_clockrdlock";
    READ_TRYLOCK = c"pthread_rwlock_tryrdlock";
    WRITE_LOCK = c"pthread_rwlock_wrlock";
    WRITE_TIMEDLOCK = c"pthread_rwlock_timedwrlock";
    WRITE_CLOCKLOCK = c"pthread_rwlock_clockwrlock";
    WRITE_TRYLOCK = c"pthread_rwlock_trywrlock";
    DLCLOSE = c"dlclose";
    PRCTL = c"prctl";
    SYSCALL = c"syscall";
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NULL: *mut c_void = core::ptr::null_mut();
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

/// 0 at first, then the id of the thread that looks the functions up, then [`DONE`].
static LOOKUP: AtomicU32 = AtomicU32::new(0);
const DONE: u32 = u32::MAX;
/// Whether another definition of `malloc` takes precedence over the hook.
static ARE_BYPASSED: AtomicBool = AtomicBool::new(false);

/// Whether another definition of `malloc` takes precedence over the hook: that of the executable.
/// The process is not recorded then. The other hooks are called from inside of that `malloc`, where
/// a recorder must not allocate.
pub fn hooks_are_bypassed() -> bool {
    // Relaxed: the flag stands for itself. What the lookup switched off is in `raw_file`.
    ARE_BYPASSED.load(Ordering::Relaxed)
}

/// Names whose first definition is wanted, wherever it is.
const FIRST: [&CStr; 5] = [
    c"_dl_find_object",
    c"_Znwm",
    c"__libc_single_threaded",
    c"__register_atfork",
    c"pthread_atfork",
];

fn look_up_all() {
    let thread = sys::thread_id();
    loop {
        match LOOKUP.compare_exchange(0, thread, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            // There is no such function, or a signal handler calls it during the lookup.
            Err(DONE) => return,
            Err(owner) if owner == thread => return,
            Err(_) => sys::yield_now(),
        }
    }
    let first = [const { Cell::new(NULL) }; FIRST.len()];
    let following = [const { Cell::new(NULL) }; ALL.len()];
    let is_past_own = Cell::new(false);
    loader::any_object(|object| {
        if object.contains((&raw const LOOKUP) as u64, 1) {
            is_past_own.set(true);
            return false;
        }
        // SAFETY: objects are not unloaded during the iteration.
        let Some(symbols) = (unsafe { ObjectSymbols::of(object) }) else { return false };
        if !is_past_own.get() && symbols.find(MALLOC.name).is_some() {
            ARE_BYPASSED.store(true, Ordering::Relaxed);
        }
        for (name, found) in FIRST.iter().zip(&first) {
            if found.get().is_null()
                && let Some(Definition::At(address)) = symbols.find(name)
            {
                found.set(address);
            }
        }
        for (next, found) in ALL.iter().zip(&following) {
            if is_past_own.get() && found.get().is_null() {
                match symbols.find(next.name) {
                    Some(Definition::At(address)) => found.set(address),
                    Some(Definition::Chosen) => {
                        // The name exists, so this does not allocate.
                        // SAFETY: the name ends with a zero.
                        found.set(unsafe { dlsym(RTLD_NEXT, next.name.as_ptr()) });
                    }
                    None => {}
                }
            }
        }
        false
    });
    let [find_object, operator_new, single_threaded, of_glibc, of_musl] =
        first.map(|found| found.get());
    loader::set_find_object(find_object);
    threads::set_register_at_fork(if of_glibc.is_null() { of_musl } else { of_glibc });
    if hooks_are_bypassed() {
        raw_file::never_record();
    }
    // Before a hook calls anything, so that the file's header contains the result.
    operator_new::find_library(following[0].get(), operator_new);
    for (next, found) in ALL.iter().zip(&following) {
        next.address.store(found.get(), Ordering::Release);
    }
    // SAFETY: the variable of that name is a byte.
    unsafe { clock::set_single_threaded(single_threaded.cast()) };
    LOOKUP.store(DONE, Ordering::Release);
}

const EARLY_BYTES: usize = 64 * 1024;

#[repr(C, align(4096))]
struct EarlyMemory(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: each block is handed out once.
unsafe impl Sync for EarlyMemory {}

static EARLY_MEMORY: EarlyMemory = EarlyMemory(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed block for a call before the next functions are known; null if there is no memory left.
/// Its size is stored in the word before it.
pub fn early_block(size: usize, alignment: usize) -> *mut u8 {
    let alignment = alignment.max(16);
    let mut used = EARLY_USED.load(Ordering::Relaxed);
    loop {
        let Some(start) = (used + 16).checked_next_multiple_of(alignment) else {
            return core::ptr::null_mut();
        };
        let Some(end) = start.checked_add(size).filter(|&end| end <= EARLY_BYTES) else {
            return core::ptr::null_mut();
        };
        match EARLY_USED.compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Err(now) => used = now,
            Ok(_) => {
                // SAFETY: the block and the two words before it lie in the memory, and belong to
                // this call alone.
                unsafe {
                    let block = EARLY_MEMORY.0.get().cast::<u8>().add(start);
                    block.sub(8).cast::<usize>().write(size);
                    return block;
                }
            }
        }
    }
}

/// The size of a block of [`early_block`]; `None` for any other block.
#[inline(always)]
pub fn early_size(block: *const c_void) -> Option<usize> {
    let offset = (block as usize).wrapping_sub(EARLY_MEMORY.0.get() as usize);
    if offset >= EARLY_BYTES {
        return None;
    }
    // SAFETY: the block's size is stored before it.
    Some(unsafe { block.cast::<usize>().sub(1).read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_blocks_are_aligned_and_apart_and_known() {
        let mut end = 0;
        for (size, alignment) in [(0, 1), (1, 1), (100, 16), (5, 64), (4096, 4096), (3, 1)] {
            let block = early_block(size, alignment);
            assert!(!block.is_null());
            assert_eq!(block as usize % alignment.max(16), 0);
            assert!(block as usize >= end + 8);
            assert_eq!(early_size(block.cast()), Some(size));
            end = block as usize + size;
        }
        assert!(early_block(EARLY_BYTES, 16).is_null());
        assert!(early_block(usize::MAX, 1 << 40).is_null());
        assert_eq!(early_size((&raw const end).cast()), None);
    }
}
