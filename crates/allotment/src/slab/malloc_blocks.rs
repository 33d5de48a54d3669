//! The malloc blocks of pass-through mode, and the slab of each. The address of a block does not
//! lead to its slab.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers of the slabs, by the addresses of their blocks.
static SLABS: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

fn slabs() -> MutexGuard<'static, BTreeMap<usize, u32>> {
    SLABS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a block of the slab with this number.
pub(super) fn insert(block: NonNull<u8>, slab: u32) {
    slabs().insert(block.addr().get(), slab);
}

/// Removes a block that is about to be freed.
pub(super) fn remove(block: NonNull<u8>) {
    slabs().remove(&block.addr().get());
}

/// The number of the slab that handed out a block, if one did.
pub(super) fn slab_of(block: NonNull<u8>) -> Option<u32> {
    slabs().get(&block.addr().get()).copied()
}
