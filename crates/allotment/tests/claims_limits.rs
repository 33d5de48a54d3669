//! Limits, claimed of every allocator: a request that can't be met is a typed error or a panic,
//! changes nothing, and the allocator goes on. Bad input to calls of one allocator is in
//! `arena_bad_input.rs`, `free_list_bad_input.rs` and `slab_bad_input.rs`, what is particular to a
//! slab's limits in `slab_limits.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use allotment::{AllocError, Budget, ErrorKind, File, MAX_NAME_LEN};
use support::child::{self, Child};
use support::slab::{Object, assert_apart, layout};
use support::sources::Limiting;
use support::subject::{
    Figures, Limited, Options, Sourced, Subject, assert_over_budget, assert_too_much, claims,
    panic_message,
};

claims! {
    every:
        an_alignment_is_met_or_refused,
        a_size_that_no_machine_has_is_refused;
    limited:
        objects_of_every_alignment_are_counted_on_every_source,
        a_budget_is_never_passed_and_a_refusal_changes_nothing,
        a_name_of_the_documented_length_is_kept_and_a_longer_one_is_refused,
        an_infallible_call_over_the_budget_panics_and_changes_nothing,
        a_tenant_over_its_limit_ends_its_request_and_no_other,
        an_infallible_call_without_memory_prints_the_cause_and_aborts,
        a_low_limit_of_addresses_is_a_typed_error;
    sourced:
        a_limit_on_files_panics_and_the_allocator_goes_on,
        a_limit_of_the_source_panics_and_changes_nothing,
        a_source_without_memory_ends_the_process;
}

/// Allocates objects of a layout and frees them again; checks that they are aligned and apart.
fn round_trip<S: Subject>(subject: &mut S, layout: Layout, count: usize) {
    let objects = subject.stamped(layout, count);
    if layout.size() > 0 || S::ZERO_SIZES_APART {
        assert_apart(&objects);
    }
    subject.free_all(layout, objects);
    subject.recycle();
    subject.trim();
}

fn an_alignment_is_met_or_refused<S: Subject>(_: &str) {
    for &hardened in S::MODES {
        for bits in 0..=22 {
            for size in [0, 1, 9000] {
                let options = Options::of(layout(size, 1 << bits)).hardened(hardened);
                // Nine of the largest are more than a thread's cache can hold.
                let count = if bits < 12 { 100 } else { 9 };
                round_trip(&mut S::create(&options), options.layout, count);
            }
        }
        for bits in 40..=62 {
            let options = Options::of(layout(1, 1 << bits)).hardened(hardened);
            let made = S::try_create(&options);
            let error = made.and_then(|subject| subject.try_alloc(options.layout)).err();
            assert_too_much(error.expect("terabytes"), options);
        }
    }
}

fn a_size_that_no_machine_has_is_refused<S: Subject>(_: &str) {
    const MOST: usize = isize::MAX as usize;
    let powers = (43..=63).flat_map(|bits| [(1usize << bits) - 4096, (1 << bits) - 8]);
    let layouts: Vec<_> = powers
        .map(|size| layout(size, 8))
        .chain([layout(MOST, 1), layout(MOST - (2 << 20), 2 << 20)])
        .collect();
    for &hardened in S::MODES {
        let mut one_for_all =
            S::ANY_LAYOUT.then(|| S::create(&Options::of(layouts[0]).hardened(hardened)));
        for &layout in &layouts {
            let refused = match &mut one_for_all {
                Some(subject) => {
                    let error = subject.try_alloc(layout).expect_err("terabytes");
                    // It goes on.
                    round_trip(subject, Options::of_size(24).layout, 3);
                    error
                }
                None => match S::try_create(&Options::of(layout).hardened(hardened)) {
                    Ok(subject) => {
                        let first = subject.try_alloc(layout).expect_err("terabytes");
                        assert_eq!(subject.try_alloc(layout).expect_err("and again"), first);
                        subject.trim();
                        first
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::SizeOverflow, "{error}");
                        error
                    }
                },
            };
            assert_too_much(refused, layout);
        }
    }
}

