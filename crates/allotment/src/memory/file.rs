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
//! 4. A child made by fork has no block and no reserved range: they are excluded from forks before
//!    they are handed out, and an access to their addresses faults (`file_mappings.rs`). The child
//!    has a copy of the mutex and of the maps, which another thread may have been changing at the
//!    fork. So nothing but the process that opened the file uses them, and only it drops them. Its
//!    forks are counted before the file is opened (`process_identity.rs`).

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::layout::checked_align_up;
use super::process_identity::ProcessIdentity;
use super::source::{PagedSource, SharedSource, Source};
use super::{file_mappings, os};
use crate::error::{AllocError, ErrorKind};

/// A source whose memory is a file: a shared mapping, whose disk space is reserved before a block
/// is returned.
///
/// A file from [`in_directory`](File::in_directory) has no name and vanishes with the process. A
/// file from [`create_new`](File::create_new) has a name, so a second process can map it and read
/// the bytes at [`offset_of`](File::offset_of). Chunks that are given back are punched out of the
/// file, and their ranges are used again.
///
/// If the disk is full, taking a chunk fails with an error, and writes to chunks that were taken
/// still succeed. A filesystem that copies on write (btrfs, ZFS) is the exception: a write may need
/// new blocks there, and raises SIGBUS if the disk has none.
///
/// # Fork
///
/// A child made by fork does not have the memory, so it can't change what its parent has there. In
/// the child
///
/// - an access to an object in the file faults. That includes a free by a free list or a reap,
///   which writes to the freed object;
/// - an allocation fails with [`ErrorKind::ForkedChild`], with two exceptions. An arena or a reap
///   may return an address in a chunk that it had, where an access faults. A free list or a reap
///   that has free objects may fault, because it reads the one that it takes;
/// - an allocator can be dropped, reset, trimmed and asked for its statistics. The file stays as it
///   is. Boxes and collections of an arena or a slab can be dropped, unless their elements have
///   destructors. Forget those of a free list or a reap, or end the child by `_exit`;
/// - [`offset_of`](File::offset_of) and [`used_bytes`](File::used_bytes) find no chunk.
///
/// For memory of its own, the child opens another file.
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
    /// The process that opened the file.
    owner: ProcessIdentity,
    /// Used by that process alone (invariant 4).
    ranges: ManuallyDrop<Mutex<FileRanges>>,
}

#[derive(Default)]
struct FileRanges {
    /// The length of the file's part that was ever handed out.
    end: u64,
    /// Free ranges: offset to length.
    free: BTreeMap<u64, usize>,
    /// Ranges in use, by address.
    in_use: BTreeMap<usize, UsedRange>,
}

/// A part of the file that is mapped.
struct UsedRange {
    offset: u64,
    len: usize,
    /// Its entry among the mappings whose addresses a child reserves.
    entry: u32,
}

