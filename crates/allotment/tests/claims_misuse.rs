//! Misuse of a hardened allocator, claimed of every one that has a hardened mode: each misuse, in
//! its own process, is named with the same words and stops the process. What is particular to one
//! allocator is in `arena_hardened.rs`, `free_list_hardened.rs`, `slab_hardened.rs` and
//! `pool_hardened.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{Arena, LocalPool, RawSlab};
use support::child::{self, Child};
use support::misuse::{self, pointer_to, print_address};
use support::slab::{assert_apart, layout};
use support::subject::{
    Checked, DOUBLE_FREE, FOREIGN, Fills, OVERRUN, Options, Reports, Resets, Reuses, Sourced,
    VICTIM, WRITE_AFTER_FREE, claims,
};

claims! {
    checked:
        a_double_free_is_stopped,
        a_stale_free_is_stopped,
        a_pointer_beside_an_object_is_stopped,
        an_overrun_is_stopped_at_the_free,
        a_write_after_free_is_stopped_at_the_drop,
        a_name_with_control_characters_is_one_line_of_the_message,
        correct_programs_are_not_stopped;
    checked_calls:
        a_pointer_to_anything_is_stopped,
        an_object_of_another_allocator_is_stopped_and_its_owner_named,
        an_object_of_another_of_its_kind_is_stopped;
    sized_frees: a_wrong_size_is_stopped_and_the_right_one_named;
    sized_blocks: a_wrong_alignment_is_stopped;
    reusing:
        a_stale_free_is_stopped_after_the_quarantine,
        a_write_after_free_is_stopped_when_the_memory_would_be_used_again,
        a_write_after_free_is_stopped_at_the_trim,
        a_write_after_the_quarantine_is_stopped;
    resets:
        a_write_after_free_is_stopped_at_the_reset,
        an_overrun_is_stopped_at_the_reset;
    ending: an_overrun_is_stopped_at_the_drop;
    filled: a_write_to_memory_that_was_never_allocated_is_stopped_when_it_is;
    reporting: live_objects_at_the_end_are_reported_if_that_is_on;
    sourced: correct_programs_are_not_stopped_on_any_source;
}

const LAYOUT: Layout = Layout::new::<[u64; 3]>();
const _: () = assert!(LAYOUT.size() == VICTIM);

fn options(name: &str) -> Options {
    Options::of(LAYOUT).name(name).hardened(true)
}

fn victim<S: Checked>() -> S {
    S::create(&options("victim"))
}

fn alloc<S: Checked>(victim: &S) -> NonNull<u8> {
    victim.try_alloc(LAYOUT).expect("nothing is refused")
}

/// Allocates an object, and prints its address.
fn object<S: Checked>(victim: &S) -> NonNull<u8> {
    let object = alloc(victim);
    print_address(object);
    object
}

/// Frees an object, correctly or not.
fn free<S: Checked>(victim: &S, object: NonNull<u8>) {
    // SAFETY: none: this is the misuse, or the call before it.
    unsafe { victim.free(object, LAYOUT) }
}

/// Writes a byte, correctly or not.
fn write(object: NonNull<u8>, offset: usize) {
    // SAFETY: none: this is the misuse. The memory is still mapped.
    unsafe { object.add(offset).write(1) }
}

/// Allocates and frees more objects than a quarantine holds.
fn churn<S: Checked>(victim: &S) {
    (0..1500).for_each(|_| free(victim, alloc(victim)));
}

/// Runs `misuse` in a child process, which must be stopped with these words.
fn is_stopped<S: Checked>(test: &str, case: &str, words: &str, misuse: impl FnOnce()) -> String {
    is_stopped_of_size::<S>(test, case, words, VICTIM, misuse)
}

/// As above, with another size in the message.
fn is_stopped_of_size<S: Checked>(
    test: &str,
    case: &str,
    words: &str,
    size: usize,
    misuse: impl FnOnce(),
) -> String {
    let allocator = format!("{} 'victim'", S::KIND);
    misuse::is_stopped(test, &format!("{test} {case}"), &allocator, words, size, misuse)
}

// ---- frees ----

fn a_double_free_is_stopped<S: Checked>(test: &str) {
    is_stopped::<S>(test, "at once", DOUBLE_FREE, || {
        let victim = victim::<S>();
        let object = object(&victim);
        free(&victim, object);
        free(&victim, object);
    });
    is_stopped::<S>(test, "with objects between", DOUBLE_FREE, || {
        let victim = victim::<S>();
        let object = object(&victim);
        let others: Vec<_> = (0..2000).map(|_| alloc(&victim)).collect();
        free(&victim, object);
        alloc(&victim);
        free(&victim, others[7]);
        free(&victim, object);
    });
    is_stopped::<S>(test, "after a trim", DOUBLE_FREE, || {
        let victim = victim::<S>();
        let _kept = alloc(&victim);
        let object = object(&victim);
        free(&victim, object);
        victim.trim();
        free(&victim, object);
    });
}

