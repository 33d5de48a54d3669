//! The report about all named allocators, and the search for an address's allocator.

use core::ffi::{CStr, c_char, c_void};

use allotment::{MAX_NAME_LEN, owner_of, report};

use crate::handle_kind::HandleKind;
use crate::statistics::allot_statistics;

/// Copies as much of a text as fits, and adds a NUL.
///
/// # Safety
/// `buffer` is valid for writes of `size` bytes. It may be NULL if `size` is 0.
unsafe fn copy_out(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if size > 0 {
        let copied = truncated(text, size - 1);
        // SAFETY: passed on to the caller; what is copied is shorter than `size`.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(copied.as_ptr(), copied.len());
            buffer.add(copied.len()).write(0);
        }
    }
    text.len()
}

/// The start of a text: at most `max_bytes` bytes, cut between two characters.
fn truncated(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_report_text(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: as above.
    unsafe { copy_out(&report().to_string(), buffer, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_report_json(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: as above.
    unsafe { copy_out(&report().to_json(), buffer, size) }
}

/// The kinds that [`owner_of`] names.
const REPORTED_KINDS: [HandleKind; 6] = [
    HandleKind::Arena,
    HandleKind::FreeList,
    HandleKind::Slab,
    HandleKind::Reap,
    HandleKind::Pool,
    HandleKind::Sealed,
];

/// The library's word for a kind of allocator, with a NUL.
fn label_of(kind: &str) -> &'static CStr {
    let mut labels = REPORTED_KINDS.iter().map(|kind| kind.label());
    labels.find(|label| label.to_bytes() == kind.as_bytes()).unwrap_or(c"")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_owner_of(
    address: *const c_void,
    kind: *mut *const c_char,
    name: *mut c_char,
    statistics: *mut allot_statistics,
) -> bool {
    let Some(owner) = owner_of(address) else { return false };
    // SAFETY: as above.
    unsafe {
        if !kind.is_null() {
            kind.write(label_of(owner.kind).as_ptr());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(truncated("aé", 2), "a");
        assert_eq!(truncated("aé", 3), "aé");
        assert_eq!(truncated("aé", 9), "aé");
        assert_eq!(truncated("é", 0), "");
    }
}
