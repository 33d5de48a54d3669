//! The features of netdata's array allocator, one by one, and those close to them. Its pages are in
//! `slab_pages.rs`, and `slab_waiting.rs` shows that no thread waits while a slot is freed.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier};

use allotment::slab::Lifetime;
use allotment::source::SharedSource;
use allotment::{File, Malloc, Mmap, RawSlab, Release, Slab, owner_of, report};
use support::child::{self, Child, Directory};
use support::kernel::{is_resident, page_size};
use support::setup::{file_directory, named_file};
use support::slab::{
    self, GRANULE, Object, Random, WORDS, by_page, free_all, free_many, stamped, words,
};
use support::sources::{Recorder, Refuse};

#[test]
fn the_same_objects_live_on_malloc_mappings_and_files() {
    let file = Arc::new(File::in_directory(&file_directory()).unwrap());
    let huge = Mmap::huge_pages();
    for source in [Malloc.into(), Mmap::new().into(), huge.into(), SharedSource::from(file.clone())]
    {
        let slab = words().source(source).build();
        let objects = stamped(&slab, 20_000);
        slab::assert_apart(&objects);
        slab::assert_exact(&slab, 20_000, None);
        free_all(&slab, objects);
        slab::assert_empties(&slab);
    }
    assert_eq!(file.used_bytes(), 0);
}

#[test]
fn nothing_is_added_to_an_object() {
    for size in [8, 16, 24, 40, 100, 384, 1000] {
        let slab = RawSlab::builder(slab::layout(size, 4)).max_page_bytes(0).build();
        let objects = stamped(&slab, 3 * (page_size() / size));
        let pages = by_page(objects);
        for objects in pages.values() {
            for pair in objects.windows(2) {
                let (first, next) = (pair[0].range().0, pair[1].range().0);
                assert_eq!(next - first, size, "side by side");
            }
        }
        let slots = page_size() / size;
        assert!(pages.values().all(|objects| objects.len() == slots), "and to the page's end");
        pages.into_values().for_each(|objects| free_all(&slab, objects));
    }
}

/// An object of the kept file as the second process sees it: its name, and room for an answer.
#[repr(C)]
struct FileObject {
    question: [u64; 4],
    answer: [u64; 4],
}

#[test]
fn a_second_process_maps_a_kept_file_reads_the_objects_and_answers() {
    let test = "a_second_process_maps_a_kept_file_reads_the_objects_and_answers";
    const OBJECTS: usize = 3000;
    if child::is(test) {
        return answer_in_file(OBJECTS);
    }
    let directory = Directory::new(test);
    let path = directory.0.join("objects");
    let file = Arc::new(named_file(&path).unwrap());
    let slab = Slab::<FileObject>::builder().source(file.clone()).build();
    let mut objects = Vec::new();
    let mut offsets = Vec::new();
    for number in 0..OBJECTS as u64 {
        let boxed = slab.alloc(FileObject { question: [number; 4], answer: [0; 4] });
        let offset = file.offset_of(&*boxed).expect("in the file");
        offsets.extend(offset.to_ne_bytes());
        objects.push(boxed);
    }
    let list = directory.0.join("offsets");
    std::fs::write(&list, offsets).unwrap();
    Child::new(test, test)
        .env("FILE", path.to_str().unwrap())
        .env("LIST", list.to_str().unwrap())
        .succeeds();
    for (number, boxed) in objects.iter().enumerate() {
        let expected = (number as u64).wrapping_mul(3) + 1;
        // SAFETY: the process that wrote it has ended. The read is volatile, so that it is not the
        // earlier zeros.
        let answer = unsafe { core::ptr::from_ref(&boxed.answer).read_volatile() };
        assert_eq!(answer, [expected; 4]);
    }
    drop(objects);
    slab::assert_empties(slab.raw());
    drop(slab);
    assert!(path.exists(), "a kept file stays");
}

/// The second process: it knows the file, and the offsets of the objects in it.
fn answer_in_file(count: usize) {
    let read = |name| std::env::var_os(name).expect("the parent gave it");
    let file = std::fs::File::options().read(true).write(true).open(read("FILE")).unwrap();
    let offsets = std::fs::read(read("LIST")).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    // SAFETY: a new mapping of a file that is `len` bytes long.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(start, libc::MAP_FAILED);
    let offsets =
        offsets.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
    let mut seen = 0;
    for (number, offset) in offsets.enumerate() {
        assert!(offset as usize + size_of::<FileObject>() <= len);
        // SAFETY: inside the mapping; the parent waits meanwhile.
        let object = unsafe { &mut *start.add(offset as usize).cast::<FileObject>() };
        assert_eq!(object.question, [number as u64; 4]);
        object.answer = [(number as u64).wrapping_mul(3) + 1; 4];
        seen += 1;
    }
    assert_eq!(seen, count);
}