fn a_stale_free_is_stopped<S: Checked>(test: &str) {
    is_stopped::<S>(test, "", DOUBLE_FREE, || {
        let victim = victim::<S>();
        let stale = object(&victim);
        free(&victim, stale);
        // While the memory is in quarantine, no new object gets it.
        for _ in 0..200 {
            let new = alloc(&victim);
            assert_ne!(new, stale);
            free(&victim, new);
        }
        free(&victim, stale);
    });
}

fn a_stale_free_is_stopped_after_the_quarantine<S: Reuses + Checked>(test: &str) {
    is_stopped::<S>(test, "", DOUBLE_FREE, || {
        let victim = victim::<S>();
        let stale = object(&victim);
        let others: Vec<_> = (0..2000).map(|_| alloc(&victim)).collect();
        free(&victim, stale);
        // No object is allocated, so the memory of this one stays free.
        others[..1500].iter().for_each(|other| free(&victim, *other));
        free(&victim, stale);
    });
}

fn a_pointer_beside_an_object_is_stopped<S: Checked>(test: &str) {
    for (case, offset) in [("second byte", 1), ("middle", 8), ("end", VICTIM)] {
        let line = is_stopped::<S>(test, case, FOREIGN, || {
            let victim = victim::<S>();
            // SAFETY: inside the object, or at its end.
            let pointer = unsafe { alloc(&victim).add(offset) };
            print_address(pointer);
            free(&victim, pointer);
        });
        assert!(!line.contains("it lies in"), "it lies in no other allocator: {line}");
    }
    is_stopped::<S>(test, "never allocated", S::NEVER_ALLOCATED, || {
        let victim = victim::<S>();
        let (first, second) = (alloc(&victim).addr().get(), alloc(&victim).addr().get());
        free(&victim, pointer_to(second.wrapping_add(second.wrapping_sub(first))));
    });
}

/// Makes an address, which may be near that of an object.
type Near = fn(usize) -> usize;

fn a_pointer_to_anything_is_stopped<S: Checked>(test: &str) {
    fn code() {}
    let pointers: [(&str, Near); 14] = [
        ("malloc's", |_| Box::leak(Box::new([7u64; 3])).as_ptr().addr()),
        ("the stack", |_| (&raw const *core::hint::black_box(&7u64)).addr()),
        ("code", |_| (code as fn() as usize) & !7),
        ("the beginning of its pages", |object| (object & !0xffff) + 8),
        ("the end of its page", |object| (object | 4095) - 7),
        ("behind its pages", |object| (object | 0xffff) - 7),
        ("one", |_| 1),
        ("a small number", |_| 0x1234),
        ("the middle", |_| 1 << 46),
        ("the last user address", |_| (1 << 47) - 8),
        ("five levels", |_| 1 << 50),
        ("no address", |_| 0xdead_beef_dead_bee8),
        ("the kernel", |_| usize::MAX - 7),
        ("all ones", |_| usize::MAX),
    ];
    for (case, make) in pointers {
        if make(0) >= S::ADDRESSES {
            continue;
        }
        let line = is_stopped::<S>(test, case, FOREIGN, || {
            // The thread has used another slab, whose addresses it may look up.
            drop(allotment::Slab::<u64>::new().alloc(1));
            let victim = victim::<S>();
            let object = alloc(&victim);
            free(&victim, alloc(&victim));
            free(&victim, pointer_to(make(object.addr().get())));
        });
        assert!(!line.contains("it lies in"), "it lies in no other allocator: {line}");
    }
}

fn an_object_of_another_allocator_is_stopped_and_its_owner_named<S: Checked>(test: &str) {
    let line = is_stopped::<S>(test, "arena", FOREIGN, || {
        let arena = Arena::builder().name("neighbour").hardened(true).build();
        let object = arena.alloc_layout(LAYOUT);
        print_address(object);
        free(&victim::<S>(), object);
    });
    assert!(line.is_empty() || line.contains("it lies in arena 'neighbour'"), "{line}");
    is_stopped::<S>(test, "pool", FOREIGN, || {
        let pool = LocalPool::builder().hardened(true).build();
        let object = pool.alloc_layout(LAYOUT);
        print_address(object);
        free(&victim::<S>(), object);
    });
    for hardened in [false, true] {
        let case = format!("slab {hardened}");
        let line = is_stopped::<S>(test, &case, FOREIGN, || {
            let slab = RawSlab::builder(LAYOUT).name("neighbour").hardened(hardened).build();
            let object = slab.alloc();
            print_address(object);
            let victim = victim::<S>();
            free(&victim, alloc(&victim));
            free(&victim, object);
        });
        assert!(line.is_empty() || line.contains("it lies in slab 'neighbour'"), "{line}");
    }
}

