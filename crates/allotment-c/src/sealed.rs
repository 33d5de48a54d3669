//! `allot_sealed`: objects that a C initialiser builds and that never change afterwards.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. A [`Root`] refers to what an initialiser returned. The C caller guarantees that it is
//!    read-only.
//! 2. A `Sealer` is alive while its initialiser runs. Its handle, which is hardened in every mode,
//!    is destroyed before the sealed memory can be released.

use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

use allotment::{AllocError, ReadOnly, Sealable};

use crate::error::{self, Noted, Problem, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::known;
use crate::layouts::{DEFAULT_ALIGN, layout_of};
use crate::options::{self, allot_options};
use crate::statistics::allot_statistics;

/// The object that was built.
#[derive(Clone, Copy)]
pub struct Root(NonNull<c_void>);

// SAFETY: an address of memory that does not change (invariant 1).
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}
// SAFETY: as above; it owns nothing.
unsafe impl ReadOnly for Root {}

impl Sealable for Root {
    type In<'s> = Self;
}

/// `allot_sealed`.
#[repr(C)]
pub struct Sealed {
    /// `None` after it was leaked.
    sealed: Option<allotment::Sealed<Root>>,
    root: Root,
}

/// `allot_sealer`.
#[repr(C)]
pub struct Sealer {
    sealer: allotment::Sealer<'static>,
    name: Option<&'static str>,
}

/// `allot_sealed_init`.
type Init = unsafe extern "C" fn(*mut Held<Sealer>, *mut c_void) -> *const c_void;

type Pointer = *mut Held<Sealed>;
type SealerPointer = *mut Held<Sealer>;

impl Kept for Sealed {
    const KIND: Kind = Kind::Sealed;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        self.sealed.as_ref().and_then(allotment::Sealed::name)
    }
}

impl Kept for Sealer {
    const KIND: Kind = Kind::Sealer;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.name
    }
}

/// Why nothing was built.
enum Refused {
    Memory(AllocError),
    Noted(Noted),
    /// The initialiser returned NULL.
    GaveUp,
}

impl From<AllocError> for Refused {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

/// Runs an initialiser.
///
/// # Safety
/// `init` is an initialiser that may be called with `context`. It uses the sealer only while it
/// runs.
unsafe fn run(
    init: Init,
    context: *mut c_void,
    sealer: allotment::Sealer<'_>,
    name: Option<&str>,
) -> Result<Root, Refused> {
    // SAFETY: the sealer's handle is destroyed below, before the memory and the name can end
    // (invariant 2).
    let (sealer, name) = unsafe {
        (
            core::mem::transmute::<allotment::Sealer<'_>, allotment::Sealer<'static>>(sealer),
            core::mem::transmute::<Option<&str>, Option<&'static str>>(name),
        )
    };
    // Hardened in every mode: C code can easily keep the handle and use it too late. The tombstone
    // costs little compared with the system calls.
    let held = handle::create(Sealer { sealer, name }, true);
    let held = held.map_err(Refused::Noted)?.as_ptr();
    // SAFETY: passed on to the caller.
    let root = unsafe { init(held, context) };
    // SAFETY: created above; the initialiser does not use it any more.
    unsafe { handle::destroy(held, |_| Ok(())) }.map_err(Refused::Noted)?;
    NonNull::new(root.cast_mut()).map(Root).ok_or(Refused::GaveUp)
}

/// `Err(None)` means that the initialiser gave up without an error.
unsafe fn create(
    abi: u32,
    options: *const allot_options,
    init: Option<Init>,
    context: *mut c_void,
) -> Result<NonNull<Held<Sealed>>, Option<Noted>> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::Sealed, abi, options, 0) }?;
    let Some(init) = init else {
        let text = "the initialiser is NULL; pass a function that builds the object";
        return Err(Some(note(Kind::Sealed, options.name, Problem::BadOption(text))));
    };
    let mut builder = allotment::Sealed::<Root>::builder();
    if let Some(name) = options.name {
        builder = builder.name(name);
    }
    if let Some(budget) = &options.budget {
        builder = builder.budget(budget);
    }
    let before = error::set_aside();
    let built = builder.try_build(|sealer| {
        // SAFETY: passed on to the caller.
        unsafe { run(init, context, sealer, options.name) }
    });
    match built {
        Ok(sealed) => {
            error::put_back(before);
            let root = *sealed.get();
            Ok(handle::create(Sealed { sealed: Some(sealed), root }, known::all_hardened())?)
        }
        Err(Refused::Memory(error)) => Err(Some(note(Kind::Sealed, options.name, error))),
        Err(Refused::Noted(noted)) => Err(Some(noted)),
        Err(Refused::GaveUp) => Err(error::left()),
    }
}

