//! Sources for tests: one that records every block and refuses on schedule, and one with a limit.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allotment::{AllocError, ErrorKind, Malloc, Source};

/// Which calls of `acquire`, counted from 1, are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    None,
    /// The n-th alone.
    Only(u64),
    /// The n-th and all after it.
    From(u64),
    /// Every n-th.
    Every(u64),
    /// One in n, in no order.
    OneIn(u64),
}

impl Refuse {
    pub fn hits(self, call: u64) -> bool {
        match self {
            Self::None => false,
            Self::Only(nth) => call == nth,
            Self::From(nth) => call >= nth,
            Self::Every(nth) => call % nth.max(1) == 0,
            Self::OneIn(chances) => {
                (call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % chances.max(1) == 0
            }
        }
    }
}

#[derive(Default)]
struct State {
    calls: u64,
    refused: u64,
    /// Address to layout of the blocks that are lent.
    lent: BTreeMap<usize, Layout>,
}

/// Passes calls on to another source, keeps the books, and refuses what it was told to.
pub struct Recorder {
    inner: Box<dyn Source>,
    refuse: Mutex<Refuse>,
    state: Mutex<State>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    pub fn new(inner: impl Source + 'static, refuse: Refuse) -> Arc<Self> {
        Arc::new(Self {
            inner: Box::new(inner),
            refuse: Mutex::new(refuse),
            state: Mutex::default(),
        })
    }

    pub fn refuse(&self, refuse: Refuse) {
        *locked(&self.refuse) = refuse;
    }

    pub fn calls(&self) -> u64 {
        locked(&self.state).calls
    }

    pub fn refused(&self) -> u64 {
        locked(&self.state).refused
    }

    pub fn lent_blocks(&self) -> usize {
        locked(&self.state).lent.len()
    }

    pub fn lent_bytes(&self) -> usize {
        locked(&self.state).lent.values().map(Layout::size).sum()
    }

    /// The start of the block that is lent and has this address in it.
    pub fn block_of(&self, address: usize) -> Option<usize> {
        let state = locked(&self.state);
        let (&first, layout) = state.lent.range(..=address).next_back()?;
        (address < first + layout.size()).then_some(first)
    }

    /// Whether a range lies in one block that is lent.
    pub fn holds(&self, start: usize, len: usize) -> bool {
        let state = locked(&self.state);
        let block = state.lent.range(..=start).next_back();
        block.is_some_and(|(&first, layout)| start + len <= first + layout.size())
    }
}

// SAFETY: the blocks are the inner source's, each passed on once.
unsafe impl Source for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let mut state = locked(&self.state);
        state.calls += 1;
        if locked(&self.refuse).hits(state.calls) {
            state.refused += 1;
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        }
        let block = self.inner.acquire(layout)?;
        assert!(state.lent.insert(block.addr().get(), layout).is_none(), "lent twice");
        Ok(block)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        let lent = locked(&self.state).lent.remove(&block.addr().get());
        assert_eq!(lent, Some(layout), "released as it was acquired, once");
        // SAFETY: passed on to the caller.
        unsafe { self.inner.release(block, layout) }
    }

    fn zeroed(&self) -> bool {
        self.inner.zeroed()
    }
}

/// Malloc with a limit, which refuses with an error of the test's choice.
pub struct Limiting {
    left: Mutex<usize>,
    error: ErrorKind,
}

impl Limiting {
    pub fn new(limit: usize, error: ErrorKind) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(limit), error })
    }

    /// Adds a gigabyte to the limit.
    pub fn raise(&self) {
        *locked(&self.left) += 1 << 30;
    }
}

// SAFETY: the blocks are malloc's, each passed on once.
unsafe impl Source for Limiting {
    fn name(&self) -> &str {
        "limiting"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let mut left = locked(&self.left);
        let refused = AllocError::new(self.error, layout.size());
        let rest = left.checked_sub(layout.size()).ok_or(refused)?;
        let block = Malloc.acquire(layout)?;
        *left = rest;
        Ok(block)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        *locked(&self.left) += layout.size();
        // SAFETY: passed on to the caller.
        unsafe { Malloc.release(block, layout) }
    }
}
