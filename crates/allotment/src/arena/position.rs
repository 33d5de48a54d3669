//! What the arena remembers of a place to which it can be rewound.

use core::fmt;
use core::ptr;

use super::chunk_header::ArenaChunkHeader;

/// Where the open scope began, for checked arenas. `newest` and `start` are null if the arena had
/// no chunk then.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(system_memory), allow(dead_code, reason = "only checked arenas read it"))]
pub(super) struct OpenScope {
    /// Whether a scope is open.
    pub active: bool,
    /// Objects of the scope lie in `[start, end)`, or in chunks newer than `newest`.
    pub start: *mut u8,
    pub end: *mut u8,
    pub newest: *mut ArenaChunkHeader,
    /// In a checked arena, the number of the scope's first object.
    pub first_object: u64,
}

impl OpenScope {
    pub const NONE: Self = Self {
        active: false,
        start: ptr::null_mut(),
        end: ptr::null_mut(),
        newest: ptr::null_mut(),
        first_object: 0,
    };
}

/// A position in an arena to which [`Arena::rewind`](crate::Arena::rewind) can go back.
#[derive(Clone, Copy)]
pub struct ArenaPosition {
    /// The window's base, and the record's word.
    pub(super) window: (*mut u8, u64),
    pub(super) pos: *mut u8,
    /// The object that could grow over the window's start.
    pub(super) before_window: *mut u8,
    pub(super) current: *mut ArenaChunkHeader,
    pub(super) newest: *mut ArenaChunkHeader,
    /// The scope that was open.
    pub(super) outer: OpenScope,
    pub(super) live_objects: u64,
    pub(super) live_bytes: u64,
    pub(super) wasted_bytes: u64,
    /// In a checked arena, the number of the next object.
    pub(super) next_object: u64,
}

/// A position has no figure of its own to show.
impl fmt::Debug for ArenaPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaPosition").finish_non_exhaustive()
    }
}
