//! `LocalPool`: a pool that belongs to one thread.

use core::alloc::Layout;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context, Poll};

use super::checked::BlockLedger;
use super::current::{CurrentPoolGuard, replace_current};
use super::parked::AcquireOptions;
use super::pool_ref::PoolRef;
use super::settings::BlockSettings;
use super::shared::PoolShared;
use crate::collections::layout_calls;
use crate::error::{AllocError, ErrorKind, OnFailure, OnRefusal};
use crate::memory::layout::MAX_GROWTH;
use crate::memory::release::Release;
use crate::memory::{region, tools};
use crate::options::new_calls;
use crate::statistics::{AllocatorKind, Record, Statistics};

/// Default limit on the bytes of empty chunks that an ended pool leaves to the next pool.
const MAX_LEFT_BYTES: usize = 256 << 10;
/// Default limit on the bytes of freed large blocks that a pool keeps for later ones.
const SPARE_LARGE_BYTES: usize = 4 << 20;
/// That limit after it has adapted to blocks that are allocated and freed again and again.
const MOST_SPARE_BYTES: usize = 64 << 20;
/// A report of live objects names at most this number of sizes: those with the most bytes.
const MAX_REPORTED_SIZES: usize = 8;
/// How long a pool may hold more than it keeps by default, in milliseconds. A pool that fills and
/// empties repeatedly pays for the page faults of released memory at most once in this time.
const RELEASE_DELAY_MS: u64 = 1000;

/// A pool of memory for one thread's objects, of any size and alignment, without a lock.
///
/// The pool stays on its thread: it is neither `Send` nor `Sync`. Its blocks may go anywhere. A
/// block that another thread frees goes on the pool's remote list, and the owning thread reclaims
/// that whole list at once. A pool that ends while blocks are live keeps their memory, and releases
/// it when the last of them is freed.
///
/// There are three ways to use it:
/// - [`enter`](Self::enter) it. Then [`PoolBox`](crate::PoolBox), [`PoolVec`](crate::PoolVec) and
///   [`PoolString`](crate::PoolString) allocate from it by default, or with
///   [`PoolGlobalAlloc`](crate::PoolGlobalAlloc) every `Box`, `Vec` and `String` of the thread.
/// - Give its [`reference`](Self::reference) to collections that take an allocator.
/// - Allocate and free blocks by layout.
///
/// The size classes, and so the unused bytes, are those of [`Reap`](crate::Reap). Each larger
/// object gets memory of its own, in units of 64 KiB. All pools share one range of addresses: 64
/// GiB, reserved when the first pool needs memory, or less where the process cannot reserve that
/// much.
///
/// The design follows the *Thread-local Memory Pool* pattern (in *Performance Patterns*) without
/// its two liabilities: a block may be freed on any thread, and no interface needs an allocator
/// parameter.
///
/// ```
/// use allotment::{LocalPool, PoolRef};
///
/// let pool = LocalPool::new();
/// pool.enter(|| {
///     let text = allotment::PoolString::from("in the pool"); // by default in the current one
///     assert_eq!(text.pool(), pool.reference());
/// });
/// assert_eq!(allotment::pool::current(), PoolRef::GLOBAL);
/// ```
///
/// A pool can neither be sent to another thread nor be used there:
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
pub struct LocalPool {
    shared: &'static PoolShared,
    record: &'static Record,
    name: Option<Box<str>>,
    /// The bytes of empty chunks that the pool leaves to the next one when it ends.
    left_bytes: usize,
    /// Whether the end reports live objects.
    reports_live: bool,
    /// Every allocation goes to the global heap, and the pool holds nothing: for debugging, or
    /// because there are as many pools as there may be.
    passthrough: bool,
    thread_bound: PhantomData<*const ()>,
}

/// # Create
impl LocalPool {
    new_calls! {
        "pool";
        /// If a statistics record or a pool structure is not available. There are at most 65,536
        /// pools at a time, ended ones with live blocks included; beyond that, a pool without
        /// options uses the global heap (its [`reference`](Self::reference) is
        /// [`PoolRef::GLOBAL`]), and the others are refused.
    }

    /// Creates a pool with a chunk for `bytes` bytes of blocks, whose pages are already faulted in.
    /// Until the chunk is used up, blocks of up to 32 KiB cause no system call and no page fault.
    /// Larger blocks get memory of their own.
    ///
    /// # Panics
    /// Panics or ends the process if the memory is refused: see [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn with_reserved(bytes: usize) -> Self {
        Self::builder().reserved(bytes).build()
    }

    /// Fallible version of [`with_reserved`](Self::with_reserved).
    ///
    /// # Errors
    /// When the memory is not available.
    pub fn try_with_reserved(bytes: usize) -> Result<Self, AllocError> {
        Self::builder().reserved(bytes).try_build()
    }
}

