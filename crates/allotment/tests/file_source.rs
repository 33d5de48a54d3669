//! The file source in real directories: full, read-only and missing ones, limits on files, a second
//! process.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::ffi::CString;
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use allotment::{Arena, ErrorKind, File};
use support::child::{self, Child, Directory};
use support::setup::named_file;

/// Allocates objects of 64 KiB until the source refuses. Asserts that the refusal is one of these,
/// that it changed nothing, that all objects can be written, and that the arena can be used again.
fn fills_up_and_works_again(source: File, refusals: &[i32]) {
    let source = Arc::new(source);
    let mut arena = Arena::builder().source(source.clone()).build();
    for _ in 0..3 {
        let mut objects = 0;
        let error = loop {
            let before = arena.statistics();
            match arena.try_alloc_slice_uninit::<u64>(8192) {
                Ok(object) => {
                    // A page whose block is missing would raise SIGBUS here.
                    object.fill(core::mem::MaybeUninit::new(7));
                    objects += 1;
                }
                Err(error) => {
                    assert_eq!(arena.statistics(), before);
                    break error;
                }
            }
            assert!(objects < 1000, "the limit holds");
        };
        assert!(objects > 0);
        let ErrorKind::System(number) = error.kind() else { panic!("{error}") };
        assert!(refusals.contains(&number), "{error}");
        assert_eq!(source.used_bytes(), arena.statistics().held_bytes);
        arena.reset();
    }
    assert_eq!(arena.alloc_str("goes on"), "goes on");
    drop(arena);
    assert_eq!(source.used_bytes(), 0);
}

#[test]
fn a_limit_on_files_is_an_error_and_no_signal() {
    let test = "a_limit_on_files_is_an_error_and_no_signal";
    if !child::is("low limit on files") {
        Child::new(test, "low limit on files").limit_files(1 << 20).succeeds();
        return;
    }
    fills_up_and_works_again(File::in_directory(&std::env::temp_dir()).unwrap(), &[libc::EFBIG]);
}

fn mount_tmpfs(at: &Path, flags: libc::c_ulong, options: &str) -> bool {
    let at = CString::new(at.as_os_str().as_encoded_bytes()).unwrap();
    let options = CString::new(options).unwrap();
    // SAFETY: mounts in this process's own view of the mounts; the strings end with a nul byte.
    unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            at.as_ptr(),
            c"tmpfs".as_ptr(),
            flags,
            options.as_ptr().cast(),
        ) == 0
    }
}

/// Runs `test` again in a child with its own mounts. Prints a line if that is not permitted.
fn with_own_mounts(test: &str, body: impl FnOnce(&Path) -> bool) {
    if !child::is("own mounts") {
        let directory = Directory::new(test);
        let child = Child::new(test, "own mounts").env("DIRECTORY", directory.text());
        let text = child.own_mounts().succeeds();
        for line in text.lines().filter(|line| line.starts_with("skipped")) {
            println!("{line}");
        }
        return;
    }
    let directory = std::env::var_os("DIRECTORY").expect("the parent gave one");
    if !body(Path::new(&directory)) {
        println!("skipped {test}: mounting a tmpfs is not permitted here");
    }
}

#[test]
fn a_full_directory_is_an_error_and_no_signal() {
    with_own_mounts("a_full_directory_is_an_error_and_no_signal", |directory| {
        if !mount_tmpfs(directory, 0, "size=1m") {
            return false;
        }
        fills_up_and_works_again(File::in_directory(directory).unwrap(), &[libc::ENOSPC]);
        let kept = directory.join("kept");
        fills_up_and_works_again(named_file(&kept).unwrap(), &[libc::ENOSPC]);
        true
    });
}

#[test]
fn a_directory_on_a_read_only_filesystem_is_an_error() {
    with_own_mounts("a_directory_on_a_read_only_filesystem_is_an_error", |directory| {
        if !mount_tmpfs(directory, libc::MS_RDONLY, "size=1m") {
            return false;
        }
        for made in [File::in_directory(directory), named_file(&directory.join("kept"))] {
            assert_eq!(made.unwrap_err().kind(), IoErrorKind::ReadOnlyFilesystem);
        }
        true
    });
}

