//! The calling thread's last error, and what happens to a call that must not fail.
//!
//! Inside the crate, a call that fails returns a [`FailedCall`], after [`fail`] has written the
//! thread's error. [`pointer_or_null`], [`or_abort`] and [`pointer_or_abort`] turn it into what the
//! C caller gets.
//!
//! # Invariants
//!
//! 1. Only its thread accesses `LAST_ERROR`, and no reference into it is kept across a call.
//! 2. `name` and `message` end with a NUL and are UTF-8.
//! 3. `HANDLER` is null or an `allot_failure_handler`.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write as _};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd as _;

use allotment::{AllocError, ErrorKind, MAX_NAME_LEN, SystemMessage};

use crate::handle_kind::HandleKind;
use crate::struct_numbers::struct_numbers;
use crate::version::ABI;

/// `allot_error_kind`, as a number.
type ErrorCode = c_int;

const MESSAGE_BYTES: usize = 256;

/// The descriptor of standard error.
const STDERR: c_int = 2;

/// `allot_error`.
#[repr(C)]
pub struct allot_error {
    kind: ErrorCode,
    system_error: c_int,
    requested: usize,
    allocator: *const c_char,
    name: [u8; MAX_NAME_LEN + 1],
    message: [u8; MESSAGE_BYTES],
}

struct_numbers!(ERROR: allot_error { kind, system_error, requested, allocator, name, message });

/// Why a call failed. Texts are sentences without a full stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallError<'a> {
    /// An error of the library.
    Memory(AllocError),
    /// A file that the system did not create, and the system's error code.
    File(&'a CStr, c_int),
    /// A name that is not UTF-8.
    BadName,
    /// An unsupported option, or an invalid value of one.
    BadOption(&'a str),
    /// This kind of allocator has no option of this name.
    UnsupportedOption(HandleKind, &'a str),
    /// The handle is NULL.
    NullHandle,
    /// The handle was destroyed.
    Destroyed,
    /// Not a handle of this kind.
    Foreign,
    /// A text or an array is NULL.
    NullArgument(&'a str),
    /// Another invalid argument.
    BadArgument(&'a str),
    /// The calling thread is not the owner.
    WrongThread,
    /// The header's ABI version, which is not the library's.
    WrongAbi(u32),
    /// Still in use, so it cannot be destroyed or left.
    InUse(&'a str),
}

impl From<AllocError> for CallError<'_> {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

impl CallError<'_> {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Memory(error) => match error.kind() {
                ErrorKind::SizeOverflow => 1,
                ErrorKind::BadAlignment => 2,
                ErrorKind::BudgetExceeded => 3,
                ErrorKind::System(_) => 4,
                ErrorKind::ForkedChild => 6,
                ErrorKind::Sealed => 7,
                ErrorKind::NameTooLong => 8,
                ErrorKind::LimitReached => 14,
                // SourceRefused, and what a later version of the library may know.
                _ => 5,
            },
            Self::File(..) => 4,
            Self::BadName => 8,
            Self::BadOption(_) | Self::UnsupportedOption(..) => 9,
            Self::NullHandle
            | Self::Destroyed
            | Self::Foreign
            | Self::NullArgument(_)
            | Self::BadArgument(_) => 10,
            Self::WrongThread => 11,
            Self::WrongAbi(_) => 12,
            Self::InUse(_) => 13,
        }
    }

    fn system_error(&self) -> c_int {
        match self {
            Self::Memory(error) => match error.kind() {
                ErrorKind::System(code) => code,
                _ => 0,
            },
            Self::File(_, code) => *code,
            _ => 0,
        }
    }
}

impl fmt::Display for CallError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::File(path, code) => write!(
                f,
                "can't create a file at {path:?}: {}",
                SystemMessage(*code)
            ),
            Self::BadName => f.write_str("the name is not valid UTF-8"),
            Self::BadOption(text) | Self::BadArgument(text) | Self::InUse(text) => f.write_str(text),
            Self::NullArgument(what) => write!(f, "the {what} is NULL; pass one, or a size of 0"),
            Self::UnsupportedOption(kind, option) => {
                let label = kind.label().to_str().unwrap_or("allocator");
                write!(f, "this {label} has no option '{option}'; leave it at zero")
            }
            Self::NullHandle => f.write_str("the handle is NULL; check what its _create call returned"),
            Self::Destroyed => f.write_str("used after it was destroyed; destroy it after its last use"),
            Self::Foreign => f.write_str("the pointer is not a live handle of this kind; pass what _create returned"),
            Self::WrongThread => f.write_str(
                "used by a thread that is not its owner; transfer it with its _adopt function, if it has one",
            ),
            Self::WrongAbi(theirs) => write!(
                f,
                "the program was built with a header of ABI {theirs}, the library has {ABI}; use a header and a library of the same version"
            ),
        }
    }
}

