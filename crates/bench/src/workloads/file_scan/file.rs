//! The file to search: a word list. Nothing of it is left when the process ends, also if it is
//! killed.

use crate::workloads::random::Random;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Its size in bytes. With this size, the first program makes the 408,889 system calls of the
/// paper: one for each byte, one to open the file, one that finds its end, and one to close it.
pub const BYTES: usize = 408_886;

/// The file, whose name is removed, and a path by which this process can open it.
#[derive(Debug)]
pub struct WordList {
    path: PathBuf,
    /// The number of letters 'A' in it.
    pub letters: u64,
    /// The file exists while this is open.
    _file: File,
}

impl WordList {
    /// Writes it, in the directory for temporary files.
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

    /// The path by which this process opens it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// One word on each line. One word in eight begins with a capital letter.
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
