//! Blocks whose every byte is known: filled when they are allocated, and checked byte by byte before
//! they are resized or freed, whoever frees them.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc;

use allotment::PoolRef;
use allotment::pool::current;

use super::slab::layout;

/// The length of a block's pattern, after which it repeats. It is a prime number, so a block that
/// was copied from a wrong offset has other bytes.
const PERIOD: usize = 251;

/// The blocks of one test that are live.
#[derive(Debug, Default)]
pub struct Ledger {
    blocks: AtomicUsize,
    bytes: AtomicUsize,
    last_number: AtomicUsize,
    checked_bytes: AtomicUsize,
}

impl Ledger {
    /// The number of live blocks, and their bytes.
    pub fn live(&self) -> (usize, usize) {
        (self.blocks.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// The number of blocks that there have been; a resized block is another one.
    pub fn blocks(&self) -> usize {
        self.last_number.load(Ordering::Relaxed)
    }

    /// The number of bytes that were compared with what they must be.
    pub fn checked_bytes(&self) -> usize {
        self.checked_bytes.load(Ordering::Relaxed)
    }

    /// A number that no other block has.
    fn number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) as u64 + 1
    }
}

/// The calls that a block is allocated, resized and freed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those of the program's global allocator, as `Box` and `Vec` make them.
    Global,
    /// Those of [`PoolRef`].
    Reference,
}

/// A live block, filled with a pattern of its own. Its drop checks and frees it.
#[derive(Debug)]
pub struct FilledBlock {
    start: NonNull<u8>,
    layout: Layout,
    number: u64,
    calls: Calls,
    ledger: &'static Ledger,
}

// SAFETY: any thread may free a block of either allocator, and the value owns its block.
unsafe impl Send for FilledBlock {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for FilledBlock {}

impl FilledBlock {
    /// Allocates a block of 1 byte or more in the thread's current pool. A limited pool may refuse
    /// a call of `PoolRef`; the global allocator then serves it.
    pub fn new(ledger: &'static Ledger, layout: Layout, calls: Calls) -> Self {
        assert!(layout.size() > 0);
        if calls == Calls::Reference {
            if let Ok(start) = current().try_alloc_layout(layout) {
                return Self::fill(ledger, start, layout, calls);
            }
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc(layout) };
        let start = NonNull::new(start).expect("the system has memory");
        Self::fill(ledger, start, layout, Calls::Global)
    }

    /// The same with a block that must read zeros.
    pub fn zeroed(ledger: &'static Ledger, layout: Layout) -> Self {
        assert!(layout.size() > 0);
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).expect("the system has memory");
        // SAFETY: all bytes of a new block, which are initialized.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), layout.size()) };
        let dirty = bytes.iter().position(|byte| *byte != 0);
        assert_eq!(dirty, None, "a zeroed block of {layout:?} has another byte");
        ledger.checked_bytes.fetch_add(layout.size(), Ordering::Relaxed);
        Self::fill(ledger, start, layout, Calls::Global)
    }

    /// Writes every byte of a block.
    fn fill(ledger: &'static Ledger, start: NonNull<u8>, layout: Layout, calls: Calls) -> Self {
        assert_eq!(start.addr().get() % layout.align(), 0, "{start:?} is aligned");
        ledger.blocks.fetch_add(1, Ordering::Relaxed);
        ledger.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        let block = Self { start, layout, number: ledger.number(), calls, ledger };
        let size = layout.size();
        let pattern = block.pattern();
        let mut filled = PERIOD.min(size);
        // SAFETY: at most the bytes of the block, which nothing else uses. Each copy ends before
        // `size`, and what it reads was written before.
        unsafe {
            start.as_ptr().copy_from_nonoverlapping(pattern.as_ptr(), filled);
            while filled < size {
                let count = filled.min(size - filled);
                start.add(filled).as_ptr().copy_from_nonoverlapping(start.as_ptr(), count);
                filled += count;
            }
        }
        block
    }

    /// The beginning of the pattern. After [`PERIOD`] bytes it repeats.
    fn pattern(&self) -> [u8; 256] {
        let mut pattern = [0; 256];
        let mut word = self.number;
        for bytes in pattern.chunks_exact_mut(8).take(self.layout.size().div_ceil(8)) {
            word = (word ^ word >> 29).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        pattern
    }

    /// The index of the first of `count` bytes at `start` that is not this block's.
    ///
    /// # Safety
    /// The bytes are initialized, and nothing writes them meanwhile.
    unsafe fn first_wrong(&self, start: NonNull<u8>, count: usize) -> Option<usize> {
        let (pattern, head) = (self.pattern(), PERIOD.min(count));
        // SAFETY: passed on to the caller.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), count) };
        self.ledger.checked_bytes.fetch_add(count, Ordering::Relaxed);
        // The block repeats itself if it equals itself one period later.
        if bytes[..head] == pattern[..head] && bytes[head..] == bytes[..count - head] {
            return None;
        }
        (0..count).find(|index| bytes[*index] != pattern[index % PERIOD])
    }

    /// Asserts that every byte is as it was written.
    pub fn check(&self) {
        // SAFETY: the block is live, and `fill` has written all of it.
        let wrong = unsafe { self.first_wrong(self.start, self.layout.size()) };
        assert_eq!(wrong, None, "a byte of {self:?} has changed");
    }

    /// The block's size in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Checks the block, resizes it, checks what was kept, and fills it anew.
    pub fn resize(mut self, new_size: usize) -> Self {
        assert!(new_size > 0);
        self.check();
        let new = layout(new_size, self.layout.align());
        // SAFETY: a live block with this layout and of this allocator. It is not used at its old
        // address if the call succeeds.
        let moved = unsafe {
            match self.calls {
                Calls::Global => {
                    NonNull::new(alloc::realloc(self.start.as_ptr(), self.layout, new_size))
                }
                Calls::Reference => current().try_resize(self.start, self.layout, new).ok(),
            }
        };
        // A pool with a limit may refuse. The block is unchanged then.
        let Some(moved) = moved else { return self };
        let kept = new_size.min(self.layout.size());
        // SAFETY: a live block, whose first bytes are those of the old one.
        let wrong = unsafe { self.first_wrong(moved, kept) };
        assert_eq!(wrong, None, "{self:?} has changed on its way to {new:?}");
        self.forget();
        let resized = Self::fill(self.ledger, moved, new, self.calls);
        // The old value no longer owns a block.
        core::mem::forget(self);
        resized
    }

    /// Takes the block off the ledger.
    fn forget(&mut self) {
        self.ledger.blocks.fetch_sub(1, Ordering::Relaxed);
        self.ledger.bytes.fetch_sub(self.layout.size(), Ordering::Relaxed);
    }
}

impl Drop for FilledBlock {
    fn drop(&mut self) {
        self.check();
        self.forget();
        // SAFETY: a live block with this layout and of this allocator, not used again.
        unsafe {
            match self.calls {
                Calls::Global => alloc::dealloc(self.start.as_ptr(), self.layout),
                Calls::Reference => PoolRef::free_anywhere(self.start, self.layout),
            }
        }
    }
}

/// For the test of the checks.
impl FilledBlock {
    /// Changes a byte, asks for the first that is wrong, and changes it back.
    pub fn found_if_changed(&mut self, index: usize) -> Option<usize> {
        assert!(index < self.layout.size());
        // SAFETY: a byte of a live block, which this value owns.
        unsafe {
            let byte = self.start.as_ptr().add(index);
            byte.write(!byte.read());
            let found = self.first_wrong(self.start, self.layout.size());
            byte.write(!byte.read());
            found
        }
    }
}
