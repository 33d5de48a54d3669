//! Resolves events to blocks: which block a free frees, and which stack and thread had allocated
//! it.
//!
//! This runs on a thread of its own beside each pass, so that the passes need no table of live
//! blocks. Both threads have about the same work.

use super::live_blocks::{LiveBlock, LiveBlocks};
use hashbrown::HashMap;
use trace_format::raw::LockKind;
use trace_format::{Event, EventAction, NodeId};

/// An event with the block that it is about.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedEvent {
    /// Nanoseconds since the process began.
    pub time_ns: u64,
    pub thread: u32,
    pub action: BlockAction,
}

impl ResolvedEvent {
    /// The cell of its block.
    #[inline]
    pub fn cell(&self) -> Option<u32> {
        match self.action {
            BlockAction::Allocated { cell, .. } => Some(cell),
            BlockAction::Freed(block) | BlockAction::Lost(block) => Some(block.cell),
            _ => None,
        }
    }
}

/// What an event does to a block, or a wait for a lock.
///
/// A *cell* stands for a stack and the thread that allocates there. Cells are numbered in the order
/// of their first allocations.
#[derive(Debug, Clone, Copy)]
pub enum BlockAction {
    /// The event's thread allocated a block.
    Allocated { address: u64, size: u64, site: NodeId, cell: u32, by_realloc: bool },
    /// A block was freed.
    Freed(LiveBlock),
    /// A block was freed whose allocation was not recorded.
    UnknownFree,
    /// The free of a block was not recorded, but the next event allocates a block at its address.
    /// This is not an event of the recording.
    Lost(LiveBlock),
    /// A thread waited for a lock.
    Waited { address: u64, lock: LockKind, duration_ns: u64, site: NodeId },
    /// Any other event.
    Other,
}

const NONE: u32 = u32::MAX;

/// Resolves events.
#[derive(Debug)]
pub struct Resolver {
    pub live: LiveBlocks,
    /// For each node: the thread that allocated there last, and its cell.
    last: Vec<(u32, u32)>,
    cell_of: HashMap<(u32, u32), u32>,
    /// For each thread: whether its next allocation is the second half of a realloc.
    reallocating: Vec<bool>,
    allocations: u64,
}

impl Resolver {
    pub fn new() -> Self {
        Self {
            live: LiveBlocks::new(),
            last: Vec::new(),
            cell_of: HashMap::new(),
            reallocating: Vec::new(),
            allocations: 0,
        }
    }

    /// Starts again with the same events. Their cells stay the same, and memory is reused.
    pub fn restart(&mut self) {
        self.live.clear();
        self.reallocating.clear();
        self.allocations = 0;
    }

    /// Prefetches what [`prefetch_near`](Self::prefetch_near) needs for an event.
    #[inline]
    pub fn prefetch_far(&self, event: &Event) {
        if let EventAction::Alloc { address, .. } | EventAction::Free { address, .. } = event.action
        {
            self.live.prefetch_far(address);
        }
    }

    /// Prefetches what [`resolve`](Self::resolve) needs for an event.
    #[inline]
    pub fn prefetch_near(&self, event: &Event) {
        if let EventAction::Free { address, .. } = event.action {
            self.live.prefetch_near(address);
        }
    }

    /// Resolves an event; the result has two events if a free was not recorded.
    #[inline]
    pub fn resolve(&mut self, event: &Event, into: &mut Vec<ResolvedEvent>) {
        let Event { time_ns, thread, action } = *event;
        let action = match action {
            EventAction::Alloc { address, size, site, .. } => {
                let by_realloc = match self.reallocating.get_mut(thread as usize) {
                    Some(pending) => std::mem::take(pending),
                    None => false,
                };
                let cell = self.cell(site, thread);
                let birth = self.allocations as u32;
                self.allocations += 1;
                let block = LiveBlock { address, born_ns: time_ns, size, birth, cell };
                if let Some(old) = self.live.insert(block) {
                    into.push(ResolvedEvent { time_ns, thread, action: BlockAction::Lost(old) });
                }
                BlockAction::Allocated { address, size, site, cell, by_realloc }
            }
            EventAction::Free { address, by_realloc } => {
                if by_realloc {
                    self.expect_reallocation(thread);
                }
                self.live.remove(address).map_or(BlockAction::UnknownFree, BlockAction::Freed)
            }
            EventAction::LockWait { address, lock, duration_ns, site } => {
                BlockAction::Waited { address, lock, duration_ns, site }
            }
            _ => BlockAction::Other,
        };
        into.push(ResolvedEvent { time_ns, thread, action });
    }

