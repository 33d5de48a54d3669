//! Errors of fallible calls.

use core::fmt;
use std::io::Write;

/// The longest name of an allocator, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// Why an allocation or the making of an allocator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The size does not fit the address space, alone or with its alignment or count.
    SizeOverflow,
    /// The alignment is zero or not a power of two.
    BadAlignment,
    /// The allocator's budget, or one of the budgets above it, has fewer bytes left than the call
    /// needs.
    BudgetExceeded,
    /// The operating system refused. The value is its error number.
    System(i32),
    /// The source refused without an error number: malloc returned null, or a
    /// [`Source`](crate::Source) of your own refused.
    SourceRefused,
    /// The source belongs to the process from which this process was forked.
    ForkedChild,
    /// Sealed memory can't be allocated: its initialiser has ended, or runs on another thread.
    Sealed,
    /// The name is longer than [`MAX_NAME_LEN`] bytes.
    NameTooLong,
}

/// The error of every `try_` call: what went wrong, and how many bytes the call needed.
///
/// The failed call leaves the allocator as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocError {
    kind: ErrorKind,
    requested: usize,
}

impl AllocError {
    /// Makes an error of this kind for a request of `requested` bytes, for a
    /// [`Source`](crate::Source) of your own.
    #[must_use]
    pub const fn new(kind: ErrorKind, requested: usize) -> Self {
        Self { kind, requested }
    }

    /// Why the call failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The number of bytes that the call could not get. For [`ErrorKind::SizeOverflow`], the part
    /// of the size that is known; for [`ErrorKind::BadAlignment`], the alignment; for
    /// [`ErrorKind::NameTooLong`], the length of the name.
    #[must_use]
    pub const fn requested(&self) -> usize {
        self.requested
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.requested;
        match self.kind {
            ErrorKind::SizeOverflow => {
                write!(f, "a size of {bytes} bytes or more does not fit the address space")
            }
            ErrorKind::BadAlignment => {
                write!(f, "an alignment of {bytes} is not a power of two")
            }
            ErrorKind::BudgetExceeded => write!(
                f,
                "{bytes} bytes are more than the budget has left; reset or drop what it covers, or raise its limit"
            ),
            ErrorKind::System(code) => write!(
                f,
                "the system refused {bytes} bytes: {}",
                std::io::Error::from_raw_os_error(code)
            ),
            ErrorKind::SourceRefused => write!(f, "the source could not supply {bytes} bytes"),
            ErrorKind::ForkedChild => write!(
                f,
                "{bytes} bytes refused: the source belongs to the process that this one was forked from; open a new source in this process"
            ),
            ErrorKind::Sealed => write!(
                f,
                "{bytes} bytes refused: only the thread that runs the initialiser can allocate sealed memory, and only while it runs"
            ),
            ErrorKind::NameTooLong => {
                write!(f, "a name of {bytes} bytes is longer than {MAX_NAME_LEN}")
            }
        }
    }
}

impl std::error::Error for AllocError {}

/// What a call does when memory can't be had. One generic body serves a call and its `try_` twin.
///
/// `pub` because the collections' [`BlockSource`](crate::collections::BlockSource) names it; this
/// module is private.
pub trait OnFailure {
    /// Uninhabited for the infallible call, [`AllocError`] for its `try_` twin.
    type Error;

    fn fail(error: AllocError) -> Self::Error;

    /// A collection of this many values does not fit the address space.
    fn capacity_overflow(values: usize) -> Self::Error {
        Self::fail(AllocError::new(ErrorKind::SizeOverflow, values))
    }
}

/// The infallible call: the process ends, as after any failed Rust allocation.
pub(crate) enum Abort {}

/// The `try_` twin: the caller gets the error.
pub(crate) enum ReturnError {}

impl OnFailure for Abort {
    type Error = core::convert::Infallible;

    #[cold]
    #[inline(never)]
    fn fail(error: AllocError) -> Self::Error {
        // Print the cause first: `handle_alloc_error` knows only the size.
        let _ = writeln!(std::io::stderr(), "allotment: {error}");
        let layout = core::alloc::Layout::from_size_align(error.requested, 1)
            .unwrap_or(core::alloc::Layout::new::<u8>());
        std::alloc::handle_alloc_error(layout)
    }

    /// Panics, as the standard library's collections do.
    #[cold]
    #[inline(never)]
    fn capacity_overflow(_: usize) -> Self::Error {
        panic!("capacity overflow")
    }
}

impl OnFailure for ReturnError {
    type Error = AllocError;

    #[inline]
    fn fail(error: AllocError) -> Self::Error {
        error
    }
}

/// Takes the value out of the result of an infallible call.
#[inline(always)]
pub(crate) fn always<T>(result: Result<T, core::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}
