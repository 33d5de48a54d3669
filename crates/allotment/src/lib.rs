//! Memory allocators for objects whose lifetime and sharing the program knows.
//!
//! A general-purpose malloc knows neither how long an object lives nor which threads use it, and
//! pays for both. A program that knows can use an allocator that needs less time and less memory,
//! and that reports what it holds.
//!
//! # Which allocator?
//!
//! | what the program knows | allocator |
//! |---|---|
//! | one thread makes many objects; they all die together | [`Arena`] |
//! | many threads allocate and free objects of one size | [`Slab`], [`RawSlab`] |
//! | one thread allocates and frees objects of one size | [`FreeList`], [`RawFreeList`] |
//! | one thread allocates and frees objects of any size for one piece of work | [`Reap`] |
//! | the same, in code that takes no allocator: the `Box`, `Vec` and `String` of one thread | [`LocalPool`], with [`PoolGlobalAlloc`] as the global allocator |
//! | many threads read an object that does not change once it is built | [`Sealed`] |
//! | the same, and the object is replaced from time to time | [`Published`] (readers never wait), [`RwShared`] (a lock) |
//!
//! # Example
//!
//! ```
//! let arena = allotment::Arena::with_capacity(64 << 10);
//! let point = arena.alloc((3, 4));
//! let name = arena.alloc_str("system.cpu");
//! assert_eq!((point.0, &*name), (3, "system.cpu"));
//! ```
//!
//! # What all allocators share
//!
//! - **Errors**: each call that allocates panics if a limit refuses, such as a budget, and ends the
//!   process if the system has no memory. Its `try_` twin returns an [`AllocError`] instead.
//! - **Limits**: a [`Budget`] is a hard limit on the bytes held by one allocator or by several.
//! - **Statistics**: [`Statistics`] are always on. [`report()`] lists every named allocator.
//! - **Sources**: memory comes from [`Mmap`] (the default), [`Malloc`], a [`File`], or a [`Source`]
//!   of your own.
//! - **Release**: [`Release`] says when empty memory goes back to the system. [`recycler()`] is the
//!   process-wide cache of warm chunks.
//! - **Hardened mode**: an option of every allocator's builder, except for sealed memory. It
//!   detects double frees, overruns and writes to freed memory, prints what it found and aborts.
//! - **Debugging tools**: the library finds AddressSanitizer and Valgrind at run time and reports
//!   to them which memory is free. `ALLOTMENT_PASSTHROUGH=1` in the environment sends every
//!   allocation to malloc.
//!
//! The types that most programs name are at the root. What only the users of one allocator need,
//! such as its builder, is in the allocator's module.
//!
//! The crate `allotment-server` builds the life cycle of a multi-threaded server on these
//! allocators. It fixes which thread may use which object in which phase.
//!
//! # Platforms
//!
//! Everything exists on Linux on x86-64 and aarch64, with the feature `std`. On other systems, and
//! without the feature, there are [`Arena`], [`FreeList`], their collections, [`Budget`],
//! [`Malloc`] and [`Source`]. Without the feature the crate needs `alloc` only. The repository's
//! page `docs/src/platforms.md` has a table.
//!
//! # Features
//!
//! `std` is on by default, and all others are off.
//!
//! | feature | what it adds |
//! |---|---|
//! | `std` | the standard library, and on Linux the system's mappings: every allocator but [`Arena`] and [`FreeList`], [`Mmap`], [`File`], [`recycler()`], [`report()`], hardened mode |
//! | `allocator-api2-02`, `allocator-api2-03`, `allocator-api2-04` | the `Allocator` trait of that version of `allocator-api2` for `&Arena`, `&Reap`, `&LocalPool`, `PoolRef` and `Sealer`; hashbrown up to 0.17 uses version 0.2 |
//! | `nightly-allocator-api` | the standard library's unstable `Allocator` trait for the same types; needs a nightly toolchain |
//! | `derive` | `#[derive(ReadOnly)]`, for types that are to be sealed |
//! | `hashbrown-017` | the maps and sets of hashbrown 0.17 as types that can be sealed |
//! | `places` | `record_places` of a pool's builder: reports of what outlives a pool, by the place that allocated it; needs the package `backtrace` |
//! | `serde` | `Serialize` for the collections, boxes and handles; `Deserialize` for those of the current pool; `StringSeed` and `VecSeed` for other memory |
//!
//! A map type that allocates in the current pool by default (feature `allocator-api2-02`):
//!
//! ```
//! # #[cfg(feature = "allocator-api2-02")] {
//! use allotment::{LocalPool, PoolRef};
//!
//! type Map<K, V> = hashbrown::HashMap<K, V, hashbrown::DefaultHashBuilder, PoolRef>;
//!
//! let pool = LocalPool::new();
//! let mut words = pool.enter(Map::<&str, u32>::default);
//! words.insert("in the pool", 1);
//! assert_eq!(*words.allocator(), pool.reference());
//! # }
//! ```
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![cfg_attr(feature = "nightly-allocator-api", feature(allocator_api))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    loom,
    allow(
        dead_code,
        missing_docs,
        reason = "loom builds the protocols alone, and shows them to the models"
    )
)]

extern crate alloc;

mod error;
mod memory;
#[cfg(system_memory)]
pub mod pool;
#[cfg(system_memory)]
pub mod sealed;
#[cfg(system_memory)]
pub mod slab;
mod standard_error;
mod statistics;
mod sync;
mod system_error;

