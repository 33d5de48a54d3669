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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use allotment::{AllocError, ErrorKind, Lifetime, RawSlab};

use crate::error::{Noted, Problem, note, or_false, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::known;
use crate::layouts::layout_of;
use crate::options::{self, Options, allot_options, has};
use crate::statistics::allot_statistics;

/// `allot_slab`.
#[repr(C)]
pub struct Slab {
    raw: ManuallyDrop<RawSlab>,
    shared: Option<Arc<RawSlab>>,
    handles: AtomicUsize,
}

/// The options of a slab besides its name and budget.
const OPTIONS: u32 = has::SOURCE
    | has::RELEASE
    | has::HARDENED
    | has::REPORT_LIVE
    | has::PACKING
    | has::MAX_PAGE_BYTES
    | has::MAX_CACHED_BYTES;

pub(crate) type SlabPointer = *mut Held<Slab>;

impl Slab {
    fn own(raw: RawSlab) -> Self {
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

    /// Counts a new handle.
    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a handle.
    pub(crate) fn drop_handle(&self) {
        // Release pairs with the Acquire in `check_unused`: the handle's last use of the slab comes
        // before its end.
        self.handles.fetch_sub(1, Ordering::Release);
    }

    fn check_unused(&self) -> Result<(), Noted> {
        if self.handles.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let text = "destroyed while it has handles; destroy them first, each on its thread";
        Err(note(Kind::Slab, self.name(), Problem::InUse(text)))
    }

    pub(crate) fn failed(&self, error: AllocError) -> Noted {
        note(Kind::Slab, self.name(), error)
    }
}

impl Kept for Slab {
    const KIND: Kind = Kind::Slab;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        self.raw.name()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.shared.is_none() {
            // SAFETY: the slab's own (invariant 1), not used after this.
            unsafe { ManuallyDrop::drop(&mut self.raw) };
        }
    }
}

unsafe fn create(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> Result<NonNull<Held<Slab>>, Noted> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::Slab, abi, options, OPTIONS) }?;
    let raw = layout_of(size, align).and_then(|layout| build(layout, &options));
    let raw = raw.map_err(|error| note(Kind::Slab, options.name, error))?;
    handle::create(Slab::own(raw), options.hardened)
}

fn build(layout: Layout, options: &Options<'_>) -> Result<RawSlab, AllocError> {
    let mut builder = RawSlab::builder(layout)
        .release(options.release)
        .packing(options.packing)
        .hardened(options.hardened);
    if let Some(name) = options.name {
        builder = builder.name(name);
    }
    if let Some(budget) = &options.budget {
        builder = builder.budget(budget);
    }
    if let Some(source) = &options.source {
        builder = builder.source(source.clone());
    }
    if let Some(report) = options.report_live {
        builder = builder.report_live(report);
    }
    if options.max_page_bytes > 0 {
        builder = builder.max_page_bytes(options.max_page_bytes);
    }
    if options.max_cached_bytes > 0 {
        builder = builder.max_cached_bytes(options.max_cached_bytes);
    }
    builder.try_build()
}

/// Hardened slabs by size. The slabs by size of the library are not hardened.
static HARDENED: Mutex<BTreeMap<(usize, usize), Weak<RawSlab>>> = Mutex::new(BTreeMap::new());

fn hardened_by_size(layout: Layout) -> Result<Arc<RawSlab>, AllocError> {
    let mut slabs = HARDENED.lock().unwrap_or_else(PoisonError::into_inner);
    slabs.retain(|_, slab| slab.strong_count() > 0);
    let key = (layout.size(), layout.align());
    if let Some(slab) = slabs.get(&key).and_then(Weak::upgrade) {
        return Ok(slab);
    }
    let slab = Arc::new(RawSlab::builder(layout).hardened(true).try_build()?);
    slabs.insert(key, Arc::downgrade(&slab));
    Ok(slab)
}

fn by_size(size: usize, align: usize) -> Result<NonNull<Held<Slab>>, Noted> {
    let hardened = known::all_hardened();
    let slab = layout_of(size, align)
        .and_then(RawSlab::try_by_size)
        .and_then(|slab| if hardened { hardened_by_size(slab.layout()) } else { Ok(slab) })
        .map_err(|error| note(Kind::Slab, None, error))?;
    handle::create(Slab::shared(slab), hardened)
}

/// The slab, if its fast paths may be tried: it is not NULL, and handles are not looked up.
#[inline(always)]
unsafe fn at_once<'a>(slab: *const Held<Slab>) -> Option<&'a Slab> {
    // SAFETY: a slab (invariant 1 of lib.rs), or the tombstone of a hardened slab. Only `raw` of a
    // tombstone is read, and it is unchanged (2).
    if known::none_looked_up() { unsafe { slab.cast::<Slab>().as_ref() } } else { None }
}

/// A slot from the thread's cache.
#[inline(always)]
unsafe fn at_hand(slab: *const Held<Slab>) -> Option<NonNull<u8>> {
    // SAFETY: passed on to the caller.
    unsafe { at_once(slab) }?.raw.alloc_cached()
}

unsafe fn alloc(slab: *const Held<Slab>) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    slab.raw.try_alloc().map(NonNull::cast).map_err(|error| slab.failed(error))
}

