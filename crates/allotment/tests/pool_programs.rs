//! Random operation programs on pools: blocks neither overlap nor change, whichever thread frees
//! them, statistics are exact after every call, and a refused call changes nothing.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use support::child::{self, Child};
use support::pool_program::{ProgramTarget, programs, run};

#[test]
fn programs_keep_the_model() {
    programs(500, |bytes| run(ProgramTarget::Pool, false, bytes));
}

#[test]
fn programs_keep_the_model_hardened() {
    programs(200, |bytes| run(ProgramTarget::Pool, true, bytes));
}

#[test]
fn programs_keep_the_model_passed_through_to_malloc() {
    let test = "programs_keep_the_model_passed_through_to_malloc";
    if child::is(test) {
        return programs(100, |bytes| run(ProgramTarget::Pool, false, bytes));
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}
