//! `pmr-monotonic` and `pmr-pool`: the memory resources of the C++ standard library, for a task's
//! memory.
//!
//! Both take their chunks from `new_delete_resource()`, which calls the C library's malloc. Both
//! are called through FFI, with one call for each object (`pmr.cpp` compares that with a
//! container's call).
//!
//! A `monotonic_buffer_resource` frees nothing before it ends. An `unsynchronized_pool_resource`
//! also takes objects back one by one, on the one thread that uses it. For objects that belong to
//! no task, each thread has one for the thread's lifetime. Neither grows in place: like a
//! `std::pmr::vector`, `grow` allocates, copies and frees the old block.
//!
//! # Invariants
//!
//! 1. A resource lives in its thread's [`Storage`] exactly as long as its task: `begin` creates it,
//!    and dropping the task destroys it. In a [`ThreadPool`] it lives as long as that value.
//!    `begin` borrows the storage for that time, so there is one resource at a time. The storage is
//!    boxed, so the resource never moves. A task that is forgotten leaks its memory. The next
//!    resource is then created in the same storage, which C++ allows without a call of the old
//!    object's destructor.
//! 2. A block comes from the task's or the thread's resource, and its callers return it only to
//!    that resource.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AnySize, FreedBy, PeerKind, Task};

/// Memory for a resource, as large as in `pmr.cpp`, which does not compile if that is too small.
#[repr(C, align(16))]
struct Storage(UnsafeCell<MaybeUninit<[u8; 128]>>);

unsafe extern "C" {
    fn peers_pmr_monotonic_create(storage: *mut c_void);
    fn peers_pmr_monotonic_destroy(storage: *mut c_void);
    fn peers_pmr_monotonic_allocate(storage: *mut c_void, size: usize, align: usize)
    -> *mut c_void;
    fn peers_pmr_pool_create(storage: *mut c_void);
    fn peers_pmr_pool_destroy(storage: *mut c_void);
    fn peers_pmr_pool_allocate(storage: *mut c_void, size: usize, align: usize) -> *mut c_void;
    fn peers_pmr_pool_deallocate(
        storage: *mut c_void,
        block: *mut c_void,
        size: usize,
        align: usize,
    );
}

/// One kind of resource.
pub(crate) trait Resource: 'static {
    const ABOUT: About;

    /// # Safety
    /// `storage` is large and aligned enough, and holds no resource in use.
    unsafe fn create(storage: *mut c_void);

    /// # Safety
    /// `storage` holds a resource of this kind, which is not used again.
    unsafe fn destroy(storage: *mut c_void);

    /// Returns a block, never null: the C++ side ends the process if there is no memory.
    ///
    /// # Safety
    /// `storage` holds a resource of this kind.
    unsafe fn allocate(storage: *mut c_void, layout: Layout) -> *mut c_void;

    /// # Safety
    /// `storage` holds a resource of this kind. `block` came from it, is live, and has this layout.
    unsafe fn deallocate(storage: *mut c_void, block: *mut c_void, layout: Layout);
}

/// A thread's storage, in which each task creates its resource.
pub(crate) struct PerTask<R> {
    storage: Box<Storage>,
    resource: std::marker::PhantomData<R>,
}

/// A task with a resource of its own.
pub(crate) struct ResourceTask<'t, R: Resource>(&'t mut PerTask<R>);

pub(crate) type MonotonicPerTask = PerTask<MonotonicBuffer>;
pub(crate) type PoolPerTask = PerTask<UnsynchronizedPool>;

pub(crate) enum MonotonicBuffer {}
pub(crate) enum UnsynchronizedPool {}

