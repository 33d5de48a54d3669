//! What is collected each second, and the thread that does it.

pub mod synthetic;
