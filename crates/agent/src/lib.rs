//! A small metrics agent: the example application of Allotment, in which the allocators do the
//! work that they are designed for.
//!
//! It collects this machine's counters every second into three tiers of buffers, and answers
//! queries over HTTP.
//!
//! | module, lowest first | contents |
//! |---|---|
//! | `buffer_node`, `tier` | the sizes of points and buffers, by resolution |
//! | `memory` | where the agent's memory comes from: the library's allocators, or malloc |
//! | `store` | the metrics: contexts, charts, dimensions, points |
//! | `clock` | the machine's clock, or a simulated one |
//! | `log` | the log file |
//! | `collect` | the thread that collects this machine's counters and computed metrics |
//! | `cli` | the command line, and the file of options |
//! | `sessions`, `configuration` | what the workers share besides the store |
//! | `page`, `query` | the page at `/`, and the answers to queries |
//! | `server` | HTTP, the workers, and the agent's life from start to end |
//! | `load` | a load generator, and the comparison of two agents |

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
