//! Errors of fallible calls, and what an infallible call does with them.

use core::fmt;

#[cfg(feature = "std")]
use crate::standard_error;
use crate::system_error::{self, SystemMessage, remedy};

/// The longest name of an allocator, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// Why an allocation failed, or why an allocator could not be made.
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
    /// A fixed limit of the library or of the source is reached, such as the number of slabs or the
    /// addresses of all pools.
    LimitReached,
    /// The operating system refused. The value is its error number: `ENOMEM` or `EAGAIN` if it has
    /// no memory, another one if it refused for another reason, such as a full disk.
    System(i32),
    /// The source has no memory, and gave no error number: malloc returned null, or a
    /// [`Source`](crate::Source) of your own refused. A source that refuses because of a limit of
    /// its own returns [`BudgetExceeded`](Self::BudgetExceeded) or
    /// [`LimitReached`](Self::LimitReached) instead.
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
///
/// # Calls without `try_`
///
/// They panic or end the process:
///
/// - After [`ErrorKind::SourceRefused`], and after [`ErrorKind::System`] with `ENOMEM` or `EAGAIN`,
///   the system or the source has no memory. The call prints the error and ends the process by
///   [`handle_alloc_error`](std::alloc::handle_alloc_error), as the standard library's calls do.
/// - After every other error, the program can go on, and the call panics: a limit refused (a
///   budget, a full disk, a limit on the length of files, a full table), or an argument is invalid.
///   The message of the panic is that of the error; for [`ErrorKind::SizeOverflow`] it is "capacity
///   overflow", as in the standard library.
///
/// So `catch_unwind`, or a server that catches the panics of its requests, confines the refusal of
/// a limit to one request:
///
/// ```
/// use std::panic::catch_unwind;
///
/// use allotment::{Arena, Budget};
///
/// let tenant = Budget::new(64 << 10);
/// let request = || {
///     let arena = Arena::builder().budget(&tenant).build();
///     arena.alloc_slice_with(100_000, |number| number).len()
/// };
/// assert!(catch_unwind(request).is_err(), "over the limit");
/// assert_eq!(tenant.used(), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocError {
    kind: ErrorKind,
    requested: usize,
    /// The limit of the budget that refused, or [`NO_LIMIT`].
    limit: usize,
}

/// No limit is known. A budget with this limit has none: it refuses only a sum that overflows.
const NO_LIMIT: usize = usize::MAX;

impl AllocError {
    /// Makes an error of this kind for a request of `requested` bytes, for a
    /// [`Source`](crate::Source) of your own.
    #[must_use]
    pub const fn new(kind: ErrorKind, requested: usize) -> Self {
        Self { kind, requested, limit: NO_LIMIT }
    }

    /// The error of a budget of `limit` bytes.
    pub(crate) const fn over_budget(requested: usize, limit: usize) -> Self {
        Self { kind: ErrorKind::BudgetExceeded, requested, limit }
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

    /// Whether the system or the source has no memory. After every other error, the program can go
    /// on.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self.kind {
            ErrorKind::SourceRefused => true,
            ErrorKind::System(code) => system_error::is_out_of_memory(code),
            _ => false,
        }
    }

    /// The limit, in bytes, of the budget that refused: the allocator's own or one above it.
    #[must_use]
    pub const fn budget_limit(&self) -> Option<usize> {
        match self.limit {
            NO_LIMIT => None,
            limit => Some(limit),
        }
    }
}

