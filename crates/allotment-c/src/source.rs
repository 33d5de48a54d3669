//! Sources: where allocators get their memory.
//!
//! The invariants are those of `handle.rs` and `lib.rs`, and:
//!
//! 1. The functions of a custom source keep the contract of [`Source`], which the header states,
//!    and any thread may use `context`.
//! 2. If `is_file` of a [`CSource`] is true, `shared` was made of a `File`.

use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use allotment::source::SharedSource;
use allotment::{AllocError, ErrorKind, File, Malloc, Mmap, Source};

use crate::calls::{call, call_pair};
use crate::error::{CallError, FailedCall, check_abi, fail, or_abort, try_boxed_str};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::handle_table;
use crate::struct_numbers::struct_numbers;

/// `allot_source`.
pub type allot_source = HandleBox<CSource>;

/// A source, and whether it is a file.
pub struct CSource {
    shared: SharedSource,
    is_file: bool,
}

impl CSource {
    pub(crate) fn shared(&self) -> SharedSource {
        self.shared.clone()
    }

    /// The file, if it is a file source.
    fn file(&self) -> Option<&File> {
        // SAFETY: a file source shares a `File` (2), which lives as long as this.
        self.is_file.then(|| unsafe { &*self.shared.address().cast::<File>() })
    }
}

impl HandleTarget for CSource {
    const KIND: HandleKind = HandleKind::Source;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        Some(self.shared.name())
    }
}

type AcquireCallback = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type ReleaseCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize);
type EndCallback = unsafe extern "C" fn(*mut c_void);

/// `allot_source_calls`.
#[repr(C)]
pub struct allot_source_calls {
    name: *const c_char,
    acquire: Option<AcquireCallback>,
    release: Option<ReleaseCallback>,
    end: Option<EndCallback>,
    zeroed: u8,
    not_inherited: u8,
}

struct_numbers!(CALLS: allot_source_calls { name, acquire, release, end, zeroed, not_inherited });

/// A custom source: the functions of an `allot_source_calls`, checked.
struct CallbackSource {
    name: Box<str>,
    acquire: AcquireCallback,
    release: ReleaseCallback,
    end: Option<EndCallback>,
    context: *mut c_void,
    zeroed: bool,
    inherited: bool,
}

// SAFETY: any thread may call its functions (invariant 1).
unsafe impl Send for CallbackSource {}
// SAFETY: as above.
unsafe impl Sync for CallbackSource {}

// SAFETY: the functions keep the contract (invariant 1).
unsafe impl Source for CallbackSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let refused = AllocError::new(ErrorKind::SourceRefused, layout.size());
        // SAFETY: invariant 1.
        let block = unsafe { (self.acquire)(self.context, layout.size(), layout.align()) };
        let block = NonNull::new(block.cast::<u8>()).ok_or(refused)?;
        if block.addr().get() % layout.align() != 0 {
            // A likely mistake in C, because malloc takes no alignment: the block is refused.
            // SAFETY: acquired above with this layout.
            unsafe { self.release(block, layout) };
            return Err(refused);
        }
        Ok(block)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: invariant 1; passed on to the caller.
        unsafe {
            (self.release)(self.context, block.as_ptr().cast(), layout.size(), layout.align());
        }
    }

    fn zeroed(&self) -> bool {
        self.zeroed
    }

    fn is_inherited(&self) -> bool {
        self.inherited
    }
}

impl Drop for CallbackSource {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: invariant 1. No other call follows.
            unsafe { end(self.context) };
        }
    }
}

fn create(shared: impl Into<SharedSource>) -> Result<NonNull<allot_source>, FailedCall> {
    let source = CSource { shared: shared.into(), is_file: false };
    handle::create(source, handle_table::all_hardened())
}

/// Shares a source, or fails without memory.
fn share(source: impl Source + 'static) -> Result<SharedSource, FailedCall> {
    SharedSource::try_new(source).map_err(|error| fail(HandleKind::Source, None, error))
}

