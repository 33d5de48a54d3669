//! The C and C++ interface of Allotment: `include/allotment.h` says what each function does.
//!
//! | file | what it holds |
//! |---|---|
//! | `error` | the thread's last error, the failure handler |
//! | `handle` | the target of a C pointer to an allocator, and the checks before the pointer is followed |
//! | `known` | the table of handles, for hardened mode |
//! | `options` | reading and checking `allot_options` |
//! | `layouts` | sizes and alignments as C passes them |
//! | `numbers` | sizes and offsets of the header's structures, for a test of the header |
//! | `source`, `budget`, `statistics` | what all allocators share |
//! | other files | one allocator each |
//!
//! # Invariants of the boundary
//!
//! 1. A pointer to an allocator that a C caller passes is NULL, or a live result of a `_create`
//!    call. Any other pointer is an error of the caller, which hardened mode reports where it can.
//! 2. Nothing unwinds out of an exported function: they don't panic, and `extern "C"` would abort.
//! 3. A caller's callbacks neither unwind nor longjmp.
#![allow(non_camel_case_types, reason = "the names of the header")]
#![allow(missing_docs, reason = "the header has them")]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "only developers of this crate read these pages"
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
