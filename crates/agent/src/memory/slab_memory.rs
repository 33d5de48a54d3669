//! The library's allocators: a slab for the full-size buffers of each tier, slabs of many sizes for
//! first buffers, a slab for list nodes, a free list for each kind of parsed object, an arena for
//! each request.

use super::{ArenaRequest, BufferStatistics, Memory};
use crate::buffer_node::FullBufferNode;
use crate::tier::Tier;
use allotment::{AllocError, Arena, Budget, FreeList, LocalPool, RawSlab, Statistics};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Size classes of first buffers in each doubling above [`FINE`].
const STEPS: usize = 16;

/// Up to this size, in bytes, a first buffer's size is a multiple of 16.
const FINE: usize = 256;

/// The library's allocators.
#[derive(Debug)]
pub struct SlabStoreMemory {
    /// Slabs of full-size buffers, by tier.
    full: [RawSlab; 3],
    /// Slabs of first buffers, by size class.
    first: Box<[RawSlab]>,
    nodes: RawSlab,
    limit: Option<Budget>,
}

/// Returns the size class of a first buffer: the smallest that holds this many bytes.
///
/// Neighbouring sizes differ by at most a sixteenth (or 16 bytes), so a full first buffer wastes no
/// more.
fn class(bytes: usize) -> usize {
    if bytes <= FINE {
        return bytes.div_ceil(16).max(1) - 1;
    }
    let doubling = (bytes - 1).ilog2();
    let step = (1 << doubling) / STEPS;
    let doublings_before = (doubling - FINE.ilog2()) as usize;
    FINE / 16 + doublings_before * STEPS + (bytes - (1 << doubling)).div_ceil(step) - 1
}

/// Returns the size of a class in bytes.
fn class_bytes(class: usize) -> usize {
    match class.checked_sub(FINE / 16) {
        None => (class + 1) * 16,
        Some(above) => {
            let base = FINE << (above / STEPS);
            base + (above % STEPS + 1) * (base / STEPS)
        }
    }
}

impl SlabStoreMemory {
    fn of(&self, tier: Tier, points: u16) -> &RawSlab {
        if points == tier.capacity() {
            &self.full[tier as usize]
        } else {
            &self.first[class(usize::from(points) * tier.point_bytes())]
        }
    }
}

fn slab(layout: Layout, limit: Option<&Budget>, name: Option<&str>) -> Result<RawSlab, AllocError> {
    let mut builder = RawSlab::builder(layout);
    if let Some(limit) = limit {
        builder = builder.budget(limit);
    }
    if let Some(name) = name {
        builder = builder.name(name);
    }
    builder.try_build()
}

impl Memory for SlabStoreMemory {
    const NAME: &'static str = "allotment";

    type Request = ArenaRequest;
    type List<T> = FreeList<T>;
    type Pool = LocalPool;

    fn new(limit: Option<&Budget>) -> Result<Self, AllocError> {
        let sized = |bytes, name| {
            let layout = Layout::from_size_align(bytes, 8).expect("a buffer is small");
            slab(layout, limit, name)
        };
        let full = |tier: Tier| sized(tier.buffer_bytes(), Some(tier.buffers_name()));
        let largest = class(Tier::Second.buffer_bytes());
        Ok(Self {
            full: [full(Tier::Second)?, full(Tier::Minute)?, full(Tier::Hour)?],
            // These slabs have no names: one line for each size would fill the report.
            // `buffer_statistics` has their sum.
            first: (0..=largest)
                .map(|class| sized(class_bytes(class), None))
                .collect::<Result<_, _>>()?,
            nodes: slab(Layout::new::<FullBufferNode>(), limit, Some("nodes of full buffers"))?,
            limit: limit.cloned(),
        })
    }

    fn request(arena: impl FnOnce() -> Arena) -> ArenaRequest {
        ArenaRequest(arena())
    }

