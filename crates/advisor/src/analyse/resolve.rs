//! What the events say of blocks: which one a free takes, and which stack and thread had made it.
//!
//! The thread that reads ahead does this beside the passes, which then need no table of live blocks of their own: both
//! have about the same to do.

use super::live::{Block, Live};
use hashbrown::HashMap;
use trace_format::raw::Lock;
use trace_format::{Event, NodeId, What};

/// An event as the passes see it.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Nanoseconds since the process began.
    pub time_ns: u64,
    pub thread: u32,
    pub what: Done,
}

impl Step {
    /// The cell that it is about.
    #[inline]
    pub fn cell(&self) -> Option<u32> {
        match self.what {
            Done::Made { cell, .. } => Some(cell),
            Done::Gone(block) | Done::Lost(block) => Some(block.cell),
            _ => None,
        }
    }
}

/// What was done to a block, or for a lock.
///
/// A *cell* stands for a stack and a thread that allocates; cells are numbered in the order in which they come.
#[derive(Debug, Clone, Copy)]
pub enum Done {
    /// A block was made by a cell of this stack and of the step's thread.
    Made { address: u64, size: u64, site: NodeId, cell: u32, by_realloc: bool },
    /// A block is freed.
    Gone(Block),
    /// A block is freed that wasn't seen made.
    Unknown,
    /// A block has gone whose free was not seen, since the next step makes one at its address. It is no event of its own.
    Lost(Block),
    /// A thread waited for a lock.
    Waited { address: u64, lock: Lock, duration_ns: u64, site: NodeId },
    /// Something else.
    Other,
}

const NONE: u32 = u32::MAX;

/// Turns events into steps.
#[derive(Debug)]
pub struct Resolver {
    pub live: Live,
    /// By node: the thread that allocated there last, and its cell.
    last: Vec<(u32, u32)>,
    cell_of: HashMap<(u32, u32), u32>,
    /// By thread: its next allocation belongs to a free.
    reallocating: Vec<bool>,
    allocations: u64,
}

impl Resolver {
    pub fn new() -> Self {
        Self {
            live: Live::new(),
            last: Vec::new(),
            cell_of: HashMap::new(),
            reallocating: Vec::new(),
            allocations: 0,
        }
    }

    /// Begins again with the same events, which have the same cells: these are known then, and what memory there is serves
    /// again.
    pub fn again(&mut self) {
        self.live.clear();
        self.reallocating.clear();
        self.allocations = 0;
    }

    /// Lets memory bring what an event will need.
    #[inline]
    pub fn expect(&self, event: &Event) {
        if let What::Alloc { address, .. } | What::Free { address, .. } = event.what {
            self.live.expect(address);
        }
    }

    /// The same, sooner.
    #[inline]
    pub fn expect_soon(&self, event: &Event) {
        if let What::Free { address, .. } = event.what {
            self.live.expect_soon(address);
        }
    }

    /// Resolves an event: one step, or two where a free was not seen.
    #[inline]
    pub fn resolve(&mut self, event: &Event, into: &mut Vec<Step>) {
        let Event { time_ns, thread, what } = *event;
        let what = match what {
            What::Alloc { address, size, site, .. } => {
                let by_realloc = match self.reallocating.get_mut(thread as usize) {
                    Some(pending) => std::mem::take(pending),
                    None => false,
                };
                let cell = self.cell(site, thread);
                let birth = self.allocations as u32;
                self.allocations += 1;
                let block = Block { address, born_ns: time_ns, size, birth, cell };
                if let Some(old) = self.live.insert(block) {
                    into.push(Step { time_ns, thread, what: Done::Lost(old) });
                }
                Done::Made { address, size, site, cell, by_realloc }
            }
            What::Free { address, by_realloc } => {
                if by_realloc {
                    self.reallocates(thread);
                }
                self.live.remove(address).map_or(Done::Unknown, Done::Gone)
            }
            What::LockWait { address, lock, duration_ns, site } => {
                Done::Waited { address, lock, duration_ns, site }
            }
            _ => Done::Other,
        };
        into.push(Step { time_ns, thread, what });
    }

