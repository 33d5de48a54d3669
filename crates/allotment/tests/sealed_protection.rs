//! Sealed pages: a write faults, children of a fork share them, and the system may refuse to
//! protect them.
#![cfg(system_memory)]

mod support;

use std::ptr::{from_ref, null_mut};

use allotment::{AllocError, Arena, Budget, ErrorKind, Sealed, recycler, report};
use support::child::{self, Child};

/// The exit status of the child's handler if the write faulted at the expected address.
const STOPPED: i32 = 42;

static REGION: [std::sync::atomic::AtomicUsize; 2] =
    [const { std::sync::atomic::AtomicUsize::new(0) }; 2];

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    use std::sync::atomic::Ordering::SeqCst;
    // SAFETY: the kernel passes the signal's own information; `_exit` may be called anywhere.
    unsafe {
        let address = (*info).si_addr().addr();
        // SEGV_ACCERR: the mapping exists and is not writable.
        let denied = (*info).si_code == 2;
        let inside = (REGION[0].load(SeqCst)..REGION[1].load(SeqCst)).contains(&address);
        libc::_exit(if inside && denied { STOPPED } else { 43 });
    }
}

/// Writes to an address. The handler ends the process if the write faults in `region`.
fn write_to(address: *const u8, region: std::ops::Range<usize>) -> ! {
    REGION[0].store(region.start, std::sync::atomic::Ordering::SeqCst);
    REGION[1].store(region.end, std::sync::atomic::Ordering::SeqCst);
    // SAFETY: the handler is async-signal-safe; the write is the misuse under test.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, null_mut()), 0);
        std::hint::black_box(address.cast_mut()).write_volatile(1);
    }
    panic!("the write went through");
}

fn is_stopped(test: &str, misuse: fn()) {
    if child::is(test) {
        return misuse();
    }
    let (status, text) = Child::new(test, test).exits();
    assert_eq!(status, Some(STOPPED), "{text}");
}

#[test]
fn a_stray_write_to_a_sealed_value_stops_at_its_address() {
    is_stopped("a_stray_write_to_a_sealed_value_stops_at_its_address", || {
        let sealed = Sealed::<[u64; 4]>::new(|_| [1, 2, 3, 4]);
        let value = from_ref(&sealed.get()[2]);
        write_to(value.cast(), value.addr()..value.addr() + 8);
    });
}

#[test]
fn a_stray_write_to_a_sealed_string_of_a_later_chunk_stops_at_its_address() {
    is_stopped("a_stray_write_to_a_sealed_string_of_a_later_chunk_stops_at_its_address", || {
        let text = "x".repeat(3_000_000);
        let sealed = Sealed::<&'static str>::new(|sealer| sealer.alloc_str(&text));
        let bytes = sealed.get().as_bytes().as_ptr_range();
        // SAFETY: inside the string.
        let last = unsafe { bytes.end.sub(1) };
        write_to(last, bytes.start.addr()..bytes.end.addr());
    });
}

#[test]
fn a_stray_write_behind_what_was_sealed_stops_too() {
    is_stopped("a_stray_write_behind_what_was_sealed_stops_too", || {
        let sealed = Sealed::<u64>::new(|_| 7);
        let value = from_ref(sealed.get()).addr();
        let end = value.next_multiple_of(64 << 10);
        let behind = from_ref(sealed.get()).cast::<u8>().with_addr(end - 1);
        write_to(behind, value..end);
    });
}

#[test]
fn a_stray_write_to_a_leaked_value_stops_too() {
    is_stopped("a_stray_write_to_a_leaked_value_stops_too", || {
        let value = Sealed::<u64>::new(|_| 7).leak();
        let address = from_ref(value).addr();
        write_to(from_ref(value).cast(), address..address + 8);
    });
}

#[test]
fn a_leaked_values_pages_can_not_be_made_writable_where_the_kernel_seals() {
    let value = Sealed::<u64>::new(|_| 7).leak();
    let page = support::kernel::page_size();
    let start = null_mut::<libc::c_void>().with_addr(from_ref(value).addr() & !(page - 1));
    // SAFETY: pages of this process; made writable, they would keep their contents.
    let answer = unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    if has_mseal() {
        assert_eq!((answer, errno), (-1, Some(libc::EPERM)));
    } else {
        println!("skipped: this kernel has no mseal");
    }
    assert_eq!(*value, 7);
}

/// Whether the kernel has `mseal`, tried on a new mapping.
fn has_mseal() -> bool {
    let page = support::kernel::page_size();
    // SAFETY: a new mapping, which is never unmapped if it can be sealed.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(null_mut(), page, libc::PROT_READ, flags, -1, 0);
        libc::syscall(462, start, page, 0) == 0
    }
}

/// A field of a mapping in `/proc/self/smaps`, in bytes.
fn smaps(address: usize, field: &str) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((range, _)) = line.split_once(' ') {
            if let Some((from, to)) = range.split_once('-') {
                let parse = |text| usize::from_str_radix(text, 16).expect("an address");
                inside = (parse(from)..parse(to)).contains(&address);
                continue;
            }
        }
        if let Some(rest) = line.strip_prefix(field).and_then(|rest| rest.strip_prefix(':')) {
            if inside {
                let number = rest.trim().trim_end_matches(" kB");
                return 1024 * number.parse::<usize>().expect("a number");
            }
        }
    }
    panic!("no mapping at {address:#x} with {field}");
}

