//! Recordings made up here are compiled, and done in order.

#[path = "../../../trace/tests/common/mod.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod common;

use super::check::{self, Curve};
use super::compile::{Purpose, compile};
use super::doubts;
use super::memory::{Malloc, Null};
use super::nowhere::Without;
use super::plan::{Plan, Route};
use super::sequence::{NO_GROUP, STEP_BYTES, Sequence};
use super::survey::survey;
use super::worker::{Job, Prepared, REST, Round, Who};
use crate::analyse::findings::{Allocator, Program, Replay};
use bench::peers::{About, Global, Service, Visitor};
use common::{Stream, container, file};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use trace_format::Reader;
use trace_format::raw::{Flags, Origin};

/// Threads that are written down one event after the other.
pub struct Story {
    streams: Vec<Stream>,
    kinds: Vec<HashMap<(u32, u64, Flags), u32>>,
    tick: u64,
}

/// Nodes 2 and 3 are two sites.
const NODES: u32 = 2;

impl Story {
    fn new(threads: u32) -> Self {
        let stream = |number: u32| {
            let tick = 1_000 + u64::from(number);
            let mut stream = Stream::new(tick);
            // SAFETY: `at` leaves room for any event, here and below.
            unsafe {
                stream.encoder(tick).thread(tick, number, 100 + number);
                for node in 0..NODES {
                    stream.encoder(tick).node(0, 0x5000 + u64::from(node));
                }
            }
            stream
        };
        Self {
            streams: (0..threads).map(stream).collect(),
            kinds: vec![HashMap::new(); threads as usize],
            tick: 2_000,
        }
    }

    fn allocate(&mut self, thread: usize, site: u32, address: u64, size: u64, origin: Origin) {
        self.tick += 3;
        let (tick, flags) = (self.tick, Flags::new(origin));
        let kinds = &mut self.kinds[thread];
        let next = kinds.len() as u32;
        let kind = *kinds.entry((site, size, flags)).or_insert(next);
        // SAFETY: as above.
        unsafe {
            if kind == next {
                self.streams[thread].encoder(tick).kind(2 + site, size, flags);
            }
            self.streams[thread].encoder(tick).allocated(tick, address, kind);
        }
    }

    fn free(&mut self, thread: usize, address: u64) {
        self.tick += 3;
        // SAFETY: as above.
        unsafe { self.streams[thread].encoder(self.tick).freed(self.tick, address) };
    }

    fn free_to_resize(&mut self, thread: usize, address: u64) {
        self.tick += 3;
        // SAFETY: as above.
        unsafe { self.streams[thread].encoder(self.tick).freed_by_realloc(self.tick, address) };
    }

    fn reader(self) -> Reader {
        let chunks: Vec<_> = self.streams.into_iter().map(Stream::finish).collect();
        Reader::from_file(file(&container(&chunks))).unwrap()
    }
}

