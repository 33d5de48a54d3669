//! The kinds of object that a C pointer can refer to.

use core::ffi::CStr;

/// The kind of object that a handle refers to. `handle_table` stores the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HandleKind {
    /// `allot_arena`
    Arena = 1,
    /// `allot_free_list`
    FreeList = 2,
    /// `allot_slab`
    Slab = 3,
    /// `allot_slab_handle`
    SlabHandle = 4,
    /// `allot_reap`
    Reap = 5,
    /// `allot_pool`
    Pool = 6,
    /// `allot_sealed`
    Sealed = 7,
    /// `allot_sealer`
    Sealer = 8,
    /// `allot_source`
    Source = 9,
    /// `allot_budget`
    Budget = 10,
    /// No handle: blocks that store their size, outside of named allocators. For errors only.
    Memory = 11,
}

impl HandleKind {
    /// The value of `allot_error.allocator`.
    #[must_use]
    pub const fn label(self) -> &'static CStr {
        match self {
            Self::Arena => c"arena",
            Self::FreeList => c"free list",
            Self::Slab => c"slab",
            Self::SlabHandle => c"slab handle",
            Self::Reap => c"reap",
            Self::Pool => c"pool",
            Self::Sealed => c"sealed",
            Self::Sealer => c"sealer",
            Self::Source => c"source",
            Self::Budget => c"budget",
            Self::Memory => c"memory",
        }
    }
}
