//! The agent's side of HTTP: connections and their limits, requests and what answers them.

pub mod connections;
pub mod files;
pub mod front;
pub mod problem;
pub mod reply;
pub mod stream;
