//! Sealed memory: what is held, charged and reported, and that a build that ends early leaks
//! nothing.
//!
//! The tests run one at a time: they read the process-wide recycler, and statistics records that
//! the next allocator takes.
#![cfg(system_memory)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use allotment::{
    AllocError, Budget, ErrorKind, SealVec, Sealed, Statistics, owner_of, recycler, report,
};
use support::child::{self, Child};
use support::kernel::page_size;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn adds_up(statistics: &Statistics) {
    let Statistics { held_bytes, live_bytes, structure_bytes, wasted_bytes, .. } = *statistics;
    assert_eq!(held_bytes, live_bytes + structure_bytes + wasted_bytes, "{statistics:?}");
    assert_eq!(held_bytes % page_size() as u64, 0);
}

#[test]
fn a_small_value_holds_one_page() {
    let _alone = alone();
    let sealed =
        Sealed::<(&'static str, [u16; 2])>::new(|sealer| (sealer.alloc_str("small"), [1, 2]));
    assert_eq!(sealed.statistics().held_bytes as usize, page_size());
    assert_eq!(sealed.statistics().live_bytes as usize, 5 + size_of::<(&str, [u16; 2])>());
    adds_up(&sealed.statistics());
}

#[test]
fn only_pages_with_blocks_are_held_and_the_others_have_no_memory() {
    let _alone = alone();
    // The second round gets a warm chunk, whose pages all have memory.
    for _ in 0..2 {
        let sealed =
            Sealed::<&'static [u8]>::new(|sealer| sealer.alloc_slice_from_iter(vec![1; 300_000]));
        adds_up(&sealed.statistics());
        let pages = 300_000usize.div_ceil(page_size());
        assert!(
            sealed.statistics().held_bytes as usize <= (pages + 2) * page_size(),
            "{:?}",
            sealed.statistics()
        );
        let end = sealed.get().as_ptr_range().end.addr();
        let beyond = end.next_multiple_of(page_size());
        if beyond % (64 << 10) != 0 {
            assert_eq!(
                support::kernel::is_resident(beyond),
                Some(false),
                "no memory behind the end"
            );
        }
    }
}

#[test]
fn a_vector_that_outgrows_its_chunk_leaves_none_behind() {
    let _alone = alone();
    let sealed = Sealed::<SealVec<'static, u64>>::new(|sealer| {
        let mut values = sealer.vec();
        for value in 0..1_000_000 {
            values.push(value);
        }
        values
    });
    assert!(sealed.get().iter().copied().eq(0..1_000_000));
    let capacity = sealed.get().capacity() * 8;
    // Empty chunks were given back. The first one holds the value itself, and keeps its pages.
    assert!(
        sealed.statistics().held_bytes as usize <= capacity + (256 << 10),
        "{:?}",
        sealed.statistics()
    );
    adds_up(&sealed.statistics());
    assert_eq!(sealed.statistics().chunks, 2);
}

#[test]
fn the_last_block_grows_shrinks_and_is_freed_in_place() {
    let _alone = alone();
    let sealed = Sealed::<&'static [u8]>::new(|sealer| {
        let mut values: SealVec<'_, u8> = sealer.vec();
        values.push(1);
        let first = values.as_ptr();
        values.try_extend(2..=200).unwrap();
        assert_eq!(values.as_ptr(), first, "grown in place");
        values.truncate(100);
        let kept = sealer.alloc_slice_copy(&values);
        drop(values);
        kept
    });
    assert!(sealed.get().iter().copied().eq(1..=100));
    let list = Sealed::<&'static [u8]>::new(|sealer| {
        let temporary = SealVec::<u64>::with_capacity_in(1000, sealer);
        drop(temporary);
        sealer.alloc_slice_copy(&[7; 100])
    });
    assert_eq!(list.statistics().live_bytes as usize, 100 + size_of::<&[u8]>());
    assert_eq!(
        list.statistics().held_bytes as usize,
        page_size(),
        "the temporary vector's memory is used again"
    );
}

#[test]
fn a_budget_is_charged_the_pages_that_are_held_and_nothing_is_left() {
    let _alone = alone();
    let budget = Budget::new(64 << 20);
    let build = |bytes: usize| {
        let builder = Sealed::<&'static [u8]>::builder().budget(&budget);
        builder.build(|sealer| sealer.alloc_slice_from_iter(vec![1; bytes]))
    };
    let (small, large) = (build(10), build(5_000_000));
    assert_eq!(
        budget.used(),
        small.statistics().held_bytes as usize + large.statistics().held_bytes as usize
    );
    assert_eq!(small.statistics().held_bytes as usize, page_size());
    drop(small);
    assert_eq!(budget.used(), large.statistics().held_bytes as usize);
    drop(large);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_budget_of_one_page_is_enough_for_a_small_value_and_one_byte_less_is_not() {
    let _alone = alone();
    let build = |bytes: usize| {
        Sealed::<[u64; 4]>::builder()
            .budget(&Budget::new(bytes))
            .try_build(|_| Ok::<_, AllocError>([1, 2, 3, 4]))
    };
    assert_eq!(build(page_size()).unwrap().get()[3], 4);
    assert_eq!(build(page_size() - 1).unwrap_err().kind(), ErrorKind::BudgetExceeded);
    assert_eq!(build(0).unwrap_err().kind(), ErrorKind::BudgetExceeded);
}

/// Builds strings of growing size by calls that may fail.
fn strings(budget: &Budget) -> Result<Sealed<&'static [&'static str]>, AllocError> {
    let text = "x".repeat(40_000);
    Sealed::<&'static [&'static str]>::builder().name("failing").budget(budget).try_build(
        |sealer| {
            let mut list = sealer.vec();
            for length in (0..40_000).step_by(1000) {
                list.try_push(sealer.try_alloc_str(&text[..length])?)?;
            }
            Ok(list.into_slice())
        },
    )
}

