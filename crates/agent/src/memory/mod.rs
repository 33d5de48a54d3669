//! Where the agent's memory comes from: the library's allocators, or plain malloc for comparison.
//!
//! The program is written once, generic over [`Memory`], and compiled twice. A request's work takes its memory from
//! the handle of a [`RequestMemory`], and the reply's bytes carry that memory away with them.
//!
//! # Invariants
//!
//! 1. The bytes of an [`ArenaReply`] lie in its arena (or nowhere, when there are none), which nobody else has and nobody
//!    allocates from, resets or rewinds any more.
//! 2. A block of [`MallocMemory`] came from `System` with the layout that it goes back with.

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
pub use slab_memory::SlabMemory;

/// What a store's buffers of one kind hold, by the statistics of their allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStatistics {
    /// The allocators' name.
    pub name: &'static str,
    /// Buffers, or list nodes, in use.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// What was taken from the system for them.
    pub held_bytes: u64,
    /// Calls to the system for them since the start.
    pub system_calls: u64,
}

/// The agent's way to memory.
pub trait Memory: Sized + Debug + Send + Sync + 'static {
    /// What `--allocator` calls it.
    const NAME: &'static str;

    /// The memory of one request.
    type Request: RequestMemory;

    /// Objects of one kind that one thread makes and frees.
    type List<T>: ObjectList<T>;

    /// What a thread's passing work takes its memory from, in ordinary code.
    type Pool;

    /// Under this limit, where there is one and it can be kept: malloc knows none.
    ///
    /// # Errors
    /// When even the allocators' own structures are too much.
    fn new(limit: Option<&Budget>) -> Result<Self, AllocError>;

    /// The memory of a request, which the worker's arena is taken for if arenas serve.
    fn request(arena: impl FnOnce() -> Arena) -> Self::Request;

    /// A pool of this name, for the calling thread.
    ///
    /// # Errors
    /// When its first memory is not to be had.
    fn pool(&self, name: &str) -> Result<Self::Pool, AllocError>;

    /// Runs work whose ordinary `Box`, `Vec` and `String` are the pool's.
    fn enter<R>(pool: &Self::Pool, work: impl FnOnce() -> R) -> R;

    /// A list of this name.
    ///
    /// # Errors
    /// When its structures are not to be had.
    fn list<T>(&self, name: &str) -> Result<Self::List<T>, AllocError>;

    /// Room for so many points of this tier, aligned to 8 bytes, not initialised.
    ///
    /// # Errors
    /// When the limit or the system refuses.
    fn alloc_buffer(&self, tier: Tier, points: u16) -> Result<NonNull<u8>, AllocError>;

    /// Gives a buffer back.
    ///
    /// # Safety
    /// It came from `alloc_buffer` of this very memory with the same tier and points, and is not used any more.
    unsafe fn free_buffer(&self, tier: Tier, points: u16, buffer: NonNull<u8>);

    /// Sees to it that all these buffers can be had without a call to the system, if it can: so many of this tier, with so many
    /// points. What was reserved before and not taken counts.
    ///
    /// # Errors
    /// When the limit or the system refuses; nothing is lost but the time that is saved later.
    fn reserve_buffers(
        &self,
        buffers: impl Iterator<Item = (Tier, u16, usize)>,
    ) -> Result<(), AllocError>;

    /// Room for the node of a list of full buffers, not initialised.
    ///
    /// # Errors
    /// When the limit or the system refuses.
    fn alloc_node(&self) -> Result<NonNull<FullBufferNode>, AllocError>;

    /// Gives a node back.
    ///
    /// # Safety
    /// It came from `alloc_node` of this very memory, and is not used any more.
    unsafe fn free_node(&self, node: NonNull<FullBufferNode>);

    /// What the buffers hold; empty where the allocator can't say.
    fn buffer_statistics(&self) -> Vec<BufferStatistics>;

    /// Gives back what is free, of the calling thread and in empty pages.
    fn trim(&self);
}

/// The memory of one request: freed together, or one by one.
pub trait RequestMemory: Sized + Send + 'static {
    /// Whether what is left in it needs no freeing one by one.
    const FREED_TOGETHER: bool;

    /// What its collections are made with.
    type Handle<'r>: Allocator + Copy
    where
        Self: 'r;

    /// Bytes that carry the request's memory with them.
    type Reply: AsRef<[u8]> + Send + 'static;

    /// For collections.
    fn handle(&self) -> Self::Handle<'_>;

    /// Runs the request's work, whose result, made with the handle, becomes the reply.
    ///
    /// # Errors
    /// The work's own; the memory is free again.
    fn render<E>(
        self,
        work: impl for<'r> FnOnce(&'r Self) -> Result<VecIn<u8, Self::Handle<'r>>, E>,
    ) -> Result<Self::Reply, E>;
}

/// Objects of one kind that one thread makes and frees.
pub trait ObjectList<T> {
    /// An object, which frees itself.
    type Object<'l>: DerefMut<Target = T>
    where
        Self: 'l;

    /// Puts a value in.
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

/// An arena for a request.
#[derive(Debug)]
pub struct ArenaRequest(Arena);

/// A reply in the arena of its request.
#[derive(Debug)]
pub struct ArenaReply {
    bytes: NonNull<[u8]>,
    /// Keeps the bytes.
    _arena: Arena,
}

// SAFETY: the bytes are the arena's (1), which may go to another thread, and nothing changes them.
unsafe impl Send for ArenaReply {}

impl AsRef<[u8]> for ArenaReply {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the arena, which stays as it is (1).
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
        // Never freed by the vector: the arena frees all together.
        let mut bytes = ManuallyDrop::new(work(&self)?);
        let bytes = NonNull::from(bytes.as_mut_slice());
        Ok(ArenaReply { bytes, _arena: self.0 })
    }
}

/// Plain malloc.
#[derive(Clone, Copy, Debug, Default)]
pub struct MallocMemory;

// SAFETY: `System` keeps the contract of `GlobalAlloc`, of which this one is a part: blocks stay until they are freed, and
// all copies are the same. A size of zero gets no block.
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
            // SAFETY: the trait's contract: it came from `allocate` with a layout that fits (2).
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
            // SAFETY: the new block is larger, and another one.
            unsafe {
                block.copy_to_nonoverlapping(grown.cast(), old.size());
                self.deallocate(block, old);
            }
            return Ok(grown);
        }
        // SAFETY: the block came from `System` with this layout (2); the new size is not zero, being larger.
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
            // SAFETY: the new block has room for its size, and is another one.
            unsafe {
                block.copy_to_nonoverlapping(shrunk.cast(), new.size());
                self.deallocate(block, old);
            }
            return Ok(shrunk);
        }
        // SAFETY: the block came from `System` with this layout (2), which is not empty, being larger; nor is the new one.
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

/// A reply in a block of malloc's.
#[derive(Debug)]
pub struct MallocReply(VecIn<u8, MallocMemory>);

impl AsRef<[u8]> for MallocReply {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// One block for each object.
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

/// The layout of a buffer.
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
        // SAFETY: the caller's promise: it came from `alloc_buffer`, with this layout.
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
        // SAFETY: the caller's promise: it came from `alloc_node`, with this layout.
        unsafe { self.deallocate(node.cast(), Layout::new::<FullBufferNode>()) }
    }

    fn buffer_statistics(&self) -> Vec<BufferStatistics> {
        Vec::new()
    }

    fn trim(&self) {}
}
