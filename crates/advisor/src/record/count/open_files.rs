//! Which files a program's small transfers read and write. The kernel counts them by descriptor;
//! the names of the descriptors are looked up while the program runs.

use super::bpf::BpfMap;
use super::bpf_programs::{FILE_WORDS, WRITTEN};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use trace_format::container::SmallTransfers;

/// The most files that are listed separately.
const MOST_LISTED: usize = 20;
/// How often the name of a descriptor is looked up again: it may refer to another file later.
const MOST_LOOKUPS: u32 = 1000;

/// The file that a descriptor refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OpenFile {
    name: Option<String>,
    waits: bool,
}

/// The counts of a descriptor.
#[derive(Debug, Default)]
struct FileCounts {
    words: [u64; FILE_WORDS],
    lookups: u32,
    last: Option<OpenFile>,
}

/// The open files of the counted processes.
#[derive(Debug)]
pub struct OpenFiles {
    map: BpfMap<u64, FILE_WORDS>,
    counted: HashMap<u64, FileCounts>,
    transfers: HashMap<(u64, OpenFile), [u64; FILE_WORDS]>,
}

impl OpenFiles {
    pub fn new(map: BpfMap<u64, FILE_WORDS>) -> Self {
        Self { map, counted: HashMap::new(), transfers: HashMap::new() }
    }

    /// Looks up the names of the descriptors that were used since the last call.
    pub fn update_names(&mut self) {
        self.add_new_counts(true);
    }

    /// The files, the most frequent first.
    pub fn end(&mut self) -> Vec<SmallTransfers> {
        self.add_new_counts(false);
        let mut all: Vec<SmallTransfers> = self
            .transfers
            .iter()
            .map(|((key, file), &[calls, bytes, consecutive])| SmallTransfers {
                process: process(*key),
                descriptor: descriptor(*key),
                name: file.name.clone(),
                waits: file.waits,
                writes: key & WRITTEN != 0,
                calls,
                bytes,
                consecutive,
            })
            .collect();
        all.sort_by(|a, b| {
            b.calls
                .cmp(&a.calls)
                .then_with(|| (a.process, a.descriptor).cmp(&(b.process, b.descriptor)))
        });
        let rest = all.split_off(all.len().min(MOST_LISTED));
        // The rest is summed by whether the file waits, and by direction: the remedy depends on
        // these.
        for (waits, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let same = rest.iter().filter(|rest| (rest.waits, rest.writes) == (waits, writes));
            let sum = same.fold(SmallTransfers::default(), |sum, rest| SmallTransfers {
                calls: sum.calls + rest.calls,
                bytes: sum.bytes + rest.bytes,
                consecutive: sum.consecutive + rest.consecutive,
                ..sum
            });
            if sum.calls > 0 {
                let name = Some("other files".to_owned());
                all.push(SmallTransfers { name, waits, writes, ..sum });
            }
        }
        all
    }

    fn add_new_counts(&mut self, update_names: bool) {
        for (key, words) in self.map.entries() {
            let counted = self.counted.entry(key).or_default();
            if words == counted.words {
                continue;
            }
            if update_names && counted.lookups < MOST_LOOKUPS {
                counted.lookups += 1;
                counted.last = look_up(key).or(counted.last.take());
            }
            // If the lookup fails, the last known file counts. An unknown file counts as one that
            // waits.
            let unknown = OpenFile { name: None, waits: true };
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

fn look_up(key: u64) -> Option<OpenFile> {
    let path = format!("/proc/{}/fd/{}", process(key), descriptor(key));
    let name = fs::read_link(&path).ok()?.to_string_lossy().into_owned();
    let kind = fs::metadata(&path).ok()?.file_type();
    let terminal = ["/dev/tty", "/dev/pts", "/dev/console"].iter().any(|&of| name.starts_with(of));
    let waits = !kind.is_file() && !kind.is_block_device() && (!kind.is_char_device() || terminal);
    Some(OpenFile { name: Some(name), waits })
}
