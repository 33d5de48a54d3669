//! The limit on open files, and so on connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that are not connections: the log, /proc, the event loop, libraries.
pub const OTHER_FILES: u64 = 64;

/// Raises the limit on open files to its maximum, and returns it; `u64::MAX` means no limit.
pub fn raise_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    // If the kernel refuses its own maximum, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns how many of the wanted connections are possible with this limit on open files.
pub fn connections_within(files: u64, wanted: usize) -> usize {
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    wanted.min(possible).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_one_and_other_files_keep_their_room() {
        let files = raise_limit();
        assert_eq!(Some(files), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
        assert_eq!(connections_within(1024, 4096), 960);
        assert_eq!(connections_within(u64::MAX, 4096), 4096);
        assert_eq!(connections_within(10, 4096), 1);
    }
}
