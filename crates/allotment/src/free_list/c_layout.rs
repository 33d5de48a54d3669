//! The memory layout that C code relies on. `allotment.h` repeats it for its inline functions.
//!
//! Changing anything asserted here requires another `ALLOT_ABI`.

use core::mem::{offset_of, size_of};

use super::chains::ListLink;
use super::raw::RawFreeList;

const _: () = {
    assert!(offset_of!(RawFreeList, head) == 0 && size_of::<*mut ListLink>() == 8);
    assert!(offset_of!(RawFreeList, count) == 8 && size_of::<isize>() == 8);
    // A free object begins with the address of the next one.
    assert!(offset_of!(ListLink, 0) == 0 && size_of::<ListLink>() == 8);
};
