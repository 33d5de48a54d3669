//! The files import downward: a folder imports only from the folders below it, and no files of a
//! folder import each other in a circle.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 5] = ["mimalloc", "service", "driver", "week", "bin"];

imports_go_downward!(ORDER, 25);