fn an_object_of_another_of_its_kind_is_stopped<S: Checked>(test: &str) {
    for hardened in [false, true] {
        let case = format!("hardened: {hardened}");
        let line = is_stopped::<S>(test, &case, FOREIGN, || {
            let other = S::create(&options("neighbour").hardened(hardened));
            let victim = victim::<S>();
            free(&victim, alloc(&victim));
            free(&victim, object(&other));
        });
        // Which allocators are known by their addresses is in `owner_of`'s documentation.
        let known = match S::KIND {
            "slab" => true,
            "arena" | "free list" => hardened,
            _ => false,
        };
        let owner = format!("it lies in {} 'neighbour'", S::KIND);
        assert!(line.is_empty() || line.contains(&owner) == known, "{line}");
    }
}

fn a_wrong_size_is_stopped_and_the_right_one_named<S: Checked>(test: &str) {
    for right in [VICTIM + 1, 16, 100_000] {
        let words = format!("wrong size at free, allocated with {right} bytes");
        is_stopped::<S>(test, &format!("of {right}"), &words, || {
            let victim = victim::<S>();
            let object = victim.try_alloc(layout(right, 8)).expect("nothing is refused");
            print_address(object);
            free(&victim, object);
        });
    }
}

fn a_wrong_alignment_is_stopped<S: Checked>(test: &str) {
    is_stopped::<S>(test, "", "wrong alignment at free, allocated with alignment 64", || {
        let victim = victim::<S>();
        let object = victim.try_alloc(layout(VICTIM, 64)).expect("nothing is refused");
        print_address(object);
        free(&victim, object);
    });
}

// ---- writes ----

fn an_overrun_is_stopped_at_the_free<S: Checked>(test: &str) {
    for offset in [VICTIM, VICTIM + 7, VICTIM + S::RED_ZONE - 1] {
        is_stopped::<S>(test, &format!("byte {offset}"), OVERRUN, || {
            let victim = victim::<S>();
            let object = object(&victim);
            write(object, offset);
            free(&victim, object);
        });
    }
}

fn an_overrun_is_stopped_at_the_reset<S: Checked + Resets>(test: &str) {
    is_stopped::<S>(test, "", OVERRUN, || {
        let mut victim = victim::<S>();
        let object = object(&victim);
        alloc(&victim);
        write(object, VICTIM);
        victim.reset();
    });
}

fn an_overrun_is_stopped_at_the_drop<S: Checked>(test: &str) {
    is_stopped::<S>(test, "", OVERRUN, || {
        let victim = victim::<S>();
        let object = object(&victim);
        alloc(&victim);
        write(object, VICTIM);
        drop(victim);
    });
}

/// The bytes of a freed object that are written: in the object, and behind it.
const OFFSETS: [usize; 4] = [0, 5, VICTIM - 1, VICTIM + 3];

fn a_write_after_free_is_stopped_at_the_drop<S: Checked>(test: &str) {
    for live in [false, true] {
        is_stopped::<S>(test, &format!("live: {live}"), WRITE_AFTER_FREE, || {
            let victim = victim::<S>();
            if live {
                alloc(&victim);
            }
            let object = object(&victim);
            free(&victim, object);
            write(object, 7);
            drop(victim);
        });
    }
}

fn a_write_after_free_is_stopped_when_the_memory_would_be_used_again<S: Checked + Reuses>(
    test: &str,
) {
    for offset in OFFSETS {
        is_stopped::<S>(test, &format!("byte {offset}"), WRITE_AFTER_FREE, || {
            let victim = victim::<S>();
            let object = object(&victim);
            let kept: Vec<_> = (0..10).map(|_| alloc(&victim)).collect();
            free(&victim, object);
            write(object, offset);
            churn(&victim);
            churn(&victim);
            kept.into_iter().for_each(|object| free(&victim, object));
        });
    }
}

fn a_write_after_free_is_stopped_at_the_trim<S: Checked + Reuses>(test: &str) {
    for live in [false, true] {
        is_stopped::<S>(test, &format!("live: {live}"), WRITE_AFTER_FREE, || {
            let victim = victim::<S>();
            if live {
                alloc(&victim);
            }
            let object = object(&victim);
            free(&victim, object);
            write(object, 7);
            victim.trim();
            panic!("the trim did not detect it");
        });
    }
}

fn a_write_after_the_quarantine_is_stopped<S: Checked + Reuses>(test: &str) {
    for end in ["used again", "trim", "drop"] {
        let size = if end == "used again" { VICTIM } else { S::VACANT_SIZE };
        is_stopped_of_size::<S>(test, end, WRITE_AFTER_FREE, size, || {
            let victim = victim::<S>();
            let object = object(&victim);
            let others: Vec<_> = (0..1500).map(|_| alloc(&victim)).collect();
            free(&victim, object);
            others.into_iter().for_each(|other| free(&victim, other));
            write(object, 9);
            match end {
                "used again" => {
                    let _all: Vec<_> = (0..3000).map(|_| alloc(&victim)).collect();
                    panic!("the allocations did not detect it");
                }
                "trim" => {
                    victim.trim();
                    panic!("the trim did not detect it");
                }
                _ => drop(victim),
            }
        });
    }
}

