//! The layout that C code relies on: the numbers that `allotment.h` repeats for its inline
//! functions.
//!
//! A change to anything asserted here needs a new `ALLOT_ABI`.

use core::mem::{offset_of, size_of};

use super::position::ArenaPosition;
use super::raw::RawArena;
use super::typed::Arena;
use crate::memory::position_word;
use crate::statistics::Record;

const _: () = {
    assert!(offset_of!(RawArena, base) == 0 && size_of::<*mut u8>() == 8);
    assert!(offset_of!(RawArena, limit) == 8);
    assert!(RawArena::RECORD_AT == 16);
    assert!(offset_of!(Record, position_word) == 0);
    assert!(offset_of!(Arena<8>, raw) == 0);
    // The C code computes `before + (padded size << 40) + (1 << 20) + size`, adds the padding to
    // it, and refuses if the sum is `>= limit`.
    assert!(position_word::object(13, 8) == (16 << 40) + (1 << 20) + 13);
    assert!(position_word::padding(8) == 8 << 40);
    assert!(position_word::offset(24 << 40) == 24);
    assert!(position_word::limit(64) == 65 << 40);
    assert!(position_word::MAX_STEP == 1 << 22);
    // Together with two more words this is `allot_arena_position`.
    assert!(size_of::<ArenaPosition>() <= 18 * 8);
};
