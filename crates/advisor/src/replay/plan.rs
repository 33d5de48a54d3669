//! A plan: which group's blocks our allocators take, and malloc takes the rest.
//!
//! Each thread has an arena, a reap or a free list of its own for each group, and one pool for all that are to have one; a slab is
//! one for all threads. Blocks that another thread frees go to malloc, but for those of pools and slabs; so do
//! blocks of another size than the one that a free list or a slab is for.
//!
//! # Invariant
//!
//! A form's `way` says where its blocks are, now and when they are freed: [`Planned`] has the same ways in the same places on every
//! thread. Only pools and slabs are the way of a form that crosses.

use super::memory::{Calls, Form, Memory, Row, by_copy};
use super::sequence::{NO_GROUP, Shape};
use crate::analyse::findings::{Allocator, Group};
use allotment::{Arena, LocalPool, PoolRef, RawFreeList, RawSlab, RawSlabHandle, Reap};
use bench::peers::Global;
use serde::{Deserialize, Serialize};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Where a group's blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub group: u32,
    pub allocator: Allocator,
    /// An arena that is never reset.
    pub without_reset: bool,
    /// The most frequent size: what a free list or a slab has objects of.
    pub size: u64,
}

impl Route {
    /// What a group's verdict asks for; `None` where that is malloc.
    pub fn of(group: &Group) -> Option<Self> {
        let verdict = &group.verdict;
        // What is sealed lies in an arena that is never reset.
        let (allocator, without_reset) = match verdict.allocator {
            Allocator::None => return None,
            Allocator::Sealed => (Allocator::Arena, true),
            allocator => (allocator, verdict.without_reset),
        };
        Some(Self {
            group: group.id,
            allocator,
            without_reset,
            size: group.behaviour.dominant_size,
        })
    }

    /// Whether it wants to be told when nothing of its group is live.
    pub fn is_scoped(&self) -> bool {
        match self.allocator {
            Allocator::Arena => !self.without_reset,
            Allocator::Reap => true,
            _ => false,
        }
    }

    /// It has objects of one size alone, which is that.
    fn fixed(&self) -> Option<Layout> {
        let fixed = matches!(self.allocator, Allocator::FreeList | Allocator::Slab);
        let size = usize::try_from(self.size.max(1)).ok()?;
        Layout::from_size_align(size, 1 << size.ilog2().min(3)).ok().filter(|_| fixed)
    }

    fn takes(&self, shape: &Shape, layout: Layout) -> bool {
        if self.group != shape.group {
            return false;
        }
        match self.allocator {
            Allocator::Pool => true,
            Allocator::Slab => self.fixed() == Some(layout),
            Allocator::FreeList => !shape.crosses && self.fixed() == Some(layout),
            _ => !shape.crosses,
        }
    }
}

/// The forms of a sequence's shapes, each with its way. `None`: a shape that no malloc has.
pub fn forms(shapes: &[Shape], way: impl Fn(&Shape, Layout) -> u32) -> Option<Vec<Form>> {
    let form = |shape: &Shape| {
        let size = usize::try_from(shape.size).ok()?;
        let layout = Layout::from_size_align(size, 1 << shape.align_log2).ok()?;
        let way = if shape.group == NO_GROUP { 0 } else { way(shape, layout) };
        Some(Form { layout, way, zeroed: shape.zeroed, crosses: shape.crosses })
    };
    shapes.iter().map(form).collect()
}

/// A shape's way under a plan.
pub fn way(routes: &[Route], shape: &Shape, layout: Layout) -> u32 {
    let Some(way) = routes.iter().position(|route| route.takes(shape, layout)) else { return 0 };
    // One pool for all.
    let pool = |route: &Route| route.allocator == Allocator::Pool;
    let way = if pool(&routes[way]) { routes.iter().position(pool) } else { Some(way) };
    way.map_or(0, |way| way as u32 + 1)
}

/// A plan as a row.
#[derive(Debug)]
pub struct Plan<G> {
    routes: Vec<Route>,
    /// By route.
    slabs: Vec<Option<RawSlab>>,
    malloc: super::memory::Malloc<G>,
}

impl<G> Plan<G> {
    pub fn new(routes: Vec<Route>) -> Self {
        let slab = |route: &Route| match route.allocator {
            Allocator::Slab => route.fixed().map(RawSlab::new),
            _ => None,
        };
        Self {
            slabs: routes.iter().map(slab).collect(),
            routes,
            malloc: super::memory::Malloc::new(),
        }
    }
}

impl<G: Global> Row for Plan<G> {
    type Memory<'r> = Planned<'r, G>;

