//! The signals and standard files that this process was started with. The recorded program gets
//! them unchanged.
//!
//! Before `main`, Rust's runtime ignores `SIGPIPE` and opens closed standard files, and later this
//! process installs signal handlers. So the state is read in an initialiser that runs before the
//! runtime.
//!
//! Invariant: only the initialiser writes the two statics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A bit for each signal that is ignored, the first for signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// A bit for each standard file that is closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);

const SIGNALS: i32 = 64;

extern "C" fn read_state() {
    for signal in 1..=SIGNALS {
        // SAFETY: zero is a valid value, and the C library writes to it. Unknown signals are
        // refused.
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
    // A process that ignores SIGCHLD can't wait for its children.
    // SAFETY: it sets the default, with which programs begin.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static READ_STATE: extern "C" fn() = read_state;

/// The state that a child process gets.
#[derive(Debug, Clone, Copy)]
pub struct InheritedState {
    ignored: u64,
    closed: u32,
}

impl InheritedState {
    /// The state that this process was started with.
    pub fn get() -> Self {
        Self { ignored: IGNORED.load(Ordering::Relaxed), closed: CLOSED.load(Ordering::Relaxed) }
    }

    /// The same state for a child whose standard output is redirected.
    pub fn with_standard_output(self) -> Self {
        Self { closed: self.closed & !2, ..self }
    }

    /// Restores the state in this process. Does only what is allowed between fork and exec.
    pub fn restore(self) {
        for signal in 1..=SIGNALS {
            if self.ignored & 1 << (signal - 1) != 0 {
                // SAFETY: it may be called here; the child has no handlers.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        for file in 0..3 {
            if self.closed & 1 << file != 0 {
                // SAFETY: the child does not use the file.
                unsafe { libc::close(file) };
            }
        }
    }
}
