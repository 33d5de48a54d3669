//! Where the agent's memory comes from: the library's allocators, or plain malloc for comparison.
//!
//! The program is generic over [`Memory`], and compiled for both. A request's work allocates with
//! the handle of a [`RequestMemory`], and the reply's bytes own that memory.
//!
//! # Invariants
//!
//! 1. The bytes of an [`ArenaReply`] lie in its arena (or nowhere, if there are none). Nothing else
//!    has the arena, and nothing allocates from it, resets it or rewinds it.
//! 2. A block of [`MallocMemory`] came from `System` with the layout that it is freed with.

use crate::tier::Tier;
use allocator_api2::alloc::{AllocError as Refused, Allocator};
use allocator_api2::vec::Vec as VecIn;
use allotment::{AllocError, Arena, Budget, ErrorKind, FreeList, ListBox};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::ops::DerefMut;
use std::ptr::NonNull;

mod slab_memory;

pub use crate::buffer_node::FullBufferNode;
pub use slab_memory::SlabStoreMemory;

/// The statistics of the store's buffers of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStatistics {
    /// The name of the allocators.
    pub name: &'static str,
    /// Buffers, or list nodes, in use.
    pub live: u64,
    /// Bytes of these buffers.
    pub live_bytes: u64,
    /// Bytes taken from the system for them.
    pub held_bytes: u64,
    /// Calls to the system for them since the start.
    pub system_calls: u64,
}

/// A source of the agent's memory.
pub trait Memory: Sized + Debug + Send + Sync + 'static {
    /// Its name in `--allocator`.
    const NAME: &'static str;

    /// The memory of one request.
    type Request: RequestMemory;

    /// Objects of one kind, which one thread allocates and frees.
    type List<T>: ObjectList<T>;

    /// The pool for ordinary code of one thread.
    type Pool;

    /// Creates the allocators, with this limit if they support one. Malloc does not.
    ///
    /// # Errors
    /// When the limit is too small for the allocators' own structures.
    fn new(limit: Option<&Budget>) -> Result<Self, AllocError>;

    /// Returns the memory of a request. The closure supplies the worker's arena if arenas are used.
    fn request(arena: impl FnOnce() -> Arena) -> Self::Request;

    /// Creates a pool of this name, for the calling thread.
    ///
    /// # Errors
    /// When its first memory is not available.
    fn pool(&self, name: &str) -> Result<Self::Pool, AllocError>;

    /// Runs work whose ordinary `Box`, `Vec` and `String` come from the pool.
    fn enter<R>(pool: &Self::Pool, work: impl FnOnce() -> R) -> R;

    /// Creates a list of this name.
    ///
    /// # Errors
    /// When its structures are not available.
    fn list<T>(&self, name: &str) -> Result<Self::List<T>, AllocError>;

    /// Allocates an uninitialised buffer for this many points of this tier, aligned to 8 bytes.
    ///
    /// # Errors
    /// When the limit or the system refuses.
    fn alloc_buffer(&self, tier: Tier, points: u16) -> Result<NonNull<u8>, AllocError>;

    /// Frees a buffer.
    ///
    /// # Safety
    /// The buffer came from `alloc_buffer` of this memory with the same tier and points, and is not
    /// used any more.
    unsafe fn free_buffer(&self, tier: Tier, points: u16, buffer: NonNull<u8>);

    /// Reserves buffers, if the allocator can, so that allocating them later needs no call to the
    /// system. Each item is a tier, a number of points, and a number of buffers. Buffers that were
    /// reserved before and not allocated yet count.
    ///
    /// # Errors
    /// When the limit or the system refuses. The buffers can still be allocated one by one.
    fn reserve_buffers(
        &self,
        buffers: impl Iterator<Item = (Tier, u16, usize)>,
    ) -> Result<(), AllocError>;

    /// Allocates an uninitialised node for a list of full buffers.
    ///
    /// # Errors
    /// When the limit or the system refuses.
    fn alloc_node(&self) -> Result<NonNull<FullBufferNode>, AllocError>;

    /// Frees a node.
    ///
    /// # Safety
    /// The node came from `alloc_node` of this memory, and is not used any more.
    unsafe fn free_node(&self, node: NonNull<FullBufferNode>);

    /// Returns the statistics of the buffers; empty if the allocator has none.
    fn buffer_statistics(&self) -> Vec<BufferStatistics>;

    /// Gives the calling thread's free memory and empty pages back.
    fn trim(&self);
}