/// A small generator of numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Several threads that allocate, free, resize, and free each other's blocks, with all that a recording may have besides.
fn any_story(seed: u64, threads: u32, events: usize) -> Story {
    let mut dice = Dice(seed);
    let mut story = Story::new(threads);
    let mut live: Vec<u64> = Vec::new();
    let mut gone: Vec<u64> = Vec::new();
    let mut next = 0x10_0000;
    for _ in 0..events {
        let thread = dice.roll(threads.into()) as usize;
        let size = match dice.roll(8) {
            0 => 0,
            1 => 1 + dice.roll(70_000),
            2 => 64,
            _ => 1 + dice.roll(200),
        };
        let site = dice.roll(NODES.into()) as u32;
        let mut address = || match gone.pop() {
            Some(address) if size % 2 == 0 => address,
            other => {
                gone.extend(other);
                next += 0x2_0000;
                next
            }
        };
        let pick = |dice: &mut Dice, live: &mut Vec<u64>| {
            let at = dice.roll(live.len() as u64) as usize;
            live.swap_remove(at)
        };
        match dice.roll(20) {
            0 => story.free(thread, 0x77_7770),
            1 if !live.is_empty() => {
                // The free of what was there was not seen.
                let address = live[dice.roll(live.len() as u64) as usize];
                story.allocate(thread, site, address, size, Origin::Malloc);
            }
            2 if !live.is_empty() => {
                // A resize that was never finished.
                let old = pick(&mut dice, &mut live);
                story.free_to_resize(thread, old);
                gone.push(old);
            }
            3..=5 if !live.is_empty() => {
                let old = pick(&mut dice, &mut live);
                story.free_to_resize(thread, old);
                let new = if size % 3 == 0 { old } else { address() };
                story.allocate(thread, site, new, size, Origin::Realloc);
                live.push(new);
            }
            6..=12 if !live.is_empty() => {
                let old = pick(&mut dice, &mut live);
                story.free(thread, old);
                gone.push(old);
            }
            roll => {
                let origin = [Origin::Malloc, Origin::Calloc, Origin::Pages][roll as usize % 3];
                let new = address();
                story.allocate(thread, site, new, size, origin);
                live.push(new);
            }
        }
    }
    story
}

fn purpose(scoped: bool) -> Purpose {
    // Group 0 is what node 2 allocates.
    Purpose { group_of: vec![NO_GROUP, NO_GROUP, 0, NO_GROUP], scoped: vec![scoped], turns: true }
}

fn compiled(reader: &Reader, scoped: bool) -> (Sequence, File) {
    let survey = survey(reader.events(0).unwrap()).unwrap();
    let mut steps = tempfile::tempfile().unwrap();
    let events = reader.events(0).unwrap();
    let sequence = compile(events, &survey, &purpose(scoped), &mut steps).unwrap();
    (sequence, steps)
}

fn prepared(sequence: Sequence, steps: &File, who: Who, check: bool) -> Prepared {
    let file = format!("/proc/self/fd/{}", steps.as_raw_fd()).into();
    Prepared::new(Job { file, sequence, who, check }).unwrap()
}

/// Runs one as a child would, in this process.
struct Run<'p>(&'p Prepared);

impl Visitor for Run<'_> {
    type Output = Round;

    const SERVICE: Service = Service::Global;

    fn global<G: Global>(self, _: &'static About) -> Round {
        match &self.0.who {
            Who::Plan(routes) => self.0.replay(&Plan::<G>::new(routes.clone())),
            Who::Without(_) => self.0.replay(&Without::<G>::new()),
            _ => self.0.replay(&Malloc::<G>::new()),
        }
    }
}

fn round(prepared: &Prepared) -> Round {
    bench::peers::with(REST, Run(prepared)).unwrap()
}

fn plans() -> Vec<Who> {
    let route = |allocator, without_reset| {
        Who::Plan(vec![Route { group: 0, allocator, without_reset, size: 64 }])
    };
    vec![
        Who::Malloc(REST.to_owned()),
        route(Allocator::Arena, false),
        route(Allocator::Arena, true),
        route(Allocator::Reap, false),
        route(Allocator::FreeList, false),
        route(Allocator::Pool, false),
        route(Allocator::Slab, false),
    ]
}

#[test]
fn live_bytes_are_the_recordings_after_every_step_under_glibc_and_every_plan() {
    for (seed, threads) in [(1, 1), (2, 2), (3, 5)] {
        let reader = any_story(seed, threads, 6_000).reader();
        let recorded = check::recorded(reader.events(0).unwrap()).unwrap();
        assert!(recorded.most > 100_000 && recorded.points > 3_000, "{recorded:?}");
        let (sequence, steps) = compiled(&reader, true);
        assert!(sequence.skipped.unknown_frees > 0 && sequence.skipped.lost_frees > 0);
        for who in plans() {
            let curve =
                round(&prepared(sequence.clone(), &steps, who.clone(), true)).curve.unwrap();
            assert_eq!(curve, recorded, "{who:?}, seed {seed}");
        }
    }
}