#[test]
fn whichever_page_is_refused_nothing_leaks_and_the_next_build_works() {
    let _alone = alone();
    let enough = Budget::new(usize::MAX);
    let whole = strings(&enough).unwrap();
    let needed = whole.statistics().peak_held_bytes as usize;
    drop(whole);
    assert_eq!(enough.used(), 0);
    let mut refused = 0;
    for cap in (0..needed).step_by(page_size()) {
        let budget = Budget::new(cap);
        let error = strings(&budget).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert_eq!(budget.used(), 0, "with a limit of {cap}");
        refused += 1;
    }
    assert!(refused > 100);
    let budget = Budget::new(needed);
    assert_eq!(strings(&budget).unwrap().get().len(), 40);
    assert!(!report().allocators.iter().any(|allocator| allocator.name == "failing"));
}

/// The bytes of addresses that this process has mapped.
fn mapped_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * page_size()
}

#[test]
fn an_initialiser_that_panics_leaks_nothing() {
    let test = "an_initialiser_that_panics_leaks_nothing";
    if !child::is(test) {
        // In a process of its own: the threads of other tests map memory too.
        Child::new(test, test).succeeds();
        return;
    }
    let budget = Budget::new(usize::MAX);
    let fails = |round: usize| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let builder = Sealed::<&'static [u64]>::builder().name("panics").budget(&budget);
            builder.build(|sealer| {
                sealer.alloc_slice_copy(&vec![1u8; 1000 * round]);
                sealer.alloc_slice_from_iter(
                    (0..100).map(|n| if n == round { panic!("on purpose") } else { 1 }),
                )
            })
        }));
        assert!(caught.is_err());
        assert_eq!(budget.used(), 0);
    };
    fails(99);
    let before = mapped_bytes();
    (0..100).for_each(fails);
    assert!(mapped_bytes() < before + (1 << 20), "no chunk of a hundred builds is left");
    assert!(!report().allocators.iter().any(|allocator| allocator.name == "panics"));
}

#[test]
fn sizes_that_overflow_are_an_error() {
    let _alone = alone();
    let sealed = Sealed::<u8>::try_new(|sealer| {
        let error = SealVec::<u64>::try_with_capacity_in(usize::MAX, sealer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SizeOverflow);
        let error = SealVec::<u8>::try_with_capacity_in(isize::MAX as usize, sealer).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::SizeOverflow | ErrorKind::System(_)));
        let mut values: SealVec<'_, u8> = sealer.vec();
        assert!(values.try_reserve(usize::MAX).is_err());
        Ok::<_, AllocError>(7)
    });
    assert_eq!(*sealed.unwrap().get(), 7);
}

#[test]
fn chunks_go_back_to_the_recycler_and_come_from_there_writable() {
    let _alone = alone();
    recycler().trim();
    let first = Sealed::<[u8; 1000]>::new(|_| [1; 1000]);
    let address = std::ptr::from_ref(first.get()).addr();
    assert_eq!(first.statistics().recycled_chunks, 0);
    drop(first);
    assert!(recycler().cached_bytes() >= 64 << 10);
    let second = Sealed::<[u8; 1000]>::new(|_| [2; 1000]);
    assert_eq!(second.statistics().recycled_chunks, 1);
    assert_eq!(std::ptr::from_ref(second.get()).addr(), address);
    assert!(second.get().iter().all(|&byte| byte == 2));
    drop(second);
    assert!(recycler().trim() >= 1);
}

#[test]
fn report_and_owner_know_a_sealed_value_by_its_name() {
    let _alone = alone();
    let sealed = Sealed::<&'static [u32]>::builder()
        .name("the configuration")
        .build(|sealer| sealer.alloc_slice_from_iter(vec![7; 100_000]));
    assert_eq!(sealed.name(), Some("the configuration"));
    let is_it = |name: &str| name == "the configuration";
    let report = report();
    let listed = report.allocators.iter().find(|allocator| is_it(&allocator.name)).unwrap();
    assert_eq!(listed.kind, "sealed");
    assert_eq!(listed.statistics, sealed.statistics());
    assert!(report.to_json().contains("\"kind\":\"sealed\""));
    let addresses = [
        std::ptr::from_ref(sealed.get()).cast::<u8>(),
        sealed.get().as_ptr().cast(),
        (&raw const sealed.get()[99_999]).cast(),
    ];
    for address in addresses {
        let owner = owner_of(address).expect("sealed memory is registered");
        assert!(is_it(&owner.name) && owner.kind == "sealed");
    }
    drop(sealed);
    for address in addresses {
        assert!(owner_of(address).is_none_or(|owner| !is_it(&owner.name)));
    }
    assert!(!allotment::report().allocators.iter().any(|allocator| is_it(&allocator.name)));
    let anonymous = Sealed::<u8>::new(|_| 1);
    assert_eq!(anonymous.name(), None);
    assert!(format!("{anonymous:?}").contains("held_bytes"));
}
