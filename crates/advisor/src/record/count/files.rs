//! Which files a program's small transfers are of: what the kernel counts by number is given a name while the program runs.

use super::kernel::Map;
use super::programs::{FILE_WORDS, WRITTEN};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use trace_format::container::SmallTransfers;

/// Files that are told.
const MOST_TOLD: usize = 20;
/// Times that the names of a file are looked up again: its number may be another file's later.
const MOST_LOOKS: u32 = 1000;

/// What is behind a number that a process has a file under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct File {
    name: Option<String>,
    waits: bool,
}

/// What was counted of a number.
#[derive(Debug, Default)]
struct Counted {
    words: [u64; FILE_WORDS],
    looks: u32,
    last: Option<File>,
}

/// The open files of the counted processes.
#[derive(Debug)]
pub struct Files {
    map: Map<u64, FILE_WORDS>,
    counted: HashMap<u64, Counted>,
    transfers: HashMap<(u64, File), [u64; FILE_WORDS]>,
}

impl Files {
    pub fn new(map: Map<u64, FILE_WORDS>) -> Self {
        Self { map, counted: HashMap::new(), transfers: HashMap::new() }
    }

    /// Looks what the files are that something was transferred from or to since the last time.
    pub fn look(&mut self) {
        self.take(true);
    }

    /// The files, the most frequent first.
    pub fn end(&mut self) -> Vec<SmallTransfers> {
        self.take(false);
        let mut all: Vec<SmallTransfers> = self
            .transfers
            .iter()
            .map(|((key, file), &[calls, bytes])| SmallTransfers {
                process: process(*key),
                descriptor: descriptor(*key),
                name: file.name.clone(),
                waits: file.waits,
                writes: key & WRITTEN != 0,
                calls,
                bytes,
            })
            .collect();
        all.sort_by(|a, b| {
            b.calls
                .cmp(&a.calls)
                .then_with(|| (a.process, a.descriptor).cmp(&(b.process, b.descriptor)))
        });
        let rest = all.split_off(all.len().min(MOST_TOLD));
        // What is not told one by one is told together, by what one may do about it.
        for (waits, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let same = rest.iter().filter(|rest| (rest.waits, rest.writes) == (waits, writes));
            let sum = same.fold(SmallTransfers::default(), |sum, rest| SmallTransfers {
                calls: sum.calls + rest.calls,
                bytes: sum.bytes + rest.bytes,
                ..sum
            });
            if sum.calls > 0 {
                let name = Some("other files".to_owned());
                all.push(SmallTransfers { name, waits, writes, ..sum });
            }
        }
        all
    }

    fn take(&mut self, look: bool) {
        for (key, words) in self.map.entries() {
            let counted = self.counted.entry(key).or_default();
            if words == counted.words {
                continue;
            }
            if look && counted.looks < MOST_LOOKS {
                counted.looks += 1;
                counted.last = find(key).or(counted.last.take());
            }
            // Where nobody could look any more, it is taken for what it was; what was never seen may be anything.
            let unknown = File { name: None, waits: true };
            let file = counted.last.clone().unwrap_or(unknown);
            let sums = self.transfers.entry((key, file)).or_default();
            for word in 0..FILE_WORDS {
                sums[word] += words[word] - counted.words[word];
            }
            counted.words = words;
        }
    }
}

fn process(key: u64) -> u32 {
    (key >> 32) as u32
}

fn descriptor(key: u64) -> u32 {
    (key & !WRITTEN) as u32
}

fn find(key: u64) -> Option<File> {
    let path = format!("/proc/{}/fd/{}", process(key), descriptor(key));
    let name = fs::read_link(&path).ok()?.to_string_lossy().into_owned();
    let kind = fs::metadata(&path).ok()?.file_type();
    let terminal = ["/dev/tty", "/dev/pts", "/dev/console"].iter().any(|&of| name.starts_with(of));
    let waits = !kind.is_file() && !kind.is_block_device() && (!kind.is_char_device() || terminal);
    Some(File { name: Some(name), waits })
}
