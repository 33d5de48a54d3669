//! Rows that are written in C and C++: with `allotment.h`, with `allotment.hpp`, and with libraries
//! of other projects.
//!
//! `build.rs` compiles them in builds with the feature `fast-peers`. Every build lists these rows.
//! Without their code, they report the reason.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `stress` | the array allocator's stress test |
//! | `inline` | loops over the header's inline functions |
//! | `containers` | containers of C++ |
//! | `clients` | libraries of other projects |

pub(crate) mod clients;
pub(crate) mod containers;
pub(crate) mod inline;
pub(crate) mod stress;

/// The name of the row of the C library's malloc, the same as the allocator's.
const LIBC: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };

#[cfg(test)]
mod tests {
    #[test]
    fn malloc_is_named_as_elsewhere() {
        assert!(crate::peers::about(super::LIBC).is_ok());
    }
}