fn objects_of_every_alignment_are_counted_on_every_source<S: Limited>(_: &str) {
    for source in S::sources() {
        for &hardened in S::MODES {
            let create = |layout| {
                let options = Options::of(layout).hardened(hardened);
                S::create(&Options { source: source.clone(), ..options })
            };
            // One for all layouts, whose objects are live together, or one for each.
            let mut for_all = S::ANY_LAYOUT.then(|| create(Options::of_size(1).layout));
            let mut live = Vec::new();
            let mut counted = 0;
            let down = if S::ANY_LAYOUT { 0..=21 } else { 0..=0 };
            for bits in (0..=21).chain(down.rev()) {
                for size in [0, 1, 100, 5000] {
                    let layout = layout(size, 1 << bits);
                    let mut for_one = (!S::ANY_LAYOUT).then(|| create(layout));
                    let subject = for_all.as_mut().or(for_one.as_mut()).expect("one of them");
                    let count = if bits < 12 { 20 } else { 3 };
                    let objects = subject.stamped(layout, count);
                    counted += if size > 0 || S::COUNTS_ZERO_SIZES { count } else { 0 };
                    assert_eq!(subject.figures().live_objects, counted, "{source:?} {layout:?}");
                    live.extend(objects.into_iter().map(|object| (layout, object)));
                    if let Some(subject) = &mut for_one {
                        free_counted(subject, &mut live);
                        counted = 0;
                    }
                }
            }
            if let Some(subject) = &mut for_all {
                free_counted(subject, &mut live);
            }
        }
    }
}

/// Frees all live objects, and checks that nothing is left.
fn free_counted<S: Limited>(subject: &mut S, live: &mut Vec<(Layout, Object)>) {
    let objects = live.iter().map(|(_, object)| object);
    assert_apart(
        objects.filter(|object| S::ZERO_SIZES_APART || object.range().0 < object.range().1),
    );
    live.drain(..).for_each(|(layout, object)| subject.free_all(layout, [object]));
    assert_eq!(subject.figures().live_objects, 0);
    subject.recycle();
    subject.trim();
    let figures = subject.figures();
    assert!(!S::EMPTIES || figures.held_bytes == figures.structure_bytes, "{figures:?}");
}

/// Asserts that the budget is charged what is held.
fn assert_charged<S: Limited>(subject: &S, budget: &Budget, live: usize) -> Figures {
    let figures = subject.figures();
    assert_eq!(figures.live_objects, live);
    assert_eq!(figures.held_bytes, budget.used(), "the budget is exact");
    assert!(budget.used() <= budget.limit());
    figures
}

/// Allocates until an allocation is refused. The refusal changes nothing.
fn fill<S: Limited>(subject: &S, options: &Options, budget: &Budget) -> (Vec<Object>, AllocError) {
    let mut objects = Vec::new();
    loop {
        match subject.try_stamped(options.layout, objects.len() as u64) {
            Ok(object) => objects.push(object),
            Err(error) => {
                let before = assert_charged(subject, budget, objects.len());
                let again = subject.try_alloc(options.layout).map(|_| ()).unwrap_err();
                assert_eq!(again.kind(), error.kind(), "and again");
                assert_eq!(assert_charged(subject, budget, objects.len()), before);
                assert_apart(&objects);
                return (objects, error);
            }
        }
    }
}

fn a_budget_is_never_passed_and_a_refusal_changes_nothing<S: Limited>(_: &str) {
    for &hardened in S::MODES {
        for cap in [0, 1, 1000, 3000, 5000, 10_000, 33_333, 100_000, 200_000, 1 << 20] {
            let budget = Budget::new(cap);
            let options = Options::of_size(64).budget(&budget).hardened(hardened);
            let mut subject = match S::try_create(&options) {
                Ok(subject) => subject,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
                    assert_eq!(budget.used(), 0, "no room for the allocator itself");
                    assert!(cap < 5000, "an allocator takes little");
                    continue;
                }
            };
            let mut most = 0;
            for round in 0..3 {
                let (mut objects, error) = fill(&subject, &options, &budget);
                assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
                assert!(cap < 1 << 20 || budget.used() > cap / 2, "{} of {cap}", budget.used());
                assert!(cap >= 64 || objects.is_empty());
                // A slab may have pages of other sizes by this time, with another waste at their
                // ends.
                assert!(objects.len() >= most - most / 8, "{} after {most}", objects.len());
                most = objects.len();
                if let (true, Some(last)) = (S::REUSES, objects.pop()) {
                    // Each free makes room for one object.
                    subject.free_all(options.layout, [last]);
                    let one = subject.try_stamped(options.layout, 1 << 40);
                    objects.push(one.expect("there is room for one"));
                    assert_charged(&subject, &budget, most);
                }
                subject.free_all(options.layout, objects);
                subject.recycle();
                assert_charged(&subject, &budget, 0);
                if round == 1 {
                    subject.trim();
                }
            }
            drop(subject);
            assert_eq!(budget.used(), 0);
        }
    }
}

