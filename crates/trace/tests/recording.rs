//! A recording returns what was written to it, and damage is noticed.

mod common;

use common::{Stream, container, file};
use trace_format::container::ProcessHeader;
use trace_format::raw::{AllocationFlags, AllocationFunction, LockKind, LockWait, RawModule};
use trace_format::{Event, EventAction, NodeId, RecordingReader, TraceError};

fn events(bytes: &[u8]) -> Vec<Event> {
    let reader = RecordingReader::from_file(file(bytes)).unwrap();
    reader.events(0).unwrap().map(Result::unwrap).collect()
}

const LIBRARY: RawModule<'_> = RawModule {
    bias: 0x1000,
    start: 0x1000,
    end: 0x9000,
    build_id: &[1, 2, 3],
    path: b"/lib/a.so",
};

/// One of each event.
fn one_of_each() -> Vec<u8> {
    let mut stream = Stream::new(1_000);
    let flags = AllocationFlags::new(AllocationFunction::Aligned).aligned(4096);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        stream.encoder(0).thread(1_000, 0, 77);
        stream.encoder(0).module(1_001, &LIBRARY);
        stream.encoder(0).node(0, 0x1234);
        stream.encoder(0).node(2, 0x2345);
        stream.encoder(0).kind(3, 100, flags);
        stream.encoder(0).allocated(1_010, 0x7f00_dead_bee0, 0);
        stream.encoder(0).usable_size_queried(1_020, 0x7f00_dead_bee0);
        stream.encoder(0).freed_by_realloc(1_030, 0x7f00_dead_bee0);
        stream.encoder(0).kind(1, u64::MAX, AllocationFlags::new(AllocationFunction::Realloc));
        stream.encoder(0).allocated(1_040, 0x7, 1);
        stream.encoder(0).freed(1_300, 0x7);
        let wait = LockWait { node: 2, address: 0xabc0, lock: LockKind::Write, ticks: 20 };
        stream.encoder(0).waited(1_400, wait);
        stream.encoder(0).module_unloaded(1_500, 0x1000);
        stream.encoder(0).forget();
        stream.encoder(0).node(0, 0x1234);
        stream.encoder(0).kind(2, 1, AllocationFlags::new(AllocationFunction::Malloc));
        stream.encoder(0).allocated(1_600, u64::MAX, 0);
        stream.encoder(0).thread_end(1_700);
    }
    container(&[stream.finish()])
}

#[test]
fn every_event_is_read_as_it_was_written() {
    let bytes = one_of_each();
    let reader = RecordingReader::from_file(file(&bytes)).unwrap();
    assert_eq!(reader.cut_off_at(), None);
    assert!(reader.end().is_some());
    assert_eq!(reader.processes().len(), 1);
    assert_eq!(reader.processes()[0].header, common::header(42));
    let mut events = reader.events(0).unwrap();
    let all: Vec<(u64, EventAction)> = events
        .by_ref()
        .map(|event| event.unwrap())
        .inspect(|event| assert_eq!(event.thread, 0))
        .map(|event| (event.time_ns, event.action))
        .collect();
    let stacks = events.stacks();
    let [
        (_, EventAction::ThreadStart { system_id: 77 }),
        (5, EventAction::ModuleLoaded(library)),
        ..,
    ] = all[..]
    else {
        panic!("{all:?}");
    };
    let (outer, inner, again) = (NodeId(2), NodeId(3), NodeId(4));
    let flags = AllocationFlags::new(AllocationFunction::Aligned).aligned(4096);
    let block = 0x7f00_dead_bee0;
    assert_eq!(
        all[2..],
        [
            (50, EventAction::Alloc { address: block, size: 100, site: inner, flags }),
            (100, EventAction::Usable { address: block }),
            (150, EventAction::Free { address: block, by_realloc: true }),
            (
                200,
                EventAction::Alloc {
                    address: 7,
                    size: u64::MAX,
                    site: NodeId::CUT_OFF,
                    flags: AllocationFlags::new(AllocationFunction::Realloc)
                }
            ),
            (1500, EventAction::Free { address: 7, by_realloc: false }),
            (
                2000,
                EventAction::LockWait {
                    address: 0xabc0,
                    lock: LockKind::Write,
                    duration_ns: 100,
                    site: outer
                }
            ),
            (2500, EventAction::ModuleUnloaded(library)),
            (
                3000,
                EventAction::Alloc {
                    address: u64::MAX,
                    size: 1,
                    site: again,
                    flags: AllocationFlags::new(AllocationFunction::Malloc)
                }
            ),
            (3500, EventAction::ThreadEnd),
        ]
    );
    assert_eq!(flags.alignment(), 4096);
    assert_eq!(stacks.frames(inner).collect::<Vec<_>>(), [inner, outer]);
    assert_eq!((stacks.return_address(inner), stacks.return_address(outer)), (0x2345, 0x1234));
    assert_eq!(stacks.module(inner), Some(library));
    assert_eq!(stacks.module(again), None, "the same address after the module has gone");
    assert!(stacks.is_cut_off(NodeId::CUT_OFF) && !stacks.is_cut_off(inner));
    let module = events.modules().get(library);
    assert_eq!((&*module.path, &module.build_id[..]), ("/lib/a.so", &[1, 2, 3][..]));
    assert_eq!((module.loaded_ns, module.unloaded_ns), (5, Some(2500)));
}

