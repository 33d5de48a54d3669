//! The next definitions of what the hooks stand before, and the blocks that are given out while they are looked up.
//!
//! Invariants: a function's address is stored once it was found, and never changes. Blocks from `BUFFER` are never freed.

use crate::unwind::modules;
use crate::{clock, operator_new, sys};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A function of another library.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; null where there is no such function, or it is being looked up by this very thread.
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
          pub static $static: Next = Next::new($name);)*
        static ALL: &[&Next] = &[$(&$static),*];
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

const NEXT: *mut c_void = usize::MAX as *mut c_void;
const DEFAULT: *mut c_void = core::ptr::null_mut();

/// 0: nobody has looked; [`DONE`]; or the thread that looks.
static LOOKING: AtomicU32 = AtomicU32::new(0);
const DONE: u32 = u32::MAX;

fn look_up_all() {
    let own = sys::thread();
    loop {
        match LOOKING.compare_exchange(0, own, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            // A function that isn't there, or that the lookup itself asks for.
            Err(DONE) => return,
            Err(looking) if looking == own => return,
            Err(_) => sys::give_way(),
        }
    }
    // SAFETY: the names end with a zero.
    modules::set_find_object(unsafe { dlsym(DEFAULT, c"_dl_find_object".as_ptr()) });
    // Before a hook goes on to anything, so that the recording's file begins with the answer.
    // SAFETY: the same.
    unsafe {
        let malloc = dlsym(NEXT, MALLOC.name.as_ptr());
        operator_new::begin(malloc, dlsym(DEFAULT, c"_Znwm".as_ptr()));
    }
    for next in ALL {
        // SAFETY: the same.
        let address = unsafe { dlsym(NEXT, next.name.as_ptr()) };
        next.address.store(address, Ordering::Release);
    }
    // SAFETY: the same; the byte is of that name's type.
    unsafe { clock::set_one_thread(dlsym(DEFAULT, c"__libc_single_threaded".as_ptr()).cast()) };
    LOOKING.store(DONE, Ordering::Release);
}

const BUFFER_SIZE: usize = 64 * 1024;

#[repr(C, align(4096))]
struct Buffer(UnsafeCell<[u8; BUFFER_SIZE]>);

// SAFETY: each block is given out once.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; BUFFER_SIZE]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed block while nobody else can give one; null if there is none. Its size lies in the word before it.
pub fn early_block(size: usize, alignment: usize) -> *mut u8 {
    let alignment = alignment.max(16);
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let Some(at) = (used + 16).checked_next_multiple_of(alignment) else {
            return core::ptr::null_mut();
        };
        let Some(end) = at.checked_add(size).filter(|&end| end <= BUFFER_SIZE) else {
            return core::ptr::null_mut();
        };
        match USED.compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Err(now) => used = now,
            Ok(_) => {
                // SAFETY: the block and the words before it lie in the buffer and are nobody else's.
                unsafe {
                    let block = BUFFER.0.get().cast::<u8>().add(at);
                    block.sub(8).cast::<usize>().write(size);
                    return block;
                }
            }
        }
    }
}

/// The size of a block that [`early_block`] gave out; `None` for all others.
#[inline(always)]
pub fn early_size(block: *const c_void) -> Option<usize> {
    let offset = (block as usize).wrapping_sub(BUFFER.0.get() as usize);
    if offset >= BUFFER_SIZE {
        return None;
    }
    // SAFETY: the block's size lies before it.
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
        assert!(early_block(BUFFER_SIZE, 16).is_null());
        assert!(early_block(usize::MAX, 1 << 40).is_null());
        assert_eq!(early_size((&raw const end).cast()), None);
    }
}
