//! The options that several builders have mean the same in each.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;

use allotment::{
    AllocError, Arena, Budget, ErrorKind, FreeList, LocalPool, Mmap, Reap, Sealed, Slab,
};
use support::subject::{assert_over_budget, panic_message};

type Block = [u8; 256];

/// Builds each allocator with the same options, and calls `$check` with its name and with a call
/// that allocates and keeps 256 bytes.
macro_rules! with_each {
    ($check:expr, $($option:ident($($argument:expr),*)),*) => {{
        let arena = <Arena>::builder()$(.$option($($argument),*))*.build();
        $check("arena", &mut || arena.try_alloc([1u8; 256]).map(|_| ()));
        let list = FreeList::<Block>::builder()$(.$option($($argument),*))*.build();
        $check("free list", &mut || list.try_alloc([1; 256]).map(core::mem::forget).map_err(|(error, _)| error));
        let slab = Slab::<Block>::builder()$(.$option($($argument),*))*.build();
        $check("slab", &mut || slab.try_alloc([1; 256]).map(core::mem::forget).map_err(|(error, _)| error));
        let reap = Reap::builder()$(.$option($($argument),*))*.build();
        $check("reap", &mut || reap.try_alloc_layout(Layout::new::<Block>()).map(|_| ()));
        let pool = LocalPool::builder()$(.$option($($argument),*))*.build();
        $check("pool", &mut || pool.try_alloc_layout(Layout::new::<Block>()).map(|_| ()));
    }};
}

type Allocate<'a> = &'a mut dyn FnMut() -> Result<(), AllocError>;

/// The number of blocks until the first refusal, which must be the budget's.
fn blocks_until_refused(allocator: &str, allocate: Allocate<'_>) -> usize {
    for blocks in 0..100_000 {
        if let Err(error) = allocate() {
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{allocator}");
            return blocks;
        }
    }
    panic!("{allocator}: nothing was refused");
}

#[test]
fn the_message_of_an_error_ends_with_what_to_do_next() {
    const ENOMEM: i32 = 12;
    const ENOSPC: i32 = 28;
    for (kind, number, what, next) in [
        (ErrorKind::BadAlignment, 3, "an alignment of 3 ", "; use 1, 2, 4 and so on"),
        (ErrorKind::NameTooLong, 70, "a name of 70 bytes ", "; use at most 64 bytes"),
        (ErrorKind::SourceRefused, 9, "the source ", "; free memory, or use another source"),
        (ErrorKind::System(ENOMEM), 9, "the system ", "limits (ulimit -v, vm.max_map_count)"),
        (ErrorKind::System(ENOSPC), 9, "the system ", "; free space on the file's disk"),
        (ErrorKind::LimitReached, 9, "9 bytes refused", "; drop what is no longer needed"),
    ] {
        let message = AllocError::new(kind, number).to_string();
        assert!(message.starts_with(what) && message.ends_with(next), "{message}");
    }
}

#[test]
fn a_maximum_caps_what_each_allocator_holds() {
    const MAXIMUM: usize = 1 << 20;
    let check = |allocator: &str, allocate: Allocate<'_>| {
        let blocks = blocks_until_refused(allocator, allocate);
        assert!(blocks * 256 <= MAXIMUM, "{allocator}: {blocks} blocks");
        assert!(blocks * 256 >= MAXIMUM / 2, "{allocator}: {blocks} blocks");
    };
    with_each!(check, maximum(MAXIMUM));
}

#[test]
fn a_maximum_of_zero_refuses_every_byte_and_the_error_says_so() {
    let is_refused = |allocator: &str, error: AllocError| {
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{allocator}");
        assert_eq!(error.budget_limit(), Some(0), "{allocator}");
        let message = error.to_string();
        let cause = " bytes refused: the budget has a limit of 0 bytes, which refuses all; ";
        assert!(message.contains(cause) && message.ends_with("or set none"), "{message}");
    };
    let arena = <Arena>::builder().maximum(0).build();
    is_refused("arena", arena.try_alloc(1_u8).unwrap_err());
    let list = FreeList::<u8>::builder().maximum(0).build();
    is_refused("free list", list.try_alloc(1).map_err(|(error, _)| error).unwrap_err());
    let reap = Reap::builder().maximum(0).build();
    is_refused("reap", reap.try_alloc_layout(Layout::new::<u8>()).unwrap_err());
    let pool = LocalPool::builder().maximum(0).build();
    is_refused("pool", pool.try_alloc_layout(Layout::new::<u8>()).unwrap_err());
    is_refused("pool", pool.reference().try_alloc_layout(Layout::new::<u8>()).unwrap_err());
    // These two hold memory as soon as they exist.
    is_refused("slab", Slab::<u8>::builder().maximum(0).try_build().unwrap_err());
    let sealed = Sealed::<u32>::builder().maximum(0).try_build(|_| Ok::<_, AllocError>(7));
    is_refused("sealed", sealed.expect_err("it is refused"));
}

