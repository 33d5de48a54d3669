//! Statistics, the report, the recycler and the version.
//!
//! The invariants are those of `lib.rs`.

use core::ffi::{CStr, c_char, c_void};

use allotment::{MAX_NAME_LEN, Statistics, owner_of, recycler, report};

use crate::error::{ABI, or_stop};
use crate::handle::Kind;
use crate::options::{allot_release, release};

/// `allot_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allot_statistics {
    live_objects: u64,
    live_bytes: u64,
    held_bytes: u64,
    peak_held_bytes: u64,
    wasted_bytes: u64,
    free_bytes: u64,
    structure_bytes: u64,
    chunks: u64,
    recycled_chunks: u64,
    source_calls: u64,
}

crate::numbers::numbers!(STATISTICS: allot_statistics { live_objects, live_bytes, held_bytes, peak_held_bytes, wasted_bytes, free_bytes, structure_bytes, chunks, recycled_chunks, source_calls });

impl From<Statistics> for allot_statistics {
    fn from(statistics: Statistics) -> Self {
        Self {
            live_objects: statistics.live_objects,
            live_bytes: statistics.live_bytes,
            held_bytes: statistics.held_bytes,
            peak_held_bytes: statistics.peak_held_bytes,
            wasted_bytes: statistics.wasted_bytes,
            free_bytes: statistics.free_bytes,
            structure_bytes: statistics.structure_bytes,
            chunks: statistics.chunks,
            recycled_chunks: statistics.recycled_chunks,
            source_calls: statistics.source_calls,
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_abi() -> u32 {
    ABI
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Copies as much of a text as fits, and adds a NUL.
///
/// # Safety
/// `buffer` is valid for writes of `size` bytes. It may be NULL if `size` is 0.
unsafe fn copy_out(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if size > 0 {
        let copied = text.floor_of(size - 1);
        // SAFETY: passed on to the caller; what is copied is shorter than `size`.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(copied.as_ptr(), copied.len());
            buffer.add(copied.len()).write(0);
        }
    }
    text.len()
}

trait Floor {
    /// Its start: at most `most` bytes, cut between two characters.
    fn floor_of(&self, most: usize) -> &str;
}

impl Floor for str {
    fn floor_of(&self, most: usize) -> &str {
        let end = (0..=most.min(self.len())).rev().find(|end| self.is_char_boundary(*end));
        &self[..end.unwrap_or(0)]
    }
}

/// # Safety
/// `buffer` is valid for writes of `size` bytes. It may be NULL if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_report_text(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { copy_out(&report().to_string(), buffer, size) }
}

/// # Safety
/// As for [`allot_report_text`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_report_json(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { copy_out(&report().to_json(), buffer, size) }
}

const KINDS: [Kind; 6] =
    [Kind::Arena, Kind::FreeList, Kind::Slab, Kind::Reap, Kind::Pool, Kind::Sealed];

/// The library's word for a kind, as C reads it.
fn word(kind: &str) -> &'static CStr {
    let words = KINDS.iter().map(|kind| kind.word());
    words.into_iter().find(|word| word.to_bytes() == kind.as_bytes()).unwrap_or(c"")
}

/// # Safety
/// Each pointer but the first is NULL or valid for writes. `name` has room for `ALLOT_MAX_NAME + 1`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_owner_of(
    address: *const c_void,
    kind: *mut *const c_char,
    name: *mut c_char,
    statistics: *mut allot_statistics,
) -> bool {
    let Some(owner) = owner_of(address) else { return false };
    // SAFETY: passed on to the caller.
    unsafe {
        if !kind.is_null() {
            kind.write(word(owner.kind).as_ptr());
        }
        if !name.is_null() {
            copy_out(&owner.name, name, MAX_NAME_LEN + 1);
        }
        if !statistics.is_null() {
            statistics.write(owner.statistics.into());
        }
    }
    true
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_cached_bytes() -> usize {
    recycler().cached_bytes()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_limit() -> usize {
    recycler().limit()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_set_limit(bytes: usize) {
    recycler().set_limit(bytes);
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_set_release(policy: allot_release) {
    recycler().set_policy(or_stop(release(Kind::Memory, policy)));
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_recycler_trim() -> usize {
    recycler().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!("aé".floor_of(2), "a");
        assert_eq!("aé".floor_of(3), "aé");
        assert_eq!("aé".floor_of(9), "aé");
        assert_eq!("é".floor_of(0), "");
    }
}
