//! The C and C++ interface of Allotment: `include/allotment.h` says what each function does.
//!
//! | file | what it holds |
//! |---|---|
//! | `error` | the thread's last error, the failure handler |
//! | `handle` | what a C pointer to an allocator leads to, and the checks before it is followed |
//! | `known` | the table of handles, for the hardened mode |
//! | `options` | `allot_options`, read and checked |
//! | `layouts` | sizes and alignments as C passes them |
//! | `numbers` | sizes and offsets of the header's structures, for its test |
//! | `source`, `budget`, `statistics` | what all allocators have in common |
//! | the others | one allocator each |
//!
//! # Invariants of the boundary
//!
//! 1. A pointer to an allocator that a C caller passes is NULL, or what a `_create` call returned and was not destroyed
//!    since; one that isn't is the caller's error, which the hardened mode reports as far as it can tell.
//! 2. Nothing unwinds out of an exported function: they don't panic, and `extern "C"` would abort.
//! 3. A caller's callbacks don't unwind and don't jump out.
#![allow(non_camel_case_types, reason = "the names of the header")]
#![allow(missing_docs, reason = "the header has them")]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "nobody reads these pages but who works on the crate"
)]

pub mod arena;
mod blocks;
pub mod budget;
pub mod error;
pub mod free_list;
pub mod handle;
mod known;
mod layouts;
#[doc(hidden)]
pub mod numbers;
pub mod options;
mod pool;
mod pool_ref;
mod reap;
mod sealed;
mod slab;
mod slab_handle;
pub mod source;
pub mod statistics;
