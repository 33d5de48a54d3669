//! A peer that is not at its best says so.

#![cfg(feature = "fast-peers")]

use std::alloc::Layout;
use std::fs;

use bench::peers::{About, Allocator, Task, TaskVisitor, known};

fn about(name: &str) -> &'static About {
    known().iter().find(|about| about.name == name).unwrap()
}

/// Links an allocator, whole.
struct Use;

impl TaskVisitor for Use {
    type Output = ();

    fn visit<A: Allocator>(self, _: &'static About) {
        let mut allocator = A::start();
        let task = allocator.begin();
        let layout = Layout::new::<u64>();
        // SAFETY: the block is live, with this layout, and not used again.
        unsafe { task.free(task.alloc(layout), layout) };
    }
}

#[test]
fn snmalloc_says_whether_it_was_built_with_its_assertions() {
    // The text that a failed assertion of snmalloc's prints, backwards, so that it is in this
    // program only if snmalloc brings it.
    let text: Vec<u8> = " }{ no }{ ni }{ :liaf tressa".bytes().rev().collect();
    Use.with("snmalloc").unwrap();
    let program = fs::read("/proc/self/exe").unwrap();
    let with_assertions = program.windows(text.len()).any(|window| window == text);
    assert_eq!((about("snmalloc").handicap)().is_some(), with_assertions);
}

#[cfg(all(feature = "all-peers", target_os = "linux", target_env = "gnu"))]
mod tcmalloc {
    use std::env;
    use std::process::Command;

    use super::about;

    /// Whether this kernel has restartable sequences: it then finds fault with the arguments.
    fn kernel_has_restartable_sequences() -> bool {
        // SAFETY: the call registers nothing, as a length of zero is refused.
        let result = unsafe { libc::syscall(libc::SYS_rseq, 0, 0, 0, 0) };
        result == -1 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
    }

    /// The other test's other process.
    #[test]
    fn is_per_cpu_if_the_process_was_started_for_it() {
        let about = about("tcmalloc");
        let started_for_it = about
            .environment
            .iter()
            .all(|(name, value)| env::var(name).is_ok_and(|actual| actual.contains(value)));
        if started_for_it && kernel_has_restartable_sequences() {
            assert_eq!((about.handicap)(), None);
        }
    }

    #[test]
    fn is_per_cpu_in_a_process_that_is_started_for_it() {
        let test = Command::new(env::current_exe().unwrap())
            .args(["--exact", "tcmalloc::is_per_cpu_if_the_process_was_started_for_it"])
            .envs(about("tcmalloc").environment.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&test.stdout);
        assert!(test.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn names_the_remedy_where_it_is_not_per_cpu() {
        if let Some(handicap) = (about("tcmalloc").handicap)() {
            assert!(handicap.contains("GLIBC_TUNABLES=glibc.pthread.rseq=0"), "{handicap}");
        }
    }
}
