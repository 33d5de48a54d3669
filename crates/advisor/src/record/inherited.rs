//! What we were started with, for the program to have it as it would without us.
//!
//! Rust's runtime ignores `SIGPIPE` and opens what is closed of the first three files before `main`, and we have handlers of our own. So it
//! is looked at before all of that.
//!
//! Invariant: both numbers are written before `main`, and by nobody else.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A bit for each signal that is ignored, the first for signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// A bit for each of the first three files that is closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);

const SIGNALS: i32 = 64;

extern "C" fn look() {
    for signal in 1..=SIGNALS {
        // SAFETY: zero is a valid value, and the C library writes to it; signals that there aren't are refused.
        let ignored = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        };
        if ignored {
            IGNORED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
    }
    for file in 0..3 {
        // SAFETY: it touches no memory.
        if unsafe { libc::fcntl(file, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << file, Ordering::Relaxed);
        }
    }
    // Who ignores the ends of children can't wait for them.
    // SAFETY: it is the state in which programs begin.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// What a child gets back.
#[derive(Debug, Clone, Copy)]
pub struct Inherited {
    ignored: u64,
    closed: u32,
}

impl Inherited {
    /// What we were started with.
    pub fn take() -> Self {
        Self { ignored: IGNORED.load(Ordering::Relaxed), closed: CLOSED.load(Ordering::Relaxed) }
    }

    /// The same, for a child whose standard output goes somewhere else.
    pub fn with_standard_output(self) -> Self {
        Self { closed: self.closed & !2, ..self }
    }

    /// Makes it so again. Does nothing that isn't allowed between fork and exec.
    pub fn give(self) {
        for signal in 1..=SIGNALS {
            if self.ignored & 1 << (signal - 1) != 0 {
                // SAFETY: it may be called here; the child has no handlers.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        for file in 0..3 {
            if self.closed & 1 << file != 0 {
                // SAFETY: the child uses none of them any more.
                unsafe { libc::close(file) };
            }
        }
    }
}
