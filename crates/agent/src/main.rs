//! A small metrics agent.

fn main() {}
