//! `allot_slab`: slots of one size, for any thread.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. `raw` belongs to this structure, or is a second reference to the slab that `shared` keeps. In
//!    the second case it is never dropped.
//! 2. The fast paths read only `raw`. That of a hardened slab has no thread caches, also after the
//!    slab was destroyed, so its calls take the slow paths, which check the handle.
//! 3. `handles` counts the slab's handles. The slab is not destroyed while there are any.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use allotment::slab::Lifetime;
use allotment::{AllocError, ErrorKind, RawSlab};

use crate::calls::{call, call_pair};
use crate::error::{CallError, FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::handle_table;
use crate::layouts::layout_of;
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::statistics::allot_statistics;

/// `allot_slab`.
pub type allot_slab = HandleBox<CSlab>;

/// A slab, or a reference to a slab that the whole process shares.
#[repr(C)]
pub struct CSlab {
    raw: ManuallyDrop<RawSlab>,
    /// The slab that the whole process shares, if this is one.
    shared: Option<Arc<RawSlab>>,
    /// The number of living slab handles.
    handles: AtomicUsize,
}

impl CSlab {
    fn owned(raw: RawSlab) -> Self {
        Self { raw: ManuallyDrop::new(raw), shared: None, handles: AtomicUsize::new(0) }
    }

    fn shared(shared: Arc<RawSlab>) -> Self {
        // SAFETY: never dropped, and `shared` keeps what it refers to (invariant 1).
        let raw = ManuallyDrop::new(unsafe { ptr::read(&*shared) });
        Self { raw, shared: Some(shared), handles: AtomicUsize::new(0) }
    }

    /// The slab itself.
    pub(crate) fn raw(&self) -> &RawSlab {
        &self.raw
    }

    /// Counts a new slab handle.
    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a slab handle.
    pub(crate) fn drop_handle(&self) {
        // Release pairs with the Acquire in `check_unused`: the handle's last use of the slab comes
        // before its end.
        self.handles.fetch_sub(1, Ordering::Release);
    }

    fn check_unused(&self) -> Result<(), FailedCall> {
        if self.handles.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let text = "destroyed while it has handles; destroy them first, each on its thread";
        Err(fail(HandleKind::Slab, self.name(), CallError::InUse(text)))
    }
}

impl HandleTarget for CSlab {
    const KIND: HandleKind = HandleKind::Slab;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        self.raw.name()
    }
}

impl Drop for CSlab {
    fn drop(&mut self) {
        if self.shared.is_none() {
            // SAFETY: the slab's own (invariant 1), not used after this.
            unsafe { ManuallyDrop::drop(&mut self.raw) };
        }
    }
}

/// The options besides name, budget and maximum.
const SUPPORTED: u32 = option_bits::SOURCE
    | option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::REPORT_LIVE
    | option_bits::PACKING
    | option_bits::MAX_PAGE_BYTES
    | option_bits::MAX_CACHED_BYTES;

unsafe fn create(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> Result<NonNull<allot_slab>, FailedCall> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::Slab, abi, options, SUPPORTED) }?;
    let (name, hardened) = (options.name, options.hardened);
    let slab = layout_of(size, align).and_then(|layout| build(layout, options));
    let slab = slab.map_err(|error| fail(HandleKind::Slab, name, error))?;
    handle::create(CSlab::owned(slab), hardened)
}

fn build(layout: Layout, options: CheckedOptions<'_>) -> Result<RawSlab, AllocError> {
    let builder = RawSlab::builder(layout)
        .release(options.release)
        .packing(options.packing)
        .hardened(options.hardened);
    with_requested!(builder, options: source, report_live, max_page_bytes, max_cached_bytes)
        .try_build()
}

fn by_size(size: usize, align: usize) -> Result<NonNull<allot_slab>, FailedCall> {
    let hardened = handle_table::all_hardened();
    let by_size = if hardened { RawSlab::try_hardened_by_size } else { RawSlab::try_by_size };
    let slab = layout_of(size, align)
        .and_then(by_size)
        .map_err(|error| fail(HandleKind::Slab, None, error))?;
    handle::create(CSlab::shared(slab), hardened)
}

unsafe fn destroy(slab: *mut allot_slab) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe { handle::destroy_if(slab, CSlab::check_unused) }
}

/// The slab, if its fast paths may be tried: it is not NULL, and handles are not looked up.
#[inline(always)]
unsafe fn get_fast<'a>(slab: *const allot_slab) -> Option<&'a CSlab> {
    // SAFETY: a slab (invariant 1 of lib.rs), or the tombstone of a hardened slab. Only `raw` of a
    // tombstone is read, and it is unchanged (2).
    if handle_table::lookup_is_off() { unsafe { slab.cast::<CSlab>().as_ref() } } else { None }
}

/// A slot from the thread's cache.
#[inline(always)]
unsafe fn alloc_fast(slab: *const allot_slab) -> Option<NonNull<u8>> {
    // SAFETY: passed on to the caller.
    unsafe { get_fast(slab) }?.raw.alloc_cached()
}