/// A failed call. Its existence proves that the thread's last error was written.
#[derive(Debug)]
#[must_use = "the caller must pass the failure on"]
pub(crate) struct FailedCall(());

struct LastError(UnsafeCell<allot_error>);

thread_local! {
    static LAST_ERROR: LastError = const { LastError(UnsafeCell::new(NO_ERROR)) };
}

const NO_ERROR: allot_error = allot_error {
    kind: 0,
    system_error: 0,
    requested: 0,
    allocator: c"".as_ptr(),
    name: [0; MAX_NAME_LEN + 1],
    message: [0; MESSAGE_BYTES],
};

/// Writes text into a field of fixed size. Cuts the text when the field is full, and escapes
/// control characters.
struct TextField<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl TextField<'_> {
    fn clear(bytes: &mut [u8]) -> TextField<'_> {
        bytes.fill(0);
        TextField { bytes, len: 0 }
    }

    fn push(&mut self, character: char) {
        let mut buffer = [0; 4];
        let text = character.encode_utf8(&mut buffer).as_bytes();
        // One byte is left for the NUL. After a character was cut, nothing more is written.
        let bytes_left = self.bytes.len() - 1 - self.len;
        if text.len() <= bytes_left {
            self.bytes[self.len..][..text.len()].copy_from_slice(text);
            self.len += text.len();
        } else {
            self.len = self.bytes.len() - 1;
        }
    }
}

impl fmt::Write for TextField<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if character.is_control() {
                character.escape_default().for_each(|escaped| self.push(escaped));
            } else {
                self.push(character);
            }
        }
        Ok(())
    }
}

/// Copies a text into a box, or fails as for a source that has no memory.
pub(crate) fn try_boxed_str(kind: HandleKind, text: &str) -> Result<Box<str>, FailedCall> {
    let mut copy = String::new();
    match copy.try_reserve_exact(text.len()) {
        Ok(()) => {
            copy.push_str(text);
            Ok(copy.into_boxed_str())
        }
        Err(_) => Err(fail(kind, None, AllocError::new(ErrorKind::SourceRefused, text.len()))),
    }
}

/// Writes the thread's last error, and returns the failure.
#[cold]
pub(crate) fn fail<'a>(
    kind: HandleKind,
    name: Option<&str>,
    problem: impl Into<CallError<'a>>,
) -> FailedCall {
    let problem = problem.into();
    let label = kind.label();
    // Not built in place: the arguments may point into the last error.
    let mut new = NO_ERROR;
    new.kind = problem.code();
    new.system_error = problem.system_error();
    new.requested = match problem {
        CallError::Memory(error) => error.requested(),
        _ => 0,
    };
    new.allocator = label.as_ptr();
    let (label, name) = (label.to_str().unwrap_or(""), name.unwrap_or(""));
    let _ = TextField::clear(&mut new.name).write_str(name);
    let mut message = TextField::clear(&mut new.message);
    let _ = if name.is_empty() {
        write!(message, "{label}: {problem}")
    } else {
        write!(message, "{label} '{name}': {problem}")
    };
    // SAFETY: the thread's own, and no reference to it exists (invariant 1).
    LAST_ERROR.with(|last| unsafe { *last.0.get() = new });
    FailedCall(())
}

/// Clears and returns the thread's last error. Called before a callback of the C caller runs, so
/// that [`pending_failure`] returns the callback's error afterwards.
pub(crate) fn take_last_error() -> allot_error {
    // SAFETY: as in `fail`.
    LAST_ERROR.with(|last| unsafe { last.0.get().replace(NO_ERROR) })
}

/// Restores the error of [`take_last_error`], unless there is a new one.
pub(crate) fn restore_last_error(before: allot_error) {
    if pending_failure().is_none() {
        // SAFETY: as in `fail`.
        LAST_ERROR.with(|last| unsafe { *last.0.get() = before });
    }
}

