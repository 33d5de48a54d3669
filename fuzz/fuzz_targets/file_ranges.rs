//! Blocks and ranges of pages of a file, against a model.
#![no_main]

#[path = "../../crates/allotment/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| support::file_program::run(bytes));
