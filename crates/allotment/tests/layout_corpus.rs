//! Replays the corpus of the fuzz target `layout`.

#[path = "support/mod.rs"]
mod support;

#[test]
fn the_address_arithmetic_agrees_with_sums_in_128_bits() {
    support::corpus::replay("layout", 20_000, 96, support::layout_checks::check);
}
