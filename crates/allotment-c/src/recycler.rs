//! The recycler: the process-wide cache of warm chunks.

use allotment::recycler;

use crate::error::or_abort;
use crate::handle_kind::HandleKind;
use crate::options::{allot_release, release};

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_cached_bytes() -> usize {
    recycler().cached_bytes()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_limit() -> usize {
    recycler().limit()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_set_limit(bytes: usize) {
    recycler().set_limit(bytes);
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_set_policy(policy: allot_release) {
    recycler().set_policy(or_abort(release(HandleKind::Memory, policy)));
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_trim() -> usize {
    recycler().trim()
}
