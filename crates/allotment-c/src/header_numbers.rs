//! Each size, offset and constant of the header, as this library has it. A test compares them with
//! what a C compiler finds.

/// The numbers that the inline functions use. The library asserts its own part, in each
/// `c_layout.rs` and beside the slab's thread cache.
const INLINE: &[(&str, usize)] = &[
    ("offsetof(struct allot_arena, allot_base)", 0),
    ("offsetof(struct allot_arena, allot_limit)", 8),
    ("offsetof(struct allot_arena, allot_word)", 16),
    ("ALLOT_MAX_STEP", 1 << 22),
    ("offsetof(struct allot_free_list, allot_head)", 0),
    ("offsetof(struct allot_free_list, allot_count)", 8),
    ("offsetof(struct allot_slab_cache, allot_top)", 0),
    ("offsetof(struct allot_slab_cache, allot_capacity)", 8),
    ("offsetof(struct allot_slab_cache, allot_tag)", 16),
    ("ALLOT_CACHE_HEADER_BYTES", allotment::slab::RawSlabHandle::CACHE_BYTES),
    ("ALLOT_ABI", crate::version::ABI as usize),
    ("ALLOT_MAX_NAME", allotment::MAX_NAME_LEN),
];

/// All numbers.
#[must_use]
pub fn all() -> Vec<(&'static str, usize)> {
    [
        INLINE,
        crate::arena::POSITION,
        crate::error::ERROR,
        crate::options::OPTIONS,
        crate::options::RELEASE,
        crate::options::RETAIN,
        crate::pool::ENTERED,
        crate::slab_handle::HANDLE,
        crate::source::CALLS,
        crate::statistics::STATISTICS,
    ]
    .concat()
}