#[test]
fn threads_run_at_once_and_wait_for_blocks_that_cross() {
    for (seed, threads) in [(4, 1), (5, 3), (6, 8)] {
        let reader = any_story(seed, threads, 20_000).reader();
        let (sequence, steps) = compiled(&reader, true);
        assert_eq!(sequence.lanes.len(), threads as usize);
        assert_eq!(sequence.shared_slots > 0, threads > 1);
        assert_eq!(sequence.arrivals.len() > 10, threads > 1);
        for who in plans().into_iter().chain([Who::Without(vec![0])]) {
            let round = round(&prepared(sequence.clone(), &steps, who, false));
            assert!(round.wall_ns > 0);
        }
    }
}

#[test]
fn blocks_from_nowhere_are_those_of_their_groups_alone() {
    let reader = any_story(9, 1, 3_000).reader();
    let (sequence, steps) = compiled(&reader, false);
    let without = |groups| {
        round(&prepared(sequence.clone(), &steps, Who::Without(groups), true)).curve.unwrap()
    };
    assert_eq!(without(vec![]).overlaps, 0);
    // All of the group's are in one place.
    assert!(without(vec![0]).overlaps > 50);
}

#[test]
fn no_piece_of_steps_is_longer_than_a_window_however_long_the_recording() {
    let mut story = Story::new(1);
    for _ in 0..50_000 {
        story.allocate(0, 0, 0x1000, 64, Origin::Malloc);
        story.free(0, 0x1000);
    }
    let (sequence, _) = compiled(&story.reader(), false);
    let pieces = &sequence.threads[0].steps;
    assert_eq!(pieces.iter().map(|piece| piece.count).sum::<u32>(), 100_000);
    assert!(pieces.iter().all(|piece| piece.count as usize * STEP_BYTES <= 64 << 10));
}

#[test]
fn five_thousand_threads_are_replayed_by_as_many_as_ran_at_once() {
    let mut story = Story::new(5_000);
    for thread in 0..5_000 {
        story.allocate(thread, 0, 0x1000, 64, Origin::Malloc);
        if thread % 2 == 0 {
            story.free(thread, 0x1000);
        } else {
            // Left for the one after the next.
            story.free((thread + 2) % 5_000, 0x1000);
        }
    }
    let (sequence, steps) = compiled(&story.reader(), false);
    assert_eq!(sequence.threads.len(), 5_000);
    assert!(sequence.lanes.len() < 10, "{}", sequence.lanes.len());
    for who in [Who::Malloc(REST.to_owned()), plans().pop().unwrap()] {
        assert!(round(&prepared(sequence.clone(), &steps, who, false)).wall_ns > 0);
    }
}

#[test]
fn a_thousand_threads_run_at_once() {
    let mut story = Story::new(1_000);
    for turn in 0..4 {
        for thread in 0..1_000 {
            let address = 0x1000 * (1 + thread as u64);
            if turn % 2 == 0 {
                story.allocate(thread, 0, address, 64, Origin::Malloc);
            } else {
                story.free(999 - thread, 0x1000 * (1 + thread as u64));
            }
        }
    }
    let (sequence, steps) = compiled(&story.reader(), false);
    assert_eq!(sequence.lanes.len(), 1_000);
    for who in plans() {
        assert!(round(&prepared(sequence.clone(), &steps, who, false)).wall_ns > 0);
    }
}

#[test]
fn blocks_that_overlap_and_curves_that_differ_are_noticed() {
    let reader = any_story(7, 1, 500).reader();
    let recorded = check::recorded(reader.events(0).unwrap()).unwrap();
    let (sequence, steps) = compiled(&reader, false);
    let prepared = prepared(sequence, &steps, Who::Null, true);
    // `null` gives the same few bytes to everybody.
    let curve = check::in_order(&prepared, &Null);
    assert!(curve.overlaps > 50, "{}", curve.overlaps);
    assert_ne!(Curve { overlaps: 0, ..curve }, recorded);
}