#[test]
fn threads_free_the_objects_of_one_page_at_the_same_time() {
    const THREADS: usize = 8;
    let recorder = Recorder::new(Malloc, Refuse::None);
    let release = Release::AtOnce;
    let slab = words().source(recorder.clone()).release(release).max_page_bytes(0).build();
    for _ in 0..150 {
        let objects = stamped(&slab, page_size() / WORDS.size());
        assert_eq!(recorder.lent_blocks(), 1, "one page");
        let start = Barrier::new(THREADS);
        let mut parts: Vec<Vec<Object>> = (0..THREADS).map(|_| Vec::new()).collect();
        for (index, object) in objects.into_iter().enumerate() {
            parts[index % THREADS].push(object);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = parts
                .into_iter()
                .map(|part| {
                    scope.spawn(|| {
                        start.wait();
                        free_many(&slab, part);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(recorder.lent_blocks(), 0, "gone with its last object");
    }
    slab::assert_empties(&slab);
}

#[test]
fn threads_allocate_and_free_on_one_page_at_the_same_time() {
    const THREADS: u64 = 8;
    // One page, which is kept when it is empty, and no other.
    let recorder = Recorder::new(Malloc, Refuse::From(2));
    let keep = Release::Keep(usize::MAX);
    let slab = words().max_page_bytes(0).source(recorder.clone()).release(keep).build();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let slab = &slab;
            threads.push(scope.spawn(move || {
                let mut made = 0;
                while made < 2000 {
                    let Ok(slot) = slab.try_alloc() else {
                        // The other threads have cached all of its slots.
                        slab.flush();
                        std::thread::yield_now();
                        continue;
                    };
                    let object = Object::stamp(slot, WORDS, (thread << 32) + made);
                    made += 1;
                    std::thread::yield_now();
                    slab::free(slab, object);
                    if made % 3 == 0 {
                        slab.flush();
                    }
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(recorder.lent_blocks(), 1);
    slab::assert_empties(&slab);
}

#[test]
fn packing_is_off_by_default_and_switched_while_threads_run() {
    let slab = words().build();
    assert!(!slab.packing());
    assert!(words().packing(true).build().packing());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..4u64 {
            let slab = &slab;
            threads.push(scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut objects = Vec::new();
                for number in 0..40_000u64 {
                    objects.push(Object::stamp(slab.alloc(), WORDS, (thread << 32) + number));
                    if objects.len() > 1500 {
                        let index = random.below(objects.len());
                        slab::free(slab, objects.swap_remove(index));
                    }
                }
                slab::assert_apart(&objects);
                free_all(slab, objects);
            }));
        }
        let switch = scope.spawn(|| {
            let mut packing = false;
            while !stop.load(Ordering::Relaxed) {
                packing = !packing;
                slab.set_packing(packing);
                std::thread::yield_now();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        switch.join().unwrap();
    });
    slab.set_packing(true);
    assert!(slab.packing());
    slab::assert_empties(&slab);
}

#[test]
fn figures_are_what_a_page_is_made_of() {
    let slab = RawSlab::builder(slab::layout(100, 64)).max_page_bytes(0).build();
    let slots = page_size() / 128;
    let objects = stamped(&slab, 10);
    let statistics = slab::assert_exact(&slab, 10, None);
    assert_eq!(statistics.free_bytes, (slots as u64 - 10) * 100);
    assert_eq!(statistics.wasted_bytes, (page_size() - slots * 100) as u64);
    assert_eq!(statistics.held_bytes - statistics.structure_bytes, page_size() as u64);
    assert_eq!((statistics.chunks, statistics.recycled_chunks), (1, 0));
    assert!(statistics.source_calls >= 1);
    free_all(&slab, objects);
    slab::assert_empties(&slab);
}

#[test]
fn a_named_slab_is_reported_as_text_and_json_until_its_last_object_goes() {
    let find = || report().allocators.into_iter().find(|one| one.name == "tree nodes");
    let slab = Slab::<[u64; 3]>::builder().name("tree nodes").build();
    let boxes: Vec<_> = (0..500).map(|number| slab.alloc([number; 3])).collect();
    assert_eq!(slab.raw().name(), Some("tree nodes"));
    let one = find().expect("it is there");
    assert_eq!((one.kind, one.statistics), ("slab", slab.statistics()));
    let text = report().to_string();
    let line = text.lines().find(|line| line.starts_with("tree nodes ")).expect("a line");
    assert_eq!(
        line.split_whitespace().skip(2).take(3).collect::<Vec<_>>(),
        ["slab", "500", "12000"]
    );
    let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
    let mut allocators = json["allocators"].as_array().unwrap().iter();
    let one = allocators.find(|one| one["name"] == "tree nodes").expect("an object");
    assert_eq!((&one["kind"], &one["live_objects"]), (&"slab".into(), &500.into()));
    let sum = |keys: [&str; 4]| keys.map(|key| one[key].as_u64().unwrap()).iter().sum::<u64>();
    let parts = sum(["structure_bytes", "live_bytes", "free_bytes", "wasted_bytes"]);
    assert_eq!(one["held_bytes"], parts);
    drop(slab);
    let one = find().expect("its objects live on");
    assert_eq!(one.statistics.live_objects, 500);
    drop(boxes);
    assert!(find().is_none());
    let nameless = Slab::<u8>::new();
    drop(nameless.alloc(1));
    assert!(report().allocators.iter().all(|one| !one.name.is_empty()));
}

#[test]
fn the_owner_of_an_objects_address_is_its_slab() {
    let malloc = SharedSource::from(Malloc);
    for source in [Mmap::new().into(), malloc] {
        let slab = words().name("landlord").source(source).build();
        let objects = stamped(&slab, 3000);
        for object in objects.iter().step_by(100) {
            for address in [object.range().0, object.range().1 - 1] {
                let owner = owner_of(core::ptr::without_provenance::<u8>(address));
                let owner = owner.expect("a slab registers its pages");
                assert_eq!((owner.name.as_str(), owner.kind), ("landlord", "slab"));
                assert_eq!(owner.statistics, slab.statistics());
            }
        }
        free_all(&slab, objects);
        slab::assert_empties(&slab);
    }
}

#[test]
fn what_lies_beside_a_slabs_page_is_not_the_slabs() {
    // Pages of one hardware page from malloc, which uses the memory between them for other blocks.
    let slab = words().name("landlord").source(Malloc).max_page_bytes(0).build();
    let objects = stamped(&slab, 2000);
    let neighbours: Vec<Vec<u8>> = (0..500).map(|_| vec![1; 3000]).collect();
    let not_theirs = neighbours.iter().filter(|one| owner_of(one.as_ptr()).is_some()).count();
    assert_eq!(not_theirs, 0, "of 500 blocks of malloc are said to be the slab's");
    free_all(&slab, objects);
}

#[test]
fn objects_of_different_lifetimes_lie_on_different_pages() {
    let slab = words().build();
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for number in 0..20_000 {
        let lifetime = if number % 50 == 0 { Lifetime::Long } else { Lifetime::Short };
        let object = Object::stamp(slab.alloc_for(lifetime), WORDS, number);
        if number % 50 == 0 { long.push(object) } else { short.push(object) }
    }
    let pages = |objects: &[Object]| -> BTreeSet<usize> {
        objects.iter().map(|object| object.range().0 / GRANULE).collect()
    };
    let (of_short, of_long) = (pages(&short), pages(&long));
    assert!(of_short.is_disjoint(&of_long));
    free_all(&slab, short);
    slab.trim();
    assert_eq!(slab.statistics().chunks, of_long.len() as u64, "the short-lived have all gone");
    free_all(&slab, long);
    slab::assert_empties(&slab);
}

#[test]
fn reserved_slots_need_no_call_and_no_page_fault() {
    for size in [8, 64, 100, 1000, 3000, 5000, 8192, 8193, 9000, 100_000] {
        let recorder = Recorder::new(Malloc, Refuse::None);
        let slab = RawSlab::builder(slab::layout(size, 8))
            .source(recorder.clone())
            .release(Release::AtOnce)
            .build();
        for count in [1, 10, 100, 101, 300] {
            slab.reserve(count);
            let calls = recorder.calls();
            let objects = stamped(&slab, count);
            assert_eq!(recorder.calls(), calls, "{count} of {size} bytes were reserved");
            free_all(&slab, objects);
            slab.trim();
            // In two calls: the second sees what the first has reserved.
            slab.reserve(count / 2);
            slab.reserve(count);
            let calls = recorder.calls();
            let objects = stamped(&slab, count);
            assert_eq!(recorder.calls(), calls, "{count} of {size} bytes were reserved again");
            free_all(&slab, objects);
            slab::assert_empties(&slab);
        }
    }
    let slab = words().build();
    slab.reserve(10_000);
    let objects: Vec<_> = (0..10_000).map(|_| slab.alloc()).collect();
    let resident = objects.iter().filter(|one| is_resident(one.addr().get()) == Some(true)).count();
    // Kernels before 5.14 fault them in one by one when they are touched.
    assert!(resident == objects.len() || resident < objects.len() / 10, "{resident} of them");
    // SAFETY: allocated above, each once.
    unsafe { slab.free_many(&objects) };
    slab::assert_empties(&slab);
}
