//! Slabs in files and in mappings, as the kernel sees them: one sparse file, holes where pages were
//! released, a full disk that is an error, and few mappings.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use allotment::source::SharedSource;
use allotment::{Budget, ErrorKind, File, Malloc, Mmap, RawSlab, Release};
use support::child::{self, Child, Directory};
use support::kernel::{mappings, page_size};
use support::setup::{file_directory, named_file};
use support::slab::{self, Object, Random, free_all, free_many, layout, stamped, words};

/// The bytes of a file that have blocks.
fn blocks(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// A directory for one test, in memory if the system has such a directory.
fn directory(name: &str) -> Directory {
    let unique = format!("allotment-slab-{}-{name}", std::process::id());
    let path = file_directory().join(unique);
    std::fs::create_dir_all(&path).unwrap();
    Directory(path)
}

#[test]
fn one_slab_is_in_one_sparse_file_and_its_pages_leave_holes() {
    let directory = directory("holes");
    let path = directory.0.join("slab");
    let file = Arc::new(named_file(&path).unwrap());
    let slab = words().source(file.clone()).release(Release::AtOnce).build();
    let mut objects = stamped(&slab, 100_000);
    let live = (objects.len() * 64) as u64;
    let full = blocks(&path);
    assert!(full >= live && full <= live + live / 8, "{full} bytes of blocks for {live}");
    assert!(std::fs::metadata(&path).unwrap().len() <= 2 * live, "as long as it has to be");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1, "one file");
    // Nine of ten are freed, at the end of the file and within.
    let gone = objects.split_off(5000);
    let stay = objects.split_off(500);
    free_many(&slab, gone);
    free_many(&slab, objects);
    slab.trim();
    let held = slab.statistics().held_bytes - slab.statistics().structure_bytes;
    assert_eq!(blocks(&path), held, "the blocks of the pages that are left");
    assert!(held < full / 4);
    stay.iter().for_each(Object::assert_intact);
    // The holes are used again: the file is no longer than before.
    let len = std::fs::metadata(&path).unwrap().len();
    let objects = stamped(&slab, 80_000);
    assert!(std::fs::metadata(&path).unwrap().len() <= len + (2 << 20));
    stay.iter().for_each(Object::assert_intact);
    free_many(&slab, objects);
    free_many(&slab, stay);
    slab::assert_empties(&slab);
    assert_eq!((blocks(&path), file.used_bytes()), (0, 0));
    drop(slab);
}

#[test]
fn slabs_that_share_a_file_share_its_holes() {
    let directory = directory("shared");
    let path = directory.0.join("slabs");
    let file = Arc::new(named_file(&path).unwrap());
    let mut random = Random::new(3);
    let slabs: Vec<_> = [24, 64, 500, 9000, 3 << 20]
        .into_iter()
        .map(|size| RawSlab::builder(layout(size, 8)).source(file.clone()).build())
        .collect();
    let mut most = 0;
    for round in 0..12 {
        for slab in &slabs {
            let count = (1 + random.below(2 << 20)) / slab.layout().size() + 1;
            let objects = stamped(slab, count);
            slab::assert_apart(&objects);
            free_all(slab, objects);
            slab::assert_empties(slab);
        }
        let len = std::fs::metadata(&path).unwrap().len();
        most = if round < 4 { len.max(most) } else { most };
        assert!(len <= most + (8 << 20), "{len} bytes after {most}");
    }
    assert_eq!((blocks(&path), file.used_bytes()), (0, 0));
}