/// The failure that was written after the last [`take_last_error`], if any.
pub(crate) fn pending_failure() -> Option<FailedCall> {
    // SAFETY: as in `fail`.
    LAST_ERROR.with(|last| unsafe { (*last.0.get()).kind != 0 }).then_some(FailedCall(()))
}

/// `allot_failure_handler`.
pub type allot_failure_handler = unsafe extern "C" fn(*const allot_error);

static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

impl FailedCall {
    /// Ends a call that must not fail: calls the failure handler, then aborts the process.
    #[cold]
    #[inline(never)]
    pub(crate) fn abort(self) -> ! {
        let error = allot_last_error();
        let handler = HANDLER.load(Ordering::Acquire);
        if !handler.is_null() {
            // SAFETY: not null, so it is a handler (invariant 3). The error is valid while it runs.
            unsafe {
                let handler: allot_failure_handler = core::mem::transmute(handler);
                handler(error);
            }
        } else {
            // SAFETY: the thread's own, and no write happens meanwhile (invariants 1, 2).
            let message = unsafe { CStr::from_ptr((*error).message.as_ptr().cast()) };
            // Errors are ignored: a closed standard error must not cause a panic. One write, so
            // that lines of several threads don't mix. Without the lock of `std::io::Stderr`: in a
            // child made by fork, a thread that the child lacks may hold it.
            let line = format!("allotment: {}\n", message.to_string_lossy());
            // SAFETY: the descriptor is only borrowed: the value is not dropped.
            let standard_error = ManuallyDrop::new(unsafe { File::from_raw_fd(STDERR) });
            let _ = (&*standard_error).write_all(line.as_bytes());
        }
        std::process::abort()
    }
}

/// The result of a `try_` call that returns an object.
#[inline]
pub(crate) fn pointer_or_null<T>(result: Result<NonNull<T>, FailedCall>) -> *mut T {
    match result {
        Ok(pointer) => pointer.as_ptr(),
        Err(_) => ptr::null_mut(),
    }
}

/// The result of a call that must not fail.
#[inline]
pub(crate) fn or_abort<T>(result: Result<T, FailedCall>) -> T {
    match result {
        Ok(value) => value,
        Err(failure) => failure.abort(),
    }
}

/// The result of a call that must not fail and returns an object.
#[inline]
pub(crate) fn pointer_or_abort<T>(result: Result<NonNull<T>, FailedCall>) -> *mut T {
    or_abort(result).as_ptr()
}

/// Refuses a caller that was built with a header of another ABI.
pub(crate) fn check_abi(kind: HandleKind, abi: u32) -> Result<(), FailedCall> {
    if abi == ABI { Ok(()) } else { Err(fail(kind, None, CallError::WrongAbi(abi))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_last_error() -> *const allot_error {
    LAST_ERROR.with(|last| last.0.get().cast_const())
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_clear_error() {
    let _ = take_last_error();
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_set_failure_handler(
    handler: Option<allot_failure_handler>,
) -> Option<allot_failure_handler> {
    let new = handler.map_or(ptr::null_mut(), |handler| handler as *mut ());
    let before = HANDLER.swap(new, Ordering::AcqRel);
    // SAFETY: null is `None`, anything else a handler (invariant 3).
    unsafe { core::mem::transmute::<*mut (), Option<allot_failure_handler>>(before) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (ErrorCode, String, String) {
        // SAFETY: the thread's own.
        let error = unsafe { &*allot_last_error() };
        let text =
            |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap().to_str().unwrap().to_owned();
        (error.kind, text(&error.name), text(&error.message))
    }

    #[test]
    fn a_message_names_the_allocator_and_the_cause_in_one_line() {
        let error = AllocError::new(ErrorKind::BadAlignment, 3);
        let _ = fail(HandleKind::Arena, Some("two\nlines"), error);
        let message =
            "arena 'two\\nlines': an alignment of 3 is not a power of two; use 1, 2, 4 and so on";
        assert_eq!(last(), (2, "two\\nlines".to_owned(), message.to_owned()));
        allot_clear_error();
        assert_eq!(last(), (0, String::new(), String::new()));
    }

    #[test]
    fn a_message_too_long_is_cut_between_two_characters() {
        let text = "é".repeat(300);
        let _ = fail(HandleKind::Slab, None, CallError::BadOption(&text));
        let (_, _, message) = last();
        assert_eq!(message, format!("slab: {}", "é".repeat(124)));
    }
}
