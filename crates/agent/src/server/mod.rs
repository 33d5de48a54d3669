//! The agent's HTTP interface: connections and their limits, requests and their answers.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `request_error`, `reply` | why a request is refused; a reply before it is HTTP |
//! | `open_files` | the limit on open files |
//! | `connections` | the open connections, and which is closed for a new one |
//! | `stream` | a connection's socket |
//! | `http_server` | accepts connections, and passes requests to the application |
//! | `agent_objects` | what all workers share |
//! | `worker_application` | passes requests from the HTTP server to the workers |
//! | `allocator_table`, `prometheus` | what each allocator holds; `/metrics` |
//! | `handler` | answers a request on a worker |
//! | `agent` | the agent's life, from start to end |

pub mod agent;
pub mod agent_objects;
pub mod allocator_table;
pub mod connections;
pub mod handler;
pub mod http_server;
pub mod open_files;
pub mod prometheus;
pub mod reply;
pub mod request_error;
pub mod stream;
pub mod worker_application;