    fn within<R>(
        &self,
        thread: usize,
        leaves: bool,
        work: impl FnOnce(&mut Planned<'_, G>) -> R,
    ) -> R {
        self.malloc.within(thread, leaves, |calls| {
            let mut planned = Planned {
                malloc: std::mem::replace(calls, Calls::new()),
                ways: self.routes.iter().zip(&self.slabs).map(Way::new).collect(),
                way_of: self.routes.iter().map(|route| route.group).collect(),
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
    reason = "there are a few, and each is used without another step to it"
)]
#[derive(Debug)]
enum Way<'r> {
    Arena(Arena, bool),
    Reap(Reap),
    List(RawFreeList),
    Pool(LocalPool),
    Slab(RawSlabHandle<'r>),
    /// A route that takes nothing.
    Nothing,
}

impl<'r> Way<'r> {
    fn new((route, slab): (&Route, &'r Option<RawSlab>)) -> Self {
        match (route.allocator, slab) {
            (Allocator::Arena | Allocator::Sealed, _) => {
                Self::Arena(Arena::new(), !route.without_reset)
            }
            (Allocator::Reap, _) => Self::Reap(Reap::new()),
            (Allocator::FreeList, _) => {
                route.fixed().map_or(Self::Nothing, |layout| Self::List(RawFreeList::new(layout)))
            }
            (Allocator::Pool, _) => Self::Pool(LocalPool::new()),
            (Allocator::Slab, Some(slab)) => Self::Slab(slab.handle()),
            (Allocator::Slab | Allocator::None, _) => Self::Nothing,
        }
    }
}

/// One thread's memory under a plan.
#[derive(Debug)]
pub struct Planned<'r, G> {
    malloc: Calls<G>,
    ways: Vec<Way<'r>>,
    /// By way: its group.
    way_of: Vec<u32>,
}

impl<G: Global> Memory for Planned<'_, G> {
    #[inline(always)]
    fn alloc(&mut self, form: &Form) -> *mut u8 {
        if form.way == 0 {
            return self.malloc.alloc(form);
        }
        let block = match &self.ways[form.way as usize - 1] {
            Way::Arena(arena, _) => arena.alloc_layout(form.layout),
            Way::Reap(reap) => reap.alloc_layout(form.layout),
            Way::List(list) => list.alloc(),
            Way::Pool(pool) => pool.alloc_layout(form.layout),
            Way::Slab(slab) => slab.alloc(),
            Way::Nothing => return self.malloc.alloc(form),
        };
        if form.zeroed {
            // SAFETY: a fresh block of this layout: a list's and a slab's is that of their forms (`Route::takes`).
            unsafe { block.write_bytes(0, form.layout.size()) };
        }
        block.as_ptr()
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, form: &Form) {
        let Some(way) = form.way.checked_sub(1) else {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            return unsafe { self.malloc.free(block, form) };
        };
        // SAFETY: no live block is null. Each comes from this way of this thread (the caller's promise, and the invariant), or of another
        // thread where that may be; it is live and has this layout.
        unsafe {
            let place = NonNull::new_unchecked(block);
            match &self.ways[way as usize] {
                // Who has an arena frees nothing by itself.
                Way::Arena(..) => {}
                Way::Reap(reap) => reap.free_layout(place, form.layout),
                Way::List(list) => list.free(place),
                Way::Pool(_) if form.crosses => PoolRef::free_anywhere(place, form.layout),
                Way::Pool(pool) => pool.free_layout(place, form.layout),
                Way::Slab(slab) => slab.free(place),
                Way::Nothing => self.malloc.free(block, form),
            }
        }
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &Form, new: &Form) -> *mut u8 {
        if old.way != new.way || old.layout.align() != new.layout.align() && old.way != 0 {
            // SAFETY: the caller's promise.
            return unsafe { by_copy(self, block, old, new) };
        }
        let Some(way) = old.way.checked_sub(1) else {
            // SAFETY: the caller's promise, and the invariant.
            return unsafe { self.malloc.resize(block, old, new) };
        };
        // SAFETY: as in `free`; the new size suits the alignment, for a layout has both.
        unsafe {
            let place = NonNull::new_unchecked(block);
            let size = new.layout.size();
            match &self.ways[way as usize] {
                Way::Arena(arena, _) if size > old.layout.size() => {
                    arena.grow(place, old.layout, new.layout).as_ptr()
                }
                Way::Reap(reap) => reap.resize(place, old.layout, size).as_ptr(),
                Way::Pool(pool) if !old.crosses => pool.resize(place, old.layout, size).as_ptr(),
                Way::Pool(_) => by_copy(self, block, old, new),
                Way::Nothing => self.malloc.resize(block, old, new),
                // Smaller, or of the only size that there is.
                Way::Arena(..) | Way::List(_) | Way::Slab(_) => block,
            }
        }
    }

    fn reset(&mut self, group: u32) {
        let Some(way) = self.way_of.iter().position(|of| *of == group) else { return };
        match &mut self.ways[way] {
            Way::Arena(arena, true) => arena.reset(),
            Way::Reap(reap) => reap.reset(),
            _ => {}
        }
    }
}
