//! The agent's side of HTTP: connections and their limits, requests and what answers them.

pub mod agent;
pub mod allocators;
pub mod application;
pub mod connections;
pub mod files;
pub mod front;
pub mod handler;
pub mod objects;
pub mod problem;
pub mod prometheus;
pub mod reply;
pub mod stream;
