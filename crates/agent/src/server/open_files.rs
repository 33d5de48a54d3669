//! How many files, and so connections, the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are no connections: the log, /proc, the event loop, what libraries open.
pub const OTHER_FILES: u64 = 64;

/// Raises the limit of open files to the most that this process may have, and returns it; none is `u64::MAX`.
pub fn raise_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    // A kernel that refuses what it calls the maximum leaves us the limit as it is.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many of the wanted connections this many open files leave room for.
pub fn connections_within(open_files: u64, client_waits: usize) -> usize {
    let room = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    client_waits.min(room).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_one_and_other_files_keep_their_room() {
        let open_files = raise_limit();
        assert_eq!(Some(open_files), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
        assert_eq!(connections_within(1024, 4096), 960);
        assert_eq!(connections_within(u64::MAX, 4096), 4096);
        assert_eq!(connections_within(10, 4096), 1);
    }
}
