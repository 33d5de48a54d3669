//! The second pass: for sites and possible groups what can't be added up.
//!
//! Sites and groups don't know of each other, so they are shared out to a few parts that go over all moves on a thread each.
//! Where the moves were not [kept](super::moves), one thread has to do with reading them again, and another has all parts.

use super::ahead::prefetch;
use super::moves::{Kind, Move};
use super::pass::{FAR, NEAR, STEPS, Watcher};
use super::phase::{Ladder, Phase, Phases};
use super::resolve::Step;
use bench::console::progress::Progress;
use hashbrown::HashMap;
use std::num::NonZero;

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

/// What a part has for the cells of a class and a thread.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Into `members`.
    begin: u32,
    end: u32,
    ladder: u32,
}

/// A watched thing and a thread.
#[derive(Debug)]
struct State {
    watch: u32,
    /// No other thread allocates for it: what is live is the phase's.
    alone: bool,
    phase: Phase,
}

/// What was found out about a site or possible group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    pub phases: Phases,
    pub in_order: u64,
    pub peak_live: u64,
    pub peak_live_bytes: u64,
}

/// Parts that share the work at most: each goes over all moves.
const MOST_PARTS: usize = 4;
const NONE: u32 = u32::MAX;

/// What the pass is about. Watches count on from the sites: first all sites, then the possible groups.
#[derive(Debug)]
pub struct Subject<'a> {
    pub classes: &'a [Class],
    /// By class: allocations.
    pub counts: &'a [u64],
    /// By the steps' cells, of a stack and a thread each: the class of the stack, and the thread.
    pub cells: &'a [(u32, u32)],
    pub sites: usize,
    pub watches: usize,
    /// The number of the event from which on nothing is looked at.
    pub exit_from: u64,
}

impl Subject<'_> {
    /// All that a class is watched for.
    fn of(&self, class: u32) -> impl Iterator<Item = u32> {
        let Class { site, watches } = &self.classes[class as usize];
        let sites = self.sites as u32;
        std::iter::once(*site).chain(watches.iter().map(move |&watch| sites + watch))
    }

    /// By watch: the part that watches it, so that all have about the same to do.
    fn share_out(&self, parts: usize) -> Vec<u32> {
        let mut loads: Vec<(u64, u32)> =
            (0..(self.sites + self.watches) as u32).map(|watch| (0, watch)).collect();
        for (class, &count) in self.counts.iter().enumerate() {
            self.of(class as u32).for_each(|watch| loads[watch as usize].0 += count);
        }
        // A site has its ladders besides.
        loads[..self.sites].iter_mut().for_each(|load| load.0 *= 2);
        loads.sort_unstable_by_key(|&(load, watch)| (std::cmp::Reverse(load), watch));
        let mut taken = vec![0_u64; parts];
        let mut part_of = vec![0; loads.len()];
        for (load, watch) in loads {
            let least = (0..parts).min_by_key(|&part| taken[part]).unwrap_or(0);
            taken[least] += load;
            part_of[watch as usize] = least as u32;
        }
        part_of
    }
}

/// Some of the sites and possible groups.
#[derive(Debug)]
struct Part {
    exit_from: u64,
    /// By cell: its place.
    own: Vec<u32>,
    places: Vec<Place>,
    /// Into `states`.
    members: Vec<u32>,
    states: Vec<State>,
    ladders: Vec<(u32, Ladder)>,
    /// By watch, of all parts.
    wholes: Vec<Whole>,
    events: u64,
    clock: u64,
}