/// # Safety
/// `calls` is NULL, or points to a structure of the header with this `abi`, whose functions keep
/// the contract.
unsafe fn create_from_callbacks(
    abi: u32,
    calls: *const allot_source_calls,
    context: *mut c_void,
) -> Result<NonNull<allot_source>, FailedCall> {
    check_abi(HandleKind::Source, abi)?;
    let bad = |text| Err(fail(HandleKind::Source, None, CallError::BadOption(text)));
    // SAFETY: passed on to the caller.
    let Some(calls) = (unsafe { calls.as_ref() }) else {
        return bad("the calls are NULL; a custom source needs acquire and release");
    };
    let (Some(acquire), Some(release)) = (calls.acquire, calls.release) else {
        return bad("a custom source needs acquire and release; one of them is NULL");
    };
    let name = if calls.name.is_null() {
        "callbacks"
    } else {
        // SAFETY: passed on to the caller.
        match unsafe { CStr::from_ptr(calls.name) }.to_str() {
            Ok(name) => name,
            Err(_) => return Err(fail(HandleKind::Source, None, CallError::BadName)),
        }
    };
    let name = try_boxed_str(HandleKind::Source, name)?;
    let (zeroed, inherited) = (calls.zeroed != 0, calls.not_inherited == 0);
    let end = calls.end;
    let source = CallbackSource { name, acquire, release, end, context, zeroed, inherited };
    create(share(source)?)
}

fn mmap() -> Result<NonNull<allot_source>, FailedCall> {
    create(Mmap::new())
}

fn small_pages() -> Result<NonNull<allot_source>, FailedCall> {
    create(Mmap::small_pages())
}

fn huge_pages() -> Result<NonNull<allot_source>, FailedCall> {
    create(Mmap::huge_pages())
}

fn malloc() -> Result<NonNull<allot_source>, FailedCall> {
    create(Malloc)
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
unsafe fn create_from_file(
    path: *const c_char,
    open: impl FnOnce(&Path) -> std::io::Result<File>,
) -> Result<NonNull<allot_source>, FailedCall> {
    if path.is_null() {
        let problem = CallError::BadOption("the path is NULL; a file source needs a path");
        return Err(fail(HandleKind::Source, None, problem));
    }
    // SAFETY: passed on to the caller.
    let path = unsafe { CStr::from_ptr(path) };
    match open(Path::new(OsStr::from_bytes(path.to_bytes()))) {
        Ok(file) => {
            let source = CSource { shared: share(file)?, is_file: true };
            handle::create(source, handle_table::all_hardened())
        }
        Err(error) => {
            let code = error.raw_os_error().unwrap_or(0);
            Err(fail(HandleKind::Source, None, CallError::File(path, code)))
        }
    }
}

/// # Safety
/// As for [`create_from_file`].
unsafe fn unnamed_file(directory: *const c_char) -> Result<NonNull<allot_source>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe { create_from_file(directory, File::in_directory) }
}

/// # Safety
/// As for [`create_from_file`] and [`File::create_new`].
unsafe fn named_file(path: *const c_char) -> Result<NonNull<allot_source>, FailedCall> {
    // SAFETY: passed on to the caller.
    let create = |path: &Path| unsafe { File::create_new(path) };
    // SAFETY: passed on to the caller.
    unsafe { create_from_file(path, create) }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_source_create_abi, allot_source_try_create_abi(
        abi: u32,
        calls: *const allot_source_calls,
        context: *mut c_void,
    ) -> *mut allot_source = create_from_callbacks
}

call_pair! {
    fn allot_source_mmap, allot_source_try_mmap() -> *mut allot_source = mmap
}

call_pair! {
    fn allot_source_small_pages, allot_source_try_small_pages() -> *mut allot_source = small_pages
}

call_pair! {
    fn allot_source_huge_pages, allot_source_try_huge_pages() -> *mut allot_source = huge_pages
}

call_pair! {
    fn allot_source_malloc, allot_source_try_malloc() -> *mut allot_source = malloc
}

call_pair! {
    unsafe fn allot_source_file_in, allot_source_try_file_in(directory: *const c_char)
        -> *mut allot_source = unnamed_file
}

call_pair! {
    unsafe fn allot_source_file, allot_source_try_file(path: *const c_char)
        -> *mut allot_source = named_file
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_file_offset(
    source: *const allot_source,
    address: *const c_void,
    offset: *mut u64,
) -> bool {
    // SAFETY: as above.
    let source = or_abort(unsafe { handle::get(source) });
    match source.file().and_then(|file| file.offset_of(address)) {
        Some(found) => {
            if !offset.is_null() {
                // SAFETY: as above. The pointer is valid for a write.
                unsafe { offset.write(found) };
            }
            true
        }
        None => false,
    }
}

call! { fn allot_source_destroy(source: *mut allot_source) = handle::destroy }
