//! Rows that are written in C and C++: over `allotment.h`, over `allotment.hpp`, and those of libraries that others wrote.
//!
//! `build.rs` compiles them, if this is a build with the feature `fast-peers`. Their rows are there in every build; where their
//! code is not, they say why.

pub(crate) mod clients;
pub(crate) mod containers;
pub(crate) mod inline;
pub(crate) mod stress;

/// The row of the C library's malloc, as the allocator's.
const LIBC: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };

#[cfg(test)]
mod tests {
    #[test]
    fn malloc_is_named_as_elsewhere() {
        assert!(peers::about(super::LIBC).is_ok());
    }
}