impl Part {
    fn new(subject: &Subject<'_>, is_own: impl Fn(u32) -> bool) -> Self {
        let mut part = Self {
            exit_from: subject.exit_from,
            own: Vec::with_capacity(subject.cells.len()),
            places: Vec::new(),
            members: Vec::new(),
            states: Vec::new(),
            ladders: Vec::new(),
            wholes: vec![Whole::default(); subject.sites + subject.watches],
            events: 0,
            clock: 0,
        };
        let (mut places, mut states, mut ladders) =
            (HashMap::new(), HashMap::new(), HashMap::new());
        for &(class, thread) in subject.cells {
            let place = *places.entry((class, thread)).or_insert_with(|| {
                let begin = part.members.len() as u32;
                for watch in subject.of(class).filter(|&watch| is_own(watch)) {
                    part.members.push(*states.entry((watch, thread)).or_insert_with(|| {
                        part.states.push(State { watch, alone: false, phase: Phase::default() });
                        part.states.len() as u32 - 1
                    }));
                }
                let site = subject.classes[class as usize].site;
                let ladder = is_own(site).then(|| {
                    *ladders.entry((site, thread)).or_insert_with(|| {
                        part.ladders.push((site, Ladder::default()));
                        part.ladders.len() as u32 - 1
                    })
                });
                let end = part.members.len() as u32;
                part.places.push(Place { begin, end, ladder: ladder.unwrap_or(NONE) });
                part.places.len() as u32 - 1
            });
            part.own.push(place);
        }
        let mut threads = vec![0_u32; part.wholes.len()];
        part.states.iter().for_each(|state| threads[state.watch as usize] += 1);
        for state in &mut part.states {
            state.alone = threads[state.watch as usize] == 1;
        }
        part
    }

    #[inline]
    fn place(&self, of: &Move) -> Option<Place> {
        self.own.get(of.cell as usize).map(|&place| self.places[place as usize])
    }

    /// A move comes soon.
    #[inline]
    fn expect(&self, of: &Move) {
        if let Some(place) = self.own.get(of.cell as usize) {
            prefetch(&self.places[*place as usize]);
        }
    }

    /// A move comes sooner.
    #[inline]
    fn expect_soon(&self, of: &Move) {
        let Some(place) = self.place(of) else { return };
        if let Some(ladder) = self.ladders.get(place.ladder as usize) {
            prefetch(ladder);
        }
        for &state in &self.members[place.begin as usize..place.end as usize] {
            prefetch(&self.states[state as usize]);
        }
    }

    /// Takes a move. False: what comes is not looked at.
    #[inline]
    fn take(&mut self, of: &Move) -> bool {
        if self.events == self.exit_from {
            return false;
        }
        match of.kind() {
            Kind::Made => {
                self.made(of);
                self.clock += 1;
            }
            Kind::Gone => self.gone(of),
            Kind::Lost => {
                self.gone(of);
                return true;
            }
            Kind::Other => {}
        }
        self.events += 1;
        true
    }

    #[inline]
    fn made(&mut self, of: &Move) {
        let Some(place) = self.place(of) else { return };
        let size = of.size();
        for &state in &self.members[place.begin as usize..place.end as usize] {
            let state = &mut self.states[state as usize];
            state.phase.allocate(size, self.clock);
            if state.alone {
                continue;
            }
            let whole = &mut self.wholes[state.watch as usize];
            whole.live += 1;
            whole.bytes = whole.bytes.saturating_add(size);
            whole.peak_live = whole.peak_live.max(whole.live);
            whole.peak_bytes = whole.peak_bytes.max(whole.bytes);
        }
        if let Some((_, ladder)) = self.ladders.get_mut(place.ladder as usize) {
            ladder.allocate(self.clock as u32);
        }
    }

    #[inline]
    fn gone(&mut self, of: &Move) {
        let Some(place) = self.place(of) else { return };
        let size = of.size();
        for &state in &self.members[place.begin as usize..place.end as usize] {
            let state = &mut self.states[state as usize];
            state.phase.free(size, self.clock);
            if state.alone {
                continue;
            }
            let whole = &mut self.wholes[state.watch as usize];
            whole.live -= 1;
            whole.bytes = whole.bytes.saturating_sub(size);
        }
        if let Some((_, ladder)) = self.ladders.get_mut(place.ladder as usize) {
            ladder.free(of.birth);
        }
    }

