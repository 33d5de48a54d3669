//! The recorder's files import downward.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 21] = [
    "sys",
    "spin_lock",
    "tls",
    "clock",
    "generation",
    "seccomp",
    "number_table",
    "stream_keys",
    "trial",
    "unwind",
    "dynamic_symbols",
    "operator_new",
    "raw_file",
    "thread_state",
    "modules",
    "call_stack",
    "threads",
    "events",
    "trial_calls",
    "next_functions",
    "hooks",
];

imports_go_downward!(ORDER, 20);