unsafe fn alloc(slab: *const allot_slab) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get(slab) }?;
    this.raw.try_alloc().map_err(|error| this.failed(error))
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(slab: *const allot_slab, slot: *mut c_void) {
    let Some(slot) = NonNull::new(slot) else { return };
    // SAFETY: passed on to the caller.
    unsafe { or_abort(handle::get(slab)).raw.free(slot.cast()) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_anywhere_slow(slot: *mut c_void) {
    let Some(live) = NonNull::new(slot) else { return };
    // SAFETY: passed on to the caller.
    if !unsafe { RawSlab::free_if_slot(live.cast()) } {
        let text = format!("foreign pointer, not a slot of any slab: {slot:p}");
        fail(HandleKind::Slab, None, CallError::BadArgument(&text)).abort()
    }
}

unsafe fn alloc_for(
    slab: *const allot_slab,
    lifetime: c_int,
) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    let lifetime = match lifetime {
        0 => Lifetime::Short,
        1 => Lifetime::Long,
        _ => {
            let text = "no such lifetime; use ALLOT_SHORT_LIVED or ALLOT_LONG_LIVED";
            return Err(fail(HandleKind::Slab, slab.name(), CallError::BadOption(text)));
        }
    };
    slab.raw.try_alloc_for(lifetime).map(NonNull::cast).map_err(|error| slab.failed(error))
}

/// What a call on many slots gets.
const ARRAY: &str = "array of slots";

unsafe fn alloc_many(
    slab: *const allot_slab,
    slots: *mut *mut c_void,
    count: usize,
) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    if count == 0 {
        return Ok(());
    }
    if count > isize::MAX as usize / size_of::<*mut c_void>() {
        let bytes = count.saturating_mul(slab.raw.layout().size());
        return Err(slab.failed(AllocError::new(ErrorKind::SizeOverflow, bytes)));
    }
    if slots.is_null() {
        return Err(fail(HandleKind::Slab, slab.name(), CallError::NullArgument(ARRAY)));
    }
    let slots = slots.cast::<MaybeUninit<NonNull<u8>>>();
    // SAFETY: the caller provides `count` entries, and `NonNull<u8>` has the layout of a pointer.
    let slots = unsafe { core::slice::from_raw_parts_mut(slots, count) };
    slab.raw.try_alloc_many(slots).map_err(|error| slab.failed(error))
}

unsafe fn reserve(slab: *const allot_slab, slots: usize) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    slab.raw.try_reserve(slots).map_err(|error| slab.failed(error))
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_slab_create_abi, allot_slab_try_create_abi(
        abi: u32,
        size: usize,
        align: usize,
        options: *const allot_options,
    ) -> *mut allot_slab = create
}

call_pair! {
    fn allot_slab_by_size, allot_slab_try_by_size(size: usize, align: usize) -> *mut allot_slab
        = by_size
}

call! { fn allot_slab_destroy(slab: *mut allot_slab) = destroy }

call_pair! {
    unsafe fn allot_slab_alloc, allot_slab_try_alloc(slab: *mut allot_slab) -> *mut c_void
        = alloc_fast else alloc
}

call_pair! {
    unsafe fn allot_slab_alloc_for, allot_slab_try_alloc_for(
        slab: *mut allot_slab,
        lifetime: c_int,
    ) -> *mut c_void = alloc_for
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free(slab: *mut allot_slab, slot: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        match (get_fast(slab), NonNull::new(slot)) {
            (Some(this), Some(live)) => {
                this.raw.free_or(live.cast(), || free_slow(slab, slot));
            }
            _ => free_slow(slab, slot),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free_anywhere(slot: *mut c_void) {
    if let Some(live) = NonNull::new(slot) {
        // SAFETY: as above.
        unsafe { RawSlab::free_cached_or(live.cast(), || free_anywhere_slow(slot)) };
    }
}

call_pair! {
    unsafe fn allot_slab_alloc_many, allot_slab_try_alloc_many(
        slab: *mut allot_slab,
        slots: *mut *mut c_void,
        count: usize,
    ) = alloc_many
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free_many(
    slab: *mut allot_slab,
    slots: *const *mut c_void,
    count: usize,
) {
    // SAFETY: as above. The caller provides `count` entries, and a run between two NULLs contains
    // none.
    unsafe {
        let slab = or_abort(handle::get(slab));
        if count > 0 {
            if slots.is_null() {
                let problem = CallError::NullArgument(ARRAY);
                fail(HandleKind::Slab, slab.name(), problem).abort();
            }
            let slots = core::slice::from_raw_parts(slots, count);
            for run in slots.split(|slot| slot.is_null()) {
                slab.raw.free_many(core::slice::from_raw_parts(run.as_ptr().cast(), run.len()));
            }
        }
    }
}

call_pair! {
    unsafe fn allot_slab_reserve, allot_slab_try_reserve(slab: *mut allot_slab, slots: usize)
        = reserve
}

call! { fn allot_slab_trim(slab: *mut allot_slab) -> usize => slab.raw.trim() }

call! { fn allot_slab_flush(slab: *mut allot_slab) => slab.raw.flush() }

call! {
    fn allot_slab_set_packing(slab: *mut allot_slab, packing: bool)
        => slab.raw.set_packing(packing)
}

call! { fn allot_slab_slot_size(slab: *const allot_slab) -> usize => slab.raw.layout().size() }

call! {
    fn allot_slab_statistics(slab: *const allot_slab) -> allot_statistics
        => slab.raw.statistics().into()
}

call! {
    fn allot_slab_page_statistics(slab: *const allot_slab) -> allot_statistics
        => slab.raw.page_statistics().into()
}