fn a_name_of_the_documented_length_is_kept_and_a_longer_one_is_refused<S: Limited>(test: &str) {
    let budget = Budget::new(1 << 20);
    // Its own among the names of this process.
    let longest = test[test.len() - MAX_NAME_LEN..].to_owned();
    let named = |name: &str| Options::of_size(8).name(name).budget(&budget);
    let subject = S::create(&named(&longest));
    let objects = subject.stamped(Options::of_size(8).layout, 1);
    let reported = || {
        let report = allotment::report();
        report.allocators.iter().filter(|one| one.name == longest).count()
    };
    assert_eq!(reported(), 1);
    subject.free_all(Options::of_size(8).layout, objects);
    drop(subject);
    assert_eq!(reported(), 0);
    let error = S::try_create(&named(&(longest + "n"))).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.requested()), (ErrorKind::NameTooLong, MAX_NAME_LEN + 1));
    assert_eq!(budget.used(), 0);
    drop(S::create(&named("")));
}

/// Objects of one allocator, which are freed when this is dropped, also by a panic.
struct Live<'s, S: Limited> {
    subject: &'s S,
    layout: Layout,
    objects: Vec<NonNull<u8>>,
}

impl<'s, S: Limited> Live<'s, S> {
    fn new(subject: &'s S, layout: Layout) -> Self {
        Self { subject, layout, objects: Vec::new() }
    }

    /// Allocates this number of objects by the infallible call.
    fn alloc(&mut self, count: usize) {
        (0..count).for_each(|_| self.objects.push(self.subject.alloc(self.layout)));
    }
}

impl<S: Limited> Drop for Live<'_, S> {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc`, each freed once.
        self.objects.drain(..).for_each(|object| unsafe { self.subject.free(object, self.layout) });
    }
}

fn an_infallible_call_over_the_budget_panics_and_changes_nothing<S: Limited>(_: &str) {
    const LIMIT: usize = 200_000;
    for &hardened in S::MODES {
        let budget = Budget::new(LIMIT);
        let options = Options::of_size(8).budget(&budget).hardened(hardened);
        let mut subject = S::create(&options);
        for _ in 0..3 {
            let mut live = Live::new(&subject, options.layout);
            assert_over_budget(LIMIT, || live.alloc(usize::MAX));
            let before = assert_charged(&subject, &budget, live.objects.len());
            assert_over_budget(LIMIT, || live.alloc(1));
            assert_eq!(assert_charged(&subject, &budget, live.objects.len()), before, "and again");
            drop(live);
            subject.recycle();
            assert_charged(&subject, &budget, 0);
        }
        round_trip(&mut subject, options.layout, 3);
    }
}

/// The threads of a server serve many tenants. One tenant of each thread asks for too much again
/// and again: its request panics, those of the other tenants don't, and the same tenant is served
/// as soon as it asks for less.
fn a_tenant_over_its_limit_ends_its_request_and_no_other<S: Limited>(_: &str) {
    const LIMIT: usize = 200_000;
    let server = Budget::new(64 * LIMIT);
    let layout = layout(64, 8);
    let request = |tenant: &Budget, count: usize| {
        let subject = S::create(&Options::of(layout).budget(tenant));
        Live::new(&subject, layout).alloc(count);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (server, request) = (&server, &request);
            scope.spawn(move || {
                let tenants: Vec<_> = (0..8).map(|_| server.child(LIMIT)).collect();
                for _ in 0..4 {
                    for (number, tenant) in tenants.iter().enumerate() {
                        if number == 3 {
                            assert_over_budget(LIMIT, || request(tenant, usize::MAX));
                        }
                        request(tenant, 10);
                        assert_eq!(tenant.used(), 0);
                    }
                }
            });
        }
    });
    assert_eq!(server.used(), 0);
}

/// All pools share one range of addresses. If that is full, the process has other memory.
fn an_infallible_call_without_memory_prints_the_cause_and_aborts<S: Limited>(test: &str) {
    if child::is(test) {
        let options = Options::of_size(16_000);
        let subject = S::create(&options);
        let mut live = Live::new(&subject, options.layout);
        live.objects.reserve(100_000);
        if S::SHARES_A_RANGE {
            let message = panic_message(|| live.alloc(100_000));
            assert!(message.contains("a fixed limit is reached"), "{message}");
            live.objects.drain(1000..).for_each(|object| {
                // SAFETY: allocated by `alloc`, and taken off the list.
                unsafe { subject.free(object, options.layout) };
            });
            return live.alloc(1000);
        }
        live.alloc(100_000);
        unreachable!("there are fewer addresses");
    }
    if S::SHARES_A_RANGE {
        Child::new(test, test).limit_addresses(400 << 20).succeeds();
        return;
    }
    let stderr = Child::new(test, test).limit_addresses(400 << 20).aborts();
    let line = stderr.lines().find(|line| line.starts_with("allotment: "));
    let cause = line.unwrap_or_else(|| panic!("{stderr}"));
    assert!(cause.contains("the system refused") || cause.contains("could not supply"), "{cause}");
}