    fn expect_reallocation(&mut self, thread: u32) {
        let index = thread as usize;
        if self.reallocating.len() <= index {
            self.reallocating.resize(index + 1, false);
        }
        self.reallocating[index] = true;
    }

    #[inline]
    fn cell(&mut self, site: NodeId, thread: u32) -> u32 {
        match self.last.get(site.0 as usize) {
            Some(&(last, cell)) if last == thread => cell,
            _ => self.find_cell(site, thread),
        }
    }

    #[cold]
    fn find_cell(&mut self, site: NodeId, thread: u32) -> u32 {
        let index = site.0 as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), (NONE, NONE));
        }
        let next = self.cell_of.len() as u32;
        let cell = *self.cell_of.entry((site.0, thread)).or_insert(next);
        self.last[index] = (thread, cell);
        cell
    }

    /// Its memory, in bytes.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.live.memory() + self.last.capacity() * 8 + self.cell_of.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace_format::raw::{AllocationFlags, AllocationFunction};

    fn resolved(resolver: &mut Resolver, events: &[(u32, EventAction)]) -> Vec<BlockAction> {
        let mut resolved = Vec::new();
        for (time, &(thread, action)) in events.iter().enumerate() {
            resolver.resolve(&Event { time_ns: time as u64 * 100, thread, action }, &mut resolved);
        }
        resolved.into_iter().map(|event| event.action).collect()
    }

    fn made(address: u64, site: u32) -> EventAction {
        EventAction::Alloc {
            address,
            size: 64,
            site: NodeId(site),
            flags: AllocationFlags::new(AllocationFunction::Malloc),
        }
    }

    fn freed(address: u64) -> EventAction {
        EventAction::Free { address, by_realloc: false }
    }

    #[test]
    fn a_free_has_the_block_that_was_made_there_and_each_stack_and_thread_a_cell() {
        let mut resolver = Resolver::new();
        let found = resolved(
            &mut resolver,
            &[(0, made(0x1000, 5)), (1, made(0x2000, 5)), (0, freed(0x2000)), (1, made(0x2000, 6))],
        );
        let cells: Vec<u32> = found
            .iter()
            .filter_map(|done| {
                if let BlockAction::Allocated { cell, .. } = done { Some(*cell) } else { None }
            })
            .collect();
        assert_eq!(cells, [0, 1, 2]);
        let BlockAction::Freed(block) = found[2] else { panic!("{found:?}") };
        assert_eq!((block.cell, block.birth, block.born_ns), (1, 1, 100));
        let later = resolved(&mut resolver, &[(0, made(0x3000, 5)), (1, made(0x4000, 5))]);
        let BlockAction::Allocated { cell: 0, .. } = later[0] else { panic!("{later:?}") };
        let BlockAction::Allocated { cell: 1, .. } = later[1] else { panic!("{later:?}") };
    }

    #[test]
    fn the_same_events_have_the_same_cells_and_births_again() {
        let events =
            [(0, made(0x1000, 5)), (1, made(0x2000, 5)), (0, freed(0x2000)), (0, made(0x3000, 6))];
        let mut resolver = Resolver::new();
        let first = resolved(&mut resolver, &events);
        resolver.restart();
        assert_eq!(format!("{first:?}"), format!("{:?}", resolved(&mut resolver, &events)));
    }

    #[test]
    fn a_block_where_one_is_live_is_two_steps_and_a_free_of_none_is_unknown() {
        let mut resolver = Resolver::new();
        let found = resolved(
            &mut resolver,
            &[(0, made(0x1000, 5)), (0, made(0x1000, 6)), (0, freed(0x1000)), (0, freed(0x1000))],
        );
        let [
            BlockAction::Allocated { .. },
            BlockAction::Lost(lost),
            BlockAction::Allocated { cell: 1, .. },
            BlockAction::Freed(gone),
            BlockAction::UnknownFree,
        ] = found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((lost.cell, gone.cell, resolver.live.len()), (0, 1, 0));
    }

    #[test]
    fn a_block_is_by_realloc_if_its_own_thread_freed_for_it() {
        let mut resolver = Resolver::new();
        let moved = EventAction::Free { address: 0x1000, by_realloc: true };
        let found = resolved(
            &mut resolver,
            &[
                (0, made(0x1000, 5)),
                (0, moved),
                (1, made(0x2000, 5)),
                (0, made(0x3000, 5)),
                (0, made(0x4000, 5)),
            ],
        );
        let by_realloc: Vec<bool> = found
            .iter()
            .filter_map(|done| match done {
                BlockAction::Allocated { by_realloc, .. } => Some(*by_realloc),
                _ => None,
            })
            .collect();
        assert_eq!(by_realloc, [false, false, true, false]);
    }
}