#[test]
fn the_same_stack_of_two_threads_is_one() {
    let streams: Vec<_> = (0..2)
        .map(|thread| {
            let mut stream = Stream::new(1_000);
            // SAFETY: `encoder` makes space for any event.
            unsafe {
                stream.encoder(0).thread(1_000, thread, thread);
                if thread == 1 {
                    stream.encoder(0).node(0, 0x9999);
                }
                stream.encoder(0).node(0, 0x1234);
                stream.encoder(0).kind(
                    2 + thread,
                    8,
                    AllocationFlags::new(AllocationFunction::Malloc),
                );
                stream.encoder(0).allocated(1_001, 0x10 + 0x10 * u64::from(thread), 0);
            }
            stream.finish()
        })
        .collect();
    let sites: Vec<NodeId> = events(&container(&streams))
        .iter()
        .filter_map(|event| match event.action {
            EventAction::Alloc { site, .. } => Some(site),
            _ => None,
        })
        .collect();
    assert_eq!(sites.len(), 2);
    assert_eq!(sites[0], sites[1]);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_readable_up_to_the_cut() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        stream.encoder(0).kind(1, 8, AllocationFlags::new(AllocationFunction::Malloc));
        for i in 0..200_000_u64 {
            stream.encoder(1_000 + i).allocated(1_000 + i, i * i * 16, 0);
        }
    }
    let whole = container(&[stream.finish()]);
    let all = events(&whole);
    assert_eq!(all.len(), 200_000);
    let mut seen = Vec::new();
    for cut in (16..whole.len()).step_by(whole.len() / 37).chain(whole.len() - 40..whole.len()) {
        let reader = RecordingReader::from_file(file(&whole[..cut])).unwrap();
        assert!(reader.cut_off_at().is_some_and(|at| at <= cut as u64), "cut at {cut}");
        let Ok(events) = reader.events(0) else { continue };
        let readable: Vec<Event> = events.map(Result::unwrap).collect();
        assert!(all.starts_with(&readable));
        seen.push(readable.len());
    }
    assert!(seen.first().unwrap() < seen.last().unwrap() && seen.len() > 40);
}

#[test]
fn a_program_killed_in_the_middle_of_an_event_leaves_the_complete_ones() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        stream.encoder(0).kind(1, 8, AllocationFlags::new(AllocationFunction::Malloc));
        stream.encoder(0).allocated(1_010, 0x1230, 0);
        stream.encoder(0).freed(1_020, 0x1230);
    }
    let mut chunks = stream.finish();
    let events_of = |chunk: &[u8]| events(&container(&[vec![(1_000, chunk.to_vec())]])).len();
    // The fields of the next event, whose first byte is not stored yet, and zeros to the end of the
    // chunk.
    let (_, chunk) = &mut chunks[0];
    assert_eq!(events_of(chunk), 2);
    chunk.extend([0, 0x99, 0x99, 0x99]);
    assert_eq!(events_of(chunk), 2);
    chunk.resize(100_000, 0);
    assert_eq!(events_of(chunk), 2);
}

