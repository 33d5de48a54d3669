//! Reaps, pools and references to pools as a [`BlockSource`] of collections.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::local_pool::LocalPool;
use super::pool_ref::PoolRef;
use super::reap::Reap;
use crate::collections::BlockSource;
use crate::error::{OnFailure, OnRefusal};

macro_rules! block_source {
    ($source:ty, $free:expr, $on_refusal:expr) => {
        // SAFETY: a reap's blocks stay valid until it is reset or dropped, and a borrow of the reap
        // prevents both. Blocks of a pool or of the global heap stay valid until they are freed.
        // A call that unwinds does so before it changes anything.
        unsafe impl BlockSource for $source {
            #[inline]
            fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
                self.alloc_or::<F>(layout)
            }

            #[inline]
            unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
                // SAFETY: passed on to the caller.
                unsafe { $free(self, block, layout) }
            }

            fn on_refusal(self) -> OnRefusal {
                $on_refusal(self)
            }

            #[inline]
            unsafe fn resize<F: OnFailure>(
                self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<u8>, F::Error> {
                // SAFETY: passed on to the caller.
                unsafe {
                    if old.align() == new.align() {
                        self.try_resize(block, old, new.size()).map_err(F::fail)
                    } else {
                        self.move_to::<F>(block, old, new)
                    }
                }
            }
        }
    };
}

block_source!(&Reap, Reap::free_layout, Reap::on_refusal);
block_source!(&LocalPool, LocalPool::free_layout, LocalPool::on_refusal);
// A reference frees blocks of any pool and of the global heap.
block_source!(
    PoolRef,
    |_, block, layout| PoolRef::free_anywhere(block, layout),
    PoolRef::on_refusal
);
