//! `--fragmented`: memory in which the kernel finds few free huge pages, made on purpose.
//!
//! A child process takes free memory, page by page, and then gives back all pages but every
//! sixteenth: the kernel has that memory again, but in small pieces. Then the child takes the huge
//! pages that are still free, and keeps them. For a huge page the kernel must now move other pages
//! first (*compaction*). The child holds what it has until its standard input is closed, and gives
//! it back by ending.
//!
//! At most nine tenths of the free memory are taken at a time, for the seconds that this lasts, and
//! at most a quarter is held. Memory that holds files does not count as free. If memory runs out,
//! the kernel ends this child before any other process.

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

/// The part of the free memory that is taken at most, page by page.
const MOST: f64 = 0.9;

/// The part of it that is taken at most in huge pages.
const MOST_IN_HUGE_PAGES: f64 = 0.15;

/// Of this many pages, one is held.
const HELD: usize = 16;

/// The kernel has few free huge pages if it has no more than this.
const FEW: u64 = 8;

/// Memory is taken in pieces of this size. After each one, the kernel's free huge pages are
/// counted.
const PIECE: usize = 64 << 20;

/// The same for memory in huge pages.
const HUGE_PIECE: usize = 8 << 20;

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

/// `allot fragment`: fragments the free memory, prints how many huge pages the kernel still has,
/// and holds the fragments until its standard input ends.
///
/// # Errors
/// If the system does not tell its free memory, or refuses some.
pub fn hold() -> Result<(), Failure> {
    end_with_parent();
    // If this is not permitted, the bound on what is taken remains.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let free = procfs::Meminfo::current().map_err(|error| failed(&error))?.mem_free as f64;
    let most = (free * MOST) as usize;
    let pieces = take(most, PIECE, MmapAdvise::MADV_NOHUGEPAGE).map_err(|error| failed(&error))?;
    pieces.iter().for_each(Piece::give_back_most);
    let most = (free * MOST_IN_HUGE_PAGES) as usize;
    take(most, HUGE_PIECE, MmapAdvise::MADV_HUGEPAGE).map_err(|error| failed(&error))?;
    crate::console::print::json_line(&resources::free_huge_pages())?;
    // The end of the input is what it waits for; an error is an end too.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Takes memory in pieces, at most `most` bytes, until the kernel has few free huge pages.
fn take(most: usize, piece: usize, pages: MmapAdvise) -> io::Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while (pieces.len() + 1).saturating_mul(piece) <= most
        && resources::free_huge_pages().is_some_and(|free| free > FEW)
    {
        pieces.push(Piece::touched(piece, pages)?);
    }
    Ok(pieces)
}

/// Pages. They stay mapped until the process ends.
struct Piece {
    start: NonNull<c_void>,
    pages: usize,
}

impl Piece {
    fn touched(bytes: usize, pages: MmapAdvise) -> io::Result<Self> {
        let length = NonZero::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }?;
        // SAFETY: the mapping was just made, and this is advice. A kernel without huge pages
        // refuses it.
        let _ = unsafe { madvise(start, bytes, pages) };
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
        if resources::free_huge_pages().is_none_or(|free| free <= FEW + 8) {
            return;
        }
        let pieces = take(BYTES, BYTES / 2, MmapAdvise::MADV_NOHUGEPAGE).unwrap();
        assert_eq!(pieces.len(), 2);
        let taken = resident().unwrap().saturating_sub(before);
        assert!(taken >= (BYTES as u64 / 10) * 9, "{taken}");
        pieces.iter().for_each(Piece::give_back_most);
        let held = resident().unwrap().saturating_sub(before);
        assert!(held < BYTES as u64 / 4, "{held} of {taken}");
    }

    #[test]
    fn no_more_is_taken_than_the_bound() {
        for most in [0, PIECE - 1] {
            assert!(take(most, PIECE, MmapAdvise::MADV_NOHUGEPAGE).unwrap().is_empty());
        }
    }
}
