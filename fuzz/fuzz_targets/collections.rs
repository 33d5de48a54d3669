//! Vectors and strings with a budget that refuses, against the standard library's.
#![no_main]

#[path = "../../crates/allotment/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(
    init: support::collection_program::ignore_refusals(),
    |bytes: &[u8]| support::collection_program::run(bytes)
);
