//! `ALLOTMENT_PASSTHROUGH=1`: every object of a slab is a separate malloc block, and the
//! allocator's guarantees still hold. Random programs are in `slab_programs.rs`.

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;

use allotment::{Budget, ErrorKind, RawSlab, Slab};
use support::child::{self, Child};
use support::slab::{self, free_all, layout, stamped};

type Misuse = fn(&RawSlab);

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: impl Fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn each_object_is_a_block_of_malloc() {
    passed_through("each_object_is_a_block_of_malloc", || {
        let budget = Budget::new(100_000);
        let slab = RawSlab::builder(layout(100, 8)).budget(&budget).name("through").build();
        let objects = stamped(&slab, 300);
        for object in &objects {
            // SAFETY: live blocks of malloc, if the claim holds.
            let usable = unsafe { libc::malloc_usable_size(object.start.as_ptr().cast()) };
            assert!((100..200).contains(&usable), "{usable}");
        }
        let statistics = slab::assert_exact(&slab, 300, Some(&budget));
        assert_eq!((statistics.chunks, statistics.free_bytes, statistics.wasted_bytes), (0, 0, 0));
        let reported = allotment::report().allocators;
        assert_eq!(reported[0].statistics, statistics);
        slab.reserve(1000);
        slab.flush();
        assert_eq!(slab.trim(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| free_all(&slab, objects)).join().unwrap();
        });
        slab::assert_empties(&slab);
        let mut more = Vec::new();
        let error = loop {
            match slab.try_alloc() {
                Ok(slot) => more.push(slot),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        slab::assert_exact(&slab, more.len(), Some(&budget));
        // SAFETY: allocated above, each freed once.
        unsafe { slab.free_many(&more) };
        drop(slab);
        assert_eq!(budget.used(), 0);
        let slab = Slab::<String>::builder().budget(&budget).build();
        let boxes: Vec<_> = (0..100).map(|number| slab.alloc(number.to_string())).collect();
        drop(slab);
        assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == number.to_string()));
        drop(boxes);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_double_free_and_a_foreign_pointer_are_stopped_too() {
    let test = "a_double_free_and_a_foreign_pointer_are_stopped_too";
    let cases: [(&str, Misuse); 2] = [
        ("double", |slab| {
            let object = slab.alloc();
            // SAFETY: none: this is the misuse.
            unsafe {
                slab.free(object);
                slab.free(object);
            }
        }),
        ("foreign", |slab| {
            let foreign = NonNull::from(Box::leak(Box::new(7u64)));
            // SAFETY: none: this is the misuse.
            unsafe { slab.free(foreign.cast()) };
        }),
    ];
    for (case, misuse) in cases {
        if child::is(case) {
            misuse(&RawSlab::builder(layout(24, 8)).name("victim").build());
            panic!("the misuse was not detected");
        }
    }
    if !child::is_any() {
        for (case, _) in cases {
            let stderr = Child::new(test, case).env("ALLOTMENT_PASSTHROUGH", "1").aborts();
            assert!(stderr.contains("allotment: slab 'victim': "), "{case}: {stderr}");
        }
    }
}
