//! Counts the system calls of a program while it is recorded.
//!
//! eBPF [programs](bpf_programs) run in the kernel at the beginning and the end of each call, and
//! when threads begin and end. The recorded program is not stopped, and its child processes are
//! counted with it. Where the kernel doesn't permit this, as a rule without root, there is a
//! [reason](SystemCallCounter::begin) in words, and only the figures of `/proc` and `getrusage`.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `bpf` | maps, programs and trace points of the kernel |
//! | `bpf_assembler` | an assembler for eBPF programs |
//! | `bpf_programs` | the eBPF programs that count |
//! | `open_files` | the names of files |
//! | `call_costs` | what a system call costs here |

mod bpf;
mod bpf_assembler;
mod bpf_programs;
pub mod call_costs;
mod open_files;

use bpf::{BpfMap, BpfMapKind, BpfProgram, TracePoints};
use bpf_programs::{BpfMaps, FAULTS, FUTEX_WAIT, KINDS, MMAP_ANONYMOUS, THREAD_WORDS, WORDS};
use open_files::OpenFiles;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use syscalls::Sysno;
use trace_format::container::{SmallTransfers, SystemCallCounts};

/// The most threads that are followed at once.
const MOST_THREADS: u32 = 1 << 15;
/// The most open files whose small transfers are counted separately.
const MOST_FILES: u32 = 1 << 12;
/// The lower half of the secret number; it is not an option of `prctl`.
const NO_OPTION: u64 = 0x616c_6c6f;

/// Counts the calls of threads.
#[derive(Debug)]
pub struct SystemCallCounter {
    kinds: BpfMap<u32, WORDS>,
    files: OpenFiles,
    secret: u64,
    processors: usize,
    /// The counts before the program began.
    before: Vec<[u64; WORDS]>,
    faults: bool,
    programs: Vec<(BpfProgram, OwnedFd)>,
}

/// The counts.
#[derive(Debug, Default)]
pub struct CounterResult {
    pub calls: Vec<SystemCallCounts>,
    pub small_transfers: Vec<SmallTransfers>,
    /// `None` if the kernel has no trace points for them.
    pub page_faults: Option<u64>,
}

/// The secret number of the call with which a thread enters itself to be counted.
#[derive(Debug, Clone, Copy)]
pub struct CountingEntry(u64);

impl CountingEntry {
    /// From here on, this thread and those that it starts are counted. It may be called between
    /// fork and exec.
    pub fn enter(self) {
        // SAFETY: there is no such option, so the kernel refuses it.
        unsafe { libc::syscall(libc::SYS_prctl, self.0, 0, 0, 0, 0) };
    }
}

