//! What the library asks of the operating system: one file for each platform, with functions of the
//! same names.
//!
//! # Invariants
//!
//! 1. A mapping made here belongs to its caller until it is unmapped: no function returns or
//!    accesses a range that the caller did not pass in.
//! 2. All ranges are whole hardware pages. The callers round lengths up to them; debug builds
//!    assert it here.
//! 3. A call that fails changes nothing, and returns the system's error number.
//!
//! `unmap` may fail although its range is correct: splitting a mapping makes one more, and the
//! kernel limits their number (`vm.max_map_count`). In that case the caller keeps the range.
//!
//! | file | when |
//! |---|---|
//! | `linux` | Linux: every system call of the library, except `getpid` and the output of some messages |
//! | `miri` | the same functions without system calls |
//! | `none` | builds without `cfg(system_memory)`: what is left of them for memory of malloc |

#[cfg(all(system_memory, not(miri)))]
mod linux;
#[cfg(all(system_memory, miri))]
mod miri;
#[cfg(not(system_memory))]
mod none;

#[cfg(all(system_memory, not(miri)))]
pub use self::linux::*;
#[cfg(all(system_memory, miri))]
pub use self::miri::*;
#[cfg(not(system_memory))]
pub use self::none::*;
