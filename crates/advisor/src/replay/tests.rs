//! Invented recordings are compiled, and performed in order.

#[path = "../../../trace/tests/common/mod.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod shared;

use super::allocator_plan::{PlanFactory, Route};
use super::compile::{CompileOptions, compile};
use super::doubts;
use super::live_bytes::{self, LiveBytesCurve};
use super::round_job::{PreparedReplay, REST, Round, RoundJob, RowAllocator};
use super::sequence::{NO_GROUP, STEP_BYTES, StepSequence};
use super::thread_memory::{MallocFactory, NullFactory};
use super::thread_scan::scan;
use super::without_groups::WithoutGroupsFactory;
use super::worker;
use crate::analyse::findings::{AdvisedAllocator, RecordedProgram, ReplayFindings};
use bench::peers::{About, Global, Service, Visitor};
use shared::{Stream, container, file};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use trace_format::RecordingReader;
use trace_format::raw::{AllocationFlags, AllocationFunction};

/// A recording that is written event by event.
pub struct InventedRecording {
    streams: Vec<Stream>,
    kinds: Vec<HashMap<(u32, u64, AllocationFlags), u32>>,
    tick: u64,
}

/// Nodes 2 and 3 are two sites.
const NODES: u32 = 2;

impl InventedRecording {
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

    fn allocate(
        &mut self,
        thread: usize,
        site: u32,
        address: u64,
        size: u64,
        function: AllocationFunction,
    ) {
        self.tick += 3;
        let (tick, flags) = (self.tick, AllocationFlags::new(function));
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

    fn reader(self) -> RecordingReader {
        let chunks: Vec<_> = self.streams.into_iter().map(Stream::finish).collect();
        RecordingReader::from_file(file(&container(&chunks))).unwrap()
    }
}

/// A generator of pseudorandom numbers, the same each time.
struct Generator(u64);

impl Generator {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Several threads that allocate, free, resize, and free each other's blocks, with everything that
/// a recording may contain.
fn any_recording(seed: u64, threads: u32, events: usize) -> InventedRecording {
    let mut generator = Generator(seed);
    let mut recording = InventedRecording::new(threads);
    let mut live: Vec<u64> = Vec::new();
    let mut gone: Vec<u64> = Vec::new();
    let mut next = 0x10_0000;
    for _ in 0..events {
        let thread = generator.below(threads.into()) as usize;
        let size = match generator.below(8) {
            0 => 0,
            1 => 1 + generator.below(70_000),
            2 => 64,
            _ => 1 + generator.below(200),
        };
        let site = generator.below(NODES.into()) as u32;
        let mut address = || match gone.pop() {
            Some(address) if size % 2 == 0 => address,
            other => {
                gone.extend(other);
                next += 0x2_0000;
                next
            }
        };
        let pick = |generator: &mut Generator, live: &mut Vec<u64>| {
            let at = generator.below(live.len() as u64) as usize;
            live.swap_remove(at)
        };
        match generator.below(20) {
            0 => recording.free(thread, 0x77_7770),
            1 if !live.is_empty() => {
                // The free of the previous block was not recorded.
                let address = live[generator.below(live.len() as u64) as usize];
                recording.allocate(thread, site, address, size, AllocationFunction::Malloc);
            }
            2 if !live.is_empty() => {
                // An unfinished resize.
                let old = pick(&mut generator, &mut live);
                recording.free_to_resize(thread, old);
                gone.push(old);
            }
            3..=5 if !live.is_empty() => {
                let old = pick(&mut generator, &mut live);
                recording.free_to_resize(thread, old);
                let new = if size % 3 == 0 { old } else { address() };
                recording.allocate(thread, site, new, size, AllocationFunction::Realloc);
                live.push(new);
            }
            6..=12 if !live.is_empty() => {
                let old = pick(&mut generator, &mut live);
                recording.free(thread, old);
                gone.push(old);
            }
            below => {
                let function = [
                    AllocationFunction::Malloc,
                    AllocationFunction::Calloc,
                    AllocationFunction::Pages,
                ][below as usize % 3];
                let new = address();
                recording.allocate(thread, site, new, size, function);
                live.push(new);
            }
        }
    }
    recording
}

fn options(scoped: bool) -> CompileOptions {
    // Group 0 has the allocations of node 2.
    CompileOptions {
        group_of: vec![NO_GROUP, NO_GROUP, 0, NO_GROUP],
        scoped: vec![scoped],
        turns: true,
    }
}

fn compiled(reader: &RecordingReader, scoped: bool) -> (StepSequence, File) {
    let scan = scan(reader.events(0).unwrap()).unwrap();
    let mut steps = tempfile::tempfile().unwrap();
    let events = reader.events(0).unwrap();
    let sequence = compile(events, &scan, &options(scoped), &mut steps).unwrap();
    (sequence, steps)
}

fn prepared(
    sequence: StepSequence,
    steps: &File,
    allocator: RowAllocator,
    check: bool,
) -> PreparedReplay {
    let file = format!("/proc/self/fd/{}", steps.as_raw_fd()).into();
    PreparedReplay::new(RoundJob { file, sequence, allocator, check }).unwrap()
}

/// Runs a round as a child process does, in this process.
struct RunRound<'p>(&'p PreparedReplay);

impl Visitor for RunRound<'_> {
    type Output = Round;

