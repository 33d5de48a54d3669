//! Runs a program with the recorder, and packs its events meanwhile.
//!
//! Invariant: [`CHILD`] is 0 or the number of a child that has not been waited for.

use super::collector::{RawFileCollector, RecordingTotals};
use super::count::{CounterResult, SystemCallCounter, call_costs};
use super::inherited_state::InheritedState;
use bench::console::failure::Failure;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use procfs::FromRead;
use procfs::process::Io;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trace_format::TraceError;
use trace_format::container::{ProgramExit, RecordingEnd, ResourceUsage};

/// The recorder's library, which is loaded into the program.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.so"));

const LIBRARY_NAME: &str = "allot-recorder.so";

const NICE: i32 = 10;
/// How long the packer sleeps when there is nothing to do.
const IDLE_TIME: Duration = Duration::from_millis(20);

/// How the program ended, and what it used.
#[derive(Debug, serde::Serialize)]
pub struct ProgramEnd {
    pub outcome: ProgramExit,
    pub usage: ResourceUsage,
    /// Why its system calls were not counted, and where the remaining figures come from.
    pub not_counted: Option<String>,
    /// A signal to this process, such as Ctrl-C at the terminal, went to the program as well.
    #[serde(skip)]
    pub was_interrupted: bool,
}

impl ProgramEnd {
    /// The exit code to pass on.
    pub fn exit_code(&self) -> u8 {
        match self.outcome {
            ProgramExit::Code(code) => code as u8,
            ProgramExit::Signal(signal) => 128_u8.wrapping_add(signal as u8),
        }
    }
}

/// The directory of the raw files, deleted when dropped.
struct RawDirectory(PathBuf);

