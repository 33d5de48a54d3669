//! The files of the C interface import downward.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The files, lowest first. Each imports only from those before it.
const ORDER: [&str; 27] = [
    "version",
    "struct_numbers",
    "layouts",
    "handle_kind",
    "error",
    "handle_table",
    "handle_record",
    "handle",
    "calls",
    "budget",
    "source",
    "options",
    "statistics",
    "report",
    "recycler",
    "sized_blocks",
    "blocks",
    "arena",
    "free_list",
    "sealed",
    "slab",
    "slab_handle",
    "reap",
    "pool_ref",
    "malloc",
    "pool",
    "header_numbers",
];

imports_go_downward!(ORDER, 20);
