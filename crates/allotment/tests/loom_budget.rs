//! Models of the budgets (`src/memory/budget.rs`), explored by loom; `.ci/loom` runs them.
#![cfg(loom)]

use allotment::Budget;
use allotment::for_loom::{Mutant, charge, credit};
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

fn within_caps(budgets: &[&Budget]) {
    for budget in budgets {
        assert!(budget.used() <= budget.limit(), "a limit was passed");
    }
}

fn nested_budgets_are_charged() {
    explore(3, || {
        let server = Budget::new(10);
        let left = server.child(8);
        let right = server.child(8);
        let gate = Arc::new(Gate::new());
        let threads: Vec<_> = [(left.clone(), 7), (right.clone(), 6)]
            .into_iter()
            .map(|(budget, bytes)| {
                let (server, gate) = (server.clone(), Arc::clone(&gate));
                thread::spawn(move || {
                    gate.pass();
                    let charged = charge(&budget, bytes).is_ok();
                    within_caps(&[&server, &budget]);
                    gate.pass();
                    if charged {
                        credit(&budget, bytes);
                    }
                    within_caps(&[&server, &budget]);
                })
            })
            .collect();
        within_caps(&[&server, &left, &right]);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((server.used(), left.used(), right.used()), (0, 0, 0));
    });
}

#[test]
fn nested_charges_never_pass_a_cap_and_leave_nothing() {
    nested_budgets_are_charged();
}

#[test]
#[should_panic(expected = "a limit was passed")]
fn a_budget_that_checks_first_and_adds_afterwards_exceeds_its_limit() {
    let _mutant = Mutant::new("charge: checked and added in two steps");
    nested_budgets_are_charged();
}

#[test]
fn of_two_charges_that_do_not_fit_together_at_most_one_is_made_and_it_is_made_everywhere() {
    explore(3, || {
        let server = Budget::new(10);
        let request = server.child(10);
        let gate = Arc::new(Gate::new());
        let (other, theirs) = (request.clone(), Arc::clone(&gate));
        let thread = thread::spawn(move || {
            theirs.pass();
            usize::from(charge(&other, 6).is_ok()) * 6
        });
        gate.pass();
        let mine = usize::from(charge(&server, 5).is_ok()) * 5;
        let theirs = thread.join().unwrap();
        assert!(mine + theirs <= 10 && mine + theirs > 0);
        assert_eq!((server.used(), request.used()), (mine + theirs, theirs));
    });
}
