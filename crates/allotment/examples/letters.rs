//! Three programs count the letter 'A' in a file: with one system call for each byte, through a
//! buffer, and in the mapped file.
//!
//! ```sh
//! cargo run --release -p allotment --example letters            # the machine's word list, or a generated one
//! cargo run --release -p allotment --example letters -- FILE
//! ```

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const WANTED: u8 = b'A';

/// The buffer size: a block of most file systems, as in many C libraries.
const BUFFER: usize = 4096;

/// The largest part of a file that is searched. With more, the first program would take minutes.
const MOST: u64 = 4 << 20;

const WORD_LIST: &str = "/usr/share/dict/words";

const USAGE: &str = "usage: letters [FILE]\n\n\
    Counts the 'A's in the first 4 MiB of FILE in three ways. Without FILE: in /usr/share/dict/words,\n\
    or where that is missing in a list of words that it makes and removes.";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let done = match &arguments[..] {
        [] if Path::new(WORD_LIST).is_file() => count(Path::new(WORD_LIST)),
        [] => Generated::new().and_then(|list| count(&list.0)),
        [help] if help == "--help" || help == "-h" => writeln!(io::stdout(), "{USAGE}"),
        [file] => count(Path::new(file)),
        _ => {
            eprintln!("letters: one file, or none\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it; that is no error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("letters: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts in all three ways and prints the cost of each.
fn count(path: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("'{}': {error}", path.display()));
    let about = path.metadata().map_err(named)?;
    if !about.is_file() {
        return Err(named(io::Error::other("not a regular file, which alone can be mapped")));
    }
    let length = about.len().min(MOST);
    let mut out = io::stdout().lock();
    if length < about.len() {
        writeln!(out, "the first {length} bytes of {}", path.display())?;
    } else {
        writeln!(out, "{}, {length} bytes", path.display())?;
    }
    writeln!(out, "{:<20}{:>10}{:>16}{:>14}", "", "'A's", "calls of read", "time")?;
    let programs: [(&str, Program); 3] =
        [("one read a byte", one_by_one), ("buffered", buffered), ("mapped", mapped)];
    let mut times = Vec::new();
    for (name, program) in programs {
        let found = run(program, path, length).map_err(named)?;
        let calls = found.calls.map_or_else(|| "-".to_owned(), |calls| calls.to_string());
        writeln!(out, "{name:<20}{:>10}{calls:>16}{:>14}", found.letters, micros(found.time))?;
        times.push(found.time.as_secs_f64());
    }
    writeln!(
        out,
        "buffered: {:.0} times as fast as one read a byte; mapped: {:.0} times, and {:.1} times as fast as buffered",
        times[0] / times[1],
        times[0] / times[2],
        times[1] / times[2]
    )
}

type Program = fn(&Path, u64) -> io::Result<u64>;

struct Found {
    letters: u64,
    time: Duration,
    /// Calls of `read`, as counted by the kernel, if it counts them.
    calls: Option<u64>,
}

fn run(program: Program, path: &Path, length: u64) -> io::Result<Found> {
    // Reading the counter makes some calls itself. Measure them first.
    let first = calls_of_read();
    let before = calls_of_read();
    let began = Instant::now();
    let letters = program(path, length)?;
    let time = began.elapsed();
    let calls = calls_of_read()
        .zip(before)
        .zip(first)
        .map(|((after, before), first)| (after - before).saturating_sub(before - first));
    Ok(Found { letters, time, calls })
}

/// Program 1.
fn one_by_one(path: &Path, length: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let (mut letters, mut byte) = (0, [0]);
    for _ in 0..length {
        if file.read(&mut byte)? == 0 {
            break;
        }
        letters += u64::from(byte[0] == WANTED);
    }
    Ok(letters)
}

/// Program 2.
fn buffered(path: &Path, length: u64) -> io::Result<u64> {
    let file = BufReader::with_capacity(BUFFER, File::open(path)?);
    file.take(length).bytes().try_fold(0, |letters, byte| Ok(letters + u64::from(byte? == WANTED)))
}

/// Program 3.
fn mapped(path: &Path, length: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    // The file may have become shorter. Bytes behind its end can't be read.
    let length = length.min(file.metadata()?.len()) as usize;
    if length == 0 {
        return Ok(0); // nothing can't be mapped
    }
    // SAFETY: the system chooses an address where nothing is mapped.
    let first = unsafe {
        mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)?
    };
    // SAFETY: just mapped and readable; unmapped only below. If another program shortens the file
    // now, SIGBUS ends this program.
    let bytes = unsafe { std::slice::from_raw_parts(first.cast::<u8>(), length) };
    let letters = bytes.iter().filter(|byte| **byte == WANTED).count() as u64;
    // SAFETY: mapped above; `bytes` is not used any more.
    unsafe { munmap(first, length)? };
    Ok(letters)
}

fn calls_of_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: "))?.trim().parse().ok()
}

fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

/// A list of words in a file that is removed at the end.
struct Generated(PathBuf);

impl Generated {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("allotment-letters-{}", std::process::id()));
        let mut file = File::create_new(&path)?;
        let list = Self(path);
        let (mut text, mut state) = (Vec::new(), 0x0A11_07E7_u32);
        while text.len() < 408_886 {
            // A linear congruential generator. Its high bits are random enough for letters.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.push(match state >> 24 {
                0..=31 => b'\n',
                bits @ 32..=47 => b'A' + (bits as u8 - 32),
                bits => b'a' + (bits % 26) as u8,
            });
        }
        file.write_all(&text)?;
        Ok(list)
    }
}

impl Drop for Generated {
    fn drop(&mut self) {
        // The file lies among temporary files, where a remaining one does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}