impl RawDirectory {
    fn beside(file: &Path) -> io::Result<Self> {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
        let mut name = OsString::from(".");
        name.push(file.file_name().unwrap_or(OsStr::new("recording")));
        name.push(format!(".{}", std::process::id()));
        let path = parent.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for RawDirectory {
    fn drop(&mut self) {
        // An error leaves the directory behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `LD_PRELOAD` has no way to escape its separators in a path.
const UNLOADABLE: &str = "the path has a space, a colon or a dollar sign, which the dynamic loader can't read, and TMPDIR, /tmp and /var/tmp have one too or can't be written to; record to another path";

/// A directory whose path the loader can read.
#[derive(Debug)]
enum LibraryDirectory {
    Beside(PathBuf),
    Temporary(tempfile::TempDir),
}

impl LibraryDirectory {
    fn beside(directory: &Path) -> Option<Self> {
        if is_loadable(directory) {
            return Some(Self::Beside(directory.to_owned()));
        }
        [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
            .iter()
            .filter(|library_directory| is_loadable(library_directory))
            .find_map(|library_directory| {
                tempfile::Builder::new().prefix("allot-").tempdir_in(library_directory).ok()
            })
            .map(Self::Temporary)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Beside(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

static CHILD: AtomicI32 = AtomicI32::new(0);
/// Whether one of the signals of [`pass_signals_on`] came.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The handler of SIGTERM and SIGHUP: passes the signal on to the program.
extern "C" fn pass_on(signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: it may be called in a handler, and the child has not been waited for.
        unsafe { libc::kill(child, signal) };
    }
}

/// The handler of SIGINT and SIGQUIT, which the terminal sends to the program too.
extern "C" fn take_note(_: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn pass_signals_on() -> nix::Result<()> {
    let handlers: [(Signal, extern "C" fn(i32)); 4] = [
        (Signal::SIGINT, take_note),
        (Signal::SIGQUIT, take_note),
        (Signal::SIGTERM, pass_on),
        (Signal::SIGHUP, pass_on),
    ];
    for (signal, handler) in handlers {
        let action =
            SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handlers do nothing but what is allowed in one.
        unsafe { sigaction(signal, &action)? };
    }
    Ok(())
}

/// Where the program's standard output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOutput {
    /// To the standard output of this process.
    Shared,
    /// To the standard error of this process, whose standard output then has only its own output.
    ToErrors,
}

impl ProgramOutput {
    fn of_child(self) -> Result<Stdio, Failure> {
        match self {
            Self::Shared => Ok(Stdio::inherit()),
            Self::ToErrors => {
                let errors = io::stderr().as_fd().try_clone_to_owned();
                errors.map(Stdio::from).map_err(|error| {
                    Failure::Failed(format!("can't give standard error to the program: {error}"))
                })
            }
        }
    }
}

/// Writes the recorder's library to a temporary directory, from which it can be loaded. The directory
/// is deleted when dropped.
pub fn temporary_library() -> io::Result<(tempfile::TempDir, PathBuf)> {
    if LIBRARY.is_empty() {
        return Err(io::Error::other("this allot has no recorder"));
    }
    let directory = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
        .iter()
        .filter(|directory| is_loadable(directory))
        .find_map(|directory| tempfile::Builder::new().prefix("allot-").tempdir_in(directory).ok())
        .ok_or_else(|| io::Error::other(UNLOADABLE))?;
    let library = directory.path().join(LIBRARY_NAME);
    fs::write(&library, LIBRARY)?;
    Ok((directory, library))
}

/// Whether the dynamic loader can read a directory's path.
fn is_loadable(path: &Path) -> bool {
    let special = |byte| b" :$".contains(byte);
    path.is_absolute() && !path.as_os_str().as_bytes().iter().any(special)
}

/// Records a program into a file. Returns how it ended, what was recorded, and the file's size.
/// `remedy` says what to do if there is no space for the file.
pub fn record(
    output: &Path,
    program: &Path,
    command: &[OsString],
    standard_output: ProgramOutput,
    remedy: &str,
) -> Result<(ProgramEnd, RecordingTotals, u64), Failure> {
    let cannot = |what: &str, error: &dyn std::fmt::Display| {
        Failure::Failed(format!("can't {what} {}: {error}; {remedy}", output.display()))
    };
    if LIBRARY.is_empty() {
        return Err(Failure::Failed(
            "this allot has no recorder: programs can be recorded only on Linux on x86-64 and aarch64".to_owned(),
        ));
    }
    // The file comes last: if nothing can be recorded, an earlier recording of that name stays.
    let directory =
        RawDirectory::beside(output).map_err(|error| cannot("make a directory beside", &error))?;
    let library_directory = LibraryDirectory::beside(&directory.0)
        .ok_or_else(|| cannot("load the recorder from beside", &UNLOADABLE))?;
    let library = library_directory.path().join(LIBRARY_NAME);
    fs::write(&library, LIBRARY).map_err(|error| cannot("write beside", &error))?;
    let mut collector = File::create(output)
        .map_err(TraceError::from)
        .and_then(|file| RawFileCollector::new(&directory.0, file))
        .map_err(|error| cannot("write", &error))?;
    let inherited = match standard_output {
        ProgramOutput::Shared => InheritedState::get(),
        ProgramOutput::ToErrors => InheritedState::get().with_standard_output(),
    };
    pass_signals_on().map_err(|error| Failure::Failed(format!("can't handle signals: {error}")))?;
    let mut preload = library.into_os_string();
    // If `allot` is itself recorded, that recorder's library must not write to our directory as
    // well.
    let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    for other in others.as_bytes().split(|&byte| byte == b':' || byte == b' ') {
        if !other.is_empty() && !other.ends_with(LIBRARY_NAME.as_bytes()) {
            preload.push(":");
            preload.push(OsStr::from_bytes(other));
        }
    }
    let mut costs = call_costs::measure().ok();
    let mut counter = SystemCallCounter::begin();
    if let (Ok(counter), Some(costs)) = (&mut counter, &mut costs) {
        costs.counting = call_costs::counting(counter, costs.call).unwrap_or_default();
    }
    let mut prepared = Command::new(program);
    prepared
        .arg0(&command[0])
        .args(&command[1..])
        .env("LD_PRELOAD", preload)
        .env("ALLOT_RECORD_DIR", &directory.0)
        .stdout(standard_output.of_child()?);
    let entry = counter.as_ref().ok().map(SystemCallCounter::entry);
    // SAFETY: both do nothing but calls of the kernel.
    unsafe {
        prepared.pre_exec(move || {
            inherited.restore();
            if let Some(entry) = entry {
                entry.enter();
            }
            Ok(())
        });
    }
    let begun = Instant::now();
    let child = prepared
        .spawn()
        .map_err(|error| Failure::Failed(format!("can't run {}: {error}", program.display())))?;
    let pid = child.id() as i32;
    CHILD.store(pid, Ordering::Relaxed);
    // Once the program has ended, only root may open it.
    let io = File::open(format!("/proc/{pid}/io")).ok();
    collector.set_first_process(child.id());
    let mut anonymous = AnonymousMemory::of(pid);
    let (ended, collector) =
        while_packing(collector, counter.as_mut().ok(), &mut anonymous, || wait(pid, begun, io));
    let mut ended =
        ended.map_err(|error| Failure::Failed(format!("can't wait for the program: {error}")))?;
    ended.usage.peak_anonymous = anonymous.peak;
    let counted =
        counter.and_then(|mut counter| counter.counts().map_err(|error| error.to_string()));
    let why = counted.as_ref().err();
    ended.not_counted = why.map(|why| format!("{why}; {}", other_sources(&ended.usage)));
    let CounterResult { calls, small_transfers, page_faults } = counted.unwrap_or_default();
    let end = RecordingEnd {
        outcome: Some(ended.outcome),
        usage: ended.usage.clone(),
        system_calls: calls,
        not_counted: ended.not_counted.clone(),
        small_transfers,
        page_faults,
        costs,
    };
    let (totals, bytes) = collector
        .and_then(|collector| collector.finish(&end))
        .map_err(|error| cannot("write all of", &error))?;
    Ok((ended, totals, bytes))
}

/// Where the figures come from if system calls aren't counted.
fn other_sources(usage: &ResourceUsage) -> &'static str {
    if usage.read_calls.is_some() {
        "reads and writes are from /proc, page faults and context switches from getrusage"
    } else {
        "page faults and context switches are from getrusage"
    }
}

/// The resident memory of a process that belongs to no file: heaps, stacks and mapped buffers.
struct AnonymousMemory {
    file: PathBuf,
    /// The most bytes that were seen.
    peak: Option<u64>,
}

impl AnonymousMemory {
    fn of(pid: i32) -> Self {
        Self { file: PathBuf::from(format!("/proc/{pid}/statm")), peak: None }
    }

    /// Reads its size now. Does nothing once the process has ended.
    fn update(&mut self) {
        let Ok(text) = fs::read_to_string(&self.file) else { return };
        // Pages: all addresses, resident ones, resident ones of files.
        let mut words = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let (Some(resident), Some(of_files)) = (words.nth(1), words.next()) else { return };
        let bytes = resident.saturating_sub(of_files) * procfs::page_size();
        self.peak = self.peak.max(Some(bytes).filter(|&bytes| bytes > 0));
    }
}

/// Runs `other`; meanwhile packs events with a low priority, and looks up the names of counted
/// files and the size of the program's memory.
fn while_packing<T>(
    mut collector: RawFileCollector,
    mut counter: Option<&mut SystemCallCounter>,
    anonymous: &mut AnonymousMemory,
    other: impl FnOnce() -> T,
) -> (T, Result<RawFileCollector, TraceError>) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let packer = scope.spawn(|| {
            // SAFETY: it touches no memory; on Linux it's this thread's priority alone.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            while !done.load(Ordering::Acquire) {
                counter.iter_mut().for_each(|counter| counter.update_file_names());
                anonymous.update();
                if !collector.pack_full_chunks()? {
                    thread::park_timeout(IDLE_TIME);
                }
            }
            Ok(collector)
        });
        let result = other();
        done.store(true, Ordering::Release);
        packer.thread().unpark();
        let packed = packer.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread that packs events panicked").into())
        });
        (result, packed)
    })
}

