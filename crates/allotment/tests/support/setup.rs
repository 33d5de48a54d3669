//! What an operation program runs on: the choices of the builder, decoded from bytes or fixed by a
//! test.

use std::path::Path;
use std::sync::Arc;

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{Arena, Budget, Malloc, Release};
#[cfg(any(system_memory, not(test)))]
use allotment::{File, Mmap};

#[cfg(all(test, not(system_memory)))]
use super::absent_options::*;
use super::input::Input;
use super::sources::{Recorder, Refuse};

/// Where chunks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    #[cfg(any(system_memory, not(test)))]
    Mmap,
    Malloc,
    #[cfg(any(system_memory, not(test)))]
    File,
    #[cfg(any(system_memory, not(test)))]
    HugePages,
    /// Through a [`Recorder`] that refuses some calls.
    Refusing,
}

pub const NAME: &str = "program";

/// The choices that a test fixes; the others come from the program's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub from: From,
    pub hardened: bool,
}

impl Fixed {
    #[cfg(any(system_memory, not(test)))]
    pub fn from_input(input: &mut Input<'_>) -> Self {
        let from = match input.below(8) {
            0..=2 => From::Mmap,
            3 => From::Malloc,
            4 => From::File,
            5 => From::HugePages,
            _ => From::Refusing,
        };
        Self { from, hardened: input.one_in(4) }
    }
}

/// An arena's surroundings, for the checks.
pub struct Setup {
    pub fixed: Fixed,
    pub budget: Option<Budget>,
    pub parent: Option<Budget>,
    pub recorder: Option<Arc<Recorder>>,
    pub passthrough: bool,
}

/// A directory in memory where there is one, so that thousands of small files cost little.
pub fn file_directory() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

#[cfg(any(system_memory, not(test)))]
/// A new file that keeps its name, which is a test's own.
pub fn named_file(path: &Path) -> std::io::Result<File> {
    // SAFETY: no other test uses the path, and the tests only read their files through other
    // handles.
    unsafe { File::create_new(path) }
}

fn refuse(input: &mut Input<'_>) -> Refuse {
    let nth = u64::from(input.byte() % 16) + 1;
    match input.below(4) {
        0 => Refuse::None,
        1 => Refuse::Only(nth),
        2 => Refuse::From(nth),
        _ => Refuse::Every(nth),
    }
}

/// Builds the arena that the bytes ask for; nothing if its hint was refused.
pub fn build<const MIN_ALIGN: usize>(
    fixed: Fixed,
    input: &mut Input<'_>,
) -> (Setup, Option<Arena<MIN_ALIGN>>) {
    let passthrough = std::env::var_os("ALLOTMENT_PASSTHROUGH").is_some();
    let mut recorder = None;
    let source: SharedSource = match fixed.from {
        #[cfg(any(system_memory, not(test)))]
        From::Mmap => Mmap::new().into(),
        From::Malloc => Malloc.into(),
        #[cfg(any(system_memory, not(test)))]
        From::HugePages => Mmap::huge_pages().into(),
        #[cfg(any(system_memory, not(test)))]
        From::File => File::in_directory(&file_directory()).expect("a file").into(),
        From::Refusing => {
            let refuse = refuse(input);
            let made = match input.below(2) {
                #[cfg(any(system_memory, not(test)))]
                1 => Recorder::new(Mmap::new(), refuse),
                _ => Recorder::new(Malloc, refuse),
            };
            recorder = Some(made.clone());
            made.into()
        }
    };
    let retain = match input.below(4) {
        0 => Retain::Nothing,
        1 => Retain::Newest,
        2 => Retain::UpTo(usize::from(input.word()) * 64),
        _ => Retain::UpTo(usize::MAX),
    };
    let release = match input.below(3) {
        0 => Release::AtOnce,
        _ => Release::Adaptive,
    };
    let (parent, budget) = match input.below(4) {
        0 => (None, Some(Budget::new(usize::from(input.word()) * 8))),
        1 => {
            let parent = Budget::new(usize::from(input.word()) * 16);
            let child = parent.child(usize::from(input.word()) * 16);
            (Some(parent), Some(child))
        }
        2 => (None, Some(Budget::new(usize::MAX))),
        _ => (None, None),
    };
    let hint = match input.below(4) {
        0 => input.size(),
        _ => 0,
    };
    let mut builder = Arena::<MIN_ALIGN>::builder_with_min_align()
        .name(NAME)
        .hint(hint)
        .source(source)
        .retain(retain)
        .release(release)
        .hardened(fixed.hardened);
    if let Some(budget) = &budget {
        builder = builder.budget(budget);
    }
    let arena = builder.try_build();
    if arena.is_err() {
        assert!(hint > 0, "an arena without a hint takes nothing, so nothing can be refused");
    }
    (Setup { fixed, budget, parent, recorder, passthrough }, arena.ok())
}

impl Setup {
    /// What is held outside the arena is what its statistics say. Of that, `set_aside` bytes are
    /// counted as freed until a rewind.
    pub fn check<const MIN_ALIGN: usize>(&self, arena: &Arena<MIN_ALIGN>, set_aside: u64) {
        let statistics = arena.statistics();
        assert!(statistics.held_bytes >= statistics.live_bytes);
        assert!(statistics.peak_held_bytes >= statistics.held_bytes);
        if let Some(budget) = &self.budget {
            assert_eq!(budget.used() as u64, statistics.held_bytes, "the budget is exact");
            assert!(budget.used() <= budget.limit());
        }
        if let (Some(parent), Some(budget)) = (&self.parent, &self.budget) {
            assert_eq!(parent.used(), budget.used(), "the parent has one child");
        }
        if self.passthrough {
            assert_eq!(statistics.chunks, 0);
            assert_eq!(statistics.held_bytes, statistics.live_bytes + set_aside);
        } else if let Some(recorder) = &self.recorder {
            assert_eq!(recorder.lent_blocks() as u64, statistics.chunks, "chunks");
            assert_eq!(recorder.lent_bytes() as u64, statistics.held_bytes, "held bytes");
        }
    }

    /// Whether an object lies in a chunk of the arena, as far as this source can tell.
    pub fn assert_in_chunk(&self, start: usize, len: usize) {
        if self.passthrough || len == 0 {
            return;
        }
        if let Some(recorder) = &self.recorder {
            assert!(recorder.holds(start, len), "{start:#x}+{len} is in no chunk");
        }
        #[cfg(any(system_memory, not(test)))]
        if self.recorder.is_none()
            && self.fixed.hardened
            && matches!(self.fixed.from, From::Mmap | From::HugePages)
        {
            for address in [start, start + len - 1] {
                let owner = allotment::owner_of(core::ptr::without_provenance::<u8>(address));
                assert_eq!(owner.expect("in a chunk").name, NAME);
            }
        }
    }

    /// The arena is gone: everything went back.
    pub fn check_empty(&self) {
        if let Some(budget) = &self.budget {
            assert_eq!(budget.used(), 0);
        }
        if let Some(parent) = &self.parent {
            assert_eq!(parent.used(), 0);
        }
        if let Some(recorder) = &self.recorder {
            assert_eq!(recorder.lent_blocks(), 0, "every chunk went back");
        }
    }
}