// ---- the sealer ----

unsafe fn alloc(
    sealer: SealerPointer,
    layout: Result<Layout, AllocError>,
) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get(sealer) }?;
    let block = layout.and_then(|layout| held.sealer.try_alloc_layout(layout));
    block.map_err(|error| note(Kind::Sealer, held.name, error))
}

unsafe fn memdup(
    sealer: SealerPointer,
    bytes: *const u8,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller. A fresh block of `size` bytes.
    unsafe {
        let block = alloc(sealer, layout_of(size, align))?;
        if size > 0 {
            block.as_ptr().copy_from_nonoverlapping(bytes, size);
        }
        Ok(block)
    }
}

unsafe fn strdup(sealer: SealerPointer, text: *const c_char) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let text = CStr::from_ptr(text).to_bytes_with_nul();
        memdup(sealer, text.as_ptr(), text.len(), 1)
    }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_create_abi(
    abi: u32,
    options: *const allot_options,
    init: Option<Init>,
    context: *mut c_void,
) -> Pointer {
    // SAFETY: as above.
    or_stop_pointer(unsafe { create(abi, options, init, context) }.map_err(|refused| {
        let text = "its initialiser gave up: it returned NULL";
        refused.unwrap_or_else(|| note(Kind::Sealed, None, Problem::Bad(text)))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_try_create_abi(
    abi: u32,
    options: *const allot_options,
    init: Option<Init>,
    context: *mut c_void,
) -> Pointer {
    // SAFETY: as above.
    match unsafe { create(abi, options, init, context) } {
        Ok(sealed) => sealed.as_ptr(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_get(sealed: *const Held<Sealed>) -> *const c_void {
    // SAFETY: as above.
    unsafe {
        let held = match handle::at_once(sealed) {
            Some(held) => held,
            None => or_stop(handle::get(sealed)),
        };
        held.root.0.as_ptr()
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_leak(sealed: Pointer) -> *const c_void {
    // SAFETY: as above. No other code uses the handle any more.
    unsafe {
        let held = or_stop(handle::get_mut(sealed));
        let root = held.root.0.as_ptr();
        if let Some(sealed) = held.sealed.take() {
            let _ = sealed.leak();
        }
        or_stop(handle::destroy(sealed, |_| Ok(())));
        root
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_destroy(sealed: Pointer) {
    // SAFETY: as above.
    or_stop(unsafe { handle::destroy(sealed, |_| Ok(())) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_statistics(sealed: *const Held<Sealed>) -> allot_statistics {
    // SAFETY: as above.
    let held = or_stop(unsafe { handle::get(sealed) });
    held.sealed.as_ref().map(|sealed| sealed.statistics().into()).unwrap_or_default()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_alloc(
    sealer: SealerPointer,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { alloc(sealer, layout_of(size, align)) }).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_try_alloc(
    sealer: SealerPointer,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { alloc(sealer, layout_of(size, align)) }).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_memdup(
    sealer: SealerPointer,
    bytes: *const c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { memdup(sealer, bytes.cast(), size, DEFAULT_ALIGN) }).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_try_memdup(
    sealer: SealerPointer,
    bytes: *const c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { memdup(sealer, bytes.cast(), size, DEFAULT_ALIGN) }).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_strdup(
    sealer: SealerPointer,
    text: *const c_char,
) -> *mut c_char {
    // SAFETY: as above.
    or_stop_pointer(unsafe { strdup(sealer, text) }).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealer_try_strdup(
    sealer: SealerPointer,
    text: *const c_char,
) -> *mut c_char {
    // SAFETY: as above.
    or_null(unsafe { strdup(sealer, text) }).cast()
}
