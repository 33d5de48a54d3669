//! Many small arenas that come and go: none shares memory with another.
#![no_main]

#[path = "../../crates/allotment/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| support::small_arena_program::run(bytes));
