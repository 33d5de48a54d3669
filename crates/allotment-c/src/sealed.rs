//! `allot_sealed`: objects that a C initialiser builds and that never change afterwards.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. A [`SealedRoot`] refers to what an initialiser returned. The C caller guarantees that it is
//!    read-only.
//! 2. A sealer is alive while its initialiser runs. Its handle, which is hardened in every mode,
//!    is destroyed before the sealed memory can be released.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

use allotment::sealed::Sealable;
use allotment::{AllocError, ReadOnly, Sealed, Sealer};

use crate::calls::{call, call_pair};
use crate::error::{
    CallError, FailedCall, fail, or_abort, pending_failure, pointer_or_abort, restore_last_error,
    take_last_error,
};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::handle_table;
use crate::layouts::{DEFAULT_ALIGN, layout_of};
use crate::options::{self, allot_options, with_requested};
use crate::statistics::allot_statistics;

/// The object that an initialiser built.
#[derive(Clone, Copy)]
pub struct SealedRoot(NonNull<c_void>);

// SAFETY: an address of memory that does not change (invariant 1).
unsafe impl Send for SealedRoot {}
// SAFETY: as above.
unsafe impl Sync for SealedRoot {}
// SAFETY: as above; it owns nothing.
unsafe impl ReadOnly for SealedRoot {}

impl Sealable for SealedRoot {
    type In<'s> = Self;
}

/// `allot_sealed`.
pub type allot_sealed = HandleBox<CSealed>;

/// Sealed memory, and the object in it.
#[repr(C)]
pub struct CSealed {
    /// `None` after it was leaked.
    sealed: Option<Sealed<SealedRoot>>,
    root: SealedRoot,
}

/// `allot_sealer`.
pub type allot_sealer = HandleBox<CSealer>;

/// The memory that an initialiser allocates in.
#[repr(C)]
pub struct CSealer {
    sealer: Sealer<'static>,
    name: Option<&'static str>,
}

/// `allot_sealed_init`.
type InitCallback = unsafe extern "C" fn(*mut allot_sealer, *mut c_void) -> *const c_void;

impl HandleTarget for CSealed {
    const KIND: HandleKind = HandleKind::Sealed;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        self.sealed.as_ref().and_then(Sealed::name)
    }
}

impl HandleTarget for CSealer {
    const KIND: HandleKind = HandleKind::Sealer;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.name
    }
}

/// Why nothing was built.
enum BuildError {
    Memory(AllocError),
    Failed(FailedCall),
    /// The initialiser returned NULL.
    GaveUp,
}

impl From<AllocError> for BuildError {
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
    init: InitCallback,
    context: *mut c_void,
    sealer: Sealer<'_>,
    name: Option<&str>,
) -> Result<SealedRoot, BuildError> {
    // SAFETY: the sealer's handle is destroyed below, before the memory and the name can end
    // (invariant 2).
    let (sealer, name) = unsafe {
        (
            core::mem::transmute::<Sealer<'_>, Sealer<'static>>(sealer),
            core::mem::transmute::<Option<&str>, Option<&'static str>>(name),
        )
    };
    // Hardened in every mode: C code can easily keep the handle and use it too late. The tombstone
    // costs little compared with the system calls.
    let handle = handle::create(CSealer { sealer, name }, true);
    let handle = handle.map_err(BuildError::Failed)?.as_ptr();
    // SAFETY: passed on to the caller.
    let root = unsafe { init(handle, context) };
    // SAFETY: created above; the initialiser does not use it any more.
    unsafe { handle::destroy(handle) }.map_err(BuildError::Failed)?;
    NonNull::new(root.cast_mut()).map(SealedRoot).ok_or(BuildError::GaveUp)
}

/// `Err(None)` means that the initialiser gave up without an error.
unsafe fn create(
    abi: u32,
    options: *const allot_options,
    init: Option<InitCallback>,
    context: *mut c_void,
) -> Result<NonNull<allot_sealed>, Option<FailedCall>> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::Sealed, abi, options, 0) }?;
    let Some(init) = init else {
        let text = "the initialiser is NULL; pass a function that builds the object";
        return Err(Some(fail(HandleKind::Sealed, options.name, CallError::BadOption(text))));
    };
    let builder = with_requested!(Sealed::<SealedRoot>::builder(), options:);
    let before = take_last_error();
    let built = builder.try_build(|sealer| {
        // SAFETY: passed on to the caller.
        unsafe { run(init, context, sealer, options.name) }
    });
    match built {
        Ok(sealed) => {
            restore_last_error(before);
            let root = *sealed.get();
            let sealed = CSealed { sealed: Some(sealed), root };
            Ok(handle::create(sealed, handle_table::all_hardened())?)
        }
        Err(BuildError::Memory(error)) => Err(Some(fail(HandleKind::Sealed, options.name, error))),
        Err(BuildError::Failed(failure)) => Err(Some(failure)),
        Err(BuildError::GaveUp) => Err(pending_failure()),
    }
}