    fn pool(&self, name: &str) -> Result<LocalPool, AllocError> {
        let builder = LocalPool::builder().name(name);
        match &self.limit {
            Some(limit) => builder.budget(limit).try_build(),
            None => builder.try_build(),
        }
    }

    fn enter<R>(pool: &LocalPool, work: impl FnOnce() -> R) -> R {
        pool.enter(work)
    }

    fn list<T>(&self, name: &str) -> Result<FreeList<T>, AllocError> {
        let builder = FreeList::builder().name(name);
        match &self.limit {
            Some(limit) => builder.budget(limit).try_build(),
            None => builder.try_build(),
        }
    }

    fn alloc_buffer(&self, tier: Tier, points: u16) -> Result<NonNull<u8>, AllocError> {
        self.of(tier, points).try_alloc()
    }

    unsafe fn free_buffer(&self, tier: Tier, points: u16, buffer: NonNull<u8>) {
        // SAFETY: the caller promises that the buffer came from this slab, and is not used any
        // more.
        unsafe { self.of(tier, points).free(buffer) }
    }

    fn reserve_buffers(
        &self,
        buffers: impl Iterator<Item = (Tier, u16, usize)>,
    ) -> Result<(), AllocError> {
        // Tiers share the slabs of first buffers, so the counts for each slab are added up.
        let mut full = [0; 3];
        let mut first = vec![0; self.first.len()];
        for (tier, points, count) in buffers {
            *if points == tier.capacity() {
                &mut full[tier as usize]
            } else {
                &mut first[class(usize::from(points) * tier.point_bytes())]
            } += count;
        }
        let slabs = self.full.iter().zip(full).chain(self.first.iter().zip(first));
        slabs.filter(|(_, count)| *count > 0).try_for_each(|(slab, count)| slab.try_reserve(count))
    }

    fn alloc_node(&self) -> Result<NonNull<FullBufferNode>, AllocError> {
        self.nodes.try_alloc().map(NonNull::cast)
    }

    unsafe fn free_node(&self, node: NonNull<FullBufferNode>) {
        // SAFETY: the caller promises that the node came from this slab, and is not used any more.
        unsafe { self.nodes.free(node.cast()) }
    }

    fn buffer_statistics(&self) -> Vec<BufferStatistics> {
        let figures = |name, statistics: Statistics| BufferStatistics {
            name,
            live: statistics.live_objects,
            live_bytes: statistics.live_bytes,
            held_bytes: statistics.held_bytes,
            system_calls: statistics.source_calls,
        };
        let mut all: Vec<_> = [Tier::Second, Tier::Minute, Tier::Hour]
            .into_iter()
            .map(|tier| figures(tier.buffers_name(), self.full[tier as usize].statistics()))
            .collect();
        let mut first = BufferStatistics {
            name: "first buffers of all tiers",
            live: 0,
            live_bytes: 0,
            held_bytes: 0,
            system_calls: 0,
        };
        for slab in &self.first {
            let one = figures(first.name, slab.statistics());
            first.live += one.live;
            first.live_bytes += one.live_bytes;
            first.held_bytes += one.held_bytes;
            first.system_calls += one.system_calls;
        }
        all.push(first);
        all.push(figures("nodes of full buffers", self.nodes.statistics()));
        all
    }

    fn trim(&self) {
        for slab in self.full.iter().chain(&self.first).chain([&self.nodes]) {
            slab.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_the_smallest_that_holds_it_and_wastes_a_sixteenth_at_most() {
        let mut classes = std::collections::BTreeSet::new();
        for bytes in 1..=4096 {
            let size = class_bytes(class(bytes));
            assert!(size >= bytes && size - bytes < 16.max(bytes / 16 + 1), "{bytes} in {size}");
            assert!(class(bytes) == 0 || class_bytes(class(bytes) - 1) < bytes);
            classes.insert(size);
        }
        assert_eq!(classes.len(), class(4096) + 1);
    }
}
