//! Runs a part of a test in a forked child.

/// The number of forks that a test makes while other threads are inside: `usual`, unless
/// `ALLOTMENT_FORKS` says otherwise.
pub fn rounds(usual: u64) -> u64 {
    number_in("ALLOTMENT_FORKS", usual)
}

fn number_in(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |number| number.parse().expect("it is a number"))
}

/// Whether a child with this status ended by an access to memory that it did not have.
pub fn faulted(status: libc::c_int) -> bool {
    libc::WIFSIGNALED(status) && [libc::SIGSEGV, libc::SIGBUS].contains(&libc::WTERMSIG(status))
}

/// Forks, runs `work` in the child, waits for the child, and returns its status, which is 0 unless
/// `work` panicked or the child was killed. A child that hangs is killed after a minute, or after
/// the number of seconds in `ALLOTMENT_FORK_SECONDS`.
///
/// # Safety
/// `work` may be run in a child of this process: it takes no lock that another thread may hold at
/// the fork, those of glibc's malloc apart, which is prepared for forks.
pub unsafe fn forked(work: impl FnOnce()) -> libc::c_int {
    let seconds = number_in("ALLOTMENT_FORK_SECONDS", 60) as libc::c_uint;
    // SAFETY: guaranteed by the caller. An alarm ends a child that hangs; `_exit` runs no
    // destructor of the parent.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(seconds);
            let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(work));
            libc::_exit(i32::from(result.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}
