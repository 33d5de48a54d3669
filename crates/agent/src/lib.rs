//! A small metrics agent, in which every allocator does the work that it was made for.
//!
//! It collects this machine's counters every second into three tiers of buffers, and answers queries over HTTP.

mod buffer_node;
pub mod cli;
pub mod clock;
pub mod collect;
pub mod configuration;
pub mod load;
pub mod log;
pub mod memory;
pub mod page;
pub mod query;
pub mod server;
pub mod sessions;
pub mod store;
pub mod tier;