/// Whether a pool is to have a property that the global heap does not have.
fn checked_or_limited(options: &AcquireOptions) -> bool {
    options.budget.is_some() || options.checked.is_some() || options.reports_live
}

impl LocalPool {
    pub(super) fn on_refusal(&self) -> OnRefusal {
        self.shared.on_refusal.get()
    }

    /// Makes a pool. It takes what it needs out of the settings, which are long.
    pub(super) fn make(settings: &mut BlockSettings) -> Result<Self, AllocError> {
        // What follows must not allocate from the current pool, which may end before the new pool.
        let _outside = CurrentPoolGuard::outside();
        let passthrough = tools::passthrough();
        let (name, budget) = (settings.common.name.take(), settings.common.budget.take());
        let common = &settings.common;
        let reports_live = common.reports_live();
        let checked = if passthrough {
            None
        } else {
            BlockLedger::new_if_checked(common.hardened, AllocatorKind::Pool, name.as_deref())
        };
        let record = Record::acquire(AllocatorKind::Pool, name.as_deref())?;
        let (spare, most_spare) = match common.release {
            Release::AtOnce => (0, 0),
            Release::Keep(bytes) => (bytes, bytes),
            Release::Decay(_) | Release::Adaptive => (SPARE_LARGE_BYTES, MOST_SPARE_BYTES),
        };
        let options = AcquireOptions {
            on_refusal: common.on_refusal,
            budget,
            growth: settings.growth(spare, most_spare),
            record,
            checked,
            passthrough,
            reports_live,
        };
        let asks_for_more = checked_or_limited(&options);
        let (shared, passthrough) = match PoolShared::acquire(options) {
            Ok(shared) => (shared, passthrough),
            Err(error) if error.kind() == ErrorKind::LimitReached && !asks_for_more => {
                let shared = PoolShared::create_passthrough(record);
                (shared.inspect_err(|_| record.release())?, true)
            }
            Err(error) => {
                record.release();
                return Err(error);
            }
        };
        let (keep, delay_ms, left_bytes) = match common.release {
            Release::AtOnce => (0, 0, 0),
            Release::Keep(bytes) => (bytes, 0, bytes.min(MAX_LEFT_BYTES)),
            Release::Decay(time) => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                (MAX_GROWTH, millis, MAX_LEFT_BYTES)
            }
            Release::Adaptive => (MAX_GROWTH, RELEASE_DELAY_MS, MAX_LEFT_BYTES),
        };
        shared.keep.set(keep);
        shared.delay_ms.set(delay_ms);
        let reserved = settings.reserved;
        let thread_bound = PhantomData;
        let pool =
            Self { shared, record, name, left_bytes, reports_live, passthrough, thread_bound };
        if reserved > 0 && !passthrough {
            // SAFETY: the pool is new, and only this thread has it.
            unsafe { shared.blocks() }.reserve(reserved)?;
        }
        Ok(pool)
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: a pool is neither `Send` nor `Sync`, so the calling thread owns it.
        unsafe { self.shared.alloc::<F>(layout) }
    }

    /// Takes a free block if the fast path finds one; otherwise the caller takes its slow path. For
    /// the C interface, which has a slow path of its own.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_fast(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: as in `alloc_or`.
        unsafe { self.shared.alloc_from_list(layout) }
    }

    #[inline(always)]
    pub(super) unsafe fn free_block(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as in `alloc_or`; passed on to the caller.
        unsafe { self.shared.free(block, layout) }
    }

    pub(super) unsafe fn resize_block(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: as in `alloc_or`; passed on to the caller.
        unsafe { self.shared.resize(block, old, new_size) }
    }
}

layout_calls! {
    impl[] LocalPool, [&] self;
    /// A size of zero is allowed: the result is an ordinary block.
    ///
    /// A pool has no source. The call fails if the system refuses memory, or if the address range
    /// that all pools share is used up.
    alloc_layout;
    /// [`PoolRef::free_anywhere`] frees a block of any pool, on any thread.
    free_layout;
    ///
    /// The block stays if both sizes are of the same class, if it was carved last and its chunk has
    /// enough bytes behind it, or if it is large and its chunk has the capacity. Otherwise, or if
    /// the alignment changes, it is copied.
    resize;
}

