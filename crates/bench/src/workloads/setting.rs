//! Threads, callers, and the amount of work of a run.

use crate::console::table::counted;
use std::fmt;

/// The number of threads and callers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Setting {
    /// The number of worker threads.
    pub threads: usize,
    /// The number of callers that the threads serve; only `query` has callers.
    pub callers: Option<usize>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.callers {
            Some(1) => f.write_str("1 caller"),
            Some(callers) => {
                write!(f, "{callers} callers, {}", counted(self.threads, "worker"))
            }
            None => f.write_str(&counted(self.threads, "thread")),
        }
    }
}

/// The numbers of threads that a workload runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// This number.
    pub count: usize,
    /// Larger numbers are allowed too.
    pub or_more: bool,
    /// The reason.
    pub meaning: &'static str,
}

impl Threads {
    /// Whether the workload runs with `threads` threads.
    pub fn include(self, threads: usize) -> bool {
        threads == self.count || (self.or_more && threads > self.count)
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.or_more { " or more" } else { "" };
        write!(f, "{}{more}", counted(self.count, "thread"))
    }
}

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// The full amount of work: about a second or two for each run.
    Full,
    /// Less work, enough for a rough ranking.
    Quick,
    /// For runs whose calls are counted and whose time is not. The same as `Quick`, except that
    /// `letters` and `client` do their work once.
    Counted,
}

impl Effort {
    /// Whether it is less than the full amount.
    pub fn is_quick(self) -> bool {
        self != Self::Full
    }
}