#[test]
fn there_are_no_more_slots_than_blocks_live_at_once_and_eight_bytes_an_event() {
    let mut story = Story::new(1);
    for turn in 0..5_000 {
        for block in 0..10 {
            story.allocate(0, 0, 0x1000 * (1 + block), 8 + turn % 7, Origin::Malloc);
        }
        for block in 0..10 {
            story.free(0, 0x1000 * (1 + block));
        }
    }
    let (sequence, steps) = compiled(&story.reader(), false);
    assert_eq!((sequence.threads[0].slots, sequence.shared_slots), (10, 0));
    assert_eq!(sequence.steps, 100_000);
    let bytes = steps.metadata().unwrap().len();
    assert!(bytes < (STEP_BYTES as u64) * 100_100, "{bytes}");
}

#[test]
fn a_group_is_reset_where_nothing_of_it_is_live() {
    let mut story = Story::new(1);
    for _ in 0..100 {
        story.allocate(0, 0, 0x1000, 100, Origin::Malloc);
        // A resize is no moment without the block.
        story.free_to_resize(0, 0x1000);
        story.allocate(0, 0, 0x2000, 200, Origin::Realloc);
        story.allocate(0, 1, 0x3000, 300, Origin::Malloc);
        story.free(0, 0x2000);
        story.free(0, 0x3000);
    }
    let reader = story.reader();
    let (without, _) = compiled(&reader, false);
    let (with, _) = compiled(&reader, true);
    assert_eq!(with.steps - without.steps, 100);
}

#[test]
fn threads_that_ran_after_each_other_share_a_lane_and_hand_blocks_on() {
    let mut story = Story::new(40);
    for thread in 0..40 {
        for block in 0..100 {
            story.allocate(thread, 0, 0x1000 * (1 + block), 64, Origin::Malloc);
        }
        for block in 0..100 {
            // The last one is left for the next thread.
            if block > 0 || thread == 39 {
                story.free(thread, 0x1000 * (1 + block));
            } else if thread < 39 {
                story.free(thread + 1, 0x1000);
            }
        }
    }
    let (sequence, steps) = compiled(&story.reader(), false);
    // One is left over when the next begins.
    assert_eq!(sequence.lanes.len(), 2);
    assert!(sequence.shared_slots > 0);
    for who in plans() {
        assert!(round(&prepared(sequence.clone(), &steps, who, false)).wall_ns > 0);
    }
}

#[test]
fn null_replays_without_an_allocator() {
    let reader = any_story(8, 3, 5_000).reader();
    let (sequence, steps) = compiled(&reader, true);
    let prepared = prepared(sequence, &steps, Who::Null, false);
    let round = prepared.replay(&Null);
    assert!(round.wall_ns > 0);
}

#[test]
fn what_puts_the_figures_in_doubt_is_said() {
    let told = |program: &Program, replay: &Replay| -> String {
        doubts(program, replay).into_iter().map(|note| note.text).collect()
    };
    let (program, replay) = (Program::default(), Replay::default());
    let sound = told(&program, &replay);
    assert_eq!(sound.contains("without optimisation"), cfg!(debug_assertions));
    assert!(!sound.contains("busier") && !sound.contains("interrupted"), "{sound}");
    let slow = Replay { ceiling: Some(0.95), ..Replay::default() };
    assert!(told(&program, &slow).contains("busier"));
    let stopped = Replay { interrupted: true, ..Replay::default() };
    assert!(told(&program, &stopped).contains("interrupted"));
    let cut = Program { truncated: true, ..Program::default() };
    assert!(told(&cut, &replay).contains("ends before the program did"));
}
