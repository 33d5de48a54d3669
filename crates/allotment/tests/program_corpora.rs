//! Replays the corpora of the fuzz targets `small_arenas`, `collections` and `file_ranges`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

#[test]
fn saved_programs_on_small_arenas_share_no_memory() {
    support::corpus::replay("small_arenas", 300, 384, support::small_arena_program::run);
}

#[test]
fn saved_programs_on_collections_survive_every_refusal() {
    support::corpus::replay("collections", 300, 384, support::collection_program::run);
}

#[test]
fn saved_programs_on_a_file_keep_the_model() {
    support::corpus::replay("file_ranges", 300, 384, support::file_program::run);
}
