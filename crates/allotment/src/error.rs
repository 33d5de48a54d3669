//! What a fallible call returns when it could not do its work.

use core::fmt;
use std::io::Write;

/// Why memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The size, or the size with its alignment or count, is more than an address can express.
    SizeOverflow,
    /// The alignment is zero or no power of two.
    BadAlignment,
    /// A budget, this allocator's own or one that it nests in, has less left than was asked.
    BudgetExceeded,
    /// The operating system refused, with this error number.
    System(i32),
    /// The source refused without an error number (a malloc that returned null, a user's own source).
    SourceRefused,
    /// The source belongs to the process that this one was forked from.
    ForkedChild,
    /// Sealed memory takes nothing more: the initialiser has ended, or another thread runs it.
    Sealed,
    /// The name has more than [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes.
    NameTooLong,
}

/// The typed error of every `try_` call: what went wrong and how many bytes were asked of the source.
///
/// The allocator that returned it is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocError {
    kind: ErrorKind,
    requested: usize,
}

impl AllocError {
    /// An error of this kind over `requested` bytes. A user's own [`Source`](crate::Source) makes its
    /// errors with it.
    #[must_use]
    pub const fn new(kind: ErrorKind, requested: usize) -> Self {
        Self { kind, requested }
    }

    /// Why it failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The bytes that could not be had; for [`ErrorKind::SizeOverflow`] the part of the sum that is known.
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
                "{bytes} bytes are more than the budget has left; reset or drop what it covers, or raise its cap"
            ),
            ErrorKind::System(code) => write!(
                f,
                "the system refused {bytes} bytes: {}",
                std::io::Error::from_raw_os_error(code)
            ),
            ErrorKind::SourceRefused => write!(f, "the source has no {bytes} bytes"),
            ErrorKind::ForkedChild => write!(
                f,
                "{bytes} bytes refused: the source belongs to the process that this one was forked from; open one of its own"
            ),
            ErrorKind::Sealed => write!(
                f,
                "{bytes} bytes refused: sealed memory is given to the thread that runs the initialiser, while it does"
            ),
            ErrorKind::NameTooLong => {
                write!(f, "a name of {bytes} bytes is longer than {}", crate::MAX_NAME_LEN)
            }
        }
    }
}

impl std::error::Error for AllocError {}

/// What a call does when memory can't be had; one generic body serves a call and its `try_` twin.
pub(crate) trait OnFailure {
    /// Uninhabited for the infallible call, [`AllocError`] for its twin.
    type Error;

    fn fail(error: AllocError) -> Self::Error;
}

/// The infallible call: the process ends as it does for any Rust allocation that fails.
pub(crate) enum Abort {}

/// The `try_` twin: the caller gets the error.
pub(crate) enum Report {}

impl OnFailure for Abort {
    type Error = core::convert::Infallible;

    #[cold]
    #[inline(never)]
    fn fail(error: AllocError) -> Self::Error {
        // The cause is worth a line: `handle_alloc_error` knows only the size.
        let _ = writeln!(std::io::stderr(), "allotment: {error}");
        let layout = core::alloc::Layout::from_size_align(error.requested, 1)
            .unwrap_or(core::alloc::Layout::new::<u8>());
        std::alloc::handle_alloc_error(layout)
    }
}

impl OnFailure for Report {
    type Error = AllocError;

    #[inline]
    fn fail(error: AllocError) -> Self::Error {
        error
    }
}

/// Takes the value out of an infallible call's result.
#[inline(always)]
pub(crate) fn always<T>(result: Result<T, core::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}
