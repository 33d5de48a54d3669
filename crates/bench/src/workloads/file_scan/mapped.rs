//! Program 3: the mapped file.
//!
//! # Invariant
//!
//! A [`Mapping`] owns `length` mapped bytes from `first` on, which are readable until it is
//! dropped. They don't change as long as the file is not shortened or written. The searched file
//! has no name, so no other program can do that.

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
        // SAFETY: the invariant above, and there are no more borrows. `munmap` can't fail for
        // mapped memory.
        let _ = unsafe { munmap(self.first, self.length.get()) };
    }
}

/// Counts the bytes `wanted` in the file.
pub fn count(file: &mut File, wanted: u8) -> io::Result<u64> {
    let length = usize::try_from(file.seek(SeekFrom::End(0))?).map_err(io::Error::other)?;
    // An empty file can't be mapped.
    let Some(length) = NonZero::new(length) else { return Ok(0) };
    // SAFETY: the system chooses an unused address.
    let first =
        unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &*file, 0) }?;
    let mapping = Mapping { first, length };
    // So few bytes that one byte can count them: the processor then compares and adds many bytes at
    // once.
    let parts = mapping.bytes().chunks(192);
    let counts = parts.map(|part| part.iter().map(|byte| u8::from(*byte == wanted)).sum::<u8>());
    Ok(counts.map(u64::from).sum())
}
