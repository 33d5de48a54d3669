//! A plan: this project's allocators serve the blocks of some groups, and malloc serves the rest.
//!
//! Each thread has an arena, a reap or a free list of its own for each group, and one pool for all
//! groups that are to have a pool. All threads share a slab. Malloc serves blocks that another
//! thread frees, except those of pools and slabs, and blocks whose size is not that of their free
//! list or slab.
//!
//! # Invariant
//!
//! A shape's `route` says which memory its blocks are in, from allocation to free: [`PlanMemory`]
//! has the same memories at the same indexes on every thread. The route of a shape that crosses is
//! a pool or a slab.

use super::sequence::{NO_GROUP, RecordedShape};
use super::thread_memory::{MallocCalls, MemoryFactory, RoutedShape, ThreadMemory, by_copy};
use crate::analyse::findings::{AdvisedAllocator, SiteGroup};
use allotment::slab::RawSlabHandle;
use allotment::{Arena, LocalPool, PoolRef, RawFreeList, RawSlab, Reap};
use bench::peers::Global;
use serde::{Deserialize, Serialize};
use std::alloc::Layout;
use std::ptr::NonNull;

/// The group of a route for all blocks of the program.
const EVERYTHING: u32 = NO_GROUP - 1;

/// The allocator for a group's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub group: u32,
    pub allocator: AdvisedAllocator,
    /// An arena that is never reset.
    pub without_reset: bool,
    /// The most frequent size, which a free list or a slab serves.
    pub size: u64,
}

impl Route {
    /// A pool for all blocks of the program.
    pub const POOL_FOR_EVERYTHING: Self = Self {
        group: EVERYTHING,
        allocator: AdvisedAllocator::Pool,
        without_reset: false,
        size: 0,
    };

    /// The route that a group's verdict advises; `None` if that is malloc.
    pub fn of(group: &SiteGroup) -> Option<Self> {
        let verdict = &group.verdict;
        // A sealed object is replayed as an arena that is never reset.
        let (allocator, without_reset) = match verdict.allocator {
            AdvisedAllocator::None => return None,
            AdvisedAllocator::Sealed => (AdvisedAllocator::Arena, true),
            allocator => (allocator, verdict.without_reset),
        };
        Some(Self {
            group: group.id,
            allocator,
            without_reset,
            size: group.behaviour.dominant_size,
        })
    }

    /// Whether it needs [`ThreadMemory::reset`] when no block of its group is live.
    pub fn is_scoped(&self) -> bool {
        match self.allocator {
            AdvisedAllocator::Arena => !self.without_reset,
            AdvisedAllocator::Reap => true,
            _ => false,
        }
    }

    /// The layout of its objects, if all have the same one.
    fn fixed(&self) -> Option<Layout> {
        let fixed = matches!(self.allocator, AdvisedAllocator::FreeList | AdvisedAllocator::Slab);
        let size = usize::try_from(self.size.max(1)).ok()?;
        Layout::from_size_align(size, 1 << size.ilog2().min(3)).ok().filter(|_| fixed)
    }

    fn takes(&self, shape: &RecordedShape, layout: Layout) -> bool {
        let is_for = self.group == shape.group && shape.group != NO_GROUP;
        if !is_for && self.group != EVERYTHING {
            return false;
        }
        match self.allocator {
            AdvisedAllocator::Pool => true,
            AdvisedAllocator::Slab => self.fixed() == Some(layout),
            AdvisedAllocator::FreeList => !shape.crosses && self.fixed() == Some(layout),
            _ => !shape.crosses,
        }
    }
}

/// The shapes of a sequence, each with its layout and route. `None` if a shape is larger than the
/// address space.
pub fn routed_shapes(
    recorded: &[RecordedShape],
    route: impl Fn(&RecordedShape, Layout) -> u32,
) -> Option<Vec<RoutedShape>> {
    let routed = |shape: &RecordedShape| {
        let size = usize::try_from(shape.size).ok()?;
        let layout = Layout::from_size_align(size, 1 << shape.align_log2).ok()?;
        let route = route(shape, layout);
        Some(RoutedShape { layout, route, zeroed: shape.zeroed, crosses: shape.crosses })
    };
    recorded.iter().map(routed).collect()
}

/// The number of the route for a shape, from 1; 0 for malloc.
pub fn route(routes: &[Route], shape: &RecordedShape, layout: Layout) -> u32 {
    let Some(route) = routes.iter().position(|route| route.takes(shape, layout)) else { return 0 };
    // All groups share a pool.
    let pool = |route: &Route| route.allocator == AdvisedAllocator::Pool;
    let route = if pool(&routes[route]) { routes.iter().position(pool) } else { Some(route) };
    route.map_or(0, |route| route as u32 + 1)
}

/// Creates the memory of each thread under a plan.
#[derive(Debug)]
pub struct PlanFactory<G> {
    routes: Vec<Route>,
    /// For each route: its slab.
    slabs: Vec<Option<RawSlab>>,
    malloc: super::thread_memory::MallocFactory<G>,
}

impl<G> PlanFactory<G> {
    pub fn new(routes: Vec<Route>) -> Self {
        let slab = |route: &Route| match route.allocator {
            AdvisedAllocator::Slab => route.fixed().map(RawSlab::new),
            _ => None,
        };
        Self {
            slabs: routes.iter().map(slab).collect(),
            routes,
            malloc: super::thread_memory::MallocFactory::new(),
        }
    }
}

impl<G: Global> MemoryFactory for PlanFactory<G> {
    type Memory<'r> = PlanMemory<'r, G>;

