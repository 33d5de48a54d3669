//! Many small arenas: few mappings, no more memory than they asked for, and all of it comes back.
//! The tests run one at a time, because they count the mappings and the memory of the process.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use allotment::{Arena, Budget, Release, recycler};
use support::fork::forked;
use support::input::Input;
use support::kernel::{is_resident, mapping_flags, mappings, page_size};
use support::slab::Random;
use support::small_arena_program::Filled;

/// The right to count alone. The recycler is empty at the end.
struct Exclusive {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        recycler().trim();
    }
}

/// Waits for the other tests, and empties the recycler.
fn exclusive() -> Exclusive {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    empty_recycler();
    Exclusive { _guard: guard }
}

/// Empties the recycler, and lets it keep as little as at the start of the process.
fn empty_recycler() {
    recycler().set_policy(Release::Adaptive);
    recycler().trim();
}

/// The bytes that the process has mapped and that have memory.
fn mapped_and_resident() -> (usize, usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let mut pages = statm.split(' ').map(|field| field.parse::<usize>().expect("a number"));
    let mut next = || pages.next().expect("a field") * page_size();
    (next(), next())
}

fn arena_of(word: usize) -> Arena {
    let arena = Arena::new();
    arena.alloc(word);
    arena
}

/// How many arenas of one page the tests of mappings make.
const MANY: usize = 40_000;

/// The most mappings that they may have: a range of 8 MiB holds 2,048 pages of 4 KiB.
const FEW: usize = 100;

#[test]
fn however_small_arenas_are_dropped_few_mappings_are_left() {
    let _exclusive = exclusive();
    type Order = fn(usize, &mut Random) -> bool;
    let orders: [(&str, Order); 3] = [
        ("every second arena", |index, _| index % 2 == 0),
        ("runs of 2,048 arenas", |index, _| index / 2048 % 2 == 0),
        ("three in four arenas, at random", |_, random| random.below(4) > 0),
    ];
    let before = mappings();
    for (name, is_dropped) in orders {
        let mut random = Random::new(1);
        let mut arenas: Vec<Option<Arena>> = (0..MANY).map(|n| Some(arena_of(n))).collect();
        assert!(mappings() <= before + FEW, "{name}: {} mappings", mappings());
        empty_recycler();
        for (index, arena) in arenas.iter_mut().enumerate() {
            if is_dropped(index, &mut random) {
                *arena = None;
            }
        }
        let left = mappings();
        assert!(left <= before + FEW, "{name}: {left} mappings after the drops");
    }
}

#[test]
fn half_of_many_small_arenas_give_back_half_of_the_memory_and_the_rest_gives_back_all() {
    let _exclusive = exclusive();
    let arenas = MANY / 2;
    // Without the tables of statistics records and of chunks, which stay.
    drop((0..arenas).map(arena_of).collect::<Vec<_>>());
    recycler().trim();
    let mut held: Vec<Option<Arena>> = (0..arenas).map(|_| None).collect();
    let (mapped, resident) = mapped_and_resident();
    let before = mappings();
    for (word, arena) in held.iter_mut().enumerate() {
        *arena = Some(arena_of(word));
    }
    let full = mapped_and_resident().1 - resident;
    assert!(full >= arenas * page_size());
    held.iter_mut().step_by(2).for_each(|arena| *arena = None);
    recycler().trim();
    let half = mapped_and_resident().1 - resident;
    assert!(half <= full / 2 + (1 << 20), "{half} of {full} bytes are left");
    drop(held);
    recycler().trim();
    let (mapped_now, resident_now) = mapped_and_resident();
    assert!(resident_now <= resident + (1 << 20), "{resident_now}, {resident} bytes before");
    assert!(mapped_now <= mapped + (1 << 20), "{mapped_now}, {mapped} bytes mapped before");
    assert!(mappings() <= before + 2, "{} mappings, {before} before", mappings());
}

#[test]
fn a_chunk_that_goes_back_at_once_has_no_memory_although_its_neighbour_has() {
    let _exclusive = exclusive();
    let make = || Arena::builder().release(Release::AtOnce).build();
    let (first, second) = (make(), make());
    let address = |arena: &Arena| (&raw const *arena.alloc(7u64)).addr();
    let (stays, goes) = (address(&first), address(&second));
    assert_eq!((is_resident(stays), is_resident(goes)), (Some(true), Some(true)));
    drop(second);
    assert_eq!(is_resident(stays), Some(true));
    assert_ne!(is_resident(goes), Some(true));
}

