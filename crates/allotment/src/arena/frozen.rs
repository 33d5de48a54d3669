//! What C code relies on: the numbers that `allotment.h` repeats for its inline functions.
//!
//! A change of anything asserted here is another `ALLOT_ABI`.

use core::mem::{offset_of, size_of};

use super::raw::RawArena;
use super::{Arena, ArenaPosition};
use crate::memory::word;
use crate::statistics::Record;

const _: () = {
    assert!(offset_of!(RawArena, base) == 0 && size_of::<*mut u8>() == 8);
    assert!(offset_of!(RawArena, limit) == 8);
    assert!(RawArena::RECORD_AT == 16);
    assert!(offset_of!(Record, word) == 0);
    assert!(offset_of!(Arena<8>, raw) == 0);
    // `before + (padded size << 40) + (1 << 20) + size`, and padding with it; refused if `>= limit`.
    assert!(word::object(13, 8) == (16 << 40) + (1 << 20) + 13);
    assert!(word::padding(8) == 8 << 40);
    assert!(word::offset(24 << 40) == 24);
    assert!(word::limit(64) == 65 << 40);
    assert!(word::MAX_STEP == 1 << 22);
    // With two words more it is `allot_arena_position`.
    assert!(size_of::<ArenaPosition>() <= 18 * 8);
};