/// # Release memory
impl LocalPool {
    /// Releases all chunks that hold no live block, regardless of the release policy; only a
    /// reserved chunk stays. Returns the number of bytes released. The cost grows with the number
    /// of free blocks.
    pub fn trim(&self) -> usize {
        // SAFETY: as in `alloc_or`.
        unsafe { self.shared.trim() }
    }
}

/// # The current pool
impl LocalPool {
    /// Runs a closure with this pool as the thread's [`current`](crate::pool::current()) pool.
    ///
    /// Pools may be nested, and a pool may be entered again inside itself. A panic leaves the pool
    /// as a return does. A thread that leaves its outermost pool reclaims the blocks of that pool
    /// that other threads have freed, and releases empty memory beyond what the pool's release
    /// policy keeps.
    pub fn enter<R>(&self, run: impl FnOnce() -> R) -> R {
        struct LeaveGuard<'p> {
            pool: &'p LocalPool,
            previous: *const (),
        }
        impl Drop for LeaveGuard<'_> {
            fn drop(&mut self) {
                // SAFETY: entered below.
                unsafe { self.pool.leave_to(self.previous) };
            }
        }
        // SAFETY: the guard calls `leave_to` when `run` returns or unwinds. Until then this call
        // borrows this pool. (If `run` does neither, because it is in a coroutine that is forgotten,
        // the pool stops being the current one when it ends.)
        let _guard = LeaveGuard { pool: self, previous: unsafe { self.enter_unguarded() } };
        run()
    }

    /// First half of [`enter`](Self::enter), for the C interface. Returns the pool that was current
    /// before.
    ///
    /// # Safety
    /// Before this pool ends, the thread calls [`leave_to`](Self::leave_to) with the returned value.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn enter_unguarded(&self) -> *const () {
        if self.passthrough {
            return ptr::null();
        }
        // SAFETY: a pool is neither `Send` nor `Sync`, so the calling thread owns it. When a pool
        // ends, it stops being the current one.
        unsafe { replace_current(ptr::from_ref(self.shared).cast()) }
    }

    /// Second half of [`enter`](Self::enter): makes the previous pool current again. Never unwinds.
    ///
    /// # Safety
    /// `previous` is the value that [`enter_unguarded`](Self::enter_unguarded) returned for this
    /// pool on this thread.
    #[doc(hidden)]
    pub unsafe fn leave_to(&self, previous: *const ()) {
        if self.passthrough {
            return;
        }
        if !ptr::eq(previous.cast(), self.shared) {
            self.shared.flush_outgoing();
        }
        if previous.is_null() {
            // SAFETY: as in `alloc_or`.
            unsafe { self.shared.apply_release_policy() };
        }
        // SAFETY: passed on to the caller.
        unsafe { PoolShared::return_to(previous) };
    }

    /// Wraps a future so that each poll runs inside this pool. The future stays on the pool's
    /// thread.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let pool = allotment::LocalPool::new();
    /// let work = pool.enter_future(async { allotment::pool::current() });
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

    /// Returns a reference for the pool's objects to carry: eight bytes, `Copy`, valid on any
    /// thread and after the pool's end.
    #[inline]
    #[must_use]
    pub fn reference(&self) -> PoolRef {
        if self.passthrough { PoolRef::GLOBAL } else { PoolRef::of_shared(self.shared) }
    }
}

