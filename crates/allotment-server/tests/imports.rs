//! The server's files import downward.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 28] = [
    "panics",
    "current_server",
    "counts",
    "outcome",
    "ticket",
    "queue",
    "initialiser",
    "worker_memory",
    "read_only_shared",
    "context",
    "server_state",
    "submit",
    "handle",
    "start_error",
    "worker",
    "initialised",
    "running",
    "start",
    "stopped",
    "stop",
    "lock_error",
    "locked_numbers",
    "shared",
    "lock_all",
    "objects",
    "configuration",
    "object_factories",
    "arena_bytes",
];

imports_go_downward!(ORDER, 25);