/// The memory of one request, freed together or object by object.
pub trait RequestMemory: Sized + Send + 'static {
    /// Whether objects that are left in it need not be freed one by one.
    const FREED_TOGETHER: bool;

    /// The allocator of its collections.
    type Handle<'r>: Allocator + Copy
    where
        Self: 'r;

    /// Bytes that own the request's memory.
    type Reply: AsRef<[u8]> + Send + 'static;

    /// Returns the allocator for collections.
    fn handle(&self) -> Self::Handle<'_>;

    /// Runs the request's work. The bytes that it returns, made with the handle, become the reply.
    ///
    /// # Errors
    /// The error of the work. The memory is then freed.
    fn render<E>(
        self,
        work: impl for<'r> FnOnce(&'r Self) -> Result<VecIn<u8, Self::Handle<'r>>, E>,
    ) -> Result<Self::Reply, E>;
}

/// Objects of one kind, which one thread allocates and frees.
pub trait ObjectList<T> {
    /// An object, which frees itself when it is dropped.
    type Object<'l>: DerefMut<Target = T>
    where
        Self: 'l;

    /// Allocates an object for the value.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn put(&self, value: T) -> Result<Self::Object<'_>, AllocError>;
}

impl<T> ObjectList<T> for FreeList<T> {
    type Object<'l>
        = ListBox<'l, T>
    where
        Self: 'l;

    fn put(&self, value: T) -> Result<ListBox<'_, T>, AllocError> {
        self.try_alloc(value).map_err(|(error, _)| error)
    }
}

/// The arena of a request.
#[derive(Debug)]
pub struct ArenaRequest(Arena);

/// A reply in the arena of its request.
#[derive(Debug)]
pub struct ArenaReply {
    bytes: NonNull<[u8]>,
    /// Owns the memory of `bytes`. Never read.
    _arena: Arena,
}

// SAFETY: the bytes lie in the arena (1), which may go to another thread, and nothing changes them.
unsafe impl Send for ArenaReply {}

impl AsRef<[u8]> for ArenaReply {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the arena, which nothing changes (1).
        unsafe { self.bytes.as_ref() }
    }
}

impl RequestMemory for ArenaRequest {
    const FREED_TOGETHER: bool = true;

    type Handle<'r> = &'r Arena;
    type Reply = ArenaReply;

    fn handle(&self) -> &Arena {
        &self.0
    }

    fn render<E>(
        self,
        work: impl for<'r> FnOnce(&'r Self) -> Result<VecIn<u8, &'r Arena>, E>,
    ) -> Result<ArenaReply, E> {
        // The vector never frees the bytes: the arena frees everything together.
        let mut bytes = ManuallyDrop::new(work(&self)?);
        let bytes = NonNull::from(bytes.as_mut_slice());
        Ok(ArenaReply { bytes, _arena: self.0 })
    }
}

/// The system's malloc.
#[derive(Clone, Copy, Debug, Default)]
pub struct MallocMemory;

// SAFETY: `System` keeps the contract of `GlobalAlloc`, which implies this one: blocks stay valid
// until they are freed, and all copies are the same allocator. A size of zero gets no block.
unsafe impl Allocator for MallocMemory {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, Refused> {
        let block = match layout.size() {
            0 => std::ptr::without_provenance_mut(layout.align()),
            // SAFETY: the size is not zero.
            _ => unsafe { System.alloc(layout) },
        };
        let block = NonNull::new(block).ok_or(Refused)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: by the trait's contract the block came from `allocate` with a layout that
            // fits (2).
            unsafe { System.dealloc(block.as_ptr(), layout) }
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, Refused> {
        if old.size() == 0 || old.align() != new.align() {
            let grown = self.allocate(new)?;
            // SAFETY: the new block is larger, and distinct.
            unsafe {
                block.copy_to_nonoverlapping(grown.cast(), old.size());
                self.deallocate(block, old);
            }
            return Ok(grown);
        }
        // SAFETY: the block came from `System` with this layout (2). The new size is larger, so it
        // is not zero.
        let grown = unsafe { System.realloc(block.as_ptr(), old, new.size()) };
        let grown = NonNull::new(grown).ok_or(Refused)?;
        Ok(NonNull::slice_from_raw_parts(grown, new.size()))
    }