// ---- the sealer ----

unsafe fn alloc(
    sealer: *mut allot_sealer,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get(sealer) }?;
    let block = layout_of(size, align).and_then(|layout| this.sealer.try_alloc_layout(layout));
    block.map_err(|error| fail(HandleKind::Sealer, this.name, error))
}

fn null_argument(sealer: &CSealer, what: &str) -> FailedCall {
    fail(HandleKind::Sealer, sealer.name, CallError::NullArgument(what))
}

unsafe fn copy(
    sealer: *mut allot_sealer,
    bytes: *const u8,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller. A fresh block of `size` bytes.
    unsafe {
        if bytes.is_null() && size > 0 {
            return Err(null_argument(handle::get(sealer)?, "memory to copy"));
        }
        let block = alloc(sealer, size, align)?;
        if size > 0 {
            block.as_ptr().copy_from_nonoverlapping(bytes, size);
        }
        Ok(block)
    }
}

unsafe fn memdup(
    sealer: *mut allot_sealer,
    bytes: *const c_void,
    size: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe { copy(sealer, bytes.cast(), size, DEFAULT_ALIGN) }
}

unsafe fn strdup(
    sealer: *mut allot_sealer,
    text: *const c_char,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe {
        if text.is_null() {
            return Err(null_argument(handle::get(sealer)?, "text"));
        }
        let text = CStr::from_ptr(text).to_bytes_with_nul();
        copy(sealer, text.as_ptr(), text.len(), 1)
    }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

// Not a `call_pair`: if the initialiser gives up, the twin returns NULL without an error.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_create_abi(
    abi: u32,
    options: *const allot_options,
    init: Option<InitCallback>,
    context: *mut c_void,
) -> *mut allot_sealed {
    // SAFETY: as above.
    pointer_or_abort(unsafe { create(abi, options, init, context) }.map_err(|failure| {
        let text = "its initialiser gave up: it returned NULL";
        failure.unwrap_or_else(|| fail(HandleKind::Sealed, None, CallError::BadArgument(text)))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_try_create_abi(
    abi: u32,
    options: *const allot_options,
    init: Option<InitCallback>,
    context: *mut c_void,
) -> *mut allot_sealed {
    // SAFETY: as above.
    match unsafe { create(abi, options, init, context) } {
        Ok(sealed) => sealed.as_ptr(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_get(sealed: *const allot_sealed) -> *const c_void {
    // SAFETY: as above.
    unsafe {
        let this = match handle::get_fast(sealed) {
            Some(this) => this,
            None => or_abort(handle::get(sealed)),
        };
        this.root.0.as_ptr()
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_leak(sealed: *mut allot_sealed) -> *const c_void {
    // SAFETY: as above. No other code uses the handle any more.
    unsafe {
        let this = or_abort(handle::get_mut(sealed));
        let root = this.root.0.as_ptr();
        if let Some(memory) = this.sealed.take() {
            let _ = memory.leak();
        }
        or_abort(handle::destroy(sealed));
        root
    }
}

call! { fn allot_sealed_destroy(sealed: *mut allot_sealed) = handle::destroy }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_sealed_statistics(sealed: *const allot_sealed) -> allot_statistics {
    // SAFETY: as above.
    let this = or_abort(unsafe { handle::get(sealed) });
    this.sealed.as_ref().map(|sealed| sealed.statistics().into()).unwrap_or_default()
}

call_pair! {
    unsafe fn allot_sealer_alloc, allot_sealer_try_alloc(
        sealer: *mut allot_sealer,
        size: usize,
        align: usize,
    ) -> *mut c_void = alloc
}

call_pair! {
    unsafe fn allot_sealer_memdup, allot_sealer_try_memdup(
        sealer: *mut allot_sealer,
        bytes: *const c_void,
        size: usize,
    ) -> *mut c_void = memdup
}

call_pair! {
    unsafe fn allot_sealer_strdup, allot_sealer_try_strdup(
        sealer: *mut allot_sealer,
        text: *const c_char,
    ) -> *mut c_char = strdup
}
