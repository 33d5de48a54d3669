//! A file as a source: shared mappings whose file blocks are reserved.
//!
//! # Invariants
//!
//! 1. `[0, end)` is divided into ranges. Each range is either in use (mapped by one block or
//!    reserved range) or in `free`. The two never overlap, and neighbours in `free` are merged.
//! 2. All file blocks of a block in use are reserved, and so are the file blocks of the committed
//!    pages of a reserved range in use. A reservation lasts until the range is punched out. So no
//!    write can meet a full disk and raise SIGBUS. The file is at least `end` bytes long as soon as
//!    a range is mapped, and is never shortened while the source lives.
//! 3. The mutex is held for bookkeeping and for the system calls that reserve and punch. It serves
//!    chunks and not objects. For the small arenas of many threads, use `Mmap`.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::layout::checked_align_up;
use super::os;
use super::source::{PagedSource, SharedSource, Source};
use crate::error::{AllocError, ErrorKind};

/// A source whose memory is a file: a shared mapping, whose disk space is reserved before a block
/// is returned.
///
/// A file from [`in_directory`](File::in_directory) has no name and vanishes with the process. A
/// file from [`create_new`](File::create_new) has a name, so a second process can map it and read
/// the bytes at [`offset_of`](File::offset_of). If the disk is full, taking a chunk fails with an
/// error; no signal is raised later. Chunks that are given back are punched out of the file, and
/// their ranges are used again.
///
/// # Fork
///
/// A child made by fork shares an arena's mappings with its parent: both write the same bytes. A
/// slab's mappings don't exist in the child: access to one of its objects there faults. In the
/// child, no chunk or page can be taken and no slot can be allocated ([`ErrorKind::ForkedChild`]),
/// and dropping an allocator leaves the file alone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = std::sync::Arc::new(allotment::File::in_directory(&std::env::temp_dir())?);
/// let arena = allotment::Arena::builder().source(source.clone()).build();
/// let text = arena.alloc_str("kept in a file");
/// assert!(source.offset_of(text.as_ptr()).is_some());
/// # Ok(()) }
/// ```
pub struct File {
    file: fs::File,
    /// The id of the process that opened the file. A child made by fork has the mappings, but must
    /// not allocate from the file.
    process: u32,
    ranges: Mutex<FileRanges>,
}

#[derive(Default)]
struct FileRanges {
    /// The length of the file's part that was ever handed out.
    end: u64,
    /// Free ranges: offset to length.
    free: BTreeMap<u64, usize>,
    /// Ranges in use: address to (offset, length).
    in_use: BTreeMap<usize, (u64, usize)>,
}

impl File {
    /// A file without a name in `directory`. It vanishes when the process ends, even if the process
    /// crashes.
    ///
    /// # Errors
    /// The system's error, for example if `directory` is missing, is not writable or is not a
    /// directory.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        os::create_unlinked(directory).map(Self::from_file)
    }

    /// A new file at this path, which stays after the process has ended.
    ///
    /// # Errors
    /// The system's error, for example if the file already exists or can't be made.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        os::create_named(path).map(Self::from_file)
    }

    fn from_file(file: fs::File) -> Self {
        Self { file, process: std::process::id(), ranges: Mutex::new(FileRanges::default()) }
    }

    /// The offset in the file of the byte at this address, if the address is in a chunk in use.
    #[must_use]
    pub fn offset_of<T>(&self, pointer: *const T) -> Option<u64> {
        let address = pointer.addr();
        let ranges = self.ranges();
        let (start, (offset, len)) = ranges.in_use.range(..=address).next_back()?;
        let within = address - start;
        (within < *len).then_some(offset + within as u64)
    }

    /// The bytes of the file that chunks use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.ranges().in_use.values().map(|&(_, len)| len as u64).sum()
    }

    fn ranges(&self) -> MutexGuard<'_, FileRanges> {
        // Nothing below panics between two writes that belong together, so a poisoned lock is
        // usable.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("file", &self.file).finish_non_exhaustive()
    }
}

impl From<File> for SharedSource {
    fn from(source: File) -> Self {
        Arc::new(source).into()
    }
}