    #[inline]
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, Refused> {
        if new.size() == 0 || old.align() != new.align() {
            let shrunk = self.allocate(new)?;
            // SAFETY: the new block has its size, and is distinct.
            unsafe {
                block.copy_to_nonoverlapping(shrunk.cast(), new.size());
                self.deallocate(block, old);
            }
            return Ok(shrunk);
        }
        // SAFETY: the block came from `System` with this layout (2). The new size is not zero, and
        // the old one is larger.
        let shrunk = unsafe { System.realloc(block.as_ptr(), old, new.size()) };
        let shrunk = NonNull::new(shrunk).ok_or(Refused)?;
        Ok(NonNull::slice_from_raw_parts(shrunk, new.size()))
    }
}

impl RequestMemory for MallocMemory {
    const FREED_TOGETHER: bool = false;

    type Handle<'r> = Self;
    type Reply = MallocReply;

    fn handle(&self) -> Self {
        *self
    }

    fn render<E>(
        self,
        work: impl for<'r> FnOnce(&'r Self) -> Result<VecIn<u8, Self>, E>,
    ) -> Result<MallocReply, E> {
        work(&self).map(MallocReply)
    }
}

/// A reply in a block of malloc.
#[derive(Debug)]
pub struct MallocReply(VecIn<u8, MallocMemory>);

impl AsRef<[u8]> for MallocReply {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A list with one block for each object.
#[derive(Debug)]
pub struct BoxList;

impl<T> ObjectList<T> for BoxList {
    type Object<'l> = allocator_api2::boxed::Box<T, MallocMemory>;

    fn put(&self, value: T) -> Result<Self::Object<'_>, AllocError> {
        allocator_api2::boxed::Box::try_new_in(value, MallocMemory)
            .map_err(|_| AllocError::new(ErrorKind::SourceRefused, size_of::<T>()))
    }
}

impl MallocMemory {
    fn block(layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = Self.allocate(layout).map(NonNull::cast);
        block.map_err(|_| AllocError::new(ErrorKind::SourceRefused, layout.size()))
    }
}

/// Returns the layout of a buffer.
fn buffer_layout(tier: Tier, points: u16) -> Layout {
    let bytes = usize::from(points) * tier.point_bytes();
    Layout::from_size_align(bytes, 8).expect("a buffer is small")
}

impl Memory for MallocMemory {
    const NAME: &'static str = "malloc";

    type Request = Self;
    type List<T> = BoxList;
    type Pool = ();

    fn new(_: Option<&Budget>) -> Result<Self, AllocError> {
        Ok(Self)
    }

    fn request(_: impl FnOnce() -> Arena) -> Self {
        Self
    }

    fn pool(&self, _: &str) -> Result<(), AllocError> {
        Ok(())
    }

    fn enter<R>((): &(), work: impl FnOnce() -> R) -> R {
        work()
    }

    fn list<T>(&self, _: &str) -> Result<BoxList, AllocError> {
        Ok(BoxList)
    }

    fn alloc_buffer(&self, tier: Tier, points: u16) -> Result<NonNull<u8>, AllocError> {
        Self::block(buffer_layout(tier, points))
    }

    unsafe fn free_buffer(&self, tier: Tier, points: u16, buffer: NonNull<u8>) {
        // SAFETY: the caller promises that the buffer came from `alloc_buffer`, which used this
        // layout.
        unsafe { self.deallocate(buffer, buffer_layout(tier, points)) }
    }

    fn reserve_buffers(
        &self,
        _: impl Iterator<Item = (Tier, u16, usize)>,
    ) -> Result<(), AllocError> {
        Ok(())
    }

    fn alloc_node(&self) -> Result<NonNull<FullBufferNode>, AllocError> {
        Self::block(Layout::new::<FullBufferNode>()).map(NonNull::cast)
    }

    unsafe fn free_node(&self, node: NonNull<FullBufferNode>) {
        // SAFETY: the caller promises that the node came from `alloc_node`, which used this layout.
        unsafe { self.deallocate(node.cast(), Layout::new::<FullBufferNode>()) }
    }

    fn buffer_statistics(&self) -> Vec<BufferStatistics> {
        Vec::new()
    }

    fn trim(&self) {}
}
