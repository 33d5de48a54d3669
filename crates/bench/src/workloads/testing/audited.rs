//! A checking allocator, for objects of one size and of any size. It panics if an object is freed
//! twice or with a wrong layout, or if its guard after the end was overwritten.

use super::checked;
use crate::peers::{AnySize, FixedSize, FixedSizeLocal, Requests};
use crate::workloads::observer::Observer;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The events since [`audited`] began.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    pub allocated: u64,
    pub freed: u64,
    /// Objects that were freed by another thread than the allocating one.
    pub freed_elsewhere: u64,
    pub most_live: u64,
    pub most_live_bytes: u64,
    /// The words of the objects, in the order of allocation.
    pub words_allocated: Vec<u64>,
    /// The words of the freed objects as they were allocated, in the order of the frees.
    pub words_freed: Vec<u64>,
    pub reserved: usize,
    pub trims: u64,
    live_bytes: u64,
    live: HashMap<usize, Object>,
}

#[derive(Debug, Clone)]
struct Object {
    word: u64,
    layout: Layout,
    by: ThreadId,
}

/// The guard after each object.
const GUARD: u8 = 0xC5;

fn with_guard(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size() + 1, layout.align()).unwrap()
}

static AUDIT: Mutex<Option<Audit>> = Mutex::new(None);

/// Allows one audit at a time: the tests of a program run in parallel.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn audit() -> MutexGuard<'static, Option<Audit>> {
    AUDIT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<R>(work: impl FnOnce(&mut Audit) -> R) -> R {
    work(audit().as_mut().expect("it is used inside `audited`"))
}

/// Calls `work`, which uses [`Audited`], and returns its events. No object may be left.
pub fn audited<R>(work: impl FnOnce() -> R) -> (R, Audit) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    *audit() = Some(Audit::default());
    let result = work();
    let audit = audit().take().unwrap();
    assert_eq!(audit.live.len(), 0, "objects are left");
    (result, audit)
}

/// The number of live objects, inside `audited`.
pub fn live() -> u64 {
    with(|audit| audit.live.len() as u64)
}

/// Records the number of live objects at each step, inside `audited`.
#[derive(Default)]
pub struct LiveSteps(Mutex<Vec<(&'static str, u64)>>);

impl LiveSteps {
    /// The steps so far, each with its number of live objects.
    pub fn steps(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for LiveSteps {
    fn step(&self, name: &'static str) {
        self.0.lock().unwrap().push((name, live()));
    }
}

/// The checking allocator.
#[derive(Debug)]
pub struct Audited(Layout);

/// An object of [`Audited`].
#[derive(Debug, Clone, Copy)]
pub struct Block(NonNull<u8>);

// SAFETY: only an address, which the workloads hand from thread to thread.
unsafe impl Send for Block {}

impl FixedSize for Audited {
    type Object = Block;
    type Local<'s> = &'s Self;

    fn new(layout: Layout) -> Self {
        Self(layout)
    }

    fn local(&self) -> &Self {
        self
    }

    fn reserve(&self, objects: usize) -> bool {
        with(|audit| audit.reserved += objects);
        true
    }
}

impl FixedSizeLocal for &Audited {
    type Object = Block;

    fn alloc(&self, word: u64) -> Block {
        Block(take(self.0, word))
    }

    unsafe fn free(&self, Block(block): Block) {
        // SAFETY: the caller's promise.
        unsafe { give_back(block, self.0) };
    }

    unsafe fn bytes(&self, Block(block): Block) -> NonNull<u8> {
        assert!(with(|audit| audit.live.contains_key(&block.addr().get())));
        block
    }

    fn trim(&self) -> bool {
        with(|audit| audit.trims += 1);
        true
    }
}

/// For objects of any size. An object's word is its size.
impl AnySize for Audited {
    fn start() -> Self {
        Self(Layout::new::<()>())
    }

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        take(layout, layout.size() as u64)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        let by = unsafe { give_back(ptr, layout) };
        assert_eq!(by, thread::current().id(), "it is the thread's own");
    }

    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { give_back(ptr, layout) };
    }
}

impl Requests for Audited {
    type Memory = Self;

    fn start() -> Self {
        <Self as AnySize>::start()
    }

    fn request<R>(&self, serve: impl FnOnce(&Self) -> R) -> R {
        serve(self)
    }
}

/// Allocates an object with its word.
fn take(layout: Layout, word: u64) -> NonNull<u8> {
    assert!(layout.size() >= size_of::<u64>());
    // SAFETY: the size is not zero. Word and guard fit, and the layout's alignment is at least the
    // word's.
    let block = unsafe {
        let block = checked(alloc(with_guard(layout)), layout);
        block.cast().write(word);
        block.add(layout.size()).write(GUARD);
        block
    };
    with(|audit| {
        audit.allocated += 1;
        audit.words_allocated.push(word);
        audit.live_bytes += layout.size() as u64;
        let object = Object { word, layout, by: thread::current().id() };
        audit.live.insert(block.addr().get(), object);
        audit.most_live = audit.most_live.max(audit.live.len() as u64);
        audit.most_live_bytes = audit.most_live_bytes.max(audit.live_bytes);
    });
    block
}

/// Frees an object and returns the thread that allocated it.
///
/// # Safety
/// If its address is known, it is live. It is not used afterwards.
unsafe fn give_back(block: NonNull<u8>, layout: Layout) -> ThreadId {
    let object = with(|audit| {
        let object = audit.live.remove(&block.addr().get()).expect("it is live");
        audit.freed += 1;
        audit.freed_elsewhere += u64::from(object.by != thread::current().id());
        audit.live_bytes -= object.layout.size() as u64;
        audit.words_freed.push(object.word);
        object
    });
    assert_eq!(object.layout, layout, "it has this layout");
    // SAFETY: it was live until the lines above, with this layout and a guard.
    unsafe {
        assert_eq!(block.add(object.layout.size()).read(), GUARD, "written behind its end");
        dealloc(block.as_ptr(), with_guard(object.layout));
    }
    object.by
}