fn a_write_after_free_is_stopped_at_the_reset<S: Checked + Resets>(test: &str) {
    for offset in [0, VICTIM - 1] {
        is_stopped::<S>(test, &format!("byte {offset}"), WRITE_AFTER_FREE, || {
            let mut victim = victim::<S>();
            let object = object(&victim);
            free(&victim, object);
            write(object, offset);
            victim.reset();
            panic!("the reset did not detect it");
        });
    }
}

fn a_write_to_memory_that_was_never_allocated_is_stopped_when_it_is<S: Fills>(test: &str) {
    is_stopped::<S>(test, "", S::WRITE_BEFORE_ALLOCATION, || {
        let victim = victim::<S>();
        let (first, second) = (alloc(&victim), alloc(&victim));
        // The next object follows at the same distance.
        let distance = second.addr().get() - first.addr().get();
        // SAFETY: the allocator has memory for more than two objects.
        let next = unsafe { second.add(distance) };
        print_address(next);
        write(next, 3);
        alloc(&victim);
    });
}

// ---- messages ----

fn live_objects_at_the_end_are_reported_if_that_is_on<S: Reports>(test: &str) {
    // The option `hardened`, the option `report_live`, whether live objects are reported.
    let cases = [
        (false, None, false),
        (false, Some(true), true),
        (false, Some(false), false),
        (true, None, true),
        (true, Some(true), true),
        (true, Some(false), false),
    ];
    let create = |number: usize| {
        let (hardened, told, _) = cases[number % cases.len()];
        let options = options(&format!("number {number}")).hardened(hardened);
        S::create(&Options { report_live: told, ..options })
    };
    if child::is(test) {
        for number in 0..cases.len() {
            let subject = create(number);
            (0..7).for_each(|_| _ = alloc(&subject));
            free(&subject, alloc(&subject));
        }
        // One without live objects reports nothing.
        for number in cases.len()..2 * cases.len() {
            let subject = create(number);
            free(&subject, alloc(&subject));
        }
        return;
    }
    let text = Child::new(test, test).succeeds();
    for (number, (.., reports)) in cases.into_iter().enumerate() {
        let line = format!("allotment: {} 'number {number}' {}", S::KIND, S::words(7));
        assert_eq!(text.contains(&line), reports, "{line}:\n{text}");
    }
    let reports = cases.iter().filter(|(.., reports)| *reports).count();
    assert_eq!(text.matches("allotment: ").count(), reports, "{text}");
}

fn a_name_with_control_characters_is_one_line_of_the_message<S: Checked>(test: &str) {
    if child::is(test) {
        let victim = S::create(&options("two\nlines\u{1b}[31m"));
        let object = alloc(&victim);
        free(&victim, object);
        free(&victim, object);
        panic!("the misuse was not detected");
    }
    let stderr = Child::new(test, test).aborts();
    let start = format!(r"allotment: {} 'two\nlines\u{{1b}}[31m': {DOUBLE_FREE}", S::KIND);
    assert!(stderr.lines().any(|line| line.starts_with(&start)), "{stderr}");
}

// ---- correct programs ----

/// Allocates and frees objects of many layouts, and touches each byte of them.
fn correct_program<S: Checked>(options: &Options) {
    let create = |layout| S::create(&Options { layout, ..options.clone() });
    let mut for_all = S::ANY_LAYOUT.then(|| create(LAYOUT));
    for size in [0, 1, 24, 100, 5000, 40_000, 300_000] {
        for align in [1, 16, 64, 4096] {
            let layout = layout(size, align);
            let mut for_one = (!S::ANY_LAYOUT).then(|| create(layout));
            let subject = for_all.as_mut().or(for_one.as_mut()).expect("one of them");
            let count = if size < 1000 { 300 } else { 5 };
            for _ in 0..3 {
                let objects = subject.stamped(layout, count);
                if size > 0 || S::ZERO_SIZES_APART {
                    assert_apart(&objects);
                }
                subject.free_all(layout, objects);
                subject.recycle();
            }
            subject.trim();
        }
    }
}

fn correct_programs_are_not_stopped<S: Checked>(_: &str) {
    correct_program::<S>(&options("correct"));
}

fn correct_programs_are_not_stopped_on_any_source<S: Checked + Sourced>(_: &str) {
    for source in S::sources() {
        correct_program::<S>(&Options { source, ..options("correct") });
    }
}
