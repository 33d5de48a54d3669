//! Sources: where allocators get their memory.
//!
//! The invariants are those of `handle.rs` and `lib.rs`, and:
//!
//! 1. The functions of a custom source keep the contract of [`Source`], which the header states,
//!    and any thread may use `context`.

use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use allotment::{AllocError, ErrorKind, File, Malloc, Mmap, SharedSource, Source};

use crate::error::{Noted, Problem, check_abi, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::known;

/// `allot_source`.
pub type allot_source = Held<SourceOfC>;

/// A source, and the file if it is a file source.
pub struct SourceOfC {
    shared: SharedSource,
    file: Option<Arc<File>>,
}

impl SourceOfC {
    pub(crate) fn shared(&self) -> SharedSource {
        self.shared.clone()
    }
}

impl Kept for SourceOfC {
    const KIND: Kind = Kind::Source;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        Some(self.shared.name())
    }
}

type Acquire = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Release = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize);
type End = unsafe extern "C" fn(*mut c_void);

/// `allot_source_calls`.
#[repr(C)]
pub struct allot_source_calls {
    name: *const c_char,
    acquire: Option<Acquire>,
    release: Option<Release>,
    end: Option<End>,
    zeroed: u8,
    not_inherited: u8,
}

crate::numbers::numbers!(CALLS: allot_source_calls { name, acquire, release, end, zeroed, not_inherited });

/// A custom source.
struct Calls {
    name: Box<str>,
    acquire: Acquire,
    release: Release,
    end: Option<End>,
    context: *mut c_void,
    zeroed: bool,
    inherited: bool,
}

// SAFETY: any thread may call its functions (invariant 1).
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

// SAFETY: the functions keep the contract (invariant 1).
unsafe impl Source for Calls {
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

impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: invariant 1. No other call follows.
            unsafe { end(self.context) };
        }
    }
}

fn make(
    shared: impl Into<SharedSource>,
    file: Option<Arc<File>>,
) -> Result<NonNull<allot_source>, Noted> {
    handle::create(SourceOfC { shared: shared.into(), file }, known::all_hardened())
}

/// # Safety
/// `calls` is NULL, or points to a structure of the header with this `abi`, whose functions keep
/// the contract.
unsafe fn make_of_calls(
    abi: u32,
    calls: *const allot_source_calls,
    context: *mut c_void,
) -> Result<NonNull<allot_source>, Noted> {
    check_abi(Kind::Source, abi)?;
    let bad = |text| Err(note(Kind::Source, None, Problem::BadOption(text)));
    // SAFETY: passed on to the caller.
    let Some(calls) = (unsafe { calls.as_ref() }) else {
        return bad("the calls are NULL; a custom source needs acquire and release");
    };
    let (Some(acquire), Some(release)) = (calls.acquire, calls.release) else {
        return bad("a custom source needs acquire and release; one of them is NULL");
    };
    let name = if calls.name.is_null() {
        "callbacks".into()
    } else {
        // SAFETY: passed on to the caller.
        match unsafe { CStr::from_ptr(calls.name) }.to_str() {
            Ok(name) => name.into(),
            Err(_) => return Err(note(Kind::Source, None, Problem::BadName)),
        }
    };
    let (zeroed, inherited) = (calls.zeroed != 0, calls.not_inherited == 0);
    let calls = Calls { name, acquire, release, end: calls.end, context, zeroed, inherited };
    make(Arc::new(calls), None)
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
unsafe fn make_of_file(
    path: *const c_char,
    open: impl FnOnce(&Path) -> std::io::Result<File>,
) -> Result<NonNull<allot_source>, Noted> {
    if path.is_null() {
        let problem = Problem::BadOption("the path is NULL; a file source needs a path");
        return Err(note(Kind::Source, None, problem));
    }
    // SAFETY: passed on to the caller.
    let path = unsafe { CStr::from_ptr(path) };
    match open(Path::new(OsStr::from_bytes(path.to_bytes()))) {
        Ok(file) => {
            let file = Arc::new(file);
            make(file.clone(), Some(file))
        }
        Err(error) => {
            let code = error.raw_os_error().unwrap_or(0);
            Err(note(Kind::Source, None, Problem::File(path, code)))
        }
    }
}

/// # Safety
/// `calls` is NULL, or points to a structure of the header with this `abi`, whose functions keep
/// the contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_create_abi(
    abi: u32,
    calls: *const allot_source_calls,
    context: *mut c_void,
) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make_of_calls(abi, calls, context) })
}

/// # Safety
/// As for [`allot_source_create_abi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_try_create_abi(
    abi: u32,
    calls: *const allot_source_calls,
    context: *mut c_void,
) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make_of_calls(abi, calls, context) })
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_source_mmap() -> *mut allot_source {
    or_stop_pointer(make(Mmap::new(), None))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_source_small_pages() -> *mut allot_source {
    or_stop_pointer(make(Mmap::small_pages(), None))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_source_huge_pages() -> *mut allot_source {
    or_stop_pointer(make(Mmap::huge_pages(), None))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_source_malloc() -> *mut allot_source {
    or_stop_pointer(make(Malloc, None))
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_file_in(directory: *const c_char) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make_of_file(directory, File::in_directory) })
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_try_file_in(directory: *const c_char) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make_of_file(directory, File::in_directory) })
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_file(path: *const c_char) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make_of_file(path, File::kept) })
}

/// # Safety
/// The path is NULL, or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_try_file(path: *const c_char) -> *mut allot_source {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make_of_file(path, File::kept) })
}

/// # Safety
/// As for [`handle::get`]. `offset` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_file_offset(
    source: *const allot_source,
    address: *const c_void,
    offset: *mut u64,
) -> bool {
    // SAFETY: passed on to the caller.
    let source = or_stop(unsafe { handle::get(source) });
    match source.file.as_ref().and_then(|file| file.offset_of(address)) {
        Some(found) => {
            if !offset.is_null() {
                // SAFETY: passed on to the caller.
                unsafe { offset.write(found) };
            }
            true
        }
        None => false,
    }
}

/// # Safety
/// As for [`handle::destroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_source_destroy(source: *mut allot_source) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::destroy(source, |_| Ok(())) });
}
