//! The address arithmetic against sums in 128 bits: every pre- and postcondition asserted.
#![no_main]

#[path = "../../crates/allotment/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| support::layout_checks::check(bytes));