/// Forks; the child ends with 0 if `body` is true.
fn fork(body: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child reads and uses glibc's malloc, which handles fork; then it exits without
    // running any destructor of the parent.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(60);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(!matches!(result, Ok(true))));
        }
        child
    }
}

fn ends_well(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn children_of_a_fork_read_the_parents_one_copy() {
    const BYTES: usize = 900_000;
    let sealed =
        Sealed::<&'static [u8]>::new(|sealer| sealer.alloc_slice_from_iter(vec![7; BYTES]));
    let read = || sealed.get().iter().map(|&byte| usize::from(byte)).sum::<usize>() == 7 * BYTES;
    let children: Vec<_> = (0..3)
        .map(|_| {
            fork(|| {
                let start = sealed.get().as_ptr().addr();
                let all_there = read();
                let shared = smaps(start, "Shared_Dirty") + smaps(start, "Shared_Clean");
                let private = smaps(start, "Private_Dirty");
                let (resident, proportional) = (smaps(start, "Rss"), smaps(start, "Pss"));
                println!("shared {shared}, private {private}, resident {resident}, proportional {proportional}");
                all_there && shared >= BYTES && private == 0 && proportional < resident
            })
        })
        .collect();
    assert!(read());
    children.into_iter().for_each(ends_well);
}

#[test]
fn a_child_drops_its_copy_and_builds_another_while_the_parent_keeps_its_own() {
    let mut sealed = Some(Sealed::<[u64; 100]>::new(|_| [7; 100]));
    let child = fork(|| {
        drop(sealed.take());
        let arena = Arena::new();
        arena.alloc_slice_copy(&[1u8; 200_000]);
        Sealed::<[u64; 100]>::new(|_| [8; 100]).get()[99] == 8
    });
    ends_well(child);
    assert_eq!(sealed.as_ref().unwrap().get()[99], 7);
}

/// From here on, `mprotect` with this protection fails in the calling thread with `ENOMEM`, as if
/// the process had too many mappings.
fn refuse_protection(protection: u32) {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let if_equal =
        |value, skip_else| libc::sock_filter { code: 0x15, jt: 0, jf: skip_else, k: value };
    let answer = |action| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action };
    let mut program = [
        load(0),
        if_equal(libc::SYS_mprotect as u32, 3),
        load(16 + 2 * 8),
        if_equal(protection, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a filter of this thread's system calls, which changes the result of one.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn in_a_child(test: &str, body: fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).succeeds();
}

#[test]
fn pages_that_can_not_be_protected_are_an_error_and_go_back() {
    in_a_child("pages_that_can_not_be_protected_are_an_error_and_go_back", || {
        refuse_protection(libc::PROT_READ as u32);
        for bytes in [10, 100_000, 5_000_000] {
            let budget = Budget::new(usize::MAX);
            let builder = Sealed::<&'static [u8]>::builder().name("refused").budget(&budget);
            let error = builder
                .try_build(|sealer| {
                    Ok::<_, AllocError>(sealer.alloc_slice_from_iter(vec![1; bytes]))
                })
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::System(libc::ENOMEM));
            assert_eq!(budget.used(), 0);
            let built = Sealed::<u8>::try_new(|_| Ok::<_, AllocError>(1));
            assert_eq!(built.unwrap_err().kind(), ErrorKind::System(libc::ENOMEM));
        }
        assert!(!report().allocators.iter().any(|allocator| allocator.name == "refused"));
        // The chunks are still writable.
        let arena = Arena::with_capacity(100_000);
        assert!(arena.alloc_slice_copy(&[1u8; 90_000]).iter().all(|&byte| byte == 1));
    });
}

#[test]
fn pages_that_can_not_be_made_writable_again_are_unmapped() {
    in_a_child("pages_that_can_not_be_made_writable_again_are_unmapped", || {
        let sealed =
            Sealed::<&'static [u8]>::new(|sealer| sealer.alloc_slice_from_iter(vec![1; 500_000]));
        let address = sealed.get().as_ptr().addr();
        recycler().trim();
        refuse_protection((libc::PROT_READ | libc::PROT_WRITE) as u32);
        drop(sealed);
        assert_eq!(support::kernel::is_resident(address), None, "nothing is mapped there");
        assert_eq!(recycler().cached_bytes(), 0);
    });
}

#[test]
fn sealed_memory_is_protected_in_passthrough_mode_too() {
    let test = "sealed_memory_is_protected_in_passthrough_mode_too";
    let body = || {
        let sealed = Sealed::<&'static [u32]>::new(|sealer| {
            sealer.alloc_slice_from_iter((0..10_000i32).map(i32::unsigned_abs))
        });
        assert!(sealed.get().iter().copied().eq(0..10_000));
        let start = from_ref(&sealed.get()[5000]);
        if std::env::var_os("ALLOTMENT_PASSTHROUGH").is_some() {
            write_to(start.cast(), start.addr()..start.addr() + 8);
        }
    };
    if child::is(test) {
        return body();
    }
    let (status, text) = Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").exits();
    assert_eq!(status, Some(STOPPED), "sealed memory consists of mappings even then: {text}");
}
