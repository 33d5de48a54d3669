//! Program 3: the file in memory.
//!
//! # Invariant
//!
//! A [`Mapping`] is `length` bytes from `first` on that the system has mapped for it alone, readable until it is dropped.
//! They don't change under the reader as long as nobody shortens or writes the file: the one that is searched has no name,
//! so that no other program can.

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZero;
use std::ptr::NonNull;

struct Mapping {
    first: NonNull<c_void>,
    length: NonZero<usize>,
}

impl Mapping {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the invariant above; the borrow keeps the mapping.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().cast(), self.length.get()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the invariant above; nobody borrows it any more. It can't fail for what was mapped.
        let _ = unsafe { munmap(self.first, self.length.get()) };
    }
}

/// How often `wanted` is in the file.
pub fn count(file: &mut File, wanted: u8) -> io::Result<u64> {
    let length = usize::try_from(file.seek(SeekFrom::End(0))?).map_err(io::Error::other)?;
    // Nothing can't be mapped.
    let Some(length) = NonZero::new(length) else { return Ok(0) };
    // SAFETY: the system chooses an address at which nothing is.
    let first =
        unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &*file, 0) }?;
    let mapping = Mapping { first, length };
    // So few that a byte can count them: the processor compares and adds as many bytes at once as it can.
    let parts = mapping.bytes().chunks(192);
    let counts = parts.map(|part| part.iter().map(|byte| u8::from(*byte == wanted)).sum::<u8>());
    Ok(counts.map(u64::from).sum())
}