    /// Takes all moves, or as many as are looked at; says after each piece how many it were.
    fn take_all(&mut self, pieces: &[Vec<Move>], mut done: impl FnMut(usize)) {
        for piece in pieces {
            for (index, of) in piece.iter().enumerate() {
                if let Some(far) = piece.get(index + FAR) {
                    self.expect(far);
                }
                if let Some(near) = piece.get(index + NEAR) {
                    self.expect_soon(near);
                }
                if !self.take(of) {
                    return;
                }
            }
            done(piece.len());
        }
    }

    /// Adds what was found to `all`, by watch.
    fn finish(self, all: &mut [Watched]) {
        for mut state in self.states {
            state.phase.finish(self.clock);
            let whole = &self.wholes[state.watch as usize];
            let watched = &mut all[state.watch as usize];
            watched.phases.add(&state.phase);
            (watched.peak_live, watched.peak_live_bytes) = if state.alone {
                (state.phase.peak_live, state.phase.peak_live_bytes)
            } else {
                (whole.peak_live, whole.peak_bytes)
            };
        }
        for (site, ladder) in self.ladders {
            all[site as usize].in_order += ladder.in_order;
        }
    }
}

/// The second pass.
#[derive(Debug)]
pub struct Second {
    parts: Vec<Part>,
    watches: usize,
}

impl Second {
    /// A pass in as many parts as there are processors for.
    pub fn new(subject: &Subject<'_>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::in_parts(subject, processors.min(MOST_PARTS))
    }

    fn in_parts(subject: &Subject<'_>, parts: usize) -> Self {
        let part_of = subject.share_out(parts);
        let part = |part: usize| Part::new(subject, |watch| part_of[watch as usize] == part as u32);
        Self { parts: (0..parts).map(part).collect(), watches: subject.sites + subject.watches }
    }

    /// Goes over moves that were kept.
    pub fn take_all(&mut self, pieces: &[Vec<Move>], progress: Option<&Progress>) {
        let all: usize = pieces.iter().map(Vec::len).sum();
        let (mut steps, mut seen) = (0, 0);
        std::thread::scope(|scope| {
            let Some((own, others)) = self.parts.split_first_mut() else { return };
            others.iter_mut().for_each(|part| {
                scope.spawn(|| part.take_all(pieces, |_| ()));
            });
            own.take_all(pieces, |taken| {
                seen += taken;
                let due = seen * STEPS / all;
                progress.iter().for_each(|progress| (steps..due).for_each(|_| progress.step()));
                steps = due;
            });
        });
        progress.iter().for_each(|progress| (steps..STEPS).for_each(|_| progress.step()));
    }

    /// Ends the pass: first the sites, then the possible groups.
    pub fn finish(self) -> Vec<Watched> {
        let mut all = vec![Watched::default(); self.watches];
        self.parts.into_iter().for_each(|part| part.finish(&mut all));
        all
    }
}

impl Watcher for Second {
    #[inline]
    fn expect(&self, step: &Step) {
        let of = Move::of(step);
        self.parts.iter().for_each(|part| part.expect(&of));
    }

    #[inline]
    fn expect_soon(&self, step: &Step) {
        let of = Move::of(step);
        self.parts.iter().for_each(|part| part.expect_soon(&of));
    }

    #[inline]
    fn take(&mut self, step: &Step) -> bool {
        let of = Move::of(step);
        // All parts have seen the same.
        self.parts.iter_mut().fold(true, |_, part| part.take(&of))
    }
}

#[cfg(test)]
mod tests {
    use super::super::live::Block;
    use super::super::resolve::Done;
    use super::*;
    use trace_format::NodeId;