/// # Name and statistics
impl LocalPool {
    /// Returns the pool's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns what the pool holds.
    ///
    /// The numbers are exact, except that blocks freed by other threads may still wait to be sent
    /// back: at most 31 for each thread that is inside a pool of its own. What
    /// [`report`](crate::report()) shows may be older: it dates from the last call that took or
    /// released memory, or the last call of this function. A live block counts with the bytes of
    /// its size class, a larger one with its own size.
    ///
    /// A new pool may take over an ended pool's live blocks and empty chunks; both count here. In a
    /// pool with a budget they do not count: its numbers are what it allocated, and what it holds
    /// for that. (If this or another thread frees one of the live blocks that such a pool took
    /// over, the numbers of live blocks and bytes may be too low by it.) A pool whose blocks are
    /// checked (in hardened mode, or under AddressSanitizer or Valgrind) takes over neither. In
    /// pass-through mode every number is zero.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        // SAFETY: as in `alloc_or`.
        let (blocks, bytes) = unsafe { self.shared.live() };
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
        self.record.statistics()
    }

    /// Returns each size of live objects in bytes and their number, the smallest size first: at the
    /// end of a request, what escapes it. A small object counts with the size of its class.
    /// Allocates the vector on the global heap.
    ///
    /// Live objects that the pool took over from ended pools are among them; a pool with
    /// `report_live(true)` takes over none, and prints this list when it ends. The list is empty in
    /// hardened mode, under memory tools and in pass-through mode.
    ///
    /// ```
    /// let pool = allotment::LocalPool::builder().report_live(true).build();
    /// let escapes = pool.enter(|| (allotment::PoolBox::new([7u8; 40]), allotment::PoolBox::new(7)));
    /// assert_eq!(pool.live_by_size(), [(16, 1), (48, 1)]);
    /// # drop((escapes, pool));
    /// ```
    #[must_use]
    pub fn live_by_size(&self) -> Vec<(usize, usize)> {
        if self.passthrough || self.shared.is_checked() {
            return Vec::new();
        }
        // SAFETY: as in `alloc_or`; the pool is not checked.
        unsafe { self.shared.live_by_size() }
    }

    /// Returns the bytes that the global heap has served because the pool refused them: through
    /// [`PoolGlobalAlloc`](crate::PoolGlobalAlloc), or with
    /// [`OnRefusal::UseGlobalHeap`](crate::OnRefusal::UseGlobalHeap). A request whose pool has a
    /// limit is over the limit if this is not 0. A block counts when it moves to the global heap,
    /// and not again when it grows there.
    ///
    /// ```
    /// use allotment::{LocalPool, OnRefusal, PoolVec};
    ///
    /// let builder = LocalPool::builder().maximum(1 << 20);
    /// let pool = builder.on_refusal(OnRefusal::UseGlobalHeap).build();
    /// let sum = |numbers: u64| PoolVec::from_iter_in(0..numbers, pool.reference()).iter().sum();
    /// let _small: u64 = sum(1000);
    /// assert_eq!(pool.refused_bytes(), 0);
    /// let _large: u64 = sum(1_000_000);
    /// assert!(pool.refused_bytes() > 0, "the server refuses this request");
    /// ```
    #[must_use]
    pub fn refused_bytes(&self) -> usize {
        if self.passthrough { 0 } else { self.shared.refused_bytes.get() }
    }

    /// Whether an address lies in the memory of any pool. Costs a range check; inside the range,
    /// one look-up more.
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

impl fmt::Debug for LocalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPool")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish()
    }
}

// A panic inside the pool leaves the pool as a return does, and no call of the pool runs the user's
// code while it changes anything.
impl UnwindSafe for LocalPool {}
impl RefUnwindSafe for LocalPool {}

impl Drop for LocalPool {
    /// Ends the pool. The memory of its live blocks stays until the last of them is freed.
    fn drop(&mut self) {
        self.report_live();
        if self.passthrough {
            self.record.release();
            // SAFETY: it came from `create_passthrough`, and only this pool has it.
            return unsafe { PoolShared::unmap_passthrough(NonNull::from(self.shared)) };
        }
        // SAFETY: as in `alloc_or`; the pool is not used after this.
        unsafe { self.shared.end(self.left_bytes, self.reports_live) };
    }
}

impl LocalPool {
    fn report_live(&self) {
        use std::io::Write;
        if !self.reports_live || self.passthrough {
            return;
        }
        let live = self.statistics().live_objects;
        if live > 0 {
            let _outside = CurrentPoolGuard::outside();
            let name = crate::statistics::printable(self.name().unwrap_or("(no name)"));
            let mut sizes = self.live_by_size();
            sizes.sort_by_key(|(size, count)| core::cmp::Reverse(size.saturating_mul(*count)));
            let more = if sizes.len() > MAX_REPORTED_SIZES { " and other sizes" } else { "" };
            sizes.truncate(MAX_REPORTED_SIZES);
            let sizes: Vec<_> =
                sizes.iter().map(|(size, count)| format!("{count} of {size} bytes")).collect();
            let sizes = if sizes.is_empty() {
                String::new()
            } else {
                format!(" ({}{more})", sizes.join(", "))
            };
            let _ = writeln!(
                std::io::stderr(),
                "allotment: pool '{name}' ended with {live} objects in use{sizes}; their memory stays until they are freed"
            );
        }
    }
}

/// A future that is polled inside a pool; made by [`LocalPool::enter_future`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct InPool<'p, F> {
    pool: &'p LocalPool,
    future: F,
}

impl<F: Future> Future for InPool<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the inner future is pinned with the outer one: it is never moved out, and this
        // type implements neither `Drop` nor `Unpin` by hand.
        let (pool, future) = unsafe {
            let this = self.get_unchecked_mut();
            (this.pool, Pin::new_unchecked(&mut this.future))
        };
        pool.enter(|| future.poll(context))
    }
}