#[cfg(not(loom))]
mod allocator;
#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
mod checked;
#[cfg(not(loom))]
pub mod collections;
#[cfg(not(loom))]
pub mod free_list;
#[cfg(not(loom))]
mod options;
#[cfg(all(system_memory, not(loom)))]
pub mod report;

#[cfg(not(loom))]
pub mod source {
    //! Where allocators get their memory: [`Source`] and its implementations.

    #[cfg(system_memory)]
    pub use crate::memory::file::File;
    pub use crate::memory::source::{Malloc, SharedSource, Source};
    #[cfg(system_memory)]
    pub use crate::memory::source::{Mmap, PagedSource};
}

#[cfg(all(system_memory, not(loom)))]
pub mod recycler {
    //! The process-wide cache of warm chunks: [`recycler()`] returns its [`Recycler`].

    pub use crate::memory::first_touch::FreshMemory;
    pub use crate::memory::recycler::{Recycler, recycler};
}

pub use error::{AllocError, ErrorKind, MAX_NAME_LEN, OnRefusal};
pub use memory::budget::Budget;
pub use memory::release::Release;
#[doc(hidden)]
pub use system_error::SystemMessage;

#[cfg(all(system_memory, not(loom), feature = "derive"))]
#[doc(inline)]
pub use allotment_derive::ReadOnly;
#[cfg(not(loom))]
#[doc(inline)]
pub use arena::{Arena, ArenaBox, ArenaString, ArenaVec};
#[cfg(not(loom))]
#[doc(inline)]
pub use free_list::{FreeList, ListBox, RawFreeList};
#[cfg(not(loom))]
#[doc(inline)]
pub use memory::source::{Malloc, Source};
#[cfg(all(system_memory, not(loom)))]
#[doc(inline)]
pub use memory::{file::File, recycler::recycler, source::Mmap};
#[cfg(all(system_memory, not(loom)))]
#[doc(inline)]
pub use pool::{LocalPool, PoolBox, PoolGlobalAlloc, PoolRef, PoolString, PoolVec, Reap, ReapBox};
#[cfg(all(system_memory, not(loom)))]
#[doc(inline)]
pub use report::{owner_of, report};
#[cfg(all(system_memory, not(loom)))]
#[doc(inline)]
pub use sealed::{Published, ReadOnly, RwShared, SealString, SealVec, Sealed, Sealer};
#[cfg(all(system_memory, not(loom), feature = "hashbrown-017"))]
#[doc(inline)]
pub use sealed::{SealMap, SealSet};
#[cfg(all(system_memory, not(loom)))]
#[doc(inline)]
pub use slab::{RawSlab, Slab, SlabBox};
#[cfg(not(loom))]
pub use statistics::Statistics;

/// Address arithmetic, public only for the fuzz targets and the corpus tests.
#[doc(hidden)]
pub mod layout_for_fuzzing {
    pub use crate::memory::layout::*;
}

/// The protocols between threads, public only for the models in `tests/loom_*.rs`.
#[cfg(loom)]
#[doc(hidden)]
pub mod for_loom {
    macro_rules! from {
        ($folder:ident: $($file:ident),*) => {$(
            pub mod $file {
                pub use crate::$folder::$file::*;
            }
        )*};
    }

    from!(memory: chunk_cache, fences, fork_gate, growing_table, index_stack, layout, refused_runs, small_chunks, table_slot);
    from!(pool: ownership);
    from!(sealed: generations, hazard_records);
    from!(slab: cache_ownership, cache_seizure, cache_steps, geometry, page, page_group, page_hints, page_steps, references, waiters);
    from!(statistics: sequence_lock);
    pub use crate::sync::{Mutant, mutant};

    /// Charges a budget as an allocator does.
    pub fn charge(budget: &crate::Budget, bytes: usize) -> Result<(), crate::AllocError> {
        budget.charge(bytes)
    }

    /// Credits a budget as an allocator does.
    pub fn credit(budget: &crate::Budget, bytes: usize) {
        budget.credit(bytes);
    }
}

/// The code examples of the Markdown pages, run as doc tests.
#[cfg(all(doctest, system_memory))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/arena.md")]
    struct Arena;
    #[doc = include_str!("../../../docs/src/choose.md")]
    struct Choose;
    #[doc = include_str!("../../../docs/src/collections.md")]
    struct Collections;
    #[doc = include_str!("../../../docs/src/debugging.md")]
    struct Debugging;
    #[doc = include_str!("../../../docs/src/free-list.md")]
    struct FreeList;
    #[doc = include_str!("../../../docs/src/from-bumpalo.md")]
    struct FromBumpalo;
    #[doc = include_str!("../../../docs/src/from-monotonic-buffer-resource.md")]
    struct FromMonotonicBufferResource;
    #[doc = include_str!("../../../docs/src/from-multitude.md")]
    struct FromMultitude;
    #[doc = include_str!("../../../docs/src/from-onewayalloc.md")]
    struct FromOnewayalloc;
    #[doc = include_str!("../../../docs/src/holds-for-all.md")]
    struct HoldsForAll;
    #[doc = include_str!("../../../docs/src/platforms.md")]
    struct Platforms;
    #[doc = include_str!("../../../docs/src/pools.md")]
    struct Pools;
    #[doc = include_str!("../../../docs/src/recycler.md")]
    struct Recycler;
    #[doc = include_str!("../../../docs/src/sealed.md")]
    struct Sealed;
    #[doc = include_str!("../../../docs/src/slab-protocol.md")]
    struct SlabProtocol;
    #[doc = include_str!("../../../docs/src/slab.md")]
    struct Slab;
    #[doc = include_str!("../../../docs/src/system-calls.md")]
    struct SystemCalls;
}