impl fmt::Debug for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("AllocError");
        fields.field("kind", &self.kind).field("requested", &self.requested);
        if let Some(limit) = self.budget_limit() {
            fields.field("budget_limit", &limit);
        }
        fields.finish()
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
                write!(f, "an alignment of {bytes} is not a power of two; use 1, 2, 4 and so on")
            }
            ErrorKind::BudgetExceeded if self.limit == 0 => write!(
                f,
                "{bytes} bytes refused: the budget has a limit of 0 bytes, which refuses all; raise the limit, or set none"
            ),
            ErrorKind::BudgetExceeded => {
                write!(f, "{bytes} bytes are more than the budget")?;
                if let Some(limit) = self.budget_limit() {
                    write!(f, " of {limit} bytes")?;
                }
                f.write_str(" has left; reset or drop what it covers, or raise its limit")
            }
            ErrorKind::LimitReached => write!(
                f,
                "{bytes} bytes refused: a fixed limit is reached, such as the number of slabs or the addresses of all pools; drop what is no longer needed"
            ),
            ErrorKind::System(code) => {
                write!(f, "the system refused {bytes} bytes: {}", SystemMessage(code))?;
                f.write_str(remedy(code))
            }
            ErrorKind::SourceRefused => write!(
                f,
                "the source could not supply {bytes} bytes; free memory, or use another source"
            ),
            ErrorKind::ForkedChild => write!(
                f,
                "{bytes} bytes refused: the source belongs to the process that this one was forked from; open a new source in this process"
            ),
            ErrorKind::Sealed => write!(
                f,
                "{bytes} bytes refused: only the thread that runs the initialiser can allocate sealed memory, and only while it runs"
            ),
            ErrorKind::NameTooLong => {
                write!(f, "a name of {bytes} bytes is too long; use at most {MAX_NAME_LEN} bytes")
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// What the calls of the `Allocator` traits of `allocator-api2` do after an error other than a lack
/// of memory: a limit refuses, or a size exceeds the address space. A builder's `on_refusal` sets
/// it. If the system or the source has no memory, the calls return the error in any case.
///
/// A collection of another crate does not tell its allocator whether it can return an error. Most
/// of its calls can't: `insert` and `push` end the process when the allocator returns one.
///
/// The `Allocator` of the standard library always returns the error, because
/// [not all collections of a nightly toolchain](https://github.com/rust-lang/rust/issues/156490)
/// are sound when an allocator panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnRefusal {
    /// Panic, as the allocator's own calls without `try_` do. `try_reserve` of such a collection
    /// panics too.
    #[default]
    Panic,
    /// Return the error. `try_reserve` of the collection returns it. Its calls that can't return it
    /// end the process.
    ReturnError,
    /// In a pool: allocate from the program's global heap instead, as
    /// [`PoolGlobalAlloc`](crate::PoolGlobalAlloc) does in any case. It concerns references to the
    /// pool, and so [`PoolBox`](crate::PoolBox), [`PoolVec`](crate::PoolVec) and
    /// [`PoolString`](crate::PoolString) too. [`refused_bytes`](crate::LocalPool::refused_bytes)
    /// counts the bytes that the global heap served instead. Blocks that belong to one allocator
    /// only (those of an arena, a reap, or [`LocalPool`](crate::LocalPool)'s own calls) are refused
    /// as with [`Panic`](Self::Panic).
    UseGlobalHeap,
}

/// What a call does with an error. One generic body serves a call and its `try_` twin.
///
/// `pub` because the collections' [`BlockSource`](crate::collections::BlockSource) names it; this
/// module is private.
pub trait OnFailure {
    /// Uninhabited for the infallible call, [`AllocError`] for its `try_` twin.
    type Error;

    /// May unwind, so the caller's state must be as it was before the call.
    fn fail(error: AllocError) -> Self::Error;
}

/// The infallible call: it panics or ends the process ([`fail`]).
pub(crate) enum PanicOrAbort {}

/// The `try_` twin: the caller gets the error.
pub(crate) enum ReturnError {}

impl OnFailure for PanicOrAbort {
    type Error = core::convert::Infallible;

    #[cold]
    #[inline(never)]
    fn fail(error: AllocError) -> Self::Error {
        fail(error)
    }
}

/// Ends an infallible call that failed. It panics if the program can go on: a limit or an argument
/// is the reason. If the system has no memory, it ends the process: unwinding and destructors may
/// need memory too.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn fail(error: AllocError) -> ! {
    if error.is_out_of_memory() {
        // Print the cause first: `handle_alloc_error` knows only the size.
        #[cfg(feature = "std")]
        standard_error::print(format_args!("allotment: {error}\n"));
        let layout = core::alloc::Layout::from_size_align(error.requested, 1)
            .unwrap_or(core::alloc::Layout::new::<u8>());
        alloc::alloc::handle_alloc_error(layout)
    }
    match error.kind {
        // The words of the standard library's collections.
        ErrorKind::SizeOverflow => panic!("capacity overflow"),
        _ => panic!("allotment: {error}"),
    }
}

/// The infallible twin of a call that is not on a fast path.
#[inline]
#[track_caller]
pub(crate) fn or_fail<T>(result: Result<T, AllocError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(error),
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

/// Tells the compiler that the branch containing this call is rare, so that its code is moved out
/// of the fast path.
#[cold]
#[inline(always)]
pub(crate) const fn unlikely() {}
