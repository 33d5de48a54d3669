//! The file that is searched: a word list of which nothing is left when the process ends, however that ends.

use crate::random::Random;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Its size: with so many bytes the first program makes the 408,889 calls of the paper, one of them to open the file,
/// one to see its end, and one to close it.
pub const BYTES: usize = 408_886;

/// The file, which has no name any more, and a path by which this process can open it.
#[derive(Debug)]
pub struct WordList {
    path: PathBuf,
    /// The 'A's in it.
    pub letters: u64,
    /// It is there while this is open.
    _file: File,
}

impl WordList {
    /// Writes it, in the folder for temporary files.
    pub fn create() -> io::Result<Self> {
        let named = std::env::temp_dir().join(format!(
            "allot-letters-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = File::options().read(true).write(true).create_new(true).open(&named)?;
        let removed = fs::remove_file(&named);
        let text = words();
        file.write_all(&text)?;
        removed?;
        let letters = text.iter().filter(|byte| **byte == b'A').count() as u64;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { path, letters, _file: file })
    }

    /// Where this process finds it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A word a line; one in eight begins with a capital letter.
fn words() -> Vec<u8> {
    let mut random = Random::stream(0);
    let mut text = Vec::with_capacity(BYTES + 16);
    while text.len() < BYTES {
        let length = 3 + random.below(12);
        for place in 0..length {
            let first = if place == 0 && random.below(8) == 0 { b'A' } else { b'a' };
            text.push(first + random.below(26) as u8);
        }
        text.push(b'\n');
    }
    text.truncate(BYTES);
    text
}
