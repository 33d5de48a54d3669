//! `letters-*`: the three programs of *Sidestep System Calls*, which count the letter 'A' in a
//! file.
//!
//! The first reads each byte with a system call. The second reads the bytes from a buffer, which
//! system calls fill. The third maps the file and reads its memory. Each search opens the file,
//! counts, and closes the file.

mod file;
mod mapped;

use crate::workloads::kind::FileSearch;
use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use crate::workloads::variant::{TAKES_NO_MEMORY, Variant};
use crate::workloads::workload::RunSpec;
use file::WordList;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

pub use file::BYTES;

/// The size of the buffer. The paper's C library uses a block of the file system.
const BUFFER: usize = 4096;

const WANTED: u8 = b'A';

static READ: [Variant; 1] = [Variant::ours(
    "read",
    "read(fd, &c, 1) until the end of the file",
    TAKES_NO_MEMORY,
    |spec, observer| run(FileSearch::Read, spec, observer),
)];

static BUFFERED: [Variant; 1] = [Variant::ours(
    "buffered",
    "a BufReader of 4 KiB, read one byte at a time",
    "a buffer of 4 KiB for each search, from the C library's malloc",
    |spec, observer| run(FileSearch::Buffered, spec, observer),
)];

static MAPPED: [Variant; 1] = [Variant::ours(
    "mapped",
    "mmap of the whole file",
    "unmapped after each search",
    |spec, observer| run(FileSearch::Mapped, spec, observer),
)];

impl FileSearch {
    pub(crate) fn variants(self) -> &'static [Variant] {
        match self {
            Self::Read => &READ,
            Self::Buffered => &BUFFERED,
            Self::Mapped => &MAPPED,
        }
    }

    /// The number of searches, about a second's work.
    fn searches(self, effort: Effort) -> u64 {
        let full = match self {
            Self::Read => 24,
            Self::Buffered => 2_400,
            Self::Mapped => 16_000,
        };
        match effort {
            Effort::Full => full,
            Effort::Quick => full / 6,
            Effort::Counted => 1,
        }
    }

    /// Counts the letters.
    fn search(self, path: &Path) -> io::Result<u64> {
        match self {
            Self::Read => one_by_one(path),
            Self::Buffered => buffered(path),
            Self::Mapped => mapped::count(&mut File::open(path)?, WANTED),
        }
    }
}

fn run(
    program: FileSearch,
    spec: &RunSpec,
    observer: &dyn Observer,
) -> Result<Measurement, RunError> {
    let list = WordList::create().map_err(|error| RunError::file(&error))?;
    let searches = program.searches(spec.effort);
    let walls = thread_group::run(
        1,
        observer,
        |_| (),
        |worker, ()| {
            let mut searched = Ok(());
            let wall = worker.measured(|| {
                searched = (0..searches).try_for_each(|_| {
                    let found = program.search(black_box(list.path()))?;
                    assert!(found == list.letters, "the letters are not those of the file");
                    Ok(())
                });
            });
            searched.map(|()| wall)
        },
    );
    let wall = walls
        .into_iter()
        .sum::<io::Result<_>>()
        .map_err(|error: io::Error| RunError::file(&error))?;
    Ok(Measurement::timed(searches * BYTES as u64, wall))
}

/// Program 1.
fn one_by_one(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut byte = [0];
    let mut count = 0;
    loop {
        match file.read(&mut byte) {
            Ok(0) => return Ok(count),
            Ok(_) => count += u64::from(byte[0] == WANTED),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Program 2.
fn buffered(path: &Path) -> io::Result<u64> {
    let mut count = 0;
    for byte in BufReader::with_capacity(BUFFER, File::open(path)?).bytes() {
        count += u64::from(byte? == WANTED);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_count_the_same_letters() {
        let list = WordList::create().unwrap();
        let text = std::fs::read(list.path()).unwrap();
        assert_eq!(text.len(), BYTES);
        let letters = text.iter().filter(|byte| **byte == b'A').count() as u64;
        assert!(letters > 100);
        for program in [FileSearch::Read, FileSearch::Buffered, FileSearch::Mapped] {
            assert_eq!(program.search(list.path()).unwrap(), letters, "{program:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_and_one_without_bytes_are_no_trouble() {
        let folder = std::env::temp_dir();
        for program in [FileSearch::Read, FileSearch::Buffered, FileSearch::Mapped] {
            let missing = program.search(Path::new("/no/such/file")).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
            assert!(program.search(&folder).is_err(), "a directory can't be read");
            assert_eq!(program.search(Path::new("/dev/null")).unwrap(), 0, "{program:?}");
        }
    }
}