/// Allocates by infallible calls until one panics, three times over, and frees the objects.
fn refused_again_and_again<S: Sourced>(subject: &mut S, layout: Layout, cause: &str) {
    for _ in 0..3 {
        let mut live = Live::new(subject, layout);
        let message = panic_message(|| live.alloc(usize::MAX));
        assert!(message.starts_with("allotment: ") && message.contains(cause), "{message}");
        assert!(!live.objects.is_empty());
        let before = subject.figures();
        assert_eq!(before.live_objects, live.objects.len());
        panic_message(|| live.alloc(1));
        assert_eq!(subject.figures(), before, "a refusal changes nothing");
        drop(live);
        assert_eq!(subject.figures().live_objects, 0);
        subject.recycle();
    }
}

/// The limit holds for each file, and the kernel's signal (SIGXFSZ) does not end the process.
fn a_limit_on_files_panics_and_the_allocator_goes_on<S: Sourced>(test: &str) {
    if !child::is(test) {
        Child::new(test, test).limit_files(1 << 20).succeeds();
        return;
    }
    for &hardened in S::MODES {
        let file = File::in_directory(&std::env::temp_dir()).expect("a file can be made");
        let options = Options::of_size(1000).source(file.into()).hardened(hardened);
        let mut subject = S::create(&options);
        refused_again_and_again(&mut subject, options.layout, "(ulimit -f)");
        round_trip(&mut subject, options.layout, 3);
    }
}

fn a_limit_of_the_source_panics_and_changes_nothing<S: Sourced>(_: &str) {
    for (error, cause) in [
        (ErrorKind::BudgetExceeded, "the budget has left"),
        (ErrorKind::LimitReached, "a fixed limit is reached"),
        (ErrorKind::System(libc::ENOSPC), "the file's disk"),
        (ErrorKind::System(libc::EDQUOT), "the disk quota"),
        (ErrorKind::System(libc::EPERM), "the system refused"),
        (ErrorKind::ForkedChild, "forked"),
    ] {
        for &hardened in S::MODES {
            let source = Limiting::new(300_000, error);
            let options =
                Options::of_size(1000).source(Arc::clone(&source).into()).hardened(hardened);
            let mut subject = S::create(&options);
            refused_again_and_again(&mut subject, options.layout, cause);
            source.raise();
            round_trip(&mut subject, options.layout, 1000);
        }
    }
}

fn a_source_without_memory_ends_the_process<S: Sourced>(test: &str) {
    let lacks = [
        (ErrorKind::SourceRefused, "could not supply"),
        (ErrorKind::System(libc::ENOMEM), "the system refused"),
        (ErrorKind::System(libc::EAGAIN), "the system refused"),
    ];
    for (number, (error, cause)) in lacks.into_iter().enumerate() {
        let case = format!("{test} {number}");
        if child::is(&case) {
            let source = Limiting::new(300_000, error);
            let options = Options::of_size(1000).source(source.into());
            Live::new(&S::create(&options), options.layout).alloc(usize::MAX);
        } else if !child::is_any() {
            let stderr = Child::new(test, &case).aborts();
            assert!(stderr.contains(cause), "{stderr}");
        }
    }
}

fn a_low_limit_of_addresses_is_a_typed_error<S: Limited>(test: &str) {
    let layout = layout(16_000, 8);
    for (number, source) in S::sources().into_iter().enumerate() {
        for &hardened in S::MODES {
            // Hardened mode fills all memory, which takes its time.
            if hardened && source.is_some() {
                continue;
            }
            let case = format!("{test} {number} {hardened}");
            if !child::is_any() {
                Child::new(test, &case).limit_addresses(400 << 20).succeeds();
            }
            if !child::is(&case) {
                continue;
            }
            let mut slots = Vec::with_capacity(20_000);
            let options = Options::of(layout).hardened(hardened);
            let options = Options { source: source.clone(), ..options };
            let mut subject = S::create(&options);
            let error = loop {
                match subject.try_alloc(layout) {
                    Ok(slot) => slots.push(slot),
                    Err(error) => break error,
                }
            };
            assert_too_much(error, &options);
            assert!(slots.len() > 2000, "{} objects of 16 KB: {options:?}", slots.len());
            assert_eq!(subject.figures().live_objects, slots.len());
            assert!(subject.try_alloc(layout).is_err());
            // SAFETY: allocated above, each freed once.
            slots.drain(..).for_each(|slot| unsafe { subject.free(slot, layout) });
            subject.recycle();
            subject.trim();
            slots.extend((0..2000).map(|_| subject.alloc(layout)));
            // SAFETY: as above.
            slots.drain(..).for_each(|slot| unsafe { subject.free(slot, layout) });
            round_trip(&mut subject, layout, 10);
        }
    }
}