impl Resource for MonotonicBuffer {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "pmr-monotonic",
        "std::pmr::monotonic_buffer_resource of this system's C++ library",
        "every chunk goes back to operator delete when its task ends",
    );

    #[inline]
    unsafe fn create(storage: *mut c_void) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { peers_pmr_monotonic_create(storage) }
    }

    #[inline]
    unsafe fn destroy(storage: *mut c_void) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { peers_pmr_monotonic_destroy(storage) }
    }

    #[inline]
    unsafe fn allocate(storage: *mut c_void, layout: Layout) -> *mut c_void {
        // SAFETY: the caller's promise is the callee's; the alignment is a power of two.
        unsafe { peers_pmr_monotonic_allocate(storage, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn deallocate(_: *mut c_void, _: *mut c_void, _: Layout) {
        // `monotonic_buffer_resource::deallocate` does nothing, and is inlined to nothing in C++.
    }
}

impl Resource for UnsynchronizedPool {
    const ABOUT: About = About {
        frees_within_tasks: true,
        freed_by: FreedBy::ItsThread,
        ..About::peer(
            PeerKind::Arena,
            "pmr-pool",
            "std::pmr::unsynchronized_pool_resource of this system's C++ library",
            "every chunk goes back to operator delete when its task or its thread ends",
        )
    };

    #[inline]
    unsafe fn create(storage: *mut c_void) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { peers_pmr_pool_create(storage) }
    }

    #[inline]
    unsafe fn destroy(storage: *mut c_void) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { peers_pmr_pool_destroy(storage) }
    }

    #[inline]
    unsafe fn allocate(storage: *mut c_void, layout: Layout) -> *mut c_void {
        // SAFETY: the caller's promise is the callee's; the alignment is a power of two.
        unsafe { peers_pmr_pool_allocate(storage, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn deallocate(storage: *mut c_void, block: *mut c_void, layout: Layout) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { peers_pmr_pool_deallocate(storage, block, layout.size(), layout.align()) }
    }
}

impl<R: Resource> PerTask<R> {
    #[inline]
    fn storage(&self) -> *mut c_void {
        self.storage.0.get().cast()
    }
}

impl<R: Resource> Listed for PerTask<R> {
    const ABOUT: About = R::ABOUT;
}

impl<R: Resource> Allocator for PerTask<R> {
    type Task<'t> = ResourceTask<'t, R>;

    fn start() -> Self {
        Self {
            storage: Box::new(Storage(UnsafeCell::new(MaybeUninit::uninit()))),
            resource: std::marker::PhantomData,
        }
    }

    #[inline]
    fn begin(&mut self) -> ResourceTask<'_, R> {
        // SAFETY: the storage is ours alone and holds no resource in use (invariant 1).
        unsafe { R::create(self.storage()) };
        ResourceTask(self)
    }
}

impl<R: Resource> Drop for ResourceTask<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `begin` made the resource, and the task that used it ends here (invariant 1).
        unsafe { R::destroy(self.0.storage()) }
    }
}

impl<R: Resource> Task for ResourceTask<'_, R> {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: the storage holds this task's resource (invariant 1), and what it allocates is
        // not null.
        unsafe { NonNull::new_unchecked(R::allocate(self.0.storage(), layout).cast()) }
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the storage holds this task's resource (invariant 1), the block is its (invariant
        // 2).
        unsafe { R::deallocate(self.0.storage(), ptr.as_ptr().cast(), layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that `new_size` is valid for the alignment.
        let grown = self.alloc(unsafe { Layout::from_size_align_unchecked(new_size, old.align()) });
        // SAFETY: both blocks are live, don't overlap, and have at least `old.size()` bytes; the
        // old one is freed once, with its layout.
        unsafe {
            grown.copy_from_nonoverlapping(ptr, old.size());
            self.free(ptr, old);
        }
        grown
    }
}

/// One `unsynchronized_pool_resource` for each thread, for objects that belong to no task.
pub(crate) struct ThreadPool(PoolPerTask);

impl AnySize for ThreadPool {
    fn start() -> Self {
        let pool = <PoolPerTask as Allocator>::start();
        // SAFETY: the storage is new (invariant 1).
        unsafe { UnsynchronizedPool::create(pool.storage()) };
        Self(pool)
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: the storage holds the resource (invariant 1), and what it allocates is not null.
        unsafe {
            let block = UnsynchronizedPool::allocate(self.0.storage(), layout);
            NonNull::new_unchecked(block.cast())
        }
    }

    #[inline(always)]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the storage holds the resource (invariant 1), the block is its (invariant 2).
        unsafe { UnsynchronizedPool::deallocate(self.0.storage(), ptr.as_ptr().cast(), layout) }
    }

    unsafe fn free_elsewhere(&self, _: NonNull<u8>, _: Layout) {
        panic!("an unsynchronized_pool_resource can't take back objects on another thread");
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // SAFETY: `start` created the resource, and it is not used again (invariant 1).
        unsafe { UnsynchronizedPool::destroy(self.0.storage()) }
    }
}