/// Waits for the program's end, and reads the kernel's figures on it.
fn wait(pid: i32, begun: Instant, io: Option<File>) -> io::Result<ProgramEnd> {
    loop {
        // SAFETY: zero is a valid value, and the kernel writes to it.
        let waited = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid as u32, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if waited == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let wall_ns = begun.elapsed().as_nanos() as u64;
    let io = io.and_then(|io| Io::from_read(io).ok());
    CHILD.store(0, Ordering::Relaxed);
    let mut status = 0;
    // SAFETY: zero is a valid value, and the kernel writes to both.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(pid, &raw mut status, 0, &raw mut usage) != pid {
            return Err(io::Error::last_os_error());
        }
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let outcome = if libc::WIFSIGNALED(status) {
        ProgramExit::Signal(libc::WTERMSIG(status))
    } else {
        ProgramExit::Code(libc::WEXITSTATUS(status))
    };
    let usage = ResourceUsage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        wall_ns,
        peak_resident: usage.ru_maxrss as u64 * 1024,
        peak_anonymous: None,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
        read_calls: io.as_ref().map(|io| io.syscr),
        read_bytes: io.as_ref().map(|io| io.rchar),
        write_calls: io.as_ref().map(|io| io.syscw),
        written_bytes: io.as_ref().map(|io| io.wchar),
    };
    let was_interrupted = INTERRUPTED.load(Ordering::Relaxed);
    Ok(ProgramEnd { outcome, usage, not_counted: None, was_interrupted })
}