    const SERVICE: Service = Service::Global;

    fn global<G: Global>(self, _: &'static About) -> Round {
        match &self.0.allocator {
            RowAllocator::Plan(routes) => {
                worker::replay(self.0, &PlanFactory::<G>::new(routes.clone()))
            }
            RowAllocator::Without(_) => worker::replay(self.0, &WithoutGroupsFactory::<G>::new()),
            _ => worker::replay(self.0, &MallocFactory::<G>::new()),
        }
    }
}

fn round(prepared: &PreparedReplay) -> Round {
    bench::peers::with(REST, RunRound(prepared)).unwrap()
}

fn plans() -> Vec<RowAllocator> {
    let route = |allocator, without_reset| {
        RowAllocator::Plan(vec![Route { group: 0, allocator, without_reset, size: 64 }])
    };
    vec![
        RowAllocator::Malloc(REST.to_owned()),
        route(AdvisedAllocator::Arena, false),
        route(AdvisedAllocator::Arena, true),
        route(AdvisedAllocator::Reap, false),
        route(AdvisedAllocator::FreeList, false),
        route(AdvisedAllocator::Pool, false),
        route(AdvisedAllocator::Slab, false),
    ]
}

#[test]
fn live_bytes_are_the_recordings_after_every_step_under_glibc_and_every_plan() {
    for (seed, threads) in [(1, 1), (2, 2), (3, 5)] {
        let reader = any_recording(seed, threads, 6_000).reader();
        let recorded = live_bytes::recorded(reader.events(0).unwrap()).unwrap();
        assert!(recorded.most > 100_000 && recorded.points > 3_000, "{recorded:?}");
        let (sequence, steps) = compiled(&reader, true);
        assert!(sequence.skipped.unknown_frees > 0 && sequence.skipped.lost_frees > 0);
        for allocator in plans() {
            let curve =
                round(&prepared(sequence.clone(), &steps, allocator.clone(), true)).curve.unwrap();
            assert_eq!(curve, recorded, "{allocator:?}, seed {seed}");
        }
    }
}

#[test]
fn threads_run_at_once_and_wait_for_blocks_that_cross() {
    for (seed, threads) in [(4, 1), (5, 3), (6, 8)] {
        let reader = any_recording(seed, threads, 20_000).reader();
        let (sequence, steps) = compiled(&reader, true);
        assert_eq!(sequence.chains.len(), threads as usize);
        assert_eq!(sequence.shared_slots > 0, threads > 1);
        assert_eq!(sequence.arrivals.len() > 10, threads > 1);
        for allocator in plans().into_iter().chain([RowAllocator::Without(vec![0])]) {
            let round = round(&prepared(sequence.clone(), &steps, allocator, false));
            assert!(round.wall_ns > 0);
        }
    }
}

#[test]
fn blocks_from_nowhere_are_those_of_their_groups_alone() {
    let reader = any_recording(9, 1, 3_000).reader();
    let (sequence, steps) = compiled(&reader, false);
    let without = |groups| {
        round(&prepared(sequence.clone(), &steps, RowAllocator::Without(groups), true))
            .curve
            .unwrap()
    };
    assert_eq!(without(vec![]).overlaps, 0);
    // All blocks of the group have the same address.
    assert!(without(vec![0]).overlaps > 50);
}

#[test]
fn no_piece_of_steps_is_longer_than_a_window_however_long_the_recording() {
    let mut recording = InventedRecording::new(1);
    for _ in 0..50_000 {
        recording.allocate(0, 0, 0x1000, 64, AllocationFunction::Malloc);
        recording.free(0, 0x1000);
    }
    let (sequence, _) = compiled(&recording.reader(), false);
    let pieces = &sequence.threads[0].steps;
    assert_eq!(pieces.iter().map(|piece| piece.count).sum::<u32>(), 100_000);
    assert!(pieces.iter().all(|piece| piece.count as usize * STEP_BYTES <= 64 << 10));
}

#[test]
fn five_thousand_threads_are_replayed_by_as_many_as_ran_at_once() {
    let mut recording = InventedRecording::new(5_000);
    for thread in 0..5_000 {
        recording.allocate(thread, 0, 0x1000, 64, AllocationFunction::Malloc);
        if thread % 2 == 0 {
            recording.free(thread, 0x1000);
        } else {
            // Freed by the thread after the next one.
            recording.free((thread + 2) % 5_000, 0x1000);
        }
    }
    let (sequence, steps) = compiled(&recording.reader(), false);
    assert_eq!(sequence.threads.len(), 5_000);
    assert!(sequence.chains.len() < 10, "{}", sequence.chains.len());
    for allocator in [RowAllocator::Malloc(REST.to_owned()), plans().pop().unwrap()] {
        assert!(round(&prepared(sequence.clone(), &steps, allocator, false)).wall_ns > 0);
    }
}