#[test]
fn a_maximum_behind_a_budget_is_a_child_of_it_and_both_limits_hold() {
    let budget = Budget::new(512 << 10);
    let check = |allocator: &str, allocate: Allocate<'_>| {
        let before = budget.used();
        let blocks = blocks_until_refused(allocator, allocate);
        assert!(blocks * 256 <= budget.limit(), "{allocator}: {blocks} blocks");
        assert!(budget.used() > before, "{allocator} charges the parent");
    };
    // One allocator at a time: each may use the whole budget.
    macro_rules! one {
        ($name:literal, $allocator:expr, $allocate:expr) => {{
            let allocator = $allocator;
            check($name, &mut || $allocate(&allocator));
            drop(allocator);
            assert_eq!(budget.used(), 0, "{} gives back what it charged", $name);
        }};
    }
    one!("arena", <Arena>::builder().budget(&budget).maximum(8 << 20).build(), |arena: &Arena| {
        arena.try_alloc([1u8; 256]).map(|_| ())
    });
    one!("reap", Reap::builder().budget(&budget).maximum(8 << 20).build(), |reap: &Reap| reap
        .try_alloc_layout(Layout::new::<Block>())
        .map(|_| ()));
    one!(
        "free list",
        FreeList::<Block>::builder().budget(&budget).maximum(8 << 20).build(),
        |list: &FreeList<Block>| list
            .try_alloc([1; 256])
            .map(core::mem::forget)
            .map_err(|(error, _)| error)
    );
}

#[test]
fn a_name_is_reported_by_each_allocator() {
    let check = |allocator: &str, allocate: Allocate<'_>| {
        allocate().unwrap();
        let report = allotment::report();
        let named = report.allocators.iter().filter(|entry| entry.name == "common options");
        assert!(named.count() > 0, "{allocator}");
    };
    with_each!(check, name("common options"));
}

#[test]
fn a_name_that_is_too_long_is_an_error_of_each_builder() {
    let name = "n".repeat(allotment::MAX_NAME_LEN + 1);
    let kinds = [
        <Arena>::builder().name(name.clone()).try_build().err(),
        FreeList::<Block>::builder().name(name.clone()).try_build().err(),
        Slab::<Block>::builder().name(name.clone()).try_build().err(),
        Reap::builder().name(name.clone()).try_build().err(),
        LocalPool::builder().name(name.clone()).try_build().err(),
        Sealed::<u32>::builder().name(name).try_build(|_| Ok::<_, AllocError>(1)).err(),
    ];
    for error in kinds {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::NameTooLong));
    }
}

#[test]
fn an_infallible_builder_panics_where_its_twin_returns_an_error() {
    let name = || "n".repeat(allotment::MAX_NAME_LEN + 1);
    let builds: [&dyn Fn(); 6] = [
        &|| drop(<Arena>::builder().name(name()).build()),
        &|| drop(FreeList::<Block>::builder().name(name()).build()),
        &|| drop(Slab::<Block>::builder().name(name()).build()),
        &|| drop(Reap::builder().name(name()).build()),
        &|| drop(LocalPool::builder().name(name()).build()),
        &|| drop(Sealed::<u32>::builder().name(name()).build(|_| 1)),
    ];
    for build in builds {
        assert_eq!(
            panic_message(build),
            "allotment: a name of 65 bytes is too long; use at most 64 bytes"
        );
    }
    let reserves: [&dyn Fn(); 4] = [
        &|| drop(<Arena>::builder().maximum(10).hint(1 << 20).build()),
        &|| drop(Slab::<Block>::builder().maximum(10).build()),
        &|| drop(Reap::builder().maximum(10).reserved(1 << 20).build()),
        &|| drop(LocalPool::builder().maximum(10).reserved(1 << 20).build()),
    ];
    for reserve in reserves {
        assert_over_budget(10, reserve);
    }
}

#[test]
fn huge_pages_are_the_same_as_the_source_that_asks_for_them() {
    let short = Reap::builder().huge_pages().build();
    let long = Reap::builder().source(Mmap::huge_pages()).build();
    for reap in [&short, &long] {
        reap.try_alloc_layout(Layout::new::<Block>()).unwrap();
    }
    assert_eq!(short.statistics().held_bytes, long.statistics().held_bytes);
    assert!(short.statistics().held_bytes >= 2 << 20);
}

#[test]
fn sealed_memory_has_a_maximum_too() {
    let refused = Sealed::<u32>::builder().maximum(16).try_build(|_| Ok::<_, AllocError>(7));
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::BudgetExceeded));
    let sealed = Sealed::<u32>::builder().maximum(1 << 20).build(|_| 7);
    assert_eq!(*sealed.get(), 7);
}
