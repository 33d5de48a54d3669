//! Replays the corpus of the fuzz target `arena_ops`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

#[test]
fn saved_operation_programs_keep_the_model() {
    support::corpus::replay("arena_ops", 500, 384, support::program::run);
}