#[test]
fn other_files_are_reported_as_no_recording() {
    for bytes in [&b""[..], b"ALLOTREC", b"\x7fELF and so on and so on and so on"] {
        let error = RecordingReader::from_file(file(bytes)).unwrap_err();
        assert!(matches!(error, TraceError::NotARecording), "{error}");
    }
    for version in [1, 9] {
        let mut other = one_of_each();
        other[8] = version;
        let error = RecordingReader::from_file(file(&other)).unwrap_err();
        assert!(matches!(error, TraceError::Version(v) if v == u32::from(version)), "{error}");
        assert!(error.to_string().contains("record again"), "{error}");
    }
    for not_a_file in ["/", "/dev/null"] {
        let error = RecordingReader::open(not_a_file).unwrap_err();
        assert!(matches!(error, TraceError::NotAFile), "{not_a_file}: {error}");
    }
    let error = RecordingReader::open("/no/such/file").unwrap_err();
    assert!(matches!(error, TraceError::Io(_)), "{error}");
    let error = RecordingReader::from_file(file(&one_of_each())).unwrap().events(1).unwrap_err();
    assert!(matches!(error, TraceError::NoSuchProcess(1)), "{error}");
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    let whole = one_of_each();
    let right = events(&whole);
    for at in 12..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let read = RecordingReader::from_file(file(&bytes)).and_then(|reader| {
            let events = reader.events(0)?.collect::<Result<Vec<_>, _>>()?;
            Ok((reader.end().is_some(), events))
        });
        match read {
            Err(TraceError::Damaged { .. } | TraceError::NoSuchProcess(_)) => {}
            // Only the four bytes after the version are reserved.
            Ok((true, events)) => assert!(at < 16 && events == right, "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn chunks_out_of_order_are_noticed() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe { stream.encoder(0).thread_end(1_000) };
    let chunks = stream.finish();
    let twice = container(&[[&chunks[..], &chunks[..]].concat()]);
    assert_eq!(events(&twice).len(), 2);
    let mut writer = trace_format::container::RecordingWriter::new(Vec::new()).unwrap();
    let process = writer.process(&common::header(1)).unwrap();
    let (tick, events) = (chunks[0].0, &chunks[0].1[..]);
    let chunk =
        trace_format::container::ChunkEvents { process, stream: 0, sequence: 1, tick, events };
    writer.chunk(chunk).unwrap();
    let bytes = writer.finish(&Default::default()).unwrap();
    let error = RecordingReader::from_file(file(&bytes)).unwrap_err();
    assert!(matches!(error, TraceError::Damaged { .. }), "{error}");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let error = RecordingReader::open(&pipe).unwrap_err();
    assert!(matches!(error, TraceError::NotAFile), "{error}");
}

#[test]
fn threads_are_counted_in_the_order_in_which_they_are_seen_whatever_their_numbers_are() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        for (tick, number) in (1_001..).zip([u32::MAX, 7, u32::MAX, 0]) {
            stream.encoder(0).thread(tick, number, 9);
        }
    }
    let threads: Vec<u32> =
        events(&container(&[stream.finish()])).iter().map(|event| event.thread).collect();
    assert_eq!(threads, [0, 1, 0, 2]);
}

#[test]
fn an_endless_stack_is_damage() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        for node in 0..100_000_u32 {
            stream.encoder(1_000).node(if node == 0 { 0 } else { node + 1 }, 0x1000);
        }
        stream.encoder(1_000).kind(2, 8, AllocationFlags::new(AllocationFunction::Malloc));
        stream.encoder(1_000).allocated(1_000, 0x10, 0);
    }
    let reader = RecordingReader::from_file(file(&container(&[stream.finish()]))).unwrap();
    let error = reader.events(0).unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("deeper"), "{error}");
}

#[test]
fn times_beyond_the_limit_do_not_wrap_around() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        for tick in [1_001, 1 << 50, 1 << 62, u64::MAX - 1, u64::MAX] {
            stream.encoder(0).freed(tick, 0x10);
            let wait = LockWait { node: 0, address: 5, lock: LockKind::Read, ticks: u64::MAX };
            stream.encoder(0).waited(tick, wait);
        }
    }
    let events = events(&container(&[stream.finish()]));
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    assert!(events.iter().all(|event| event.time_ns <= 1 << 62));
}

#[test]
fn events_with_any_byte_changed_are_other_events_or_an_error() {
    let mut stream = Stream::new(1_000);
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        stream.encoder(0).thread(1_000, 0, 77);
        stream.encoder(0).module(1_001, &LIBRARY);
        for i in 0..20_u32 {
            stream.encoder(0).node(i % 3, 0x1234 + u64::from(i) * 0x111);
            stream.encoder(0).kind(2, 1 << i, AllocationFlags::new(AllocationFunction::Calloc));
            stream.encoder(0).allocated(1_010 + u64::from(i) * 300, u64::from(i) * 16, i);
            stream.encoder(0).freed(1_020 + u64::from(i) * 300, u64::from(i) * 16);
        }
        stream.encoder(0).module_unloaded(9_000, 0x1000);
        stream.encoder(0).thread_end(9_001);
    }
    let chunk = stream.finish().remove(0).1;
    let mut ends = [0; 2];
    for at in 0..chunk.len() {
        for other in [0, 1, 9, 0x7f, 0x80, 0xc3, 0xff, !chunk[at], chunk[at] ^ 4] {
            let mut bytes = chunk.clone();
            bytes[at] = other;
            let reader =
                RecordingReader::from_file(file(&container(&[vec![(1_000, bytes)]]))).unwrap();
            let mut events = reader.events(0).unwrap();
            let failed = events.by_ref().any(|event| event.is_err());
            assert!(events.next().is_none(), "events follow an error");
            ends[usize::from(failed)] += 1;
        }
    }
    assert!(ends[0] > 100 && ends[1] > 100, "{ends:?}");
}

#[test]
fn a_number_too_large_for_sums_is_damage() {
    let written = |ns_of_tick| {
        let mut writer = trace_format::container::RecordingWriter::new(Vec::new()).unwrap();
        let header = ProcessHeader { ns_of_tick, ..common::header(1) };
        writer.process(&header).unwrap();
        writer.finish(&Default::default()).unwrap()
    };
    assert!(RecordingReader::from_file(file(&written(1 << 56))).is_ok());
    let error = RecordingReader::from_file(file(&written(u64::MAX))).unwrap_err();
    assert!(error.to_string().contains("counted"), "{error}");
}
