//! `--fragmented`: memory in which the kernel finds few free huge pages, made on purpose.
//!
//! A child process takes the free memory, page by page, until the kernel has few free huge pages
//! left. Then it gives back all pages but every sixteenth. The kernel now has as much free memory as
//! before, but in small pieces: for a huge page it must move pages first (*compaction*). The child
//! holds its pages until its standard input is closed, and gives them back by ending.
//!
//! At most nine tenths of the free memory are taken, for the seconds that this lasts, and at most a
//! sixteenth of that is held. Memory that holds files does not count as free. If memory runs out, the
//! kernel ends this child before any other process.

use crate::console::failure::Failure;
use crate::runner::child_process::{child_command, end_with_parent};
use crate::runner::resources;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};
use procfs::Current;
use std::ffi::c_void;
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZero;
use std::process::{Child, Stdio};
use std::ptr::NonNull;

/// The part of the free memory that is taken at most.
const MOST: f64 = 0.9;

/// Of this many pages, one is held.
const HELD: usize = 16;

/// The kernel has few free huge pages if it has no more than this.
const FEW: u64 = 64;

/// Memory is taken in pieces of this size, so that the kernel's free huge pages are counted in time.
const PIECE: usize = 64 << 20;

/// The child that holds the pages. Dropping it gives them back.
#[derive(Debug)]
pub struct Fragments(Child);

impl Fragments {
    /// Fragments the free memory.
    ///
    /// # Errors
    /// If the child does not start, or ends early.
    pub fn make() -> io::Result<Self> {
        let mut child = child_command(&["fragment".to_owned()])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut ready = String::new();
        let read = child.stdout.as_mut().map(|pipe| BufReader::new(pipe).read_line(&mut ready));
        match read {
            Some(Ok(_)) if !ready.is_empty() => Ok(Self(child)),
            _ => {
                let status = child.wait()?;
                Err(io::Error::other(format!("memory could not be fragmented: {status}")))
            }
        }
    }
}

impl Drop for Fragments {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// `allot fragment`: fragments the free memory, prints how many huge pages the kernel still has, and
/// holds the fragments until its standard input ends.
///
/// # Errors
/// If the system does not tell its free memory, or refuses some.
pub fn hold() -> Result<(), Failure> {
    end_with_parent();
    // If this is not permitted, the bound on what is taken remains.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let failed = |what: &str| Failure::Failed(what.to_owned());
    let free = procfs::Meminfo::current().map_err(|error| failed(&error.to_string()))?.mem_free;
    let pieces = take((free as f64 * MOST) as usize, FEW, PIECE)
        .map_err(|error| failed(&error.to_string()))?;
    for piece in &pieces {
        piece.give_back_most();
    }
    let left = resources::free_huge_pages();
    crate::console::print::json_line(&left)?;
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Takes memory in pieces, at most `most` bytes, until the kernel has at most `few` free huge pages.
fn take(most: usize, few: u64, piece: usize) -> io::Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while (pieces.len() + 1) * piece <= most
        && resources::free_huge_pages().is_some_and(|free| free > few)
    {
        pieces.push(Piece::touched(piece)?);
    }
    Ok(pieces)
}

/// Ordinary pages. They stay mapped until the process ends.
struct Piece {
    start: NonNull<c_void>,
    pages: usize,
}

impl Piece {
    fn touched(bytes: usize) -> io::Result<Self> {
        let length = NonZero::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }?;
        // SAFETY: the mapping was just made, and this is advice. A kernel without huge pages
        // refuses it.
        let _ = unsafe { madvise(start, bytes, MmapAdvise::MADV_NOHUGEPAGE) };
        let page = page_size();
        let piece = Self { start, pages: bytes / page };
        for index in 0..piece.pages {
            // SAFETY: inside the mapping.
            unsafe { piece.page(index).cast::<u8>().write_volatile(1) };
        }
        Ok(piece)
    }

    /// Gives back all pages but the first of each [`HELD`].
    fn give_back_most(&self) {
        let bytes = (HELD - 1) * page_size();
        for first in (0..self.pages).step_by(HELD) {
            if first + HELD <= self.pages {
                // SAFETY: these pages are in the mapping, and nothing refers to what is in them.
                let _ = unsafe { madvise(self.page(first + 1), bytes, MmapAdvise::MADV_DONTNEED) };
            }
        }
    }

    fn page(&self, index: usize) -> NonNull<c_void> {
        assert!(index < self.pages);
        // SAFETY: inside the mapping: checked above.
        unsafe { self.start.byte_add(index * page_size()) }
    }
}

fn page_size() -> usize {
    procfs::page_size() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::resources::resident;

    #[test]
    fn most_of_what_was_taken_is_given_back() {
        const BYTES: usize = 16 << 20;
        let before = resident().unwrap();
        let pieces = take(BYTES, 0, BYTES / 2).unwrap();
        // A kernel that does not tell its free blocks gets nothing fragmented.
        if resources::free_huge_pages().is_none_or(|free| free == 0) {
            return;
        }
        assert_eq!(pieces.len(), 2);
        let taken = resident().unwrap().saturating_sub(before);
        assert!(taken >= (BYTES as u64 / 10) * 9, "{taken}");
        pieces.iter().for_each(Piece::give_back_most);
        let held = resident().unwrap().saturating_sub(before);
        assert!(held < BYTES as u64 / 4, "{held} of {taken}");
    }

    #[test]
    fn no_more_is_taken_than_the_bound_and_nothing_if_few_are_free_already() {
        assert_eq!(take(PIECE - 1, 0, PIECE).unwrap().len(), 0);
        assert_eq!(take(usize::MAX, u64::MAX, PIECE).unwrap().len(), 0);
    }
}
