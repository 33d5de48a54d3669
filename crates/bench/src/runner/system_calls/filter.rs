//! The system-call filter of a traced child: it stops for its tracer at the calls that are counted
//! and at the marks, and nowhere else, so that the rest runs at full speed. Where all calls are
//! counted it stops at each.

use super::marks::MARKS;
use std::io;

/// The calls that are counted, in the order of the tracer's counters.
pub const CALLS: [(&str, libc::c_long); 6] = [
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("mremap", libc::SYS_mremap),
    ("madvise", libc::SYS_madvise),
    ("mprotect", libc::SYS_mprotect),
    ("brk", libc::SYS_brk),
];

/// Which calls a child lets its tracer see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracedCalls {
    /// Those of [`CALLS`].
    Memory,
    /// Every one.
    All,
}

/// A stop's event message says which: below this one of [`CALLS`].
pub const OTHER: u16 = 99;

/// From here on it is a mark.
pub const FIRST_MARK: u16 = 100;

/// Offsets in the kernel's `seccomp_data`; both platforms are little-endian.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = 16;

/// Installs the filter for this thread and those it will start. It can't be taken off again.
pub fn install(calls: TracedCalls) -> io::Result<()> {
    let mut program = program(calls);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both calls read their arguments only; `filter` and the program it points to live
    // until they return, and the kernel keeps its own copy.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn program(calls: TracedCalls) -> Vec<libc::sock_filter> {
    let mut program = vec![load(NUMBER)];
    for (index, (_, number)) in CALLS.iter().enumerate() {
        program.extend(trace_if_equal(*number as u32, index as u16));
    }
    // Unless it is `close`, skip the comparisons with the marks: a load and two steps for each.
    let close = libc::SYS_close as u32;
    program.push(jump_if_equal(close, 0, 1 + 2 * MARKS.len() as u8));
    program.push(load(FIRST_ARGUMENT));
    for (index, (_, descriptor)) in MARKS.iter().enumerate() {
        program.extend(trace_if_equal(*descriptor as u32, FIRST_MARK + index as u16));
    }
    program.push(give(match calls {
        TracedCalls::Memory => libc::SECCOMP_RET_ALLOW,
        TracedCalls::All => libc::SECCOMP_RET_TRACE | u32::from(OTHER),
    }));
    program
}

fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn jump_if_equal(value: u32, if_equal: u8, otherwise: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, if_equal, otherwise, value)
}

fn trace_if_equal(value: u32, message: u16) -> [libc::sock_filter; 2] {
    [jump_if_equal(value, 0, 1), give(libc::SECCOMP_RET_TRACE | u32::from(message))]
}

fn give(verdict: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, verdict)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
