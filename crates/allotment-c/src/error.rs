//! The calling thread's last error, and what happens to a call that must not fail.
//!
//! Inside the crate, a call that failed returns [`Noted`], after [`note`] has written the thread's
//! error. [`or_null`], [`or_false`] and [`or_stop`] turn it into what the C caller gets.
//!
//! # Invariants
//!
//! 1. Only its thread accesses `LAST`, and no reference into it is kept across a call.
//! 2. `name` and `message` end with a NUL and are UTF-8.
//! 3. `HANDLER` is null or an `allot_failure_handler`.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write as _};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io::Write as _;

use allotment::{AllocError, ErrorKind, MAX_NAME_LEN};

use crate::handle::Kind;

/// `ALLOT_ABI`: the version of the frozen structures.
pub(crate) const ABI: u32 = 1;

/// `allot_error_kind`, as a number.
type Code = c_int;

const MESSAGE: usize = 256;

/// `allot_error`.
#[repr(C)]
pub struct allot_error {
    kind: Code,
    system_error: c_int,
    requested: usize,
    allocator: *const c_char,
    name: [u8; MAX_NAME_LEN + 1],
    message: [u8; MESSAGE],
}

crate::numbers::numbers!(ERROR: allot_error { kind, system_error, requested, allocator, name, message });