impl FileRanges {
    /// Takes `len` bytes from the start of the first free range that is long enough.
    fn reuse(&mut self, len: usize) -> Option<u64> {
        let (&offset, &length) = self.free.iter().find(|&(_, &length)| length >= len)?;
        self.free.remove(&offset);
        if length > len {
            self.free.insert(offset + len as u64, length - len);
        }
        Some(offset)
    }

    /// Adds a free range and merges it with its neighbours.
    fn set_free(&mut self, mut offset: u64, mut len: usize) {
        if let Some((&before, &length)) = self.free.range(..offset).next_back() {
            if before + length as u64 == offset {
                self.free.remove(&before);
                offset = before;
                len += length;
            }
        }
        if let Some(after) = self.free.remove(&(offset + len as u64)) {
            len += after;
        }
        self.free.insert(offset, len);
    }
}

// SAFETY: a range in use is mapped once (invariant 1) and its blocks are reserved (2), so all its
// bytes can be read and written until `release`. Mappings are page-aligned, and `acquire` refuses a
// larger alignment.
unsafe impl Source for File {
    fn name(&self) -> &str {
        "file"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let page = os::page_size();
        if layout.align() > page {
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        }
        let len = checked_align_up(layout.size().max(1), page)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        if std::process::id() != self.process {
            return Err(AllocError::new(ErrorKind::ForkedChild, len));
        }
        let mut ranges = self.ranges();
        let (offset, fresh) = match ranges.reuse(len) {
            Some(offset) => (offset, false),
            None => (ranges.end, true),
        };
        // Reserve also where the range was used before: its blocks were punched out.
        let mapped = os::reserve_blocks(self.file.as_fd(), offset, len)
            .and_then(|()| os::map_file(self.file.as_fd(), offset, len));
        match mapped {
            Ok(start) => {
                if fresh {
                    ranges.end += len as u64;
                }
                ranges.in_use.insert(start.addr().get(), (offset, len));
                Ok(start)
            }
            Err(error) => {
                // Some blocks may have been reserved. Give them back, and the range too.
                let _ = os::punch_hole(self.file.as_fd(), offset, len);
                if !fresh {
                    ranges.set_free(offset, len);
                }
                Err(error)
            }
        }
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        if std::process::id() != self.process {
            // Unmap only the child's own view of the range. The file and its ranges are the
            // parent's, and the lock may have been held at the moment of the fork.
            if let Some(len) = checked_align_up(layout.size().max(1), os::page_size()) {
                // SAFETY: mapped by `acquire` with this length; the caller gives it up.
                let _ = unsafe { os::unmap(block, len) };
            }
            return;
        }
        let mut ranges = self.ranges();
        let Some((offset, len)) = ranges.in_use.remove(&block.addr().get()) else {
            debug_assert!(false, "a block of another source");
            return;
        };
        // SAFETY: mapped by `acquire` with this length; the caller gives it up.
        if unsafe { os::unmap(block, len) }.is_err() {
            // The process has too many mappings to split this one. The range stays mapped, so it
            // must not be used again.
            return;
        }
        let _ = os::punch_hole(self.file.as_fd(), offset, len);
        ranges.set_free(offset, len);
    }

    fn zeroed(&self) -> bool {
        // A range whose hole could not be punched still has its old bytes.
        false
    }

    fn is_inherited(&self) -> bool {
        false
    }

    fn paged(&self) -> Option<&dyn PagedSource> {
        Some(self)
    }
}

