//! The C and C++ interface of Allotment. `include/allotment.h` says what each function does.
//!
//! The files, lowest first; each uses only files above it in this table:
//!
//! | file | what it holds |
//! |---|---|
//! | `version` | the versions of the library and of the frozen structures |
//! | `struct_numbers` | a macro: size and offsets of a C structure, for a test of the header |
//! | `layouts` | sizes and alignments as C passes them |
//! | `handle_kind` | the kinds of object that a C pointer can refer to |
//! | `error` | the thread's last error, the failure handler |
//! | `handle_table` | the addresses of all handles, for hardened mode |
//! | `handle_record` | the part that all handles share, and tombstones |
//! | `handle` | what a C pointer to an allocator refers to, and the checks before it is followed |
//! | `calls` | macros: one definition for a C call and its `try_` twin |
//! | `budget`, `source` | what allocators share, with handles of their own |
//! | `options` | reading and checking `allot_options` |
//! | `statistics`, `report`, `recycler` | what the library tells about its memory |
//! | `sized_blocks` | the header of blocks that store their size |
//! | `blocks` | what the calls of arenas, reaps and pools have in common |
//! | `arena`, `free_list`, `sealed` | one allocator each |
//! | `slab`, `slab_handle` | the slab, and a thread's handle to its cache of a slab |
//! | `reap`, `pool_ref`, `malloc`, `pool` | blocks of any size |
//! | `header_numbers` | all sizes, offsets and constants of the header, for a test |
//!
//! The folder `netdata` has the functions of `allotment_netdata.h` in C, on top of those of
//! `allotment.h`. `netdata/internal.h` describes its files.
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

mod arena;
mod blocks;
mod budget;
mod calls;
mod error;
mod free_list;
mod handle;
mod handle_kind;
mod handle_record;
mod handle_table;
#[doc(hidden)]
pub mod header_numbers;
mod layouts;
mod malloc;
mod options;
mod pool;
mod pool_ref;
mod reap;
mod recycler;
mod report;
mod sealed;
mod sized_blocks;
mod slab;
mod slab_handle;
mod source;
mod statistics;
mod struct_numbers;
mod version;
