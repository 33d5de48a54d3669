//! `LocalPool`: the pool of a thread.

use core::alloc::Layout;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context, Poll};

use super::core::{Core, Making};
use super::current::Entered;
use super::pieces::Growth;
use super::pool_builder::{LocalPoolBuilder, Settings};
use super::pool_ref::PoolRef;
use super::watch::Watch;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::layout::MAX_GROWTH;
use crate::memory::release::Release;
use crate::memory::{region, tools};
use crate::statistics::{Kind, Record, Statistics};

/// What an ended pool leaves to the next one at most, if it was not told otherwise.
const LEFT: usize = 256 << 10;
/// The bytes of freed large blocks that a pool keeps for the next ones, if it was not told otherwise.
const LARGE_KEPT: usize = 4 << 20;
/// How long a pool may have more than it keeps, in milliseconds, if it was not told otherwise: one that fills and empties
/// takes page faults for that no more than once in so long.
const PATIENCE: u64 = 1000;

/// Memory of any size and alignment for the objects of one thread, without a lock.
///
/// The pool is its thread's: it is neither `Send` nor `Sync`. Its blocks may go anywhere. One that is freed on another thread goes
/// back by a list that the owner takes as a whole; a pool that ends while blocks live keeps what they lie in, and frees that
/// with the last one.
///
/// Three ways to use it:
/// - [`enter`](Self::enter) it, and let [`current`](crate::current) collections and strings, or with
///   [`Routed`](crate::Routed) every `Box`, `Vec` and `String` of the thread, come from it;
/// - give [`reference`](Self::reference) to collections that take an allocator;
/// - take blocks by layout.
///
/// Size classes are those of [`Reap`](crate::Reap), and so is the waste. Larger objects get memory of their own, in units of
/// 64 KiB. All pools lie in one range of addresses, of which 64 GiB are reserved when the first one wants memory (less, where
/// the process may not have so many).
///
/// After the *Thread-local Memory Pool* pattern (in *Performance Patterns*), without its two liabilities: freeing on another thread is
/// as good as any, and no interface needs an allocator's parameter.
///
/// ```
/// use allotment::{LocalPool, PoolRef};
///
/// let pool = LocalPool::new();
/// pool.enter(|| {
///     let text = allotment::PoolString::from("in the pool"); // by default in the current one
///     assert_eq!(text.pool(), pool.reference());
/// });
/// assert_eq!(allotment::current(), PoolRef::GLOBAL);
/// ```
///
/// It can neither go to another thread nor be used there:
///
/// ```compile_fail,E0277
/// let pool = allotment::LocalPool::new();
/// std::thread::spawn(move || drop(pool));
/// ```
///
/// ```compile_fail,E0277
/// let pool = allotment::LocalPool::new();
/// std::thread::scope(|scope| drop(scope.spawn(|| pool.enter(|| ()))));
/// ```
#[derive(Debug)]
pub struct LocalPool {
    core: &'static Core,
    record: &'static Record,
    settings: Settings,
    /// Every allocation goes to malloc, for debugging: the pool has nothing.
    passthrough: bool,
    thread_bound: PhantomData<*const ()>,
}