    fn reallocates(&mut self, thread: u32) {
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
            _ => self.another_thread(site, thread),
        }
    }

    #[cold]
    fn another_thread(&mut self, site: NodeId, thread: u32) -> u32 {
        let index = site.0 as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), (NONE, NONE));
        }
        let next = self.cell_of.len() as u32;
        let cell = *self.cell_of.entry((site.0, thread)).or_insert(next);
        self.last[index] = (thread, cell);
        cell
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.live.memory() + self.last.capacity() * 8 + self.cell_of.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace_format::raw::{Flags, Origin};

    fn steps(resolver: &mut Resolver, events: &[(u32, What)]) -> Vec<Done> {
        let mut steps = Vec::new();
        for (time, &(thread, what)) in events.iter().enumerate() {
            resolver.resolve(&Event { time_ns: time as u64 * 100, thread, what }, &mut steps);
        }
        steps.into_iter().map(|step| step.what).collect()
    }

    fn made(address: u64, site: u32) -> What {
        What::Alloc { address, size: 64, site: NodeId(site), flags: Flags::new(Origin::Malloc) }
    }

    fn freed(address: u64) -> What {
        What::Free { address, by_realloc: false }
    }

    #[test]
    fn a_free_has_the_block_that_was_made_there_and_each_stack_and_thread_a_cell() {
        let mut resolver = Resolver::new();
        let found = steps(
            &mut resolver,
            &[(0, made(0x1000, 5)), (1, made(0x2000, 5)), (0, freed(0x2000)), (1, made(0x2000, 6))],
        );
        let cells: Vec<u32> = found
            .iter()
            .filter_map(|done| if let Done::Made { cell, .. } = done { Some(*cell) } else { None })
            .collect();
        assert_eq!(cells, [0, 1, 2]);
        let Done::Gone(block) = found[2] else { panic!("{found:?}") };
        assert_eq!((block.cell, block.birth, block.born_ns), (1, 1, 100));
        let again = steps(&mut resolver, &[(0, made(0x3000, 5)), (1, made(0x4000, 5))]);
        let Done::Made { cell: 0, .. } = again[0] else { panic!("{again:?}") };
        let Done::Made { cell: 1, .. } = again[1] else { panic!("{again:?}") };
    }

    #[test]
    fn the_same_events_have_the_same_cells_and_births_again() {
        let events =
            [(0, made(0x1000, 5)), (1, made(0x2000, 5)), (0, freed(0x2000)), (0, made(0x3000, 6))];
        let mut resolver = Resolver::new();
        let first = steps(&mut resolver, &events);
        resolver.again();
        assert_eq!(format!("{first:?}"), format!("{:?}", steps(&mut resolver, &events)));
    }

    #[test]
    fn a_block_where_one_is_live_is_two_steps_and_a_free_of_none_is_unknown() {
        let mut resolver = Resolver::new();
        let found = steps(
            &mut resolver,
            &[(0, made(0x1000, 5)), (0, made(0x1000, 6)), (0, freed(0x1000)), (0, freed(0x1000))],
        );
        let [
            Done::Made { .. },
            Done::Lost(lost),
            Done::Made { cell: 1, .. },
            Done::Gone(gone),
            Done::Unknown,
        ] = found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((lost.cell, gone.cell, resolver.live.len()), (0, 1, 0));
    }

    #[test]
    fn a_block_is_by_realloc_if_its_own_thread_freed_for_it() {
        let mut resolver = Resolver::new();
        let moved = What::Free { address: 0x1000, by_realloc: true };
        let found = steps(
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
                Done::Made { by_realloc, .. } => Some(*by_realloc),
                _ => None,
            })
            .collect();
        assert_eq!(by_realloc, [false, false, true, false]);
    }
}
