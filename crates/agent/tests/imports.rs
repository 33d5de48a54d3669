//! The agent's files import downward: a folder imports only from the folders below it, and no files
//! of a folder import each other in a circle.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 14] = [
    "buffer_node",
    "tier",
    "memory",
    "store",
    "clock",
    "log",
    "collect",
    "cli",
    "sessions",
    "configuration",
    "page",
    "query",
    "server",
    "load",
];

imports_go_downward!(ORDER, 40);