/// What went wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Problem<'a> {
    /// An error of the library.
    Memory(AllocError),
    /// A file that can't be created, and the system's error code.
    File(&'a CStr, c_int),
    /// A name that is not UTF-8.
    BadName,
    /// A sentence about an option, without a full stop.
    BadOption(&'a str),
    /// NULL.
    NullHandle,
    /// It was destroyed.
    Destroyed,
    /// Not a handle of this kind.
    Foreign,
    /// A sentence about another invalid argument.
    Bad(&'a str),
    WrongThread,
    /// The header's version.
    WrongAbi(u32),
    /// A sentence about the remaining use.
    InUse(&'a str),
}

impl From<AllocError> for Problem<'_> {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

impl Problem<'_> {
    fn code(&self) -> Code {
        match self {
            Self::Memory(error) => match error.kind() {
                ErrorKind::SizeOverflow => 1,
                ErrorKind::BadAlignment => 2,
                ErrorKind::BudgetExceeded => 3,
                ErrorKind::System(_) => 4,
                ErrorKind::ForkedChild => 6,
                ErrorKind::Sealed => 7,
                ErrorKind::NameTooLong => 8,
                // SourceRefused, and what a later version of the library may know.
                _ => 5,
            },
            Self::File(..) => 4,
            Self::BadName => 8,
            Self::BadOption(_) => 9,
            Self::NullHandle | Self::Destroyed | Self::Foreign | Self::Bad(_) => 10,
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

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::File(path, code) => write!(
                f,
                "can't create a file at {path:?}: {}",
                std::io::Error::from_raw_os_error(*code)
            ),
            Self::BadName => f.write_str("the name is not valid UTF-8"),
            Self::BadOption(text) | Self::Bad(text) | Self::InUse(text) => f.write_str(text),
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

/// Proof that the thread's last error was written.
#[derive(Debug)]
#[must_use = "the caller must pass the failure on"]
pub(crate) struct Noted(());

struct Last(UnsafeCell<allot_error>);

thread_local! {
    static LAST: Last = const { Last(UnsafeCell::new(NO_ERROR)) };
}

const NO_ERROR: allot_error = allot_error {
    kind: 0,
    system_error: 0,
    requested: 0,
    allocator: c"".as_ptr(),
    name: [0; MAX_NAME_LEN + 1],
    message: [0; MESSAGE],
};

/// Writes text into a field of fixed size. Cuts the text when the field is full, and escapes
/// control characters.
struct Field<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Field<'_> {
    fn begin(bytes: &mut [u8]) -> Field<'_> {
        bytes.fill(0);
        Field { bytes, len: 0 }
    }

    fn push(&mut self, character: char) {
        let mut buffer = [0; 4];
        let text = character.encode_utf8(&mut buffer).as_bytes();
        // One byte is left for the NUL. After a character was cut, nothing more is written.
        let room = self.bytes.len() - 1 - self.len;
        if text.len() <= room {
            self.bytes[self.len..][..text.len()].copy_from_slice(text);
            self.len += text.len();
        } else {
            self.len = self.bytes.len() - 1;
        }
    }
}

impl fmt::Write for Field<'_> {
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

/// Writes the thread's last error.
#[cold]
pub(crate) fn note<'a>(kind: Kind, name: Option<&str>, problem: impl Into<Problem<'a>>) -> Noted {
    let problem = problem.into();
    let word = kind.word();
    // Built apart from the last error: the arguments may point into that one.
    let mut new = NO_ERROR;
    new.kind = problem.code();
    new.system_error = problem.system_error();
    new.requested = match problem {
        Problem::Memory(error) => error.requested(),
        _ => 0,
    };
    new.allocator = word.as_ptr();
    let (word, name) = (word.to_str().unwrap_or(""), name.unwrap_or(""));
    let _ = Field::begin(&mut new.name).write_str(name);
    let mut message = Field::begin(&mut new.message);
    let _ = if name.is_empty() {
        write!(message, "{word}: {problem}")
    } else {
        write!(message, "{word} '{name}': {problem}")
    };
    // SAFETY: the thread's own, and no reference to it exists (invariant 1).
    LAST.with(|last| unsafe { *last.0.get() = new });
    Noted(())
}

pub(crate) fn clear() {
    let _ = set_aside();
}

/// Clears and returns the thread's last error before a callback of the caller runs. Afterwards
/// [`left`] returns whether the callback wrote an error.
pub(crate) fn set_aside() -> allot_error {
    // SAFETY: as in `note`.
    LAST.with(|last| unsafe { last.0.get().replace(NO_ERROR) })
}

/// Restores the error of [`set_aside`], unless there is a new one.
pub(crate) fn put_back(before: allot_error) {
    if left().is_none() {
        // SAFETY: as in `note`.
        LAST.with(|last| unsafe { *last.0.get() = before });
    }
}

/// The error that was written after the last [`set_aside`], if any.
pub(crate) fn left() -> Option<Noted> {
    // SAFETY: as in `note`.
    LAST.with(|last| unsafe { (*last.0.get()).kind != 0 }).then_some(Noted(()))
}

/// `allot_failure_handler`.
pub type allot_failure_handler = unsafe extern "C" fn(*const allot_error);

static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

impl Noted {
    /// The end of a call that must not fail.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(self) -> ! {
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
            // that lines of several threads don't mix.
            let line = format!("allotment: {}\n", message.to_string_lossy());
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        std::process::abort()
    }
}

/// The result of a `try_` call.
#[inline]
pub(crate) fn or_null<T>(result: Result<NonNull<T>, Noted>) -> *mut T {
    match result {
        Ok(pointer) => pointer.as_ptr(),
        Err(_) => ptr::null_mut(),
    }
}

/// The result of a `try_` call that returns no object.
#[inline]
pub(crate) fn or_false(result: Result<(), Noted>) -> bool {
    result.is_ok()
}

/// The result of a call that must not fail.
#[inline]
pub(crate) fn or_stop<T>(result: Result<T, Noted>) -> T {
    match result {
        Ok(value) => value,
        Err(noted) => noted.stop(),
    }
}

/// The result of a call that must not fail and returns an object.
#[inline]
pub(crate) fn or_stop_pointer<T>(result: Result<NonNull<T>, Noted>) -> *mut T {
    or_stop(result).as_ptr()
}

/// Refuses a caller that was built with a header of another ABI.
pub(crate) fn check_abi(kind: Kind, abi: u32) -> Result<(), Noted> {
    if abi == ABI { Ok(()) } else { Err(note(kind, None, Problem::WrongAbi(abi))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_last_error() -> *const allot_error {
    LAST.with(|last| last.0.get().cast_const())
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_clear_error() {
    clear();
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

    fn last() -> (Code, String, String) {
        // SAFETY: the thread's own.
        let error = unsafe { &*allot_last_error() };
        let text =
            |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap().to_str().unwrap().to_owned();
        (error.kind, text(&error.name), text(&error.message))
    }

    #[test]
    fn a_message_names_the_allocator_and_the_cause_in_one_line() {
        let error = AllocError::new(ErrorKind::BadAlignment, 3);
        let _ = note(Kind::Arena, Some("two\nlines"), error);
        let said = "arena 'two\\nlines': an alignment of 3 is not a power of two".to_owned();
        assert_eq!(last(), (2, "two\\nlines".to_owned(), said));
        clear();
        assert_eq!(last(), (0, String::new(), String::new()));
    }

    #[test]
    fn a_message_too_long_is_cut_between_two_characters() {
        let text = "é".repeat(300);
        let _ = note(Kind::Slab, None, Problem::BadOption(&text));
        let (_, _, message) = last();
        assert_eq!(message, format!("slab: {}", "é".repeat(124)));
    }
}
