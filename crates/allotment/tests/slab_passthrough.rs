//! `ALLOTMENT_PASSTHROUGH=1` for slabs: bulk calls, threads and boxes. The claims about every
//! allocator are in `claims_passthrough.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use allotment::{Budget, ErrorKind, RawSlab, Slab};
use support::child::{self, Child};
use support::slab::{self, free_all, layout, stamped};

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: impl Fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn bulk_calls_threads_and_boxes_work_as_in_other_modes() {
    passed_through("bulk_calls_threads_and_boxes_work_as_in_other_modes", || {
        let budget = Budget::new(100_000);
        let slab = RawSlab::builder(layout(100, 8)).budget(&budget).build();
        let objects = stamped(&slab, 300);
        slab.reserve(1000);
        slab.flush();
        assert_eq!(slab.trim(), 0);
        let statistics = slab::assert_exact(&slab, 300, Some(&budget));
        assert_eq!(statistics.chunks, 0);
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