    /// What 60,000 steps do: blocks of 40 stacks and 3 threads, of which some are lost.
    fn steps() -> Vec<Step> {
        let mut by_chance = 1_u64;
        let mut chance = move |of: u64| {
            by_chance ^= by_chance << 13;
            by_chance ^= by_chance >> 7;
            by_chance ^= by_chance << 17;
            by_chance % of
        };
        let (mut live, mut steps, mut births): (Vec<Block>, Vec<Step>, u32) = Default::default();
        for time_ns in 0..60_000 {
            let what = match chance(100) {
                0 => Done::Other,
                1..50 if !live.is_empty() => {
                    let block = if chance(3) == 0 {
                        live.swap_remove(chance(live.len() as u64) as usize)
                    } else {
                        live.pop().unwrap()
                    };
                    if chance(50) == 0 { Done::Lost(block) } else { Done::Gone(block) }
                }
                _ => {
                    let (cell, size) = (chance(120) as u32, 16 + chance(100) * 8);
                    let address = time_ns * 1024;
                    live.push(Block { address, born_ns: time_ns, size, birth: births, cell });
                    births += 1;
                    Done::Made { address, size, site: NodeId(2), cell, by_realloc: false }
                }
            };
            steps.push(Step { time_ns, thread: 0, what });
        }
        steps
    }

    #[test]
    fn parts_and_kept_moves_find_what_one_thread_finds_that_reads_on() {
        let steps = steps();
        let classes: Vec<Class> = (0..40)
            .map(|class| Class {
                site: class % 11,
                watches: (0..7).filter(|watch| class >> watch & 1 == 1).collect(),
            })
            .collect();
        let counts: Vec<u64> = (0..40).map(|class| class * class).collect();
        // The sites 9 and 10 have one thread, the others three.
        let thread = |cell: u32| if cell % 40 % 11 < 9 { cell / 40 } else { 0 };
        let cells: Vec<(u32, u32)> = (0..120).map(|cell| (cell % 40, thread(cell))).collect();
        let moves: Vec<Move> = steps.iter().map(Move::of).collect();
        for exit_from in [0, 50_000, u64::MAX] {
            let (classes, counts, cells) = (&*classes, &*counts, &*cells);
            let subject = Subject { classes, counts, cells, sites: 11, watches: 7, exit_from };
            let found = |parts: usize, kept: bool| {
                let mut second = Second::in_parts(&subject, parts);
                if kept {
                    let pieces: Vec<Vec<Move>> = moves.chunks(7000).map(<[Move]>::to_vec).collect();
                    second.take_all(&pieces, None);
                } else {
                    let _ = steps.iter().all(|step| Watcher::take(&mut second, step));
                }
                second.finish()
            };
            let right = found(1, false);
            assert_eq!(right.iter().any(|watched| watched.peak_live > 100), exit_from > 0);
            assert_eq!(right[..11].iter().any(|watched| watched.in_order > 100), exit_from > 0);
            for (parts, kept) in [(1, true), (2, true), (3, false), (4, true)] {
                assert_eq!(found(parts, kept), right, "{parts} parts, kept: {kept}");
            }
        }
    }

    #[test]
    fn parts_have_about_the_same_to_do() {
        let classes: Vec<Class> =
            (0..30).map(|class| Class { site: class, watches: vec![class / 10] }).collect();
        let counts = vec![1000; 30];
        let subject = Subject {
            classes: &classes,
            counts: &counts,
            cells: &[],
            sites: 30,
            watches: 3,
            exit_from: 0,
        };
        let part_of = subject.share_out(2);
        let load = |part: u32| -> u64 {
            let own = |&(_, &of): &(usize, &u32)| of == part;
            let load = |(watch, _)| if watch < 30 { 2000 } else { 10_000 };
            part_of.iter().enumerate().filter(own).map(load).sum()
        };
        assert_eq!(load(0) + load(1), 90_000);
        assert!(load(0).abs_diff(load(1)) <= 2000, "{} and {}", load(0), load(1));
    }
}