/// Fills a slab in a file until it is refused with one of these errors, three times. What was
/// granted can be written and read.
fn fills_up_and_continues(source: File, refusals: &[i32]) {
    let source = Arc::new(source);
    for size in [64, 1000, 20_000, 400_000] {
        let budget = Budget::new(usize::MAX);
        let builder = RawSlab::builder(layout(size, 8)).source(source.clone()).budget(&budget);
        let slab = builder.release(Release::AtOnce).build();
        for round in 0..3 {
            let mut objects = Vec::new();
            let error = loop {
                match slab.try_alloc() {
                    // A page whose block is missing would raise SIGBUS here.
                    Ok(slot) => {
                        objects.push(Object::stamp(slot, slab.layout(), objects.len() as u64));
                    }
                    Err(error) => break error,
                }
                assert!(objects.len() * size < 16 << 20, "the limit holds");
            };
            let ErrorKind::System(number) = error.kind() else { panic!("{error}") };
            assert!(refusals.contains(&number), "{error}");
            assert!(!objects.is_empty(), "objects of {size} bytes, round {round}");
            slab::assert_exact(&slab, objects.len(), Some(&budget));
            slab::assert_apart(&objects);
            free_all(&slab, objects);
            slab::assert_empties(&slab);
        }
        drop(slab);
        assert_eq!((source.used_bytes(), budget.used()), (0, 0));
    }
}

#[test]
fn a_limit_on_files_is_an_error_and_no_signal() {
    let test = "a_limit_on_files_is_an_error_and_no_signal";
    if !child::is("low limit on files") {
        Child::new(test, "low limit on files").limit_files(4 << 20).succeeds();
        return;
    }
    fills_up_and_continues(File::in_directory(&file_directory()).unwrap(), &[libc::EFBIG]);
    fills_up_and_continues(File::in_directory(&std::env::temp_dir()).unwrap(), &[libc::EFBIG]);
}

/// The addresses that this process has, in bytes.
fn address_space() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').next().unwrap().parse::<usize>().unwrap() * page_size()
}

#[test]
fn a_refusal_keeps_no_addresses() {
    let test = "a_refusal_keeps_no_addresses";
    if !child::is("no file") {
        Child::new(test, "no file").limit_files(4096).succeeds();
        return;
    }
    let slab = words().source(File::in_directory(&file_directory()).unwrap()).build();
    let refuse =
        || assert_eq!(slab.try_alloc().unwrap_err().kind(), ErrorKind::System(libc::EFBIG));
    refuse();
    let before = address_space();
    (0..1000).for_each(|_| refuse());
    // Each refusal is of a range of 64 KiB.
    assert!(address_space() < before + (1 << 20), "{} and {before}", address_space());
}

fn mount_tmpfs(at: &Path, options: &str) -> bool {
    let at = CString::new(at.as_os_str().as_encoded_bytes()).unwrap();
    let options = CString::new(options).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: mounts in this process's own view of the mounts; the strings end with a nul.
    unsafe { libc::mount(kind, at.as_ptr(), kind, 0, options.as_ptr().cast()) == 0 }
}

/// Runs `body` in a child with its own small disk. Prints a line if mounting is not permitted.
fn with_a_small_disk(test: &str, body: impl FnOnce(&Path)) {
    if !child::is(test) {
        let directory = Directory::new(test);
        let child = Child::new(test, test).env("DIRECTORY", directory.text());
        let text = child.own_mounts().succeeds();
        text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
        return;
    }
    let directory = std::env::var_os("DIRECTORY").expect("the parent gave one");
    if mount_tmpfs(Path::new(&directory), "size=4m") {
        body(Path::new(&directory));
    } else {
        println!("skipped {test}: mounting a tmpfs is not permitted here");
    }
}

#[test]
fn a_full_disk_is_an_error_and_no_signal() {
    with_a_small_disk("a_full_disk_is_an_error_and_no_signal", |disk| {
        fills_up_and_continues(File::in_directory(disk).unwrap(), &[libc::ENOSPC]);
        fills_up_and_continues(named_file(&disk.join("kept")).unwrap(), &[libc::ENOSPC]);
    });
}