impl SystemCallCounter {
    /// Begins to count. On failure, returns the reason as text for the user.
    pub fn begin() -> Result<Self, String> {
        Self::try_begin().map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "only root, or a process with the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN, may count them; record as root to have them counted".to_owned(),
            Some(libc::ENOSYS) => "the kernel or the container can't count them (no eBPF)".to_owned(),
            _ => format!("the kernel can't count them here: {error}"),
        })
    }

    fn try_begin() -> io::Result<Self> {
        let points = TracePoints::open()?;
        // The programs keep this map open.
        let threads = BpfMap::<u32, THREAD_WORDS>::new(BpfMapKind::Hash, MOST_THREADS)?;
        let kinds = BpfMap::new(BpfMapKind::ArrayOfEachProcessor, KINDS)?;
        let files = BpfMap::new(BpfMapKind::Hash, MOST_FILES)?;
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok();
        let maps = BpfMaps {
            threads: threads.number(),
            kinds: kinds.number(),
            files: files.number(),
            namespace: namespace.map(|namespace| (namespace.dev(), namespace.ino())),
        };
        let secret = RandomState::new().hash_one(0) << 32 | NO_OPTION;
        let mut counter = Self {
            kinds,
            files: OpenFiles::new(files),
            secret,
            processors: bpf::possible_processors()?,
            before: Vec::new(),
            faults: false,
            programs: Vec::new(),
        };
        // Threads come and go before their counts are read.
        let point = points.find("sched/sched_process_exit")?;
        counter.add(&bpf_programs::exit(maps), point.number)?;
        let point = points.find("sched/sched_process_fork")?;
        counter.add(&bpf_programs::fork(maps, point.offset("child_pid")?), point.number)?;
        let point = points.find("sched/sched_process_exec")?;
        let (old, new) = (point.offset("old_pid")?, point.offset("pid")?);
        counter.add(&bpf_programs::exec(maps, old, new), point.number)?;
        let point = points.find("raw_syscalls/sys_exit")?;
        if counter.add(&bpf_programs::leave_call(maps), point.number).is_err() {
            // Without the PID namespace, files can't be counted separately.
            let maps = BpfMaps { namespace: None, ..maps };
            counter.add(&bpf_programs::leave_call(maps), point.number)?;
        }
        let point = points.find("raw_syscalls/sys_enter")?;
        counter.add(&bpf_programs::enter(maps, secret), point.number)?;
        // Not every processor's kernel has these trace points.
        for name in ["exceptions/page_fault_user", "exceptions/page_fault_kernel"] {
            if let Ok(point) = points.find(name) {
                counter.faults |= counter.add(&bpf_programs::fault(maps), point.number).is_ok();
            }
        }
        counter.start_over()?;
        Ok(counter)
    }

    fn add(&mut self, program: &[bpf::BpfInstruction], trace_point: u64) -> io::Result<()> {
        let program = BpfProgram::load(program)?;
        let attached = program.attach(trace_point)?;
        self.programs.push((program, attached));
        Ok(())
    }

    /// The call that the thread to be counted makes first.
    pub fn entry(&self) -> CountingEntry {
        CountingEntry(self.secret)
    }

    /// Discards the counts so far.
    pub fn start_over(&mut self) -> io::Result<()> {
        self.before = self.sums()?;
        Ok(())
    }

    fn sums(&self) -> io::Result<Vec<[u64; WORDS]>> {
        (0..KINDS).map(|kind| self.kinds.sum(kind, self.processors)).collect()
    }

    /// Looks up the names of the program's open files; call it from time to time while the program
    /// runs.
    pub fn update_file_names(&mut self) {
        self.files.update_names();
    }

    /// The counts.
    pub fn counts(&mut self) -> io::Result<CounterResult> {
        let small_transfers = self.files.end();
        let mut counts = CounterResult { small_transfers, ..CounterResult::default() };
        for (kind, (now, before)) in self.sums()?.iter().zip(&self.before).enumerate() {
            let word = |word: usize| now[word].wrapping_sub(before[word]);
            let kind = kind as u32;
            let calls = word(bpf_programs::COUNT);
            if kind == FAULTS {
                counts.page_faults = self.faults.then_some(calls);
            } else if calls > 0 {
                let moves = |word: u64| moves_bytes(kind).then_some(word);
                counts.calls.push(SystemCallCounts {
                    name: name(kind),
                    calls,
                    failed: word(bpf_programs::FAILED),
                    ns: word(bpf_programs::NANOSECONDS),
                    bytes: moves(word(bpf_programs::BYTES)),
                    small: moves(word(bpf_programs::SMALL_COUNT)),
                    small_bytes: moves(word(bpf_programs::SMALL_BYTES)),
                });
            }
        }
        counts.calls.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        Ok(counts)
    }
}

/// The name of a kind of call.
fn name(kind: u32) -> String {
    match kind {
        FUTEX_WAIT => "futex (wait)".to_owned(),
        MMAP_ANONYMOUS => "mmap (anonymous)".to_owned(),
        number => Sysno::new(number as usize)
            .map_or_else(|| format!("call {number}"), |call| call.name().to_owned()),
    }
}

/// Whether the result of a kind of call is a number of bytes that were read or written.
fn moves_bytes(kind: u32) -> bool {
    const MOVING: [Sysno; 19] = [
        Sysno::read,
        Sysno::pread64,
        Sysno::readv,
        Sysno::preadv,
        Sysno::preadv2,
        Sysno::recvfrom,
        Sysno::recvmsg,
        Sysno::write,
        Sysno::pwrite64,
        Sysno::writev,
        Sysno::pwritev,
        Sysno::pwritev2,
        Sysno::sendto,
        Sysno::sendmsg,
        Sysno::sendfile,
        Sysno::splice,
        Sysno::copy_file_range,
        Sysno::getrandom,
        Sysno::getdents64,
    ];
    Sysno::new(kind as usize).is_some_and(|call| MOVING.contains(&call))
}
