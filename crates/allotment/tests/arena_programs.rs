//! Random operation programs on every kind of arena, each step checked against a model of live
//! ranges.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.

#[path = "support/mod.rs"]
mod support;

use proptest::test_runner::{Config, TestError, TestRunner};
use support::program::run_fixed;
use support::setup::{Fixed, From};

/// Mappings, or else malloc.
#[cfg(system_memory)]
const MAPPED: From = From::Mmap;
#[cfg(not(system_memory))]
const MAPPED: From = From::Malloc;

fn programs<const M: usize>(from: From, hardened: bool, cases: u32) {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: given.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..400);
    let result = TestRunner::new(config).run(&bytes, |bytes| {
        run_fixed::<M>(Fixed { from, hardened }, &bytes);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => panic!("{reason}, smallest program: {bytes:?}"),
        Err(abort) => panic!("{abort}"),
    }
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_mappings() {
    programs::<1>(From::Mmap, false, 2500);
}
#[test]
fn programs_keep_the_model_with_a_minimum_alignment_of_8() {
    programs::<8>(MAPPED, false, 1300);
}
#[test]
fn programs_keep_the_model_with_a_minimum_alignment_of_16() {
    programs::<16>(From::Refusing, false, 700);
}
#[test]
fn programs_keep_the_model_on_malloc() {
    programs::<1>(From::Malloc, false, 1000);
}
#[test]
fn programs_keep_the_model_on_a_source_that_refuses() {
    programs::<1>(From::Refusing, false, 2000);
}
#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_a_file() {
    programs::<1>(From::File, false, 300);
}
#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_huge_pages() {
    programs::<1>(From::HugePages, false, 200);
}
#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_hardened() {
    programs::<1>(From::Mmap, true, 600);
}
#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_hardened_on_a_source_that_refuses() {
    programs::<8>(From::Refusing, true, 300);
}
#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_hardened_on_malloc() {
    programs::<16>(From::Malloc, true, 100);
}