#[test]
fn a_thousand_threads_run_at_once() {
    let mut recording = InventedRecording::new(1_000);
    for turn in 0..4 {
        for thread in 0..1_000 {
            let address = 0x1000 * (1 + thread as u64);
            if turn % 2 == 0 {
                recording.allocate(thread, 0, address, 64, AllocationFunction::Malloc);
            } else {
                recording.free(999 - thread, 0x1000 * (1 + thread as u64));
            }
        }
    }
    let (sequence, steps) = compiled(&recording.reader(), false);
    assert_eq!(sequence.chains.len(), 1_000);
    for allocator in plans() {
        assert!(round(&prepared(sequence.clone(), &steps, allocator, false)).wall_ns > 0);
    }
}

#[test]
fn blocks_that_overlap_and_curves_that_differ_are_noticed() {
    let reader = any_recording(7, 1, 500).reader();
    let recorded = live_bytes::recorded(reader.events(0).unwrap()).unwrap();
    let (sequence, steps) = compiled(&reader, false);
    let prepared = prepared(sequence, &steps, RowAllocator::Null, true);
    // `null` returns the same address for every block.
    let curve = super::check::in_order(&prepared, &NullFactory);
    assert!(curve.overlaps > 50, "{}", curve.overlaps);
    assert_ne!(LiveBytesCurve { overlaps: 0, ..curve }, recorded);
}

#[test]
fn there_are_no_more_slots_than_blocks_live_at_once_and_eight_bytes_an_event() {
    let mut recording = InventedRecording::new(1);
    for turn in 0..5_000 {
        for block in 0..10 {
            recording.allocate(
                0,
                0,
                0x1000 * (1 + block),
                8 + turn % 7,
                AllocationFunction::Malloc,
            );
        }
        for block in 0..10 {
            recording.free(0, 0x1000 * (1 + block));
        }
    }
    let (sequence, steps) = compiled(&recording.reader(), false);
    assert_eq!((sequence.threads[0].slots, sequence.shared_slots), (10, 0));
    assert_eq!(sequence.steps, 100_000);
    let bytes = steps.metadata().unwrap().len();
    assert!(bytes < (STEP_BYTES as u64) * 100_100, "{bytes}");
}

#[test]
fn a_group_is_reset_where_nothing_of_it_is_live() {
    let mut recording = InventedRecording::new(1);
    for _ in 0..100 {
        recording.allocate(0, 0, 0x1000, 100, AllocationFunction::Malloc);
        // During a resize the block stays live.
        recording.free_to_resize(0, 0x1000);
        recording.allocate(0, 0, 0x2000, 200, AllocationFunction::Realloc);
        recording.allocate(0, 1, 0x3000, 300, AllocationFunction::Malloc);
        recording.free(0, 0x2000);
        recording.free(0, 0x3000);
    }
    let reader = recording.reader();
    let (without, _) = compiled(&reader, false);
    let (with, _) = compiled(&reader, true);
    assert_eq!(with.steps - without.steps, 100);
}

#[test]
fn threads_that_ran_after_each_other_share_a_lane_and_hand_blocks_on() {
    let mut recording = InventedRecording::new(40);
    for thread in 0..40 {
        for block in 0..100 {
            recording.allocate(thread, 0, 0x1000 * (1 + block), 64, AllocationFunction::Malloc);
        }
        for block in 0..100 {
            // The next thread frees the last block.
            if block > 0 || thread == 39 {
                recording.free(thread, 0x1000 * (1 + block));
            } else if thread < 39 {
                recording.free(thread + 1, 0x1000);
            }
        }
    }
    let (sequence, steps) = compiled(&recording.reader(), false);
    // One block is live when the next thread begins.
    assert_eq!(sequence.chains.len(), 2);
    assert!(sequence.shared_slots > 0);
    for allocator in plans() {
        assert!(round(&prepared(sequence.clone(), &steps, allocator, false)).wall_ns > 0);
    }
}

#[test]
fn null_replays_without_an_allocator() {
    let reader = any_recording(8, 3, 5_000).reader();
    let (sequence, steps) = compiled(&reader, true);
    let prepared = prepared(sequence, &steps, RowAllocator::Null, false);
    let round = worker::replay(&prepared, &NullFactory);
    assert!(round.wall_ns > 0);
}

#[test]
fn what_puts_the_figures_in_doubt_is_said() {
    let told = |program: &RecordedProgram, replay: &ReplayFindings| -> String {
        doubts(program, replay).into_iter().map(|note| note.text).collect()
    };
    let (program, replay) = (RecordedProgram::default(), ReplayFindings::default());
    let sound = told(&program, &replay);
    assert_eq!(sound.contains("without optimisation"), cfg!(debug_assertions));
    assert!(!sound.contains("busier") && !sound.contains("interrupted"), "{sound}");
    let slow = ReplayFindings { ceiling: Some(0.95), ..ReplayFindings::default() };
    assert!(told(&program, &slow).contains("busier"));
    let stopped = ReplayFindings { interrupted: true, ..ReplayFindings::default() };
    assert!(told(&program, &stopped).contains("interrupted"));
    let cut = RecordedProgram { truncated: true, ..RecordedProgram::default() };
    assert!(told(&cut, &replay).contains("ends before the program did"));
}
