//! Sources for the slab's tests: a gate that blocks, and a source that lends addresses and memory
//! separately and records both.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use allotment::source::PagedSource;
use allotment::{AllocError, ErrorKind, Malloc, Source};

use super::sources::Refuse;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Malloc behind a gate: while it is closed, a thread that asks for a block waits inside.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    inside: usize,
    refuse: bool,
    /// The number of threads inside that are to be refused, though the gate is closed.
    refuse_inside: usize,
    acquired: usize,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn close(&self) {
        locked(&self.state).closed = true;
    }

    pub fn open(&self) {
        locked(&self.state).closed = false;
        self.changed.notify_all();
    }

    /// Opens, and refuses the threads that wait inside.
    pub fn open_and_refuse(&self) {
        let mut state = locked(&self.state);
        state.refuse = true;
        state.closed = false;
        self.changed.notify_all();
    }

    /// Refuses one of the threads that wait inside. The gate stays closed for the others.
    pub fn refuse_one(&self) {
        let mut state = locked(&self.state);
        assert!(state.inside > 0);
        state.refuse_inside += 1;
        self.changed.notify_all();
        while state.refuse_inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stops refusing.
    pub fn accept(&self) {
        locked(&self.state).refuse = false;
    }

    /// The blocks that were acquired so far.
    pub fn acquired(&self) -> usize {
        locked(&self.state).acquired
    }

    /// Waits until a thread waits inside.
    pub fn wait_for_visitor(&self) {
        let mut state = locked(&self.state);
        while state.inside == 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn visitors(&self) -> usize {
        locked(&self.state).inside
    }
}

// SAFETY: the blocks are malloc's, each passed on once.
unsafe impl Source for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let mut state = locked(&self.state);
        state.inside += 1;
        self.changed.notify_all();
        while state.closed && state.refuse_inside == 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside -= 1;
        if state.refuse_inside > 0 {
            state.refuse_inside -= 1;
            self.changed.notify_all();
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        }
        if state.refuse {
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        }
        state.acquired += 1;
        drop(state);
        Malloc.acquire(layout)
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { Malloc.release(block, layout) }
    }
}

/// Passes a paged source's calls on, asserts that each is one that the contract allows, and refuses
/// on schedule.
pub struct PagedRecorder {
    inner: Box<dyn Source>,
    refuse: Mutex<Refuse>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    calls: u64,
    refused: u64,
    /// Address to layout of the ranges that are lent.
    lent: BTreeMap<usize, Layout>,
    /// Address to length of the parts that have memory.
    committed: BTreeMap<usize, usize>,
}

impl PagedRecorder {
    pub fn new(inner: impl Source + 'static, refuse: Refuse) -> Arc<Self> {
        assert!(inner.paged().is_some());
        Arc::new(Self {
            inner: Box::new(inner),
            refuse: Mutex::new(refuse),
            books: Mutex::default(),
        })
    }

    pub fn refuse(&self, refuse: Refuse) {
        *locked(&self.refuse) = refuse;
    }

    pub fn calls(&self) -> u64 {
        locked(&self.books).calls
    }

    pub fn refused(&self) -> u64 {
        locked(&self.books).refused
    }

    pub fn lent_ranges(&self) -> usize {
        locked(&self.books).lent.len()
    }

    pub fn committed_bytes(&self) -> usize {
        locked(&self.books).committed.values().sum()
    }

    fn inner(&self) -> &dyn PagedSource {
        self.inner.paged().expect("asserted when it was made")
    }

    /// Counts a call, and refuses it if it is its turn.
    fn count(&self, bytes: usize) -> Result<MutexGuard<'_, Books>, AllocError> {
        let refuse = *locked(&self.refuse);
        let mut books = locked(&self.books);
        books.calls += 1;
        if refuse.hits(books.calls) {
            books.refused += 1;
            return Err(AllocError::new(ErrorKind::SourceRefused, bytes));
        }
        Ok(books)
    }
}

// SAFETY: the blocks are the inner source's, each passed on once.
unsafe impl Source for PagedRecorder {
    fn name(&self) -> &str {
        "paged recorder"
    }

    fn acquire(&self, _: Layout) -> Result<NonNull<u8>, AllocError> {
        panic!("a slab takes ranges of a paged source, no blocks")
    }

    unsafe fn release(&self, _: NonNull<u8>, _: Layout) {
        panic!("as above")
    }

    fn paged(&self) -> Option<&dyn PagedSource> {
        Some(self)
    }
}

// SAFETY: the ranges are the inner source's, each passed on once.
unsafe impl PagedSource for PagedRecorder {
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let mut books = self.count(layout.size())?;
        let start = self.inner().reserve(layout)?;
        assert!(books.lent.insert(start.addr().get(), layout).is_none(), "lent twice");
        Ok(start)
    }

    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
        let mut books = self.count(len)?;
        let first = start.addr().get();
        let (range, layout) = books.lent.range(..=first).next_back().expect("in a lent range");
        assert!(first + len <= range + layout.size(), "within the lent range");
        if let Some((before, bytes)) = books.committed.range(..first + len).next_back() {
            assert!(before + bytes <= first, "memory where there is some already");
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner().commit(start, len)? };
        books.committed.insert(first, len);
        Ok(())
    }

    unsafe fn decommit(&self, start: NonNull<u8>, len: usize) {
        let first = start.addr().get();
        assert_eq!(locked(&self.books).committed.get(&first), Some(&len), "taken like this");
        // SAFETY: passed on to the caller.
        unsafe { self.inner().decommit(start, len) }
        // After the call: a commit of these pages during the call would lose its bytes, and is
        // detected.
        assert!(locked(&self.books).committed.remove(&first).is_some(), "given back once");
    }

    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout) {
        let mut books = locked(&self.books);
        let first = start.addr().get();
        assert_eq!(books.lent.remove(&first), Some(layout), "returned as it was lent, once");
        let inside = books.committed.range(first..first + layout.size()).next();
        assert_eq!(inside, None, "returned without memory in it");
        drop(books);
        // SAFETY: passed on to the caller.
        unsafe { self.inner().unreserve(start, layout) }
    }
}
