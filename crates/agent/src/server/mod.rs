//! The agent's side of HTTP: connections and their limits, requests and what answers them.

pub mod agent;
pub mod agent_objects;
pub mod allocator_table;
pub mod connections;
pub mod handler;
pub mod http_server;
pub mod open_files;
pub mod problem;
pub mod prometheus;
pub mod reply;
pub mod stream;
pub mod worker_application;
