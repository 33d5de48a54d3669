//! Reaps, pools and references to pools as a [`BlockSource`] of collections and of their own calls;
//! reaps as the source of values that they lend.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::local_pool::LocalPool;
use super::pool_ref::PoolRef;
use super::reap::Reap;
use crate::collections::{BlockSource, BoxMemory, LendingMemory, LendingSource};
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
                        self.resize_block(block, old, new.size()).map_err(F::fail)
                    } else {
                        self.move_to::<F>(block, old, new)
                    }
                }
            }
        }
    };
}

block_source!(&Reap, Reap::free_block, Reap::on_refusal);
block_source!(&LocalPool, LocalPool::free_block, LocalPool::on_refusal);
// A reference frees blocks of any pool and of the global heap.
block_source!(
    PoolRef,
    |_, block, layout| PoolRef::free_anywhere(block, layout),
    PoolRef::on_refusal
);

// SAFETY: a box or a slot owns a block of the reap with the layout of its value, and frees it once.
unsafe impl BoxMemory for &Reap {
    #[inline(always)]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.free_block(block, layout) };
    }
}

// SAFETY: a reset and the drop of the reap end `'r`.
unsafe impl<'r> LendingMemory<'r> for &'r Reap {}

// SAFETY: the blocks are the reap's.
unsafe impl<'r> LendingSource<'r> for &'r Reap {
    type Memory = &'r Reap;

    #[inline(always)]
    fn memory(self) -> &'r Reap {
        self
    }

    #[inline(always)]
    fn alloc_fast(self, layout: Layout) -> Option<NonNull<u8>> {
        self.blocks.alloc_fast(layout)
    }

    #[inline(always)]
    fn alloc_slow<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.blocks.alloc_slow_or::<F>(layout.size(), layout.align())
    }
}
