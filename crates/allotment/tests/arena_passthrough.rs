//! `ALLOTMENT_PASSTHROUGH=1` for arenas. The claims about every allocator are in
//! `claims_passthrough.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;

use allotment::{Arena, ArenaString, ArenaVec, Budget, ErrorKind, format_in};
use support::child::{self, Child};

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn a_block_that_is_aligned_by_chance_stays_so_when_it_shrinks() {
    passed_through("a_block_that_is_aligned_by_chance_stays_so_when_it_shrinks", || {
        let arena = Arena::<1>::with_min_align();
        let new = Layout::from_size_align(100, 64).unwrap();
        // Malloc aligns blocks to 16 bytes, so about one in four is aligned to 64.
        let mut by_chance = 0;
        for number in 0..1000 {
            // Moves the next block by a multiple of 16 bytes.
            _ = arena.alloc_layout(Layout::from_size_align(8 + 16 * (number % 7), 1).unwrap());
            let old = Layout::from_size_align(5000 + number % 100, 1).unwrap();
            let block = arena.alloc_layout(old);
            by_chance += usize::from(block.addr().get() % 64 == 0);
            // SAFETY: a live block of this arena. Its old address is not used afterwards.
            let block = unsafe { arena.try_resize(block, old, new) }.unwrap();
            assert_eq!(block.addr().get() % 64, 0);
        }
        assert!(by_chance > 0);
    });
}

#[test]
fn statistics_and_budgets_are_exact() {
    passed_through("statistics_and_budgets_are_exact", || {
        let budget = Budget::new(100_000);
        let mut arena = Arena::builder().budget(&budget).name("through").hint(4000).build();
        assert_eq!((arena.statistics().held_bytes, budget.used()), (0, 0), "no chunk");
        let mut names = ArenaVec::new_in(&arena);
        for number in 0..100 {
            names.push(format_in!(&arena, "chart.{number}").into_str());
        }
        assert_eq!(&*names[99], "chart.99");
        drop(names);
        let statistics = arena.statistics();
        assert_eq!(statistics.live_objects, 100);
        assert_eq!(statistics.live_bytes, 10 * 7 + 90 * 8);
        assert_eq!(statistics.held_bytes, statistics.live_bytes);
        assert_eq!(budget.used() as u64, statistics.held_bytes);
        let before = arena.statistics();
        let error = arena.try_alloc_slice_copy(&[0u8; 100_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert_eq!(arena.statistics(), before);
        let sum = arena.scope(|scope| {
            let mut text = ArenaString::new_in(scope);
            text.push_str("scratch");
            scope.alloc_slice_with(1000, |index| index).len() + text.len()
        });
        assert_eq!((sum, arena.statistics().live_objects), (1007, 100));
        let report = allotment::report();
        assert_eq!(report.allocators[0].statistics, arena.statistics());
        arena.reset();
        assert_eq!((arena.statistics().live_objects, budget.used()), (0, 0));
        arena.alloc(7);
        drop(arena);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn operation_programs_keep_the_model() {
    passed_through("operation_programs_keep_the_model", || {
        support::corpus::replay("arena_ops", 150, 384, support::program::run);
    });
}