#[test]
fn a_page_whose_blocks_others_took_meanwhile_is_refused_and_no_signal() {
    let test = "a_page_whose_blocks_others_took_meanwhile_is_refused_and_no_signal";
    with_a_small_disk(test, |disk| {
        let file = Arc::new(File::in_directory(disk).unwrap());
        let slab = words().source(file).release(Release::AtOnce).build();
        let mut objects = stamped(&slab, 30_000);
        let stay = objects.split_off(29_000);
        free_many(&slab, objects);
        slab.trim();
        // The ranges still exist, and their blocks do not: another file has them.
        let mut bytes = 8 << 20;
        let hog = std::fs::File::create(disk.join("hog")).unwrap();
        while bytes > 0 {
            use std::os::fd::AsRawFd;
            // SAFETY: reserves blocks of a file of ours.
            let refused = unsafe { libc::fallocate(hog.as_raw_fd(), 0, 0, bytes) } != 0;
            if !refused {
                break;
            }
            bytes -= page_size() as i64;
        }
        let mut more = Vec::new();
        let error = loop {
            match slab.try_alloc() {
                Ok(slot) => more.push(Object::stamp(slot, slab.layout(), more.len() as u64)),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::System(libc::ENOSPC));
        assert!(more.len() < 20_000, "{} objects without a disk", more.len());
        stay.iter().for_each(Object::assert_intact);
        drop(hog);
        std::fs::remove_file(disk.join("hog")).unwrap();
        let last = stamped(&slab, 20_000);
        for objects in [last, more, stay] {
            free_all(&slab, objects);
        }
        slab::assert_empties(&slab);
    });
}

#[test]
fn a_large_slab_has_few_mappings() {
    let test = "a_large_slab_has_few_mappings";
    if !child::is(test) {
        // In its own process, where no other test maps anything.
        Child::new(test, test).succeeds();
        return;
    }
    let file = || SharedSource::from(File::in_directory(&file_directory()).unwrap());
    let mappings_of_ours: [(SharedSource, usize); 3] =
        [(Mmap::new().into(), 2 << 20), (Mmap::small_pages().into(), 2 << 20), (file(), 2 << 20)];
    for (source, range) in mappings_of_ours {
        for size in [64, 1000, 9000, 300_000, 1_000_000] {
            let bytes = 64 << 20;
            let before = mappings();
            let slab = RawSlab::builder(layout(size, 8)).source(source.clone()).build();
            let slots: Vec<_> = (0..bytes / size).map(|_| slab.alloc()).collect();
            let full = mappings() - before;
            // What each thread maps, and the ranges of a slab that is still small.
            let most = 2 * bytes / range + 24;
            assert!(full <= most, "{full} mappings for {} of {size}", slots.len());
            let (every_other, rest): (Vec<_>, Vec<_>) =
                slots.into_iter().enumerate().partition(|(index, _)| index / 8 % 2 == 0);
            let slots =
                |of: Vec<(usize, _)>| of.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>();
            // SAFETY: allocated above, each freed once.
            unsafe {
                slab.free_many(&slots(every_other));
                slab.trim();
                let half = mappings() - before;
                assert!(half <= most, "{half} mappings for half of that");
                slab.free_many(&slots(rest));
            }
            slab::assert_empties(&slab);
            assert!(mappings() <= before + 8, "and none when it is empty");
        }
    }
    // The mappings of malloc are not the slab's.
    let slab = words().source(Malloc).build();
    let objects = stamped(&slab, 10_000);
    free_all(&slab, objects);
}

#[test]
fn an_object_has_an_offset_until_its_page_is_released() {
    let file = Arc::new(File::in_directory(&file_directory()).unwrap());
    let slab = words().source(file.clone()).release(Release::AtOnce).build();
    let objects = stamped(&slab, 5000);
    let mut offsets: Vec<_> = objects
        .iter()
        .map(|one| file.offset_of(one.start.as_ptr()).expect("in the file"))
        .collect();
    offsets.sort_unstable();
    assert!(offsets.windows(2).all(|pair| pair[0] + 64 <= pair[1]), "each has its own");
    let address = objects[0].start.as_ptr();
    free_all(&slab, objects);
    slab::assert_empties(&slab);
    assert_eq!(file.offset_of(address), None);
}
