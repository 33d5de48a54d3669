//! `allot analyse` on recordings made up here, each of which shows one thing.

#[path = "../../trace/tests/common/mod.rs"]
#[allow(dead_code)]
mod common;

use common::{FIVE_NS, Stream, header};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use trace_format::container::{
    AllocatorCosts, ChunkEvents, ProcessEnd, RecordingEnd, RecordingWriter, ResourceUsage,
    SampledCost,
};
use trace_format::raw::{AllocationFlags, AllocationFunction};

/// A thread of a program that was never run.
struct Thread {
    stream: Stream,
    tick: u64,
    nodes: HashMap<Vec<u64>, u32>,
    kinds: HashMap<(u32, u64, AllocationFunction), u32>,
}

impl Thread {
    fn new(number: u32) -> Self {
        let mut stream = Stream::new(1_000);
        // SAFETY: `at` leaves room for any event.
        unsafe { stream.encoder(1_000).thread(1_000, number, 100 + number) };
        Self { stream, tick: 1_000, nodes: HashMap::new(), kinds: HashMap::new() }
    }

    /// The node of a stack, its outermost return address first.
    fn node(&mut self, stack: &[u64]) -> u32 {
        let Some((last, outer)) = stack.split_last() else { return 0 };
        if let Some(&node) = self.nodes.get(stack) {
            return node;
        }
        let parent = self.node(outer);
        // SAFETY: as above.
        unsafe { self.stream.encoder(self.tick).node(parent, *last) };
        let node = 2 + self.nodes.len() as u32;
        self.nodes.insert(stack.to_vec(), node);
        node
    }

    fn allocate_by(
        &mut self,
        stack: &[u64],
        address: u64,
        size: u64,
        function: AllocationFunction,
    ) {
        let node = self.node(stack);
        let next = self.kinds.len() as u32;
        let kind = *self.kinds.entry((node, size, function)).or_insert(next);
        self.tick += 20;
        let tick = self.tick;
        // SAFETY: as above.
        unsafe {
            if kind == next {
                self.stream.encoder(tick).kind(node, size, AllocationFlags::new(function));
            }
            self.stream.encoder(tick).allocated(tick, address, kind);
        }
    }

    fn allocate(&mut self, stack: &[u64], address: u64, size: u64) {
        self.allocate_by(stack, address, size, AllocationFunction::Malloc);
    }

    fn free(&mut self, address: u64) {
        self.tick += 20;
        // SAFETY: as above.
        unsafe { self.stream.encoder(self.tick).freed(self.tick, address) };
    }
}

/// Writes a recording of these threads, of a program that took so much CPU time.
fn recording(name: &str, threads: Vec<Thread>, cpu_ns: u64) -> PathBuf {
    measured_recording(name, threads, cpu_ns, None)
}

/// The same, with what calls took.
fn measured_recording(
    name: &str,
    threads: Vec<Thread>,
    cpu_ns: u64,
    costs: Option<AllocatorCosts>,
) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut writer = RecordingWriter::new(Vec::new()).unwrap();
    let process = writer.process(&header(42)).unwrap();
    for (stream, thread) in threads.into_iter().enumerate() {
        for (sequence, (tick, events)) in thread.stream.finish().iter().enumerate() {
            let (stream, sequence) = (stream as u32, sequence as u32);
            writer.chunk(ChunkEvents { process, stream, sequence, tick: *tick, events }).unwrap();
        }
    }
    let end = ProcessEnd { ns_of_tick: FIVE_NS, exited: true, costs, ..ProcessEnd::default() };
    writer.end_process(process, &end).unwrap();
    let usage = ResourceUsage { user_ns: cpu_ns, ..ResourceUsage::default() };
    let bytes = writer.finish(&RecordingEnd { usage, ..RecordingEnd::default() }).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

fn run(path: &PathBuf, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.arg("analyse").arg(path).args(more).stdin(Stdio::null()).output().unwrap()
}