impl LocalPool {
    /// A pool with defaults. Takes no memory yet.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A pool with defaults.
    ///
    /// # Errors
    /// A record or a core that can't be had: there are at most 65,536 pools.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::builder().try_build()
    }

    /// A pool that holds so many bytes, with its pages faulted in: until they are used up no call goes to the system, and no
    /// page fault happens, but for blocks of more than 32 KiB, which have memory of their own.
    ///
    /// # Panics
    /// Aborts when there is no such memory.
    #[must_use]
    pub fn with_reserved(bytes: usize) -> Self {
        Self::builder().reserved(bytes).build()
    }

    /// The fallible twin of [`with_reserved`](Self::with_reserved).
    ///
    /// # Errors
    /// When there is no such memory.
    pub fn try_with_reserved(bytes: usize) -> Result<Self, AllocError> {
        Self::builder().reserved(bytes).try_build()
    }

    /// Begins a pool with options.
    pub const fn builder() -> LocalPoolBuilder {
        LocalPoolBuilder::new()
    }

    pub(super) fn make(settings: Settings) -> Result<Self, AllocError> {
        // A pool that the thread is in may end before the new one.
        let _outside = Entered::new(ptr::null());
        let passthrough = tools::passthrough();
        let watch = if passthrough {
            None
        } else {
            Watch::wanted(settings.hardened, Kind::Pool.word(), settings.name.as_deref())
        };
        let record = Record::acquire(Kind::Pool, settings.name.as_deref())?;
        let large_kept = match settings.release {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes,
            Release::Decay(_) | Release::Adaptive => LARGE_KEPT,
        };
        let (initial, increment) = (settings.initial, settings.increment);
        let growth = Growth { initial, increment, large_kept };
        let budget = settings.budget.clone();
        let reports_live = settings.report_live == Some(true);
        let making = Making { budget, growth, record, watch, passthrough, reports_live };
        let core = Core::acquire(making).inspect_err(|_| record.release())?;
        let reserved = settings.reserved;
        let pool = Self { core, record, settings, passthrough, thread_bound: PhantomData };
        if reserved > 0 && !passthrough {
            // SAFETY: the pool is ours and new.
            unsafe { core.blocks() }.reserve(reserved)?;
        }
        Ok(pool)
    }

    /// The name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.settings.name.as_deref()
    }

    /// What objects of the pool carry: eight bytes, `Copy`, good on any thread and after the pool's end.
    #[inline]
    #[must_use]
    pub fn reference(&self) -> PoolRef {
        if self.passthrough { PoolRef::GLOBAL } else { PoolRef::of(self.core) }
    }

    // ---- blocks ----

    /// A block for this layout, uninitialised. One of size zero is a block like any other.
    ///
    /// # Panics
    /// Aborts where [`try_alloc_layout`](Self::try_alloc_layout) returns an error.
    #[inline]
    #[must_use]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        always(self.alloc_or::<Abort>(layout))
    }

    /// A block for this layout, uninitialised.
    ///
    /// # Errors
    /// When no memory is to be had from the budget or the system, or the range of all pools is used up; a size beyond the
    /// address space.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<Report>(layout)
    }

    #[inline(always)]
    fn alloc_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: the pool is its thread's: neither `Send` nor `Sync`.
        unsafe { self.core.alloc::<F>(layout) }
    }

    /// A block that is at hand, if there is one; else there is more to do. For the C interface, whose slow path is its own.
    #[doc(hidden)]
    #[inline(always)]
    pub fn take_at_hand(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: as in `alloc_or`.
        unsafe { self.core.alloc_free(layout) }
    }

    /// Frees a block of this pool. [`PoolRef::free_anywhere`] frees one of any pool, on any thread.
    ///
    /// # Safety
    /// The block came from this pool with this layout (or was resized to it), was not freed since, and is not used any more.
    #[inline]
    pub unsafe fn free_layout(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as in `alloc_or`; passed on to the caller.
        unsafe { self.core.free(block, layout) }
    }

    /// Gives a block of this pool another size; its first bytes stay. In place where it can be.
    ///
    /// # Panics
    /// Aborts where [`try_resize`](Self::try_resize) returns an error.
    ///
    /// # Safety
    /// As for [`free_layout`](Self::free_layout), of the old block; the new size is valid for the alignment.
    #[inline]
    #[must_use]
    pub unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: passed on to the caller.
        always(unsafe { self.try_resize(block, old, new_size) }.map_err(Abort::fail))
    }

    /// The fallible twin of [`resize`](Self::resize).
    ///
    /// # Errors
    /// When no memory is to be had; the block is then as it was.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    #[inline]
    pub unsafe fn try_resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller; as in `alloc_or`.
        unsafe { self.core.resize(block, old, new_size) }
    }

    // ---- the current pool ----

    /// Runs with this pool as the thread's [`current`](crate::current) one. Pools may be entered inside of others, and the same one
    /// twice; a panic leaves it as a return does. When the thread is out of it, the pool takes back what other threads freed, and
    /// gives memory back that its release policy doesn't keep.
    pub fn enter<R>(&self, run: impl FnOnce() -> R) -> R {
        struct Leave<'p>(&'p LocalPool, *const ());
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                // SAFETY: entered below, and what was entered since was left.
                unsafe { self.0.leave_for(self.1) };
            }
        }
        let _leave = Leave(self, self.enter_until_left());
        run()
    }

    /// The first half of [`enter`](Self::enter), for the C interface: what the thread was in before.
    #[doc(hidden)]
    #[must_use]
    pub fn enter_until_left(&self) -> *const () {
        if self.passthrough {
            return ptr::null();
        }
        Entered::new(self.core).for_good().cast()
    }

    /// The second half: the thread is again in what it was in before. Nothing unwinds.
    ///
    /// # Safety
    /// `before` is what [`enter_until_left`](Self::enter_until_left) returned for this pool on this thread, what the thread
    /// entered after that was left, and what it was in before has not ended.
    #[doc(hidden)]
    pub unsafe fn leave_for(&self, before: *const ()) {
        if self.passthrough {
            return;
        }
        let before = before.cast::<Core>();
        if !ptr::eq(before, self.core) {
            self.core.push_outgoing();
        }
        if before.is_null() {
            self.left();
        }
        Entered::new(before).for_good();
    }

    /// A future that polls another one within this pool. It can't leave the pool's thread.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let pool = allotment::LocalPool::new();
    /// let work = pool.enter_future(async { allotment::current() });
    /// let mut context = Context::from_waker(Waker::noop());
    /// let Poll::Ready(current) = pin!(work).poll(&mut context) else { unreachable!() };
    /// assert_eq!(current, pool.reference());
    /// ```
    ///
    /// ```compile_fail,E0277
    /// fn spawn(work: impl Future + Send) {}
    /// let pool = allotment::LocalPool::new();
    /// spawn(pool.enter_future(async {}));
    /// ```
    pub fn enter_future<F: Future>(&self, future: F) -> InPool<'_, F> {
        InPool { pool: self, future }
    }

    /// The thread is in no pool any more.
    fn left(&self) {
        let (kept, patience) = match self.settings.release {
            Release::AtOnce => (0, 0),
            Release::Keep(bytes) => (bytes, 0),
            Release::Decay(time) => {
                (MAX_GROWTH, u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            Release::Adaptive => (MAX_GROWTH, PATIENCE),
        };
        // SAFETY: as in `alloc_or`.
        unsafe { self.core.settle(kept, patience) };
    }

    // ---- memory ----

    /// Gives memory back that holds nothing, whatever the release policy keeps. Returns the bytes given back. Costs a look at each
    /// free block.
    pub fn trim(&self) -> usize {
        // SAFETY: as in `alloc_or`.
        unsafe { self.core.trim() }
    }

    /// What the pool holds. Exact, but for blocks that other threads have freed and not sent yet (at most 32 for each of them that
    /// is in a pool of its own); what [`report`](crate::report()) says may be older: as of the last call that took or gave
    /// memory, or asked for this. Live bytes are those of the blocks' classes. What an ended pool left in use, and this one took
    /// over, counts here: a new pool need not begin at nothing, but with a budget it does. In pass-through mode there is nothing.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        // SAFETY: as in `alloc_or`.
        let (blocks, bytes) = unsafe { self.core.live() };
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
        self.record.statistics()
    }

    /// Whether an address lies in the memory of any pool. Three instructions and a branch.
    #[must_use]
    pub fn any_holds<T>(pointer: *const T) -> bool {
        region::contains(pointer.addr())
    }
}

