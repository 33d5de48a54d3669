//! What a recording says about the program that was recorded.

pub mod findings;