#[test]
fn small_arenas_hold_at_most_four_times_what_they_asked_for_beside_large_ones() {
    let _exclusive = exclusive();
    const ARENAS: usize = 2000;
    for hint in [4_000, 12_000, 30_000, 60_000] {
        let resident = mapped_and_resident().1;
        let arenas: Vec<Arena> = (0..ARENAS)
            .map(|word| {
                // The thread keeps the chunk of this arena.
                Arena::with_capacity(hint).alloc_slice_copy(&vec![1u8; hint]);
                arena_of(word)
            })
            .collect();
        let large = arenas.iter().filter(|arena| held(arena) > 4 * page_size()).count();
        assert!(large <= 1, "after {hint} bytes, {large} arenas of one word are large");
        let total: usize = arenas.iter().map(held).sum();
        assert!(total <= 4 * ARENAS * page_size(), "after {hint} bytes: {total} bytes");
        let more = mapped_and_resident().1 - resident;
        assert!(more <= ARENAS * 4 * page_size() + (8 << 20), "after {hint} bytes: {more} bytes");
        drop(arenas);
        recycler().trim();
    }
}

/// The most chunks that the process lends to small arenas at one time.
const MAX_LOANS: usize = 128;

/// The bytes of the chunk that a thread lends.
const LENT: usize = 64 << 10;

fn held(arena: &Arena) -> usize {
    arena.statistics().held_bytes as usize
}

/// An arena of one word, made after a large one on the same thread.
fn arena_after_a_large_one() -> Arena {
    Arena::with_capacity(60_000).alloc_slice_copy(&[1u8; 60_000]);
    arena_of(7)
}

#[test]
fn small_arenas_of_thousands_of_threads_hold_at_most_four_times_what_they_asked_for() {
    let _exclusive = exclusive();
    const THREADS: usize = 2000;
    // The second round finds the permits that the first one's arenas gave back.
    for round in 0..2 {
        let arenas: Vec<Arena> = (0..THREADS)
            .map(|_| std::thread::spawn(arena_after_a_large_one).join().expect("no panic"))
            .collect();
        let large = arenas.iter().filter(|arena| held(arena) > 4 * page_size()).count();
        assert!(large <= MAX_LOANS, "round {round}: {large} arenas of one word are large");
        assert!(large >= MAX_LOANS / 2 || LENT <= 4 * page_size(), "round {round}: {large} loans");
        let total: usize = arenas.iter().map(held).sum();
        let most = 4 * THREADS * page_size() + MAX_LOANS * LENT;
        assert!(total <= most, "round {round}: {total} bytes");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(arenas));
        });
    }
}

#[test]
fn a_thread_lends_again_after_its_loan_ended_on_another_thread() {
    let _exclusive = exclusive();
    if LENT <= 4 * page_size() {
        return;
    }
    let lender = || {
        for round in 0..300 {
            let arena = arena_after_a_large_one();
            assert_eq!(held(&arena), LENT, "round {round}");
            // Its only loan: the next small arena gets a small chunk.
            let next = arena_after_a_large_one();
            assert!(held(&next) <= 4 * page_size(), "round {round}: {} bytes", held(&next));
            std::thread::spawn(move || drop(arena)).join().expect("no panic");
        }
    };
    std::thread::spawn(lender).join().expect("no panic");
}

#[test]
fn a_small_chunk_is_in_no_huge_page() {
    let _exclusive = exclusive();
    // The ranges of the first of them are smaller than a huge page.
    let arenas: Vec<Arena> = (0..1000).map(arena_of).collect();
    let address = (&raw const *arenas[999].alloc(7u64)).addr();
    let flags = mapping_flags(address);
    assert!(
        flags.iter().any(|flag| flag == "nh") || !has_huge_pages(),
        "huge pages are not refused: {flags:?}"
    );
}

fn has_huge_pages() -> bool {
    std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists()
}