#[test]
fn a_directory_without_permission_is_an_error() {
    let test = "a_directory_without_permission_is_an_error";
    if !child::is("nobody") {
        let directory = Directory::new(test);
        let mode = std::fs::Permissions::from_mode(0o555);
        std::fs::set_permissions(&directory.0, mode).unwrap();
        Child::new(test, "nobody").env("DIRECTORY", directory.text()).succeeds();
        return;
    }
    // SAFETY: permissions don't limit root, so a child of root changes to the user `nobody` first.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!((libc::setgid(65534), libc::setuid(65534)), (0, 0));
        }
    }
    let directory = std::env::var_os("DIRECTORY").expect("the parent gave one");
    let directory = Path::new(&directory);
    for made in [File::in_directory(directory), named_file(&directory.join("kept"))] {
        assert_eq!(made.unwrap_err().kind(), IoErrorKind::PermissionDenied);
    }
}

#[test]
fn a_missing_directory_and_a_file_in_its_place_are_errors() {
    let directory = Directory::new("missing");
    let missing = directory.0.join("missing");
    for made in [File::in_directory(&missing), named_file(&missing.join("kept"))] {
        assert_eq!(made.unwrap_err().kind(), IoErrorKind::NotFound);
    }
    let file = directory.0.join("file");
    std::fs::write(&file, "no directory").unwrap();
    for made in [File::in_directory(&file), named_file(&file.join("kept"))] {
        assert_eq!(made.unwrap_err().kind(), IoErrorKind::NotADirectory);
    }
    assert_eq!(named_file(&file).unwrap_err().kind(), IoErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&file).unwrap(), b"no directory", "it was not touched");
    assert!(named_file(&directory.0).is_err());
}

#[test]
fn a_file_in_a_directory_has_no_name_there() {
    let directory = Directory::new("unnamed");
    let source = Arc::new(File::in_directory(&directory.0).unwrap());
    let arena = Arena::builder().source(source.clone()).hint(1 << 20).build();
    arena.alloc_str("no process finds this");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
    assert!(source.used_bytes() >= 1 << 20);
}

#[test]
fn an_offset_is_known_for_bytes_in_use_alone() {
    let source = Arc::new(File::in_directory(&std::env::temp_dir()).unwrap());
    let mut arena =
        Arena::builder().source(source.clone()).retain(allotment::arena::Retain::Nothing).build();
    let text = arena.alloc_str("where?");
    let address = text.as_ptr();
    let offset = source.offset_of(address).unwrap();
    assert_eq!(source.offset_of(&text.as_bytes()[5]), Some(offset + 5));
    assert_eq!(source.offset_of(&0u8), None);
    arena.reset();
    assert_eq!(source.offset_of(address), None);
}

#[test]
fn a_second_process_finds_the_bytes_at_their_offset() {
    let test = "a_second_process_finds_the_bytes_at_their_offset";
    if child::is("reader") {
        let path = std::env::var_os("FILE").unwrap();
        let file = std::fs::File::open(path).unwrap();
        for expected in ["a name", "a longer piece of text"] {
            let offset = std::env::var(expected.replace(' ', "_")).unwrap().parse().unwrap();
            let mut bytes = vec![0; expected.len()];
            file.read_exact_at(&mut bytes, offset).unwrap();
            assert_eq!(bytes, expected.as_bytes());
        }
        return;
    }
    let directory = Directory::new("kept");
    let path = directory.0.join("kept");
    let source = Arc::new(named_file(&path).unwrap());
    let arena = Arena::builder().source(source.clone()).build();
    let mut reader = Child::new(test, "reader").env("FILE", path.to_str().unwrap());
    for text in ["a name", "a longer piece of text"] {
        arena.alloc_slice_copy(&[0u8; 100_000]);
        let copy = arena.alloc_str(text);
        let offset = source.offset_of(copy.as_ptr()).unwrap();
        reader = reader.env(&text.replace(' ', "_"), &offset.to_string());
    }
    reader.succeeds();
    drop(arena);
    drop(source);
    assert!(path.exists(), "a kept file stays");
}

#[test]
fn a_child_that_only_drops_its_arena_leaves_its_parents_file_alone() {
    let directory = std::env::temp_dir();
    let arena = Arena::builder().source(File::in_directory(&directory).unwrap()).build();
    let text = arena.alloc_str("the parent's data");
    // SAFETY: the child drops its copy of the arena, which nothing else in the child uses, and
    // exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused = arena.try_alloc([0u8; 100_000]).unwrap_err().kind();
            drop(std::ptr::read(&arena));
            libc::_exit(i32::from(refused != ErrorKind::ForkedChild));
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "the child's chunk was refused with the typed error");
    }
    assert_eq!(text, "the parent's data");
}