#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_slowly(slab: *const Held<Slab>) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc(slab) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn try_alloc_slowly(slab: *const Held<Slab>) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc(slab) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(slab: *const Held<Slab>, slot: *mut c_void) {
    let Some(slot) = NonNull::new(slot) else { return };
    // SAFETY: passed on to the caller.
    unsafe { or_stop(handle::get(slab)).raw.free(slot.cast()) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_anywhere_slowly(slot: *mut c_void) {
    let Some(live) = NonNull::new(slot) else { return };
    // SAFETY: passed on to the caller.
    if !unsafe { RawSlab::free_if_slot(live.cast()) } {
        let text = format!("foreign pointer, not a slot of any slab: {slot:p}");
        note(Kind::Slab, None, Problem::Bad(&text)).stop()
    }
}

unsafe fn alloc_for(slab: *const Held<Slab>, lifetime: c_int) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    let lifetime = match lifetime {
        0 => Lifetime::Short,
        1 => Lifetime::Long,
        _ => {
            let text = "no such lifetime; use ALLOT_SHORT_LIVED or ALLOT_LONG_LIVED";
            return Err(note(Kind::Slab, slab.name(), Problem::BadOption(text)));
        }
    };
    slab.raw.try_alloc_for(lifetime).map(NonNull::cast).map_err(|error| slab.failed(error))
}

unsafe fn alloc_many(
    slab: *const Held<Slab>,
    slots: *mut *mut c_void,
    count: usize,
) -> Result<(), Noted> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    if count == 0 {
        return Ok(());
    }
    if count > isize::MAX as usize / size_of::<*mut c_void>() {
        let bytes = count.saturating_mul(slab.raw.layout().size());
        return Err(slab.failed(AllocError::new(ErrorKind::SizeOverflow, bytes)));
    }
    let slots = slots.cast::<MaybeUninit<NonNull<u8>>>();
    // SAFETY: the caller provides `count` entries, and `NonNull<u8>` has the layout of a pointer.
    let slots = unsafe { core::slice::from_raw_parts_mut(slots, count) };
    slab.raw.try_alloc_many(slots).map_err(|error| slab.failed(error))
}

unsafe fn reserve(slab: *const Held<Slab>, slots: usize) -> Result<(), Noted> {
    // SAFETY: passed on to the caller.
    let slab = unsafe { handle::get(slab) }?;
    slab.raw.try_reserve(slots).map_err(|error| slab.failed(error))
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_create_abi(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> SlabPointer {
    // SAFETY: as above.
    or_stop_pointer(unsafe { create(abi, size, align, options) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_try_create_abi(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> SlabPointer {
    // SAFETY: as above.
    or_null(unsafe { create(abi, size, align, options) })
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_slab_by_size(size: usize, align: usize) -> SlabPointer {
    or_stop_pointer(by_size(size, align))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_slab_try_by_size(size: usize, align: usize) -> SlabPointer {
    or_null(by_size(size, align))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_destroy(slab: SlabPointer) {
    // SAFETY: as above.
    or_stop(unsafe { handle::destroy(slab, Slab::check_unused) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_alloc(slab: SlabPointer) -> *mut c_void {
    // SAFETY: as above.
    unsafe { at_hand(slab).map_or_else(|| alloc_slowly(slab), |slot| slot.as_ptr().cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_try_alloc(slab: SlabPointer) -> *mut c_void {
    // SAFETY: as above.
    unsafe { at_hand(slab).map_or_else(|| try_alloc_slowly(slab), |slot| slot.as_ptr().cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_alloc_for(slab: SlabPointer, lifetime: c_int) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { alloc_for(slab, lifetime) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_try_alloc_for(
    slab: SlabPointer,
    lifetime: c_int,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { alloc_for(slab, lifetime) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free(slab: SlabPointer, slot: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        match (at_once(slab), NonNull::new(slot)) {
            (Some(known), Some(live)) => {
                known.raw.free_or(live.cast(), || free_slowly(slab, slot));
            }
            _ => free_slowly(slab, slot),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free_anywhere(slot: *mut c_void) {
    if let Some(live) = NonNull::new(slot) {
        // SAFETY: as above.
        unsafe { RawSlab::free_cached_or(live.cast(), || free_anywhere_slowly(slot)) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_alloc_many(
    slab: SlabPointer,
    slots: *mut *mut c_void,
    count: usize,
) {
    // SAFETY: as above.
    or_stop(unsafe { alloc_many(slab, slots, count) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_try_alloc_many(
    slab: SlabPointer,
    slots: *mut *mut c_void,
    count: usize,
) -> bool {
    // SAFETY: as above.
    or_false(unsafe { alloc_many(slab, slots, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_free_many(
    slab: SlabPointer,
    slots: *const *mut c_void,
    count: usize,
) {
    // SAFETY: as above. The caller provides `count` entries, and a run between two NULLs contains
    // none.
    unsafe {
        let slab = or_stop(handle::get(slab));
        if count > 0 {
            let slots = core::slice::from_raw_parts(slots, count);
            for run in slots.split(|slot| slot.is_null()) {
                slab.raw.free_many(core::slice::from_raw_parts(run.as_ptr().cast(), run.len()));
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_reserve(slab: SlabPointer, slots: usize) {
    // SAFETY: as above.
    or_stop(unsafe { reserve(slab, slots) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_try_reserve(slab: SlabPointer, slots: usize) -> bool {
    // SAFETY: as above.
    or_false(unsafe { reserve(slab, slots) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_trim(slab: SlabPointer) -> usize {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(slab) }).raw.trim()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_flush(slab: SlabPointer) {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(slab) }).raw.flush();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_set_packing(slab: SlabPointer, packing: bool) {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(slab) }).raw.set_packing(packing);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_slot_size(slab: *const Held<Slab>) -> usize {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(slab) }).raw.layout().size()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_statistics(slab: *const Held<Slab>) -> allot_statistics {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(slab) }).raw.statistics().into()
}