impl File {
    /// A file without a name in `directory`. It vanishes when the process ends, even if the process
    /// crashes.
    ///
    /// Another program can open it only through `/proc`, if it may also change this process's
    /// memory there. On a filesystem without unnamed files (`O_TMPFILE`), it has a name and no
    /// permissions for a moment, during which only the superuser can open it.
    ///
    /// # Errors
    /// The system's error, for example if `directory` is missing, is not writable or is not a
    /// directory.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        Self::open(|| os::create_unlinked(directory))
    }

    /// A new file at this path, which stays after the process has ended.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let path = std::env::temp_dir().join(format!("counters-{}", std::process::id()));
    /// // SAFETY: no other program knows the file, and this one opens it only to read.
    /// let source = unsafe { allotment::File::create_new(&path)? };
    /// let arena = allotment::Arena::builder().source(source).build();
    /// arena.alloc([0u64; 100]);
    /// # drop(std::fs::remove_file(&path));
    /// # Ok(()) }
    /// ```
    ///
    /// Safe code can't create such a file, because it could change the bytes behind a reference
    /// through another handle.
    ///
    /// ```compile_fail,E0133
    /// let source = allotment::File::create_new(std::path::Path::new("counters"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The system's error, for example if the file already exists or can't be made.
    ///
    /// # Safety
    /// The file's bytes are the memory that allocators hand out. As long as any of that memory is
    /// in use, the file is not written, shortened or punched with holes in another way: neither by
    /// this process through another handle nor by another process. Reading is allowed.
    pub unsafe fn create_new(path: &Path) -> io::Result<Self> {
        Self::open(|| os::create_named(path))
    }

    fn open(create: impl FnOnce() -> io::Result<fs::File>) -> io::Result<Self> {
        // Before there is anything that a child could take for its own.
        ProcessIdentity::count_forks()
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        let ranges = ManuallyDrop::new(Mutex::new(FileRanges::default()));
        Ok(Self { file: create()?, owner: ProcessIdentity::current(), ranges })
    }

    /// Whether this is a child made by fork, which does not have the memory.
    fn is_orphaned(&self) -> bool {
        !self.owner.is_current()
    }

    /// The offset in the file of the byte at this address, if the address is in a chunk in use. In
    /// a child made by fork, none is.
    #[must_use]
    pub fn offset_of<T>(&self, pointer: *const T) -> Option<u64> {
        if self.is_orphaned() {
            return None;
        }
        let address = pointer.addr();
        let ranges = self.ranges();
        let (start, range) = ranges.in_use.range(..=address).next_back()?;
        let within = address - start;
        (within < range.len).then_some(range.offset + within as u64)
    }

    /// The bytes of the file that chunks use: 0 in a child made by fork.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        if self.is_orphaned() {
            return 0;
        }
        self.ranges().in_use.values().map(|range| range.len as u64).sum()
    }

    /// The bytes that a request takes: whole hardware pages. An error in a child made by fork.
    fn checked_len(&self, size: usize) -> Result<usize, AllocError> {
        let len = checked_align_up(size.max(1), os::page_size())
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, size))?;
        if self.is_orphaned() {
            return Err(AllocError::new(ErrorKind::ForkedChild, len));
        }
        Ok(len)
    }

    /// Takes a range of the file and maps it: a block, whose file blocks are reserved, or a range
    /// without file blocks. On an error the file has the same blocks and ranges as before.
    fn take_range(
        &self,
        len: usize,
        align: usize,
        is_block: bool,
    ) -> Result<NonNull<u8>, AllocError> {
        let mut ranges = self.ranges();
        let reused = ranges.reuse(len);
        let offset = reused.unwrap_or(ranges.end);
        let file = self.file.as_fd();
        let prepare = || {
            if reused.is_none() {
                os::check_file_length(offset + len as u64)?;
            }
            match reused {
                // A reused range needs blocks too: its own were punched out.
                _ if is_block => os::reserve_blocks(file, offset, len),
                None => os::extend_file(file, offset + len as u64),
                Some(_) => Ok(()),
            }
        };
        let mapped = prepare()
            .and_then(|()| os::map_file(file, offset, len, align))
            .and_then(|start| Ok((start, exclude_from_fork(start, len)?)));
        match mapped {
            Ok((start, entry)) => {
                if reused.is_none() {
                    ranges.end += len as u64;
                }
                ranges.in_use.insert(start.addr().get(), UsedRange { offset, len, entry });
                Ok(start)
            }
            Err(error) => {
                if is_block {
                    // Some blocks may have been reserved.
                    let _ = os::punch_hole(file, offset, len);
                }
                if reused.is_some() {
                    ranges.set_free(offset, len);
                }
                Err(error)
            }
        }
    }

    /// Unmaps a range and gives it back. Punches its blocks out if `punches`.
    ///
    /// # Safety
    /// The range was taken at this address, is given back once, and nothing refers to it.
    unsafe fn give_range_back(&self, start: NonNull<u8>, punches: bool) {
        if self.is_orphaned() {
            // The range is not mapped in a child, and the file is the parent's.
            return;
        }
        let mut ranges = self.ranges();
        let Some(UsedRange { offset, len, entry }) = ranges.in_use.remove(&start.addr().get())
        else {
            debug_assert!(false, "a range of another source");
            return;
        };
        file_mappings::remove(entry);
        // SAFETY: mapped by `take_range` with this length; the caller gives it up.
        if unsafe { os::unmap(start, len) }.is_err() {
            // The process has too many mappings to split this one. The range stays mapped, so it
            // must not be used again.
            return;
        }
        if punches {
            let _ = os::punch_hole(self.file.as_fd(), offset, len);
        }
        ranges.set_free(offset, len);
    }

    fn ranges(&self) -> MutexGuard<'_, FileRanges> {
        // Nothing below panics between two writes that belong together, so a poisoned lock is
        // usable.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a range that was just mapped out of children made by fork, and enters it among the mappings
