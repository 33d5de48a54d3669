//! Programs on many small arenas: bytes decoded into arenas that come and go. Each is filled with a
//! pattern, so that two that share memory are found.
//!
//! Every byte string is a program, as for arenas.

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{Arena, Budget, Release, recycler};

use super::input::Input;

/// A live arena, and the pattern that all of its memory holds.
pub struct Filled {
    arena: Arena,
    pieces: Vec<(NonNull<u8>, usize)>,
    pattern: u8,
}

// SAFETY: the pieces belong to the arena, which may be sent to another thread.
unsafe impl Send for Filled {}

impl Filled {
    /// Makes an arena of the shape that the input says, and fills it.
    pub fn new(input: &mut Input<'_>, budget: &Budget) -> Self {
        let builder = match input.below(4) {
            0 => Arena::builder().hint(input.below(60_000)),
            1 => Arena::builder().release(Release::AtOnce),
            // Not a power of two: the arena then takes chunks of as many pages as it needs.
            2 => Arena::builder().budget(budget).maximum(4096 * (1 + input.below(14))),
            _ => Arena::builder().budget(budget),
        };
        let pattern = input.byte().max(1);
        let mut filled = Self { arena: builder.build(), pieces: Vec::new(), pattern };
        filled.fill(input);
        filled
    }

    fn fill(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.below(12) {
            let len = 1 + input.below(6000);
            let layout = Layout::array::<u8>(len).expect("a few pages");
            let Ok(piece) = self.arena.try_alloc_layout_zeroed(layout) else { break };
            // SAFETY: `len` bytes, which are zeroed, and which nothing else refers to.
            let bytes = unsafe { core::slice::from_raw_parts_mut(piece.as_ptr(), len) };
            assert!(bytes.iter().all(|&byte| byte == 0), "zeroed memory is not zero");
            bytes.fill(self.pattern);
            self.pieces.push((piece, len));
        }
    }

    fn check(&self) {
        for &(start, len) in &self.pieces {
            // SAFETY: a piece of the arena, which nothing else refers to.
            let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
            assert!(bytes.iter().all(|&byte| byte == self.pattern), "two arenas share memory");
        }
    }

    fn reset(&mut self) {
        self.check();
        self.pieces.clear();
        self.arena.reset();
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Runs the program that these bytes are.
pub fn run(bytes: &[u8]) {
    let input = &mut Input::new(bytes);
    let budget = Budget::new(1 << 18);
    let mut live: Vec<Filled> = Vec::new();
    while !input.is_empty() {
        match input.below(10) {
            0..=4 => live.push(Filled::new(input, &budget)),
            5 | 6 if !live.is_empty() => drop(live.swap_remove(input.below(live.len()))),
            7 if !live.is_empty() => {
                let index = input.below(live.len());
                live[index].reset();
                live[index].fill(input);
            }
            8 => {
                recycler().trim();
            }
            _ => recycler().set_policy(match input.below(3) {
                0 => Release::Adaptive,
                1 => Release::AtOnce,
                _ => Release::Keep(input.below(1 << 16) << 8),
            }),
        }
    }
    drop(live);
    assert_eq!(budget.used(), 0);
    recycler().set_policy(Release::Adaptive);
}