    fn within<R>(
        &self,
        thread: usize,
        leaves: bool,
        work: impl FnOnce(&mut PlanMemory<'_, G>) -> R,
    ) -> R {
        self.malloc.within(thread, leaves, |calls| {
            let mut planned = PlanMemory {
                malloc: std::mem::replace(calls, MallocCalls::new()),
                memories: self.routes.iter().zip(&self.slabs).map(GroupMemory::new).collect(),
                group_of: self.routes.iter().map(|route| route.group).collect(),
            };
            let result = work(&mut planned);
            if leaves {
                std::mem::forget(planned);
            }
            result
        })
    }
}

/// A group's memory on one thread.
#[allow(
    clippy::large_enum_variant,
    reason = "there are only a few, and a box would slow each access"
)]
#[derive(Debug)]
enum GroupMemory<'r> {
    Arena(Arena, bool),
    Reap(Reap),
    List(RawFreeList),
    Pool(LocalPool),
    Slab(RawSlabHandle<'r>),
    /// The route serves no block.
    Nothing,
}

impl<'r> GroupMemory<'r> {
    fn new((route, slab): (&Route, &'r Option<RawSlab>)) -> Self {
        match (route.allocator, slab) {
            (AdvisedAllocator::Arena | AdvisedAllocator::Sealed, _) => {
                Self::Arena(Arena::new(), !route.without_reset)
            }
            (AdvisedAllocator::Reap, _) => Self::Reap(Reap::new()),
            (AdvisedAllocator::FreeList, _) => {
                route.fixed().map_or(Self::Nothing, |layout| Self::List(RawFreeList::new(layout)))
            }
            (AdvisedAllocator::Pool, _) => Self::Pool(LocalPool::new()),
            (AdvisedAllocator::Slab, Some(slab)) => Self::Slab(slab.handle()),
            (AdvisedAllocator::Slab | AdvisedAllocator::None, _) => Self::Nothing,
        }
    }
}

/// One thread's memory under a plan.
#[derive(Debug)]
pub struct PlanMemory<'r, G> {
    malloc: MallocCalls<G>,
    memories: Vec<GroupMemory<'r>>,
    /// For each memory: its group.
    group_of: Vec<u32>,
}

impl<G: Global> ThreadMemory for PlanMemory<'_, G> {
    #[inline(always)]
    fn alloc(&mut self, shape: &RoutedShape) -> *mut u8 {
        if shape.route == 0 {
            return self.malloc.alloc(shape);
        }
        let block = match &self.memories[shape.route as usize - 1] {
            GroupMemory::Arena(arena, _) => arena.alloc_layout(shape.layout),
            GroupMemory::Reap(reap) => reap.alloc_layout(shape.layout),
            GroupMemory::List(list) => list.alloc(),
            GroupMemory::Pool(pool) => pool.alloc_layout(shape.layout),
            GroupMemory::Slab(slab) => slab.alloc(),
            GroupMemory::Nothing => return self.malloc.alloc(shape),
        };
        if shape.zeroed {
            // SAFETY: a fresh block of this layout. A free list's or slab's layout is that of its
            // shapes (`Route::takes`).
            unsafe { block.write_bytes(0, shape.layout.size()) };
        }
        block.as_ptr()
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, shape: &RoutedShape) {
        let Some(route) = shape.route.checked_sub(1) else {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            return unsafe { self.malloc.free(block, shape) };
        };
        // SAFETY: no live block is null. It comes from this memory of this thread, or of another
        // one if the shape crosses (the caller's promise, and the invariant). It is live and has
        // this layout.
        unsafe {
            let start = NonNull::new_unchecked(block);
            match &self.memories[route as usize] {
                // An arena frees no single block.
                GroupMemory::Arena(..) => {}
                GroupMemory::Reap(reap) => reap.free_layout(start, shape.layout),
                GroupMemory::List(list) => list.free(start),
                GroupMemory::Pool(_) if shape.crosses => {
                    PoolRef::free_anywhere(start, shape.layout)
                }
                GroupMemory::Pool(pool) => pool.free_layout(start, shape.layout),
                GroupMemory::Slab(slab) => slab.free(start),
                GroupMemory::Nothing => self.malloc.free(block, shape),
            }
        }
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &RoutedShape, new: &RoutedShape) -> *mut u8 {
        if old.route != new.route || old.layout.align() != new.layout.align() && old.route != 0 {
            // SAFETY: the caller's promise.
            return unsafe { by_copy(self, block, old, new) };
        }
        let Some(route) = old.route.checked_sub(1) else {
            // SAFETY: the caller's promise, and the invariant.
            return unsafe { self.malloc.resize(block, old, new) };
        };
        // SAFETY: as in `free`.
        unsafe {
            let start = NonNull::new_unchecked(block);
            match &self.memories[route as usize] {
                GroupMemory::Arena(arena, _) if new.layout.size() > old.layout.size() => {
                    arena.resize(start, old.layout, new.layout).as_ptr()
                }
                GroupMemory::Reap(reap) => reap.resize(start, old.layout, new.layout).as_ptr(),
                GroupMemory::Pool(pool) if !old.crosses => {
                    pool.resize(start, old.layout, new.layout).as_ptr()
                }
                GroupMemory::Pool(_) => by_copy(self, block, old, new),
                GroupMemory::Nothing => self.malloc.resize(block, old, new),
                // The block shrinks, or its size is the only one of this memory.
                GroupMemory::Arena(..) | GroupMemory::List(_) | GroupMemory::Slab(_) => block,
            }
        }
    }

    fn reset(&mut self, group: u32) {
        let Some(route) = self.group_of.iter().position(|of| *of == group) else { return };
        match &mut self.memories[route] {
            GroupMemory::Arena(arena, true) => arena.reset(),
            GroupMemory::Reap(reap) => reap.reset(),
            _ => {}
        }
    }
}