/// whose addresses they reserve. On an error the range is unmapped.
fn exclude_from_fork(start: NonNull<u8>, len: usize) -> Result<u32, AllocError> {
    // In this order: a fork in between meets a range that nothing refers to yet.
    let excluded = os::exclude_from_fork(start, len).and_then(|()| file_mappings::add(start, len));
    excluded.inspect_err(|_| {
        // SAFETY: just mapped, and nothing refers to it.
        let _ = unsafe { os::unmap(start, len) };
    })
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_orphaned() {
            // SAFETY: dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ranges) };
        }
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
        if layout.align() > os::page_size() {
            return Err(AllocError::new(ErrorKind::LimitReached, layout.size()));
        }
        self.take_range(self.checked_len(layout.size())?, layout.align(), true)
    }

    unsafe fn release(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.give_range_back(block, true) };
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
        self.take_range(self.checked_len(layout.size())?, layout.align(), false)
    }

    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
        self.checked_len(len)?;
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
        if let Some(offset) = self.offset_of(start.as_ptr()) {
            let _ = os::punch_hole(self.file.as_fd(), offset, len);
        }
    }

    unsafe fn unreserve(&self, start: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller. Nothing is committed, so there are no blocks.
        unsafe { self.give_range_back(start, false) };
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

    /// The blocks that the file has on the disk.
    #[cfg(not(miri))]
    fn disk_blocks(file: &File) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&file.file.metadata().unwrap())
    }

    #[cfg(not(miri))]
    #[test]
    fn a_file_from_before_a_fork_belongs_to_another_process_even_with_the_same_process_id() {
        use super::super::process_identity::count_fork;
        let directory = std::env::temp_dir();
        let work = || {
            let source = Arc::new(File::in_directory(&directory).unwrap());
            let shared = SharedSource::from(source.clone());
            let block = source.acquire(pages(2)).unwrap();
            let blocks = disk_blocks(&source);
            let before = ProcessIdentity::current();
            assert!(before.is_current() && !shared.is_orphaned() && source.used_bytes() > 0);
            // What the handler does in a child. The process id stays the same.
            count_fork();
            assert!(!before.is_current() && shared.is_orphaned());
            assert_eq!((source.offset_of(block.as_ptr()), source.used_bytes()), (None, 0));
            let refused = source.acquire(pages(1)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ForkedChild);
            // SAFETY: acquired above, released once.
            unsafe { source.release(block, pages(2)) };
            assert_eq!(disk_blocks(&source), blocks);
            // A file that is opened after the fork is this process's own.
            let own = File::in_directory(&directory).unwrap();
            assert!(own.acquire(pages(1)).is_ok());
        };
        // In a child of its own: the other tests' files belong to this process.
        // SAFETY: the child uses files and malloc, and ends without destructors.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::alarm(60);
                let result = std::panic::catch_unwind(work);
                libc::_exit(i32::from(result.is_err()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
        }
    }

    #[test]
    fn an_address_outside_every_chunk_has_no_offset() {
        let source = File::in_directory(&std::env::temp_dir()).unwrap();
        assert_eq!(source.offset_of(&0u8), None);
    }
}