// SAFETY: a reserved range is a separate range (invariant 1), mapped at separate addresses, and its
// committed pages have blocks (2).
unsafe impl PagedSource for File {
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let len = checked_align_up(layout.size().max(1), os::page_size())
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        if std::process::id() != self.process {
            return Err(AllocError::new(ErrorKind::ForkedChild, len));
        }
        let start = os::map(len, layout.align())?;
        let mut ranges = self.ranges();
        let (offset, fresh) = match ranges.reuse(len) {
            Some(offset) => (offset, false),
            None => (ranges.end, true),
        };
        let end = ranges.end.max(offset + len as u64);
        let extended = if fresh { os::extend_file(self.file.as_fd(), end) } else { Ok(()) };
        // SAFETY: the range was just mapped, and nothing refers to it.
        let mapped = extended
            .and_then(|()| unsafe { os::map_file_at(start, self.file.as_fd(), offset, len) });
        if let Err(error) = mapped {
            if !fresh {
                ranges.set_free(offset, len);
            }
            // Leave the addresses as they are, mapped or not. If the kernel unmapped them before it
            // refused, another thread may own them by now.
            return Err(error);
        }
        // Access to the parent's slab by a child would change the parent's objects. It faults
        // instead.
        let _ = os::exclude_from_fork(start, len);
        ranges.end = end;
        ranges.in_use.insert(start.addr().get(), (offset, len));
        Ok(start)
    }

    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
        if std::process::id() != self.process {
            return Err(AllocError::new(ErrorKind::ForkedChild, len));
        }
        let refused = AllocError::new(ErrorKind::SourceRefused, len);
        let offset = self.offset_of(start.as_ptr()).ok_or(refused)?;
        let reserved = os::reserve_blocks(self.file.as_fd(), offset, len);
        if reserved.is_err() {
            // Some blocks may have been reserved.
            let _ = os::punch_hole(self.file.as_fd(), offset, len);
        }
        reserved
    }

    unsafe fn decommit(&self, start: NonNull<u8>, len: usize) {
        if std::process::id() != self.process {
            return;
        }
        if let Some(offset) = self.offset_of(start.as_ptr()) {
            let _ = os::punch_hole(self.file.as_fd(), offset, len);
        }
    }

    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout) {
        if std::process::id() != self.process {
            // The range is not mapped in a child, and the file is the parent's.
            return;
        }
        let mut ranges = self.ranges();
        let Some((offset, len)) = ranges.in_use.remove(&start.addr().get()) else {
            debug_assert!(false, "a range of another source");
            return;
        };
        debug_assert!(len >= layout.size());
        // SAFETY: mapped by `reserve` with this length; the caller returns it.
        if unsafe { os::unmap(start, len) }.is_ok() {
            ranges.set_free(offset, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: usize) -> Layout {
        Layout::from_size_align(count * os::page_size(), 16).unwrap()
    }

    #[test]
    fn released_ranges_merge_and_are_used_again() {
        let source = File::in_directory(&std::env::temp_dir()).unwrap();
        let blocks: Vec<_> = (0..4).map(|_| source.acquire(pages(1)).unwrap()).collect();
        assert_eq!(source.used_bytes(), 4 * os::page_size() as u64);
        for index in [0, 2, 1] {
            // SAFETY: acquired above with this layout, released once.
            unsafe { source.release(blocks[index], pages(1)) };
        }
        assert_eq!(source.ranges().free.len(), 1);
        let again = source.acquire(pages(3)).unwrap();
        assert_eq!(source.offset_of(again.as_ptr()), Some(0));
        assert_eq!(source.ranges().end, 4 * os::page_size() as u64);
        // SAFETY: as above.
        unsafe {
            source.release(again, pages(3));
            source.release(blocks[3], pages(1));
        }
        assert_eq!(source.used_bytes(), 0);
    }

    #[test]
    fn bytes_written_to_memory_are_read_from_the_file_at_their_offset() {
        use std::os::unix::fs::FileExt;
        let source = File::in_directory(&std::env::temp_dir()).unwrap();
        let block = source.acquire(pages(2)).unwrap();
        // SAFETY: two pages, ours.
        unsafe { block.add(5000).copy_from_nonoverlapping(NonNull::from(b"bytes").cast(), 5) };
        let offset = source.offset_of(block.as_ptr().wrapping_add(5000)).unwrap();
        let mut read = [0; 5];
        source.file.read_exact_at(&mut read, offset).unwrap();
        assert_eq!(&read, b"bytes");
        // SAFETY: acquired above, released once.
        unsafe { source.release(block, pages(2)) };
    }

    #[test]
    fn an_address_outside_every_chunk_has_no_offset() {
        let source = File::in_directory(&std::env::temp_dir()).unwrap();
        assert_eq!(source.offset_of(&0u8), None);
    }
}
