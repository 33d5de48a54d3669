//! `allot_reap`: blocks of any size for one thread at a time.
//!
//! The invariants are those of lib.rs, handle.rs and, for blocks that store their size,
//! sized_blocks.rs.

use core::alloc::Layout;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use allotment::{AllocError, Reap};

use crate::blocks::{BlockTarget, alloc, alloc_fast, block_target, free_sized, malloc, resize};
use crate::calls::{call, call_pair};
use crate::error::{FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::sized_blocks::{self, OwnerKey, not_a_block};
use crate::statistics::allot_statistics;

/// `allot_reap`.
pub type allot_reap = HandleBox<CReap>;

/// A reap, and the key of its blocks. In this order: fast paths add no offset to find the reap.
#[repr(C)]
pub struct CReap {
    reap: Reap,
    /// The key of the blocks that store their size. A reset changes it.
    key: Cell<OwnerKey>,
}

impl HandleTarget for CReap {
    const KIND: HandleKind = HandleKind::Reap;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.reap.name()
    }
}

block_target!(CReap, reap: Reap, this => this.key.get());

/// A new key, which neither another reap nor this reap before a reset had.
fn next_key() -> OwnerKey {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    OwnerKey::numbered(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The options besides name, budget and maximum.
const SUPPORTED: u32 = option_bits::SOURCE
    | option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::RESERVED
    | option_bits::INITIAL
    | option_bits::INCREMENT;

unsafe fn create(
    abi: u32,
    options: *const allot_options,
) -> Result<NonNull<allot_reap>, FailedCall> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::Reap, abi, options, SUPPORTED) }?;
    let (name, hardened) = (options.name, options.hardened);
    let reap = build(options).map_err(|error| fail(HandleKind::Reap, name, error))?;
    handle::create(CReap { reap, key: Cell::new(next_key()) }, hardened)
}

fn build(options: CheckedOptions<'_>) -> Result<Reap, AllocError> {
    let builder = Reap::builder()
        .release(options.release)
        .hardened(options.hardened)
        .increment(options.increment)
        .reserved(options.reserved);
    with_requested!(builder, options: source, initial).try_build()
}

unsafe fn realloc(
    reap: *mut allot_reap,
    block: *mut c_void,
    size: usize,
) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller. The block's header shows that it is of this reap.
    unsafe {
        let Some(block) = NonNull::new(block) else { return malloc(reap, size) };
        let this = handle::get(reap)?;
        let resized = sized_blocks::resize(block, size, this.key.get(), |start, old, new| {
            this.reap.try_resize(start, old, new.layout())
        });
        match resized {
            Some(block) => block.map_err(|error| this.failed(error)),
            None => Err(not_a_block(HandleKind::Reap, this.name(), block)),
        }
    }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_reap_create_abi, allot_reap_try_create_abi(
        abi: u32,
        options: *const allot_options,
    ) -> *mut allot_reap = create
}

call! { fn allot_reap_destroy(reap: *mut allot_reap) = handle::destroy }

call_pair! {
    unsafe fn allot_reap_alloc, allot_reap_try_alloc(
        reap: *mut allot_reap,
        size: usize,
        align: usize,
    ) -> *mut c_void = alloc_fast else alloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_free_sized(
    reap: *mut allot_reap,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe { free_sized(reap, block, size, align) }
}

call_pair! {
    unsafe fn allot_reap_resize, allot_reap_try_resize(
        reap: *mut allot_reap,
        block: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void = resize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_reset(reap: *mut allot_reap) {
    // SAFETY: as above.
    let this = or_abort(unsafe { handle::get_mut(reap) });
    this.key.set(next_key());
    this.reap.reset();
}

call! { fn allot_reap_trim(reap: *mut allot_reap) -> usize => reap.reap.trim() }

call! { fn allot_reap_adopt(reap: *mut allot_reap) = handle::adopt }

call! {
    fn allot_reap_statistics(reap: *const allot_reap) -> allot_statistics
        => reap.reap.statistics().into()
}

call_pair! {
    unsafe fn allot_reap_malloc, allot_reap_try_malloc(reap: *mut allot_reap, size: usize)
        -> *mut c_void = malloc
}

call_pair! {
    unsafe fn allot_reap_realloc, allot_reap_try_realloc(
        reap: *mut allot_reap,
        block: *mut c_void,
        size: usize,
    ) -> *mut c_void = realloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_free(reap: *mut allot_reap, block: *mut c_void) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: as above. The block's header shows that it is of this reap.
    unsafe {
        let this = or_abort(handle::get(reap));
        match sized_blocks::retire(block, this.key.get()) {
            Some((start, layout)) => this.reap.free_layout(start, layout),
            None => not_a_block(HandleKind::Reap, this.name(), block).abort(),
        }
    }
}
