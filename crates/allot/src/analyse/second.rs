//! The second pass: for sites and possible groups what can't be added up.

use super::ahead::prefetch;
use super::live::Block;
use super::pass::Watcher;
use super::phase::{Ladder, Phase, Phases};
use super::resolve::{Done, Step};
use allot_trace::NodeId;
use hashbrown::HashMap;

/// Stacks that are watched in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    /// The site.
    pub site: u32,
    /// The possible groups.
    pub watches: Vec<u32>,
}

/// A site's or possible group's own live count, over all threads.
#[derive(Debug, Clone, Default)]
struct Whole {
    live: u64,
    bytes: u64,
    peak_live: u64,
    peak_bytes: u64,
}

/// A class and a thread.
#[derive(Debug)]
struct Cell {
    ladder: u32,
    /// Into `states`: the site's, then the possible groups'.
    states: Vec<u32>,
}

/// A watched thing and a thread.
#[derive(Debug)]
struct State {
    watch: u32,
    phase: Phase,
}

/// What was found out about a site or possible group.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pub phases: Phases,
    pub in_order: u64,
    pub peak_live: u64,
    pub peak_live_bytes: u64,
}

/// The second pass. Watches count on from the sites: first all sites, then the possible groups.
#[derive(Debug)]
pub struct Second<'c> {
    classes: &'c [Class],
    class_of: &'c [u32],
    sites: usize,
    exit_from: u64,
    /// By the steps' cells, of a stack and a thread each: the cell of its class and the thread.
    own: Vec<u32>,
    cells: Vec<Cell>,
    cell_of: HashMap<(u32, u32), u32>,
    states: Vec<State>,
    state_of: HashMap<(u32, u32), u32>,
    wholes: Vec<Whole>,
    ladders: Vec<(u32, Ladder)>,
    ladder_of: HashMap<(u32, u32), u32>,
    events: u64,
    clock: u64,
}

impl<'c> Second<'c> {
    /// A pass over stacks whose class is known by node; `watches` are watched, of which the first are `sites`. What
    /// comes from the event `exit_from` on isn't looked at.
    pub fn new(
        classes: &'c [Class],
        class_of: &'c [u32],
        sites: usize,
        watches: usize,
        exit_from: u64,
    ) -> Self {
        Self {
            classes,
            class_of,
            sites,
            exit_from,
            own: Vec::new(),
            cells: Vec::new(),
            cell_of: HashMap::new(),
            states: Vec::new(),
            state_of: HashMap::new(),
            wholes: vec![Whole::default(); sites + watches],
            ladders: Vec::new(),
            ladder_of: HashMap::new(),
            events: 0,
            clock: 0,
        }
    }

    #[inline]
    fn take(&mut self, step: &Step) -> bool {
        if self.events == self.exit_from {
            return false;
        }
        match step.what {
            Done::Made { size, site, cell, .. } => {
                if cell as usize == self.own.len() {
                    self.new_stack(site, step.thread);
                }
                self.allocated(self.own[cell as usize], size);
                self.clock += 1;
            }
            Done::Gone(block) => self.freed(&block),
            Done::Lost(block) => {
                self.freed(&block);
                return true;
            }
            _ => {}
        }
        self.events += 1;
        true
    }

    #[inline]
    fn allocated(&mut self, cell: u32, size: u64) {
        let cell = &self.cells[cell as usize];
        for &state in &cell.states {
            let state = &mut self.states[state as usize];
            state.phase.allocate(size, self.clock);
            let whole = &mut self.wholes[state.watch as usize];
            whole.live += 1;
            whole.bytes = whole.bytes.saturating_add(size);
            whole.peak_live = whole.peak_live.max(whole.live);
            whole.peak_bytes = whole.peak_bytes.max(whole.bytes);
        }
        self.ladders[cell.ladder as usize].1.allocate(self.clock as u32);
    }

    #[inline]
    fn freed(&mut self, block: &Block) {
        let cell = &self.cells[self.own[block.cell as usize] as usize];
        for &state in &cell.states {
            let state = &mut self.states[state as usize];
            state.phase.free(block.size, self.clock);
            let whole = &mut self.wholes[state.watch as usize];
            whole.live -= 1;
            whole.bytes = whole.bytes.saturating_sub(block.size);
        }
        self.ladders[cell.ladder as usize].1.free(block.birth);
    }

    #[cold]
    fn new_stack(&mut self, site: NodeId, thread: u32) {
        let class = self.class_of[site.0 as usize];
        let cell = match self.cell_of.get(&(class, thread)) {
            Some(&cell) => cell,
            None => self.new_cell(class, thread),
        };
        self.own.push(cell);
    }

    fn new_cell(&mut self, class: u32, thread: u32) -> u32 {
        let classes = self.classes;
        let Class { site, watches } = &classes[class as usize];
        let groups = watches.iter().map(|&watch| self.sites as u32 + watch);
        let all = std::iter::once(*site).chain(groups);
        let (state_of, in_states) = (&mut self.state_of, &mut self.states);
        let state = |watch| {
            *state_of.entry((watch, thread)).or_insert_with(|| {
                in_states.push(State { watch, phase: Phase::default() });
                in_states.len() as u32 - 1
            })
        };
        let states = all.map(state).collect();
        let ladders = &mut self.ladders;
        let ladder = *self.ladder_of.entry((*site, thread)).or_insert_with(|| {
            ladders.push((*site, Ladder::default()));
            ladders.len() as u32 - 1
        });
        let cell = self.cells.len() as u32;
        self.cells.push(Cell { ladder, states });
        self.cell_of.insert((class, thread), cell);
        cell
    }

    /// Ends the pass: first the sites, then the possible groups.
    pub fn finish(self) -> Vec<Watched> {
        let watched = |whole: Whole| Watched {
            peak_live: whole.peak_live,
            peak_live_bytes: whole.peak_bytes,
            ..Watched::default()
        };
        let mut all: Vec<Watched> = self.wholes.into_iter().map(watched).collect();
        for mut state in self.states {
            state.phase.finish(self.clock);
            all[state.watch as usize].phases.add(&state.phase);
        }
        for (site, ladder) in self.ladders {
            all[site as usize].in_order += ladder.in_order;
        }
        all
    }
}

impl Watcher for Second<'_> {
    #[inline]
    fn expect(&self, step: &Step) {
        if let Some(cell) = step.cell().and_then(|cell| self.own.get(cell as usize)) {
            prefetch(&self.cells[*cell as usize]);
        }
    }

    #[inline]
    fn expect_soon(&self, step: &Step) {
        if let Some(cell) = step.cell().and_then(|cell| self.own.get(cell as usize)) {
            let cell = &self.cells[*cell as usize];
            prefetch(&self.ladders[cell.ladder as usize]);
            cell.states.iter().for_each(|&state| prefetch(&self.states[state as usize]));
        }
    }

    #[inline]
    fn take(&mut self, step: &Step) -> bool {
        Second::take(self, step)
    }
}
