//! Recordings that no recorder makes: each ends in findings or in an error, soon, and in little
//! memory.

use serde::de::IgnoredAny;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trace_format::container::{
    ChunkEvents, ProcessEnd, ProcessHeader, RecordingEnd, RecordingWriter,
};
use trace_format::raw::{
    AllocationFlags, AllocationFunction, CHUNK_CAPACITY, Encoder, LockKind, LockWait,
    MAX_MODULE_SIZE, RawModule,
};

/// Address space that a command may take. Its threads and their stacks are in it.
const MEMORY: u64 = 6 << 30;
/// Seconds of CPU time.
const CPU_SECONDS: u64 = 120;

/// Whether a test that takes ten seconds or more is left out, and says so: it runs if
/// `ALLOTMENT_LONG_TESTS` is set.
fn too_long(what: &str) -> bool {
    let left_out = std::env::var_os("ALLOTMENT_LONG_TESTS").is_none();
    if left_out {
        // Not by `eprintln!`, which the harness shows for failing tests alone.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: ALLOTMENT_LONG_TESTS is not set");
    }
    left_out
}

/// A thread's events on their way into chunks.
struct Stream {
    buffer: Vec<u8>,
    encoder: Encoder,
    begun: u64,
    chunks: Vec<(u64, Vec<u8>)>,
}

impl Stream {
    fn new(tick: u64, thread: u32) -> Self {
        let mut stream = Self {
            buffer: Vec::new(),
            encoder: Encoder::closed(),
            begun: tick,
            chunks: Vec::new(),
        };
        stream.open(tick);
        // SAFETY: there is room.
        unsafe { stream.encoder.thread(tick, thread, thread) };
        stream
    }

    fn open(&mut self, tick: u64) {
        self.buffer = vec![0; CHUNK_CAPACITY];
        self.begun = tick;
        // SAFETY: the buffer is zero, ours, and lives until the chunk is closed.
        unsafe { self.encoder.open(self.buffer.as_mut_ptr(), CHUNK_CAPACITY, tick) };
    }

    fn close(&mut self) {
        let used = CHUNK_CAPACITY - self.encoder.bytes_left();
        self.buffer.truncate(used);
        self.chunks.push((self.begun, std::mem::take(&mut self.buffer)));
    }

    /// The encoder, with room for any event.
    fn at(&mut self, tick: u64) -> &mut Encoder {
        if self.encoder.bytes_left() < MAX_MODULE_SIZE {
            self.close();
            self.open(tick);
        }
        &mut self.encoder
    }

    fn kind(&mut self, tick: u64, node: u32, size: u64) {
        // SAFETY: there is room.
        unsafe { self.at(tick).kind(node, size, AllocationFlags::new(AllocationFunction::Malloc)) };
    }

    fn allocated(&mut self, tick: u64, address: u64, kind: u32) {
        // SAFETY: there is room.
        unsafe { self.at(tick).allocated(tick, address, kind) };
    }

    fn freed(&mut self, tick: u64, address: u64) {
        // SAFETY: there is room.
        unsafe { self.at(tick).freed(tick, address) };
    }

    fn finish(mut self) -> Vec<(u64, Vec<u8>)> {
        self.close();
        self.chunks
    }
}

fn header() -> ProcessHeader {
    ProcessHeader {
        pid: 42,
        parent: 1,
        image: 0,
        forked: false,
        executable: "/no/such/program".to_owned(),
        command: vec!["</script>\u{2028}\u{1b}[31m\u{202e}".to_owned(), String::new()],
        start_ns: 17,
        start_tick: 0,
        ns_of_tick: 5 << 32,
    }
}

