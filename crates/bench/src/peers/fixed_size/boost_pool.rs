//! `boost-pool`: `boost::pool`, for one thread, if the headers of Boost are installed.
//!
//! Its chunks come from `operator new`, which calls the C library's malloc. The row calls it
//! through FFI, with one call for each object; in C++ its header would be inlined.
//!
//! # Invariants
//!
//! Beside those of [`fixed_size`](crate::peers::fixed_size):
//!
//! - The pool lives from `new` until the value is dropped, which can't happen while it is lent.
//! - It aligns its blocks to a word: `new` rejects larger alignments.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;

use super::{Block, FixedSize, OneThread, Slots, StoreGuard, check};
use crate::peers::about::Listed;
use crate::peers::{About, PeerKind};

unsafe extern "C" {
    fn peers_boost_pool_create(size: usize) -> *mut c_void;
    fn peers_boost_pool_destroy(pool: *mut c_void);
    /// Null if there is no memory.
    fn peers_boost_pool_malloc(pool: *mut c_void) -> *mut c_void;
    fn peers_boost_pool_free(pool: *mut c_void, block: *mut c_void);
}

/// A pool on the C++ side.
pub(crate) struct PoolHandle {
    pool: NonNull<c_void>,
    layout: Layout,
}

// SAFETY: a pool has no state for each thread, and one thread uses it at a time (invariant 3 of
// `fixed_size`).
unsafe impl Send for PoolHandle {}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is destroyed only here.
        unsafe { peers_boost_pool_destroy(self.pool.as_ptr()) }
    }
}

/// `boost-pool`.
pub(crate) struct BoostPool(OneThread<PoolHandle>);

impl Listed for BoostPool {
    const ABOUT: About = About {
        several_threads: false,
        ..About::peer(
            PeerKind::FixedSize,
            "boost-pool",
            "boost::pool of this system's Boost",
            "chunks that double, kept until the pool is dropped",
        )
    };
}

impl FixedSize for BoostPool {
    type Object = Block;
    type Local<'s> = StoreGuard<'s, PoolHandle>;

    fn new(layout: Layout) -> Self {
        check(layout);
        assert!(layout.align() <= align_of::<usize>(), "boost::pool aligns to a word at most");
        // SAFETY: any size other than zero is allowed.
        let pool = unsafe { peers_boost_pool_create(layout.size()) };
        let pool = NonNull::new(pool).expect("memory for a pool");
        Self(OneThread::new(PoolHandle { pool, layout }))
    }

    fn local(&self) -> Self::Local<'_> {
        self.0.lend()
    }
}

impl Slots for StoreGuard<'_, PoolHandle> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        self.with(|handle| {
            // SAFETY: the pool is live, and lent to this thread.
            let block = unsafe { peers_boost_pool_malloc(handle.pool.as_ptr()) };
            let Some(block) = NonNull::new(block) else { handle_alloc_error(handle.layout) };
            block.cast()
        })
    }

    #[inline(always)]
    unsafe fn give_back(&self, block: NonNull<u8>) {
        self.with(|handle| {
            // SAFETY: the pool is live, and lent to this thread. The block is the pool's: the
            // caller's promise.
            unsafe { peers_boost_pool_free(handle.pool.as_ptr(), block.as_ptr().cast()) };
        });
    }
}