#[test]
fn a_child_of_a_fork_takes_and_drops_small_chunks_without_a_change_for_its_parent() {
    let _exclusive = exclusive();
    let mut arenas: Vec<(Arena, NonNull<usize>)> = Vec::new();
    for word in 1..=300 {
        let arena = Arena::new();
        let object = NonNull::from(arena.alloc(word));
        arenas.push((arena, object));
    }
    let check = |arenas: &[(Arena, NonNull<usize>)], step: usize| {
        for (index, (_, object)) in arenas.iter().enumerate() {
            // SAFETY: an object of this arena.
            assert_eq!(unsafe { object.read() }, 1 + index * step);
        }
    };
    // SAFETY: no other thread of this process holds a lock that the child takes.
    let status = unsafe {
        forked(|| {
            let mut index = 0;
            arenas.retain(|_| {
                index += 1;
                index % 3 == 1
            });
            recycler().trim();
            let more: Vec<Arena> = (0..1000).map(arena_of).collect();
            check(&arenas, 3);
            drop(more);
        })
    };
    assert_eq!(status, 0);
    check(&arenas, 1);
    let more: Vec<Arena> = (0..1000).map(arena_of).collect();
    check(&arenas, 1);
    drop(more);
}

#[test]
fn a_fork_in_the_middle_of_a_trim_of_small_chunks_leaves_the_child_an_exact_count() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Keep(256 << 20));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop((0..2000).map(arena_of).collect::<Vec<_>>());
                recycler().trim();
            }
        });
        let mut wrong = 0;
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(3));
            let work = || {
                recycler().trim();
                assert_eq!(recycler().cached_bytes(), 0, "after a trim nothing is kept");
            };
            // SAFETY: the recycler takes no lock.
            wrong += u32::from(unsafe { forked(work) } != 0);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, 0, "children that counted chunks which are nowhere");
    });
}

#[test]
fn a_small_arena_works_where_no_range_can_be_mapped() {
    let _exclusive = exclusive();
    // SAFETY: no other thread of this process holds a lock that the child takes.
    let status = unsafe {
        forked(|| {
            // The record and the table of descriptors; the chunk is one of the first range.
            Arena::builder().release(Release::AtOnce).build().alloc(1);
            let (mapped, _) = mapped_and_resident();
            let limit = (mapped + (128 << 10)) as libc::rlim_t;
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
            let arena = Arena::builder().release(Release::AtOnce).build();
            arena.alloc(7);
            assert_eq!(arena.statistics().chunks, 1);
        })
    };
    assert_eq!(status, 0);
}

#[test]
fn random_programs_on_small_arenas_of_several_threads_share_no_memory() {
    let _exclusive = exclusive();
    let budget = Budget::new(8 << 20);
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..3).map(|_| mpsc::channel::<Filled>()).unzip();
        for (thread, receiver) in receivers.into_iter().enumerate() {
            let (senders, budget) = (senders.clone(), &budget);
            scope.spawn(move || {
                let mut random = Random::new(77 + thread as u64);
                let program: Vec<u8> = (0..40_000).map(|_| random.below(256) as u8).collect();
                let input = &mut Input::new(&program);
                let mut live: Vec<Filled> = Vec::new();
                while !input.is_empty() {
                    match input.below(10) {
                        0..5 => live.push(Filled::new(input, budget)),
                        5..8 if !live.is_empty() => {
                            live.swap_remove(input.below(live.len()));
                        }
                        8 if !live.is_empty() => {
                            let filled = live.swap_remove(input.below(live.len()));
                            // The other thread may have ended.
                            let _ = senders[input.below(3)].send(filled);
                        }
                        _ => live.extend(receiver.try_recv().ok()),
                    }
                    if live.len() > 200 {
                        live.truncate(50);
                        recycler().trim();
                    }
                }
            });
        }
    });
    assert_eq!(budget.used(), 0);
}

/// Whether the long tests run. If not, says that `test` is left out.
fn is_long(test: &str) -> bool {
    let is_long = std::env::var_os("ALLOTMENT_LONG_TESTS").is_some();
    if !is_long {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: ALLOTMENT_LONG_TESTS is not set");
    }
    is_long
}

/// The bytes by which a repetition of the same work may raise what is left after it.
const GROWTH: usize = 64 << 20;

/// The mappings that the long tests may have while they run.
const MANY_RANGES: usize = 900;

