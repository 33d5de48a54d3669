//! Memory allocators chosen by how long an object lives and who may touch it.
//!
//! A general-purpose malloc knows neither an object's lifetime nor its sharing, and pays for both. Where the
//! program knows, it can choose:
//!
//! | what the program knows | allocator |
//! |---|---|
//! | one thread makes many objects, all die together | [`Arena`] |
//! | many threads make and free objects of one size | [`Slab`], [`RawSlab`] |
//! | one thread makes and frees objects of one size | [`FreeList`], [`RawFreeList`] |
//! | one thread makes and frees objects of any size, for a piece of work | [`Reap`] |
//! | the same, in ordinary code: a thread's `Box`, `Vec` and `String` | [`LocalPool`], [`Routed`] |
//! | many threads read objects that never change once they are built | [`Sealed`], [`RwShared`] |
//!
//! [`phases`] is the life cycle of a server whose threads use them: who may touch which object, when.
//!
//! Every allocator has fallible and infallible calls ([`AllocError`]), a hard limit ([`Budget`]), statistics
//! that are always on ([`Statistics`], [`report()`]), a choice of where memory comes from ([`Malloc`], [`Mmap`],
//! [`File`], a [`Source`] of your own) and when it goes back ([`Release`], [`recycler()`]), and a hardened mode.
//!
//! ```
//! let arena = allotment::Arena::with_hint(64 << 10);
//! let point = arena.alloc((3, 4));
//! let name = arena.alloc_str("system.cpu");
//! assert_eq!((point.0, &*name), (3, "system.cpu"));
//! ```
//!
//! `ALLOTMENT_PASSTHROUGH=1` in the environment sends every allocation to malloc, for debugging.
//! AddressSanitizer and Valgrind are found at run time and told what is free.
//!
//! # Features
//!
//! `allocator-api2-02`, `-03`, `-04`: the `Allocator` trait of that version of `allocator-api2` on `&Arena`, `&Reap`,
//! `&LocalPool`, `PoolRef` and `Sealer` (hashbrown up to 0.17 uses 0.2). `nightly-allocator-api`: the standard library's, on a
//! nightly toolchain. `derive`: `#[derive(ReadOnly)]`, for types that are to be sealed. `hashbrown-017`: its maps and sets as types
//! that may be sealed. `toml`: [`phases::Configuration`] from TOML.
//!
//! A map by default in the current pool:
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

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("allotment supports Linux on x86-64 and aarch64");

mod error;
mod local;
mod memory;
mod sealed;
mod slab;
mod sync;

#[cfg(not(loom))]
mod allocator;
#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod free_list;
#[cfg(not(loom))]
mod misuse;
#[cfg(not(loom))]
pub mod phases;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod statistics;
#[cfg(not(loom))]
mod watching;

pub use error::{AllocError, ErrorKind};
pub use memory::budget::Budget;
pub use memory::release::Release;

#[cfg(all(not(loom), feature = "derive"))]
#[doc(inline)]
pub use allotment_derive::ReadOnly;
#[cfg(not(loom))]
pub use arena::{
    Arena, ArenaBox, ArenaBuilder, ArenaPosition, ArenaString, ArenaVec, IntoIter, Mark, Retain,
    Scope,
};
#[cfg(not(loom))]
pub use free_list::{Copier, FreeList, FreeListBuilder, ListBox, ListRun, ListSlot, RawFreeList};
#[cfg(not(loom))]
pub use local::{
    Heap, HeapId, InPool, LocalPool, LocalPoolBuilder, PoolBox, PoolDrain, PoolIntoIter, PoolRef,
    PoolString, PoolVec, Reap, ReapBuilder, Routed, current, global,
};
#[cfg(not(loom))]
pub use memory::{
    file::File,
    process::{Recycler, recycler},
    source::{Malloc, Mmap, PagedSource, SharedSource, Source},
};
#[cfg(not(loom))]
pub use report::{AllocatorReport, Report, owner_of, report};
#[cfg(not(loom))]
pub use sealed::{
    Published, ReadOnly, Reading, RwShared, RwSharedGuard, SealString, SealVec, Sealable, Sealed,
    SealedBuilder, Sealer,
};
#[cfg(all(not(loom), feature = "hashbrown-017"))]
pub use sealed::{SealMap, SealSet};
#[cfg(not(loom))]
pub use slab::{Lifetime, RawSlab, RawSlabHandle, Slab, SlabBox, SlabBuilder, SlabHandle};
#[cfg(not(loom))]
pub use statistics::{MAX_NAME_LEN, Statistics};

/// The longest name of an allocator; the real one is with the statistics, which loom does not build.
#[cfg(loom)]
pub(crate) const MAX_NAME_LEN: usize = 64;

/// Address arithmetic, for the fuzz targets and the tests of the corpus alone.
#[doc(hidden)]
pub mod layout_for_fuzzing {
    pub use crate::memory::layout::*;
}

/// The protocols between threads, for the models in `tests/loom_*.rs` alone.
#[cfg(loom)]
#[doc(hidden)]
pub mod for_loom {
    pub use crate::local::life;
    pub use crate::memory::{layout, lifo, recycler};
    pub use crate::sealed::{fences, publication, readers};
    pub use crate::slab::{block, geometry, hints, page};

    /// Charges a budget as an allocator does.
    pub fn charge(budget: &crate::Budget, bytes: usize) -> Result<(), crate::AllocError> {
        budget.charge(bytes)
    }

    /// Credits a budget as an allocator does.
    pub fn credit(budget: &crate::Budget, bytes: usize) {
        budget.credit(bytes);
    }
}

/// The code in the pages, run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/arena.md")]
    struct Arena;
    #[doc = include_str!("../../../docs/src/slab.md")]
    struct Slab;
    #[doc = include_str!("../../../docs/src/free-list.md")]
    struct FreeList;
    #[doc = include_str!("../../../docs/src/pools.md")]
    struct Pools;
    #[doc = include_str!("../../../docs/src/system-calls.md")]
    struct SystemCalls;
    #[doc = include_str!("../../../docs/src/phases.md")]
    struct Phases;
    #[doc = include_str!("../../../docs/src/sealed.md")]
    struct Sealed;
}