impl Default for LocalPool {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LocalPool {
    /// Ends the pool. What its live blocks lie in stays, until the last of them is freed.
    fn drop(&mut self) {
        self.report_live();
        let left = match self.settings.release {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes.min(LEFT),
            Release::Decay(_) | Release::Adaptive => LEFT,
        };
        // SAFETY: as in `alloc_or`; nobody uses the pool after this.
        unsafe { self.core.end(left) };
    }
}

impl LocalPool {
    fn report_live(&self) {
        use std::io::Write;
        if self.settings.report_live != Some(true) || self.passthrough {
            return;
        }
        let live = self.statistics().live_objects;
        if live > 0 {
            let name = crate::statistics::printable(self.name().unwrap_or("(no name)"));
            let _ = writeln!(
                std::io::stderr(),
                "allotment: pool '{name}' ended with {live} objects in use; their memory stays until they are freed"
            );
        }
    }
}

/// A future that is polled within a pool; made by [`LocalPool::enter_future`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct InPool<'p, F> {
    pool: &'p LocalPool,
    future: F,
}

impl<F: Future> Future for InPool<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the inner future is pinned with the outer one: it is not moved out, and there is no `Drop` or `Unpin` of our own.
        let (pool, future) = unsafe {
            let this = self.get_unchecked_mut();
            (this.pool, Pin::new_unchecked(&mut this.future))
        };
        pool.enter(|| future.poll(context))
    }
}