#[test]
fn ten_million_small_arenas_of_which_a_tenth_stays_live_in_few_mappings() {
    if !is_long("ten million small arenas") {
        return;
    }
    let _exclusive = exclusive();
    const LIVE: usize = 1_000_000;
    const WINDOW: usize = 100_000;
    let before = mappings();
    let (_, resident) = mapped_and_resident();
    // One arena in `stays` stays live, until there are as many as `LIVE`.
    let round = |stays: usize| {
        let mut kept: Vec<Arena> = Vec::new();
        let mut window: Vec<Option<Arena>> = Vec::new();
        let mut random = Random::new(5);
        for made in 0..LIVE * stays {
            window.push(Some(arena_of(made)));
            if window.len() == WINDOW {
                // Drop the others in a random order.
                random.shuffle(&mut window);
                kept.extend(window.iter_mut().step_by(stays).filter_map(Option::take));
                window.clear();
                let now = mappings();
                assert!(now <= before + MANY_RANGES, "{now} mappings after {made} arenas");
            }
        }
        assert_eq!(kept.len(), LIVE);
        recycler().trim();
        let now = mappings();
        assert!(now <= before + MANY_RANGES, "a million live arenas have {now} mappings");
        let full = mapped_and_resident().1 - resident;
        let most = kept.len() * (page_size() + 600) + (64 << 20);
        assert!(full <= most, "{full} bytes for {} arenas", kept.len());
        drop(kept);
        recycler().trim();
        let left = mapped_and_resident().1.saturating_sub(resident);
        println!("{now} mappings and {full} bytes; afterwards {} and {left}", mappings());
        assert!(mappings() <= before + FEW, "{} mappings are left", mappings());
        left
    };
    // The first round leaves the tables: the statistics records, the descriptors of the ranges.
    // They are as large as the most live arenas need.
    let first = round(2);
    assert!(first <= 1 << 30, "{first} bytes are left");
    let second = round(10);
    assert!(second <= first + GROWTH, "{second} bytes are left, {first} after the first round");
}

#[test]
fn millions_of_small_arenas_that_two_threads_drop_for_each_other_leave_nothing() {
    if !is_long("small arenas that two threads drop for each other") {
        return;
    }
    let _exclusive = exclusive();
    const KEPT: usize = 300_000;
    const WINDOW: usize = 50_000;
    let before = mappings();
    let (_, resident) = mapped_and_resident();
    // Each thread keeps one in `stays` of the arenas that the other makes.
    let round = |stays: usize| {
        let (to_first, first) = mpsc::sync_channel::<Vec<Arena>>(2);
        let (to_second, second) = mpsc::sync_channel::<Vec<Arena>>(2);
        let work = |seed: u64, to_other: mpsc::SyncSender<Vec<Arena>>, own: mpsc::Receiver<_>| {
            let mut random = Random::new(seed);
            let mut kept: Vec<Arena> = Vec::new();
            for _ in 0..KEPT * stays / WINDOW {
                let window: Vec<Arena> = (0..WINDOW).map(arena_of).collect();
                to_other.send(window).expect("the other thread receives as many");
                let mut window: Vec<Arena> = own.recv().expect("the other thread sends as many");
                // The rest is dropped in a random order.
                random.shuffle(&mut window);
                kept.extend(window.drain(..WINDOW / stays));
            }
            kept
        };
        let kept = std::thread::scope(|scope| {
            let other = scope.spawn(move || work(6, to_first, second));
            let kept = work(7, to_second, first);
            [kept, other.join().expect("no panic")]
        });
        assert_eq!(kept.iter().map(Vec::len).sum::<usize>(), 2 * KEPT);
        recycler().trim();
        let now = mappings();
        assert!(now <= before + MANY_RANGES, "{now} mappings");
        let full = mapped_and_resident().1 - resident;
        drop(kept);
        recycler().trim();
        let left = mapped_and_resident().1.saturating_sub(resident);
        println!("{now} mappings and {full} bytes; afterwards {} and {left}", mappings());
        assert!(mappings() <= before + FEW, "{} mappings are left", mappings());
        left
    };
    let first = round(2);
    let second = round(10);
    assert!(second <= first + GROWTH, "{second} bytes are left, {first} after the first round");
}