/// Writes a recording of one process.
fn write(
    path: &Path,
    header: &ProcessHeader,
    streams: impl IntoIterator<Item = Vec<(u64, Vec<u8>)>>,
    end: &RecordingEnd,
) {
    let file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut writer = RecordingWriter::new(file).unwrap();
    let process = writer.process(header).unwrap();
    for (stream, chunks) in (0..).zip(streams) {
        for (sequence, (tick, events)) in (0..).zip(&chunks) {
            writer.chunk(ChunkEvents { process, stream, sequence, tick: *tick, events }).unwrap();
        }
    }
    let ns_of_tick = header.ns_of_tick;
    writer.end_process(process, &ProcessEnd { ns_of_tick, ..Default::default() }).unwrap();
    writer.finish(end).unwrap().into_inner().unwrap();
}

fn limited(arguments: &[&str], path: &Path, directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(arguments).arg(path).current_dir(directory);
    command.stdin(Stdio::null()).env("TMPDIR", directory);
    // SAFETY: nothing but two calls of the kernel.
    unsafe {
        command.pre_exec(|| {
            for (what, most) in [(libc::RLIMIT_AS, MEMORY), (libc::RLIMIT_CPU, CPU_SECONDS)] {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
                if libc::setrlimit(what, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.output().unwrap()
}

/// What each command makes of it, which has to be told in a word or two if it's nothing.
fn all_commands(name: &str, make: impl FnOnce(&Path)) {
    commands(name, &COMMANDS, make);
}

const COMMANDS: [&[&str]; 7] = [
    &["advise", "--json", "--rounds", "1", "--report", "page.html", "--recording"],
    &["analyse", "--check"],
    &["analyse", "--json"],
    &["analyse"],
    &["replay", "--json", "--rounds", "1"],
    &["replay", "--rounds", "1", "--check"],
    &["advise", "--no-report", "--rounds", "1", "--recording"],
];
/// For what takes long: they do all that the others do.
const TWO: &[&[&str]] = COMMANDS.split_at(2).0;

fn commands(name: &str, commands: &[&[&str]], make: impl FnOnce(&Path)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording");
    make(&path);
    for &arguments in commands {
        let output = limited(arguments, &path, directory.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        let case = format!("{name}, {arguments:?}: {}, {errors}", output.status);
        assert_eq!(output.status.signal(), None, "{case}");
        assert!(matches!(output.status.code(), Some(0 | 1)), "{case}");
        assert!(!errors.contains("panicked"), "{case}");
        assert!(errors.lines().count() <= 3, "{case}");
        if arguments.contains(&"--json") {
            match output.status.code() {
                Some(0) => drop(serde_json::from_slice::<IgnoredAny>(&output.stdout).expect(&case)),
                _ => assert!(output.stdout.is_empty(), "{case}"),
            }
        } else {
            assert!(!output.stdout.contains(&0x1b), "{case}");
        }
        eprintln!("{case}");
    }
}

fn one(path: &Path, write_events: impl FnOnce(&mut Stream)) {
    let mut stream = Stream::new(0, 0);
    write_events(&mut stream);
    write(path, &header(), [stream.finish()], &RecordingEnd::default());
}

#[test]
fn nothing_at_all() {
    all_commands("no process", |path| {
        let file = std::fs::File::create(path).unwrap();
        RecordingWriter::new(file).unwrap().finish(&RecordingEnd::default()).unwrap();
    });
    all_commands("no thread", |path| write(path, &header(), [], &RecordingEnd::default()));
    all_commands("no event", |path| one(path, |_| {}));
    all_commands("no name", |path| {
        let header = ProcessHeader { command: Vec::new(), executable: String::new(), ..header() };
        write(path, &header, [], &RecordingEnd::default());
    });
}

#[test]
fn the_largest_sizes() {
    if too_long("a recording of the largest sizes") {
        return;
    }
    all_commands("sizes", |path| {
        one(path, |stream| {
            for (kind, size) in (0..).zip([1 << 60, u64::MAX, 1 << 63, 0]) {
                stream.kind(0, 0, size);
                for i in 0..5_000 {
                    let tick = u64::from(kind) * 100_000 + i * 2;
                    stream.allocated(tick, (u64::from(kind) * 10_000 + i) << 40, kind);
                    if i % 3 == 0 {
                        stream.freed(tick + 1, (u64::from(kind) * 10_000 + i) << 40);
                    }
                }
            }
        });
    });
}

#[test]
fn the_latest_times() {
    for ns_of_tick in [0, 1 << 56, u64::MAX] {
        all_commands("times", |path| {
            let mut stream = Stream::new(0, 0);
            stream.kind(0, 0, 100);
            let mut tick = 0_u64;
            for i in 0..2_000_u64 {
                tick = tick.saturating_add(1 << (i / 32).min(62));
                stream.allocated(tick, i * 256, 0);
                // SAFETY: there is room.
                unsafe {
                    let wait =
                        LockWait { node: 0, address: i, lock: LockKind::Write, ticks: u64::MAX };
                    stream.at(tick).waited(tick, wait);
                }
                stream.freed(tick, i * 256);
            }
            let header = ProcessHeader { ns_of_tick, start_tick: 7, ..header() };
            write(path, &header, [stream.finish()], &RecordingEnd::default());
        });
    }
}

#[test]
fn the_largest_numbers_of_threads() {
    all_commands("numbers", |path| {
        let streams = (0..4).map(|i| {
            let mut stream = Stream::new(0, u32::MAX - i);
            stream.kind(0, 0, 100);
            for j in 0..100 {
                stream.allocated(j, (u64::from(i) * 1000 + j) << 8, 0);
                stream.freed(j, (u64::from(i) * 1000 + 99 - j) << 8);
            }
            stream.finish()
        });
        write(path, &header(), streams, &RecordingEnd::default());
    });
}

#[test]
fn a_hundred_thousand_threads() {
    if too_long("a recording of a hundred thousand threads") {
        return;
    }
    commands("threads", TWO, |path| {
        let streams = (0..100_000).map(|i| {
            let mut stream = Stream::new(u64::from(i) * 10, i);
            stream.kind(0, 0, 100);
            stream.allocated(u64::from(i) * 10 + 5, u64::from(i) << 8, 0);
            if i > 0 {
                stream.freed(u64::from(i) * 10 + 6, u64::from(i - 1) << 8);
            }
            stream.finish()
        });
        write(path, &header(), streams, &RecordingEnd::default());
    });
}

#[test]
fn stacks_as_deep_as_they_may_be() {
    for depth in [1_000_u32, 10_000] {
        all_commands("deep", |path| {
            one(path, |stream| {
                for node in 0..depth {
                    let parent = if node == 0 { 0 } else { node + 1 };
                    // SAFETY: there is room.
                    unsafe { stream.at(0).node(parent, 0x1000 + u64::from(node)) };
                    stream.kind(0, node + 2, 64);
                }
                for i in 0..20_000_u32 {
                    let tick = u64::from(i);
                    stream.allocated(tick, u64::from(i) << 8, i % depth);
                }
            });
        });
    }
}

#[test]
fn ten_thousand_sites() {
    commands("sites", TWO, |path| {
        one(path, |stream| {
            for site in 0..10_000_u32 {
                // SAFETY: there is room.
                unsafe { stream.at(0).node(0, 0x1000 + u64::from(site) * 64) };
                stream.kind(0, site + 2, u64::from(site));
            }
            for i in 0..100_000_u32 {
                stream.allocated(u64::from(i) * 2, u64::from(i) << 16, i % 10_000);
                if i >= 500 {
                    stream.freed(u64::from(i) * 2 + 1, u64::from(i - 500) << 16);
                }
            }
        });
    });
}

#[test]
fn modules_with_hostile_names() {
    all_commands("modules", |path| {
        one(path, |stream| {
            let names: [&[u8]; 5] =
                [b"/proc/self/mem", b"/dev/zero", b"\xff</script>\0\x1b[2J", b"", b"/../../etc"];
            for (i, path) in (0..).zip(names) {
                let start = i * 0x1000;
                let module = RawModule {
                    bias: u64::MAX,
                    start,
                    end: start + 0x1000,
                    build_id: &[7; 64],
                    path,
                };
                // SAFETY: there is room.
                unsafe {
                    stream.at(0).module(0, &module);
                    stream.at(0).node(0, start + 0x10);
                }
                stream.kind(0, i as u32 + 2, 64);
            }
            for i in 0..1_000_u32 {
                stream.allocated(u64::from(i), u64::from(i) << 8, i % 5);
            }
        });
    });
}

#[test]
fn blocks_that_come_twice_and_go_twice() {
    all_commands("twice", |path| {
        one(path, |stream| {
            stream.kind(0, 0, 64);
            for i in 0..10_000_u64 {
                stream.allocated(i * 4, (i % 7) << 3, 0);
                if i % 3 == 0 {
                    stream.freed(i * 4 + 1, (i % 5) << 3);
                    stream.freed(i * 4 + 2, (i % 5) << 3);
                    // SAFETY: there is room.
                    unsafe { stream.at(0).freed_by_realloc(i * 4 + 3, (i % 11) << 3) };
                }
            }
        });
    });
}

#[test]
fn counts_of_the_kernel_that_can_t_be() {
    for most in ["18446744073709551615", "72057594037927936"] {
        counts_are(most);
    }
}

fn counts_are(most: &str) {
    all_commands("end", |path| {
        let mut stream = Stream::new(0, 0);
        stream.kind(0, 0, 64);
        (0..1_000).for_each(|i| stream.allocated(i, i << 8, 0));
        let text = r#"{"outcome":{"signal":-2147483648},"usage":{"user_ns":M,"system_ns":M,"wall_ns":M,"peak_resident":M,
            "minor_faults":M,"major_faults":M,"voluntary_switches":M,"involuntary_switches":M,"read_calls":M,"read_bytes":M,
            "write_calls":M,"written_bytes":M},"system_calls":[{"name":"read","calls":M,"failed":M,"ns":M,"bytes":M,"small":M,"small_bytes":M},
            {"name":"read","calls":M,"failed":M,"ns":M,"bytes":M,"small":M,"small_bytes":0},{"name":"futex (wait)","calls":M,"failed":M,"ns":M},
            {"name":"mmap (anonymous)","calls":M,"failed":0,"ns":M},{"name":"</script>","calls":M,"failed":0,"ns":M}],
            "small_transfers":[{"process":1,"descriptor":0,"name":"</script>\u0000","waits":false,"writes":false,"calls":M,"bytes":M}],
            "page_faults":M,"costs":{"call":M,"read":-1,"write":M,"map":1e-300,"fault":M,"wait":M,"counting":M}}"#;
        let end = serde_json::from_str(&text.replace('M', most)).unwrap();
        write(path, &header(), [stream.finish()], &end);
    });
}

/// A whole recording, of which bytes are changed and pieces cut off.
fn small() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("recording");
    one(&path, |stream| {
        stream.kind(0, 0, 64);
        (0..50).for_each(|i| stream.allocated(i, i << 8, 0));
    });
    std::fs::read(path).unwrap()
}

#[test]
fn a_recording_that_is_cut_off_or_changed_ends_no_command_badly() {
    let whole = small();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording");
    let cut = (0..whole.len()).step_by(67).map(|at| whole[..at].to_vec());
    let changed = (0..whole.len()).step_by(61).map(|at| {
        let mut other = whole.clone();
        other[at] ^= 0x41;
        other
    });
    for bytes in cut.chain(changed) {
        std::fs::write(&path, &bytes).unwrap();
        let output = limited(&["analyse", "--json"], &path, directory.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => drop(serde_json::from_slice::<IgnoredAny>(&output.stdout).unwrap()),
            Some(1) => {
                assert!(output.stdout.is_empty());
                assert_eq!(errors.lines().count(), 1, "{errors}");
                assert!(errors.starts_with("allot: "), "{errors}");
            }
            other => panic!("{other:?}: {errors}"),
        }
    }
}
