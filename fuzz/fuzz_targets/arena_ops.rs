//! Operation programs on an arena of any kind, each step checked against a model of live ranges.
#![no_main]

#[path = "../../crates/allotment/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| support::program::run(bytes));
