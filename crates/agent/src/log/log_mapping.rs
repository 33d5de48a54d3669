//! The log file, mapped and shared with the kernel's page cache: a line that was copied is in the
//! file, even if the process is killed at the next instruction.
//!
//! # Invariants
//!
//! 1. `start` is a live shared mapping of the file from its beginning, of [`LIMIT`] bytes, for as
//!    long as the value lives.
//! 2. The file's first `reserved` bytes have blocks on the disk, and `reserved` is at most `LIMIT`.
//!    Nothing else shortens the file: it is locked against a second agent, and the documentation
//!    says that other programs may rename but not truncate it.
//! 3. The file's first `end` bytes are whole lines; `end` is at most `reserved`. The byte at `end`
//!    is zero if it is below `reserved`: a line's first byte is written last, and commits it.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

/// The largest size of a file, in bytes.
pub const LIMIT: usize = 64 << 20;

/// The file grows by this many bytes at a time, with one system call.
pub const STEP: usize = 1 << 20;

/// A mapped log file.
pub struct LogMapping {
    start: NonNull<u8>,
    file: File,
    reserved: usize,
    end: usize,
}

// SAFETY: the value owns the mapping (1), and any thread may use it.
unsafe impl Send for LogMapping {}

impl LogMapping {
    /// Opens or creates the file, and removes what a killed agent left after its last whole line.
    /// Returns `None` if the file is full.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        file.try_lock()?;
        let length = metadata.len();
        let end = whole_lines(&file, length)?;
        if end != length {
            file.set_len(end)?;
        }
        let Some(end) = usize::try_from(end).ok().filter(|end| *end < LIMIT) else {
            return Ok(None);
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(ptr::null_mut(), LIMIT, access, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).expect("a mapping is not at address zero");
        Ok(Some(Self { start, file, reserved: end, end }))
    }

    /// Whether this is the file at this path.
    pub fn is_at(&self, path: &Path) -> bool {
        let numbers = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), std::fs::metadata(path)) {
            (Ok(own), Ok(named)) => numbers(own) == numbers(named),
            _ => false,
        }
    }

    /// Whether the file can grow by this many bytes.
    pub fn has_space_for(&self, bytes: usize) -> bool {
        bytes <= LIMIT - self.end
    }

    /// Appends a line, which contains no zero byte. Afterwards the line is in the file, even if
    /// this process is killed.
    ///
    /// # Errors
    /// When the disk is full. Nothing was written then.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        assert!(self.has_space_for(line.len()), "asked before");
        let Some((first, rest)) = line.split_first() else { return Ok(()) };
        self.reserve(line.len())?;
        // SAFETY: `end + line.len()` is at most `reserved`, so the bytes lie in the mapping, and in
        // blocks that the file has (1, 2). They lie behind all lines, and by `&mut self` nothing
        // else writes there.
        unsafe {
            let place = self.start.add(self.end);
            place.add(1).copy_from_nonoverlapping(NonNull::from(rest).cast(), rest.len());
            // Release: after the other bytes, so that a line whose first byte is there is whole.
            AtomicU8::from_ptr(place.as_ptr()).store(*first, Ordering::Release);
        }
        self.end += line.len();
        Ok(())
    }

    /// Reserves blocks on the disk. A write to the mapping without a block would end in a signal.
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        if self.end + bytes <= self.reserved {
            return Ok(());
        }
        let target = (self.end + bytes).next_multiple_of(STEP).min(LIMIT);
        // Beyond the limit of a file's length the call would end in a signal.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| target as u64 > limit) {
            return Err(Errno::FBIG.into());
        }
        let (offset, more) = (self.reserved as u64, (target - self.reserved) as u64);
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), offset, more) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // On a file system without this call, written zeros reserve blocks too.
                Err(Errno::OPNOTSUPP) => {
                    write_zeros(&self.file, offset, more)?;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.reserved = target;
        Ok(())
    }

    /// Gives reserved blocks without lines back.
    pub fn trim(&mut self) -> io::Result<()> {
        self.file.set_len(self.end as u64)?;
        self.reserved = self.end;
        Ok(())
    }
}

impl Drop for LogMapping {
    fn drop(&mut self) {
        // After a failure the next start trims the file.
        let _ = self.trim();
        // SAFETY: the mapping (1), which nothing uses after this.
        unsafe {
            let _ = munmap(self.start.as_ptr().cast(), LIMIT);
        }
    }
}

fn write_zeros(file: &File, mut offset: u64, mut bytes: u64) -> io::Result<()> {
    let zeros = [0; 1 << 16];
    while bytes > 0 {
        let part = bytes.min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..part], offset)?;
        offset += part as u64;
        bytes -= part as u64;
    }
    Ok(())
}

/// Returns the length of the file's whole lines: up to the first zero byte.
///
/// Zeros are only at the end, where blocks were reserved and a line was being copied: in the last
/// step, and in the line beyond it. So only the end is searched, unless it begins with a zero.
fn whole_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut tail = vec![0; STEP + super::MAX_LINE_BYTES];
    let mut to = length;
    loop {
        let from = to.saturating_sub(tail.len() as u64);
        let part = &mut tail[..(to - from) as usize];
        file.read_exact_at(part, from)?;
        match part.iter().position(|byte| *byte == 0) {
            Some(0) if from > 0 => to = from,
            Some(zero) => return Ok(from + zero as u64),
            None => return Ok(to),
        }
    }
}
