//! Properties of all recordings.

mod common;

use common::{Stream, container, file};
use proptest::prelude::*;
use std::collections::VecDeque;
use trace_format::container::{ChunkEvents, RecordingWriter};
use trace_format::raw::{
    AllocationFlags, AllocationFunction, CHUNK_CAPACITY, Decoder, HEADER_SIZE, MAGIC,
    RawChunkHeader, RawFileHeader, VERSION,
};
use trace_format::{EventAction, RecordingReader};

/// An allocation or a free: ticks since the previous step, the address, and the kind of an
/// allocation.
type Step = (u64, u64, Option<u32>);

fn ticks() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, 0..300_u64, 0..70_000_u64, 0..1_u64 << 40]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let address = prop_oneof![any::<u64>(), (0..100_u64).prop_map(|i| 0x5000_0000 + 16 * i)];
    prop::collection::vec((ticks(), address, prop::option::of(0..40_u32)), 0..300)
}

/// The stream of a thread. Its kinds have one of two stacks.
fn record(thread: u32, steps: &[Step]) -> Vec<(u64, Vec<u8>)> {
    let mut stream = Stream::new(1_000);
    let mut now = 1_000;
    // SAFETY: `encoder` makes space for any event.
    unsafe {
        stream.encoder(now).thread(now, thread, thread);
        for kind in 0..40 {
            stream.encoder(now).kind(
                kind % 2,
                u64::from(kind),
                AllocationFlags::new(AllocationFunction::Malloc),
            );
        }
        for &(ticks, address, kind) in steps {
            now += ticks;
            match kind {
                Some(kind) => stream.encoder(now).allocated(now, address, kind),
                None => stream.encoder(now).freed(now, address),
            }
        }
    }
    stream.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_merge_of_threads_is_a_sort_by_time(threads in prop::collection::vec(steps(), 1..6)) {
        let streams: Vec<_> = (0..).zip(&threads).map(|(i, steps)| record(i, steps)).collect();
        // The events of each thread in their order, and of two threads the earlier event first.
        let mut queues: Vec<VecDeque<Step>> = threads
            .iter()
            .map(|steps| {
                let mut now = 1_000;
                let at = |&(ticks, address, kind): &Step| {
                    now += ticks;
                    (now, address, kind)
                };
                steps.iter().map(at).collect()
            })
            .collect();
        let mut expected = Vec::new();
        while let Some(next) = (0..queues.len())
            .filter(|&i| !queues[i].is_empty())
            .min_by_key(|&i| {
                let &(now, _, kind) = queues[i].front().unwrap();
                (now, kind.is_some(), i)
            })
        {
            let (now, address, kind) = queues[next].pop_front().unwrap();
            expected.push(((now - 1_000) * 5, next as u32, address, kind.map(u64::from)));
        }
        let reader = RecordingReader::from_file(file(&container(&streams))).unwrap();
        let read: Vec<_> = reader
            .events(0)
            .unwrap()
            .map(Result::unwrap)
            .filter_map(|event| match event.action {
                EventAction::Alloc { address, size, .. } => Some((event.time_ns, event.thread, address, Some(size))),
                EventAction::Free { address, .. } => Some((event.time_ns, event.thread, address, None)),
                _ => None,
            })
            .collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn garbage_instead_of_events_ends_in_an_error_or_in_events(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..4),
    ) {
        let mut writer = RecordingWriter::new(Vec::new()).unwrap();
        let process = writer.process(&common::header(1)).unwrap();
        for (sequence, events) in (0..).zip(&chunks) {
            writer.chunk(ChunkEvents { process, stream: 0, sequence, tick: u64::MAX / 2, events }).unwrap();
        }
        let bytes = writer.finish(&Default::default()).unwrap();
        let reader = RecordingReader::from_file(file(&bytes)).unwrap();
        let mut events = reader.events(0).unwrap();
        let failed = events.by_ref().filter(Result::is_err).count();
        prop_assert!(failed <= 1);
        prop_assert!(events.next().is_none());
    }

    #[test]
    fn garbage_in_a_container_never_panics(
        at in 0..2_000_usize, garbage in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let mut bytes = container(&[record(0, &[(1, 16, Some(0)), (2, 16, None)])]);
        let at = at % bytes.len();
        let end = bytes.len().min(at + garbage.len());
        bytes[at..end].copy_from_slice(&garbage[..end - at]);
        if let Ok(reader) = RecordingReader::from_file(file(&bytes)) {
            for process in 0..reader.processes().len() {
                for event in reader.events(process).unwrap() {
                    let _ = event;
                }
            }
        }
    }

    #[test]
    fn garbage_in_raw_headers_is_an_error_or_a_header(
        mut page in prop::collection::vec(any::<u8>(), HEADER_SIZE), right in any::<bool>(),
    ) {
        if right {
            page[..8].copy_from_slice(&MAGIC);
            page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        }
        if let Ok(header) = RawFileHeader::read(&page) {
            prop_assert!(header.executable.len() + header.command.len() <= HEADER_SIZE);
        }
        page[1..4].fill(0);
        if let Ok(Some(header)) = RawChunkHeader::read(&page) {
            prop_assert!(header.full.is_none_or(|length| length as usize <= CHUNK_CAPACITY));
        }
    }

    #[test]
    fn a_decoder_never_leaves_its_chunk(chunk in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new(0);
        while let Ok(Some(_)) = decoder.next(&chunk) {
            prop_assert!(decoder.position() <= chunk.len());
        }
    }
}
