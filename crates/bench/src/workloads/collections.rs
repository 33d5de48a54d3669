//! `arena-vec` and `arena-format`: an allocator's own vector and string.

use crate::peers::{Collections, Line};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::task_threads::{self, Run, TaskCounter};

/// The collection that a task makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionKind {
    /// A vector, to which numbers are pushed.
    Vector,
    /// Formatted strings.
    Strings,
}

impl CollectionKind {
    /// The operations of a task: numbers pushed, or strings formatted.
    pub const fn ops(self) -> u64 {
        match self {
            Self::Vector => 1_000_000,
            Self::Strings => 100_000,
        }
    }

    /// Bytes of the numbers at the end of a task, if their number is known.
    pub fn live_bytes(self) -> Option<u64> {
        (self == Self::Vector).then_some(self.ops() * size_of::<u64>() as u64)
    }
}

/// Different lines. They are repeated.
const LINES: usize = 1024;

const NAMES: [&str; 8] = ["cpu", "memory", "disk", "network", "load", "swap", "uptime", "pressure"];

/// Runs `tasks` tasks on each of `threads` workers.
pub fn run<C: Collections>(
    kind: CollectionKind,
    threads: usize,
    tasks: u64,
    observer: &dyn Observer,
) -> Run<()> {
    task_threads::run(
        threads,
        observer,
        |_| lines(),
        C::start,
        |allocator, lines: &mut Vec<Line<'static>>, counter: &mut TaskCounter<'_>| {
            for _ in 0..tasks {
                match kind {
                    CollectionKind::Vector => allocator.push(kind.ops()),
                    CollectionKind::Strings => {
                        allocator.format(lines.iter().copied().cycle().take(kind.ops() as usize));
                    }
                }
                counter.task_done();
            }
        },
    )
}

/// The same for every worker and allocator.
fn lines() -> Vec<Line<'static>> {
    let mut random = Random::stream(0);
    let mut line = || Line {
        name: NAMES[random.below(NAMES.len() as u32) as usize],
        number: random.below(1000),
        value: u64::from(random.below(u32::MAX)),
    };
    (0..LINES).map(|_| line()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Allocator;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{System, SystemTask};
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Counting;

    static PUSHED: AtomicU64 = AtomicU64::new(0);
    static FORMATTED: AtomicU64 = AtomicU64::new(0);

    impl Allocator for Counting {
        type Task<'t> = SystemTask;

        fn start() -> Self {
            Self
        }

        fn begin(&mut self) -> SystemTask {
            System.begin()
        }
    }

    impl Collections for Counting {
        fn push(&mut self, numbers: u64) {
            PUSHED.fetch_add(numbers, Ordering::Relaxed);
        }

        fn format<'l>(&mut self, lines: impl Iterator<Item = Line<'l>>) {
            FORMATTED.fetch_add(lines.count() as u64, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_pushes_or_formats_its_number_of_operations() {
        run::<Counting>(CollectionKind::Vector, 2, 4, &Unobserved);
        run::<Counting>(CollectionKind::Strings, 2, 4, &Unobserved);
        assert_eq!(PUSHED.load(Ordering::Relaxed), 2 * 4 * CollectionKind::Vector.ops());
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 2 * 4 * CollectionKind::Strings.ops());
    }

    #[test]
    fn lines_are_the_same_each_time_and_short() {
        let text = |line: &Line<'_>| format!("{}.{}={}", line.name, line.number, line.value);
        let [one, again] = [lines(), lines()];
        assert!(one.iter().map(text).eq(again.iter().map(text)));
        assert!(one.iter().map(text).all(|text| (6..24).contains(&text.len())));
    }
}