fn findings(path: &PathBuf) -> Value {
    let output = run(path, &["--json", "--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The group with the most allocations.
fn largest(findings: &Value) -> &Value {
    let groups = findings["groups"].as_array().unwrap();
    groups.iter().max_by_key(|group| group["count"].as_u64()).unwrap()
}

const MAIN: u64 = 0x100;
const HEAP: u64 = 0x10_0000;

/// Documents of a thousand nodes, made by a recursive function and freed whole, one after the
/// other.
fn documents(thread: &mut Thread, heap: u64, documents: u64) {
    for _ in 0..documents {
        for i in 0..1000 {
            let mut stack = vec![MAIN, 0x200];
            stack.extend((0..i % 5).map(|_| 0x300));
            stack.push(0x310 + i % 3);
            thread.allocate(&stack, heap + i * 64, 16 + i % 3 * 16);
        }
        (0..1000).for_each(|i| thread.free(heap + i * 64));
    }
}

#[test]
fn blocks_that_die_together_get_an_arena() {
    let mut thread = Thread::new(0);
    documents(&mut thread, HEAP, 20);
    let findings = findings(&recording("documents", vec![thread], 3_000_000));
    let group = largest(&findings);
    assert_eq!(group["verdict"]["allocator"], "arena", "{group:#}");
    assert_eq!(group["verdict"]["category"], "transient");
    assert_eq!(group["verdict"]["without_reset"], false);
    assert_eq!(group["count"], 20_000);
    // The last document's end is the program's.
    assert_eq!((&group["returns_to_zero"], &group["freed_at_exit"]), (&19.into(), &1000.into()));
    assert_eq!((&group["drag"], &group["phase_objects"]), (&1.0.into(), &1000.0.into()));
    assert_eq!(group["burst_share"], 1.0);
}

#[test]
fn each_thread_has_its_own_arena_though_all_of_them_are_never_empty_at_once() {
    let (mut first, mut second) = (Thread::new(0), Thread::new(1));
    documents(&mut first, HEAP, 20);
    // Half a document later.
    second.tick += 20_000;
    documents(&mut second, 2 * HEAP, 20);
    let findings = findings(&recording("threads", vec![first, second], 6_000_000));
    let group = largest(&findings);
    assert_eq!(group["verdict"]["allocator"], "arena", "{group:#}");
    assert_eq!(group["threads"], 2);
    // While one thread frees, the other allocates: that is when an arena holds more than is live.
    assert!(group["drag"].as_f64().unwrap() < 1.6, "{group:#}");
    assert!(group["returns_to_zero"].as_u64().unwrap() >= 38, "{group:#}");
}

/// Blocks that live for a moment, in a function that keeps one for the whole run.
fn moments(thread: &mut Thread, sizes: u64) {
    let kept = HEAP - 4096;
    thread.allocate(&[MAIN, 0x400, 0x410], kept, 64);
    for i in 1..30_000 {
        thread.allocate(&[MAIN, 0x400, 0x420], HEAP + i % 7 * 4096, 64 + i % sizes * 16);
        if i > 3 {
            thread.free(HEAP + (i - 3) % 7 * 4096);
        }
        if i % 7 == 0 {
            thread.free(kept);
            thread.allocate(&[MAIN, 0x400, 0x410], kept, 64);
        }
    }
}

#[test]
fn blocks_for_a_moment_get_a_free_list_or_a_pool_and_an_arena_is_refused() {
    for (sizes, wanted) in [(1, "free_list"), (12, "pool")] {
        let mut thread = Thread::new(0);
        thread.allocate(&[MAIN, 0x500], 64, 1000);
        for i in 0..30_000_u64 {
            thread.allocate(&[MAIN, 0x400, 0x420], HEAP + i % 16 * 4096, 64 + i % sizes * 16);
            if i >= 8 {
                thread.free(HEAP + (i - 8) % 16 * 4096);
            }
        }
        let path = recording(&format!("moments-{sizes}"), vec![thread], 3_000_000);
        let findings = findings(&path);
        let group = largest(&findings);
        let verdict = &group["verdict"];
        assert_eq!(verdict["allocator"], wanted, "{group:#}");
        let refused = verdict["refused"].as_array().unwrap();
        assert_eq!(refused[0]["allocator"], "arena", "{verdict:#}");
        assert!(refused[0]["reason"].as_str().unwrap().contains("never be reset"), "{verdict:#}");
        assert!(group["drag"].as_f64().unwrap() > 1000.0);
    }
}

#[test]
fn blocks_that_another_thread_frees_get_a_slab_if_they_are_of_one_size() {
    for (sizes, wanted) in [(1, "shared"), (12, "better_malloc")] {
        let (mut producer, mut consumer) = (Thread::new(0), Thread::new(1));
        for i in 0..20_000 {
            let address = HEAP + i % 1000 * 512;
            if i >= 1000 {
                consumer.tick = producer.tick;
                consumer.free(address);
                producer.tick = consumer.tick;
            }
            producer.allocate(&[MAIN, 0x600], address, 96 + i % sizes * 16);
        }
        let path = recording(&format!("messages-{sizes}"), vec![producer, consumer], 3_000_000);
        let findings = findings(&path);
        let group = largest(&findings);
        assert_eq!(group["verdict"]["category"], wanted, "{group:#}");
        assert_eq!(group["same_thread_share"], 0.0);
    }
}

#[test]
fn where_allocating_takes_little_all_is_left_as_it_is() {
    let mut thread = Thread::new(0);
    documents(&mut thread, HEAP, 5);
    let findings = findings(&recording("little", vec![thread], 1_000_000_000));
    for group in findings["groups"].as_array().unwrap() {
        assert_eq!(group["verdict"]["category"], "leave_it", "{group:#}");
        assert!(group["verdict"]["gain"]["ceiling"].as_f64().unwrap() < 0.01);
    }
}

#[test]
fn what_malloc_and_the_recorder_took_in_the_run_is_what_gains_rest_on() {
    let cost = |mean: f64| SampledCost { samples: 1000, ns: 1000.0 * mean };
    let costs = AllocatorCosts {
        allocations: cost(80.0),
        frees: cost(20.0),
        recorder: cost(30.0),
        ..AllocatorCosts::default()
    };
    let with = |name: &str, costs| {
        let mut thread = Thread::new(0);
        documents(&mut thread, HEAP, 20);
        findings(&measured_recording(name, vec![thread], 5_200_000, costs))
    };
    let (usual, measured) = (with("usual", None), with("measured", Some(costs)));
    let program = &measured["program"];
    // 20,000 pairs; the recorder took 30 ns of each call, and of the thread's start.
    assert_eq!(program["bare_cpu_ns"], 5_200_000 - 40_001 * 30);
    let share = program["allocator_share"].as_f64().unwrap();
    assert!((share - 2e6 / 3_999_970.0).abs() < 1e-9, "{share}");
    assert_eq!((&program["allocator_measured"], &program["free_ns"]), (&true.into(), &20.0.into()));
    let ceiling = |findings: &Value| {
        let groups = findings["groups"].as_array().unwrap().iter();
        groups.filter_map(|group| group["verdict"]["gain"]["ceiling"].as_f64()).sum::<f64>()
    };
    assert!((ceiling(&measured) - share).abs() < 1e-6, "{} {share}", ceiling(&measured));
    assert_eq!(usual["program"]["allocator_measured"], false);
    assert!(ceiling(&measured) > 2.0 * ceiling(&usual));
    assert_eq!(largest(&measured)["verdict"]["allocator"], "arena");
}

#[test]
fn what_groups_cost_is_together_no_more_than_what_all_allocating_takes() {
    let mut thread = Thread::new(0);
    documents(&mut thread, HEAP, 10);
    // Ten places with a thousand live blocks each: few for each of them, and many for the pool that
    // would serve all.
    for i in 0..60_000_u64 {
        let (place, slot) = (i % 10, i / 10);
        let address = 2 * HEAP + (place * 1000 + slot % 1000) * 1024;
        if slot >= 1000 {
            thread.free(address);
        }
        thread.allocate(&[MAIN, 0x400, 0x420 + place * 16], address, 64 + slot % 12 * 16);
    }
    let findings = findings(&recording("sums", vec![thread], 6_000_000));
    let groups = findings["groups"].as_array().unwrap();
    let pool = largest(&findings);
    assert_eq!(pool["verdict"]["allocator"], "pool", "{pool:#}");
    assert!(pool["peak_live_objects"].as_u64().unwrap() > 5_000, "{pool:#}");
    assert!(groups.iter().any(|group| group["verdict"]["allocator"] == "arena"), "{groups:#?}");
    let gains = || groups.iter().map(|group| &group["verdict"]["gain"]);
    let ceilings: f64 = gains().map(|gain| gain["ceiling"].as_f64().unwrap()).sum();
    let share = findings["program"]["allocator_share"].as_f64().unwrap();
    assert!(share < 0.9 && ceilings <= share * (1.0 + 1e-9), "{ceilings} of {share}");
    for gain in gains() {
        assert!(gain["share"].as_f64() <= gain["ceiling"].as_f64(), "{gain}");
    }
}

#[test]
fn frees_at_the_end_are_no_evidence() {
    let mut thread = Thread::new(0);
    // A cache: random replacement, and all is freed at last.
    let mut random = 1_u64;
    for i in 0..20_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let place = HEAP + if i < 1000 { i } else { (random >> 33) % 1000 } * 64;
        if i >= 1000 {
            thread.free(place);
        }
        thread.allocate(&[MAIN, 0x700], place, 48);
    }
    (0..1000).for_each(|i| thread.free(HEAP + i * 64));
    let findings = findings(&recording("cache", vec![thread], 3_000_000));
    let group = largest(&findings);
    assert_eq!(group["freed_at_exit"], 1000);
    assert_eq!((&group["burst_share"], &group["returns_to_zero"]), (&0.0.into(), &0.into()));
    assert_eq!(group["verdict"]["allocator"], "free_list", "{group:#}");
    assert!(group["drag"].as_f64().unwrap() > 5.0);
}

#[test]
fn a_function_whose_behaviour_is_its_callers_is_a_wrapper() {
    let mut thread = Thread::new(0);
    for i in 0..20_000_u64 {
        // Five callers, each with a size of its own, all through one function.
        let caller = i % 5;
        let stack = [MAIN, 0x1000 + caller * 0x100, 0x800];
        thread.allocate(&stack, HEAP + caller * 4096, 16 << caller);
        thread.free(HEAP + caller * 4096);
    }
    let findings = findings(&recording("wrapper", vec![thread], 3_000_000));
    let sites = findings["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 5, "{sites:#?}");
    for site in sites {
        assert_eq!(site["frames"][0]["wrapper"], true);
        assert_eq!(site["frames"][1]["wrapper"], false);
        assert_eq!(site["title"], site["frames"][1]["function"]);
        assert_eq!(site["dominant_share"], 1.0);
    }
}

#[test]
fn callers_are_not_told_apart_where_they_see_the_same() {
    let mut thread = Thread::new(0);
    for i in 0..20_000_u64 {
        let stack = [MAIN, 0x1000 + i % 50 * 0x100, 0x800];
        thread.allocate(&stack, HEAP, 48);
        thread.free(HEAP);
    }
    let findings = findings(&recording("alike", vec![thread], 3_000_000));
    let sites = findings["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 1, "{sites:#?}");
    assert_eq!((&sites[0]["stacks"], &sites[0]["count"]), (&50.into(), &20_000.into()));
}

#[test]
fn what_is_counted_is_what_happened() {
    let mut thread = Thread::new(0);
    moments(&mut thread, 3);
    let path = recording("counts", vec![thread], 3_000_000);
    let findings = findings(&path);
    let program = &findings["program"];
    let sites = findings["sites"].as_array().unwrap();
    let groups = findings["groups"].as_array().unwrap();
    for all in [sites, groups] {
        let sum: u64 = all.iter().map(|one| one["count"].as_u64().unwrap()).sum();
        assert_eq!(sum, program["allocations"].as_u64().unwrap());
    }
    assert_eq!(findings["flame"]["count"], program["allocations"]);
    assert_eq!(findings["flame"]["bytes"], program["bytes"]);
    assert_eq!(findings["overlaps"]["found"], 0);
    for (index, site) in sites.iter().enumerate() {
        assert_eq!(site["id"], index);
        let group = &groups[site["group"].as_u64().unwrap() as usize];
        assert!(group["sites"].as_array().unwrap().contains(&site["id"]));
    }
    let timeline = findings["timeline"].as_array().unwrap();
    assert!((2..=1000).contains(&timeline.len()));
    let most = timeline.iter().filter_map(|point| point["most_bytes"].as_u64()).max();
    assert_eq!(most, program["peak_live_bytes"].as_u64());
}

#[test]
fn overlapping_blocks_are_told_with_exit_code_1() {
    let mut thread = Thread::new(0);
    thread.allocate(&[MAIN], HEAP, 64);
    thread.allocate(&[MAIN], HEAP + 48, 64);
    let path = recording("overlap", vec![thread], 1_000_000);
    let output = run(&path, &["--check"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("1 of 2 blocks overlap"), "{errors}");
    assert!(run(&path, &[]).status.success());
}

#[test]
fn a_recording_that_was_cut_off_is_analysed_as_far_as_it_goes() {
    let mut thread = Thread::new(0);
    documents(&mut thread, HEAP, 3);
    let whole = recording("whole", vec![thread], 1_000_000);
    let cut = whole.with_file_name("cut");
    let bytes = std::fs::read(&whole).unwrap();
    // Without the ends of process and recording.
    std::fs::write(&cut, &bytes[..bytes.len() - 500]).unwrap();
    let findings = findings(&cut);
    assert_eq!(findings["program"]["truncated"], true);
    assert_eq!(findings["program"]["allocations"], 3000);
    let notes = findings["notes"].to_string();
    assert!(notes.contains("cut off"), "{notes}");
    for group in findings["groups"].as_array().unwrap() {
        assert_eq!(group["verdict"]["gain"], Value::Null);
    }
}

#[test]
fn a_table_fits_a_screen_and_bad_input_is_told_in_one_line() {
    let mut thread = Thread::new(0);
    documents(&mut thread, HEAP, 20);
    let path = recording("screen", vec![thread], 3_000_000);
    let output = run(&path, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() <= 40 && text.contains("arena"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 105), "{text}");
    let other = path.with_file_name("no-recording");
    std::fs::write(&other, "something else, of more than sixteen bytes").unwrap();
    for (path, more, code) in [
        (&path, &["--process", "7"][..], 2),
        (&path, &["--rows", "many"], 2),
        (&other, &[], 1),
        (&path.with_file_name("not-there"), &[], 1),
    ] {
        let output = run(path, more);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.starts_with("allot: ") && errors.lines().count() == 1, "{errors}");
    }
}
