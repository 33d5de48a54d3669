//! The files of the recording format import downward.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 10] = [
    "version",
    "error",
    "raw",
    "container",
    "modules",
    "stacks",
    "process",
    "stream",
    "merge",
    "reader",
];

imports_go_downward!(ORDER, 15);
