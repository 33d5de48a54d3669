//! The table of workloads.

use crate::workloads::boxes::Handover;
use crate::workloads::collections::CollectionKind;
use crate::workloads::fixed_size::{Boundary, Shape};
use crate::workloads::kind::{
    Client, Container, FileSearch, InlineLoop, Objects, QUERY_ALLOC, WorkloadKind,
};
use crate::workloads::trees::many;
use crate::workloads::workload::Workload;

/// Trees of 2^`exponent` nodes, built and modified.
macro_rules! tree {
    ($exponent:literal) => {
        Workload {
            name: concat!("tree-", $exponent),
            meaning: concat!(
                "a search tree of up to 2^",
                $exponent,
                " nodes of 32 B: built, modified, freed"
            ),
            unit: "operation",
            kind: WorkloadKind::FixedSize(Shape::Tree { exponent: $exponent }),
        }
    };
}

/// Trees of 2^`exponent` nodes, walked.
macro_rules! tree_copy {
    ($exponent:literal) => {
        Workload {
            name: concat!("tree-copy-", $exponent),
            meaning: concat!(
                "search trees of 2^",
                $exponent,
                " nodes of 32 B, 2^20 in all, laid out and walked"
            ),
            unit: "node",
            kind: WorkloadKind::TreeCopy { exponent: $exponent },
        }
    };
}

/// Requests with a cache of `entries` entries.
macro_rules! pool_request {
    ($entries:literal, $name:literal, $meaning:literal) => {
        Workload {
            name: $name,
            meaning: $meaning,
            unit: "request",
            kind: WorkloadKind::RequestsWithCache { entries: $entries },
        }
    };
}

pub(super) static CATALOGUE: [Workload; 65] = [
    Workload {
        name: "query",
        meaning: "a context query over 1000 charts x 100 dimensions: build, group, render, free",
        unit: "dimension",
        kind: WorkloadKind::Query,
    },
    Workload {
        name: "query-alloc",
        meaning: "only the objects of a query: 100,000 x (192, 24, 40, 64 B), every byte written",
        unit: "object",
        kind: WorkloadKind::Objects(QUERY_ALLOC),
    },
    Workload {
        name: "query-alloc-cold",
        meaning: "the same, in each thread's first query: the first touch of memory",
        unit: "object",
        kind: WorkloadKind::Objects(Objects { cold: true, ..QUERY_ALLOC }),
    },
    Workload {
        name: "query-small",
        meaning: "query-alloc for a small query: 100 x (192, 24, 40, 64 B)",
        unit: "object",
        kind: WorkloadKind::Objects(Objects { dimensions: 100, ..QUERY_ALLOC }),
    },
    Workload {
        name: "typed",
        meaning: "query-alloc with structures: 100,000 x four, by each allocator's everyday call",
        unit: "object",
        kind: WorkloadKind::Objects(Objects { structures: true, ..QUERY_ALLOC }),
    },
    Workload {
        name: "typed-small",
        meaning: "the same for a small query: 100 x four structures",
        unit: "object",
        kind: WorkloadKind::Objects(Objects { dimensions: 100, structures: true, cold: false }),
    },
    Workload {
        name: "arena-vec",
        meaning: "1,000,000 numbers of 8 B are pushed to the allocator's own vector, one by one",
        unit: "number",
        kind: WorkloadKind::Collections(CollectionKind::Vector),
    },
    Workload {
        name: "arena-format",
        meaning: "100,000 strings of 6 to 24 B are formatted by the allocator's own macro",
        unit: "string",
        kind: WorkloadKind::Collections(CollectionKind::Strings),
    },
    Workload {
        name: "scope-free-1000",
        meaning: "1,000 objects of 16 B are freed one by one in an arena's scope, 10,000 times",
        unit: "free",
        kind: WorkloadKind::FreeInScope { objects: 1_000 },
    },
    Workload {
        name: "scope-free-10000000",
        meaning: "10,000,000 objects of 16 B are freed one by one in an arena's scope",
        unit: "free",
        kind: WorkloadKind::FreeInScope { objects: 10_000_000 },
    },
    Workload {
        name: "grow",
        meaning: "a reply that grows to 1 MiB in pieces of 1 to 64 B and is then dropped",
        unit: "byte",
        kind: WorkloadKind::Grow,
    },
    Workload {
        name: "pair",
        meaning: "a 64 B object is allocated and freed at once; each thread holds 10,000 others",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Pair),
    },
    Workload {
        name: "lifo",
        meaning: "each thread allocates 10,000 objects of 64 B, then frees them from last to first",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Lifo),
    },
    Workload {
        name: "fifo",
        meaning: "each thread allocates 10,000 objects of 64 B, then frees them from first to last",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Fifo),
    },
    Workload {
        name: "random",
        meaning: "each thread holds 10,000 objects of 64 B; a random one is freed and replaced",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Random),
    },
    Workload {
        name: "exchange-1000",
        meaning: "one thread allocates objects of 64 B, another frees them, 1000 at a time",
        unit: "object",
        kind: WorkloadKind::FixedSize(Shape::Exchange { batch: 1000 }),
    },
    Workload {
        name: "exchange-1",
        meaning: "one thread allocates objects of 64 B, another frees them, one at a time",
        unit: "object",
        kind: WorkloadKind::FixedSize(Shape::Exchange { batch: 1 }),
    },
    Workload {
        name: "channel",
        meaning: "one thread makes boxes of 64 B, another drops them behind a bounded channel",
        unit: "box",
        kind: WorkloadKind::Boxes(Handover::Channel),
    },
    Workload {
        name: "xmalloc",
        meaning: "each thread makes batches of 100 to 200 boxes of 64 B and drops those of others",
        unit: "box",
        kind: WorkloadKind::Boxes(Handover::Batches),
    },
    Workload {
        name: "stress",
        meaning: "the array allocator's stress test: each thread replaces parts of 10,000 x 64 B",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Stress),
    },
    Workload {
        name: "burst-alloc",
        meaning: "each thread allocates 1,000,000 objects of 64 B at once, as it has done before",
        unit: "object",
        kind: WorkloadKind::FixedSize(Shape::BurstAlloc { cold: false }),
    },
    Workload {
        name: "burst-alloc-cold",
        meaning: "the same for the first time: the first touch of memory",
        unit: "object",
        kind: WorkloadKind::FixedSize(Shape::BurstAlloc { cold: true }),
    },
    Workload {
        name: "burst-free",
        meaning: "each thread frees 1,000,000 objects of 64 B in random order",
        unit: "object",
        kind: WorkloadKind::FixedSize(Shape::BurstFree),
    },
    Workload {
        name: "churn",
        meaning: "each thread frees 90 % of 1,000,000 x 64 B, then replaces the rest at random",
        unit: "pair",
        kind: WorkloadKind::FixedSize(Shape::Churn),
    },
    Workload {
        name: "tiers-cold",
        meaning: "the end of an hour: each of 1,000,000 metrics needs buffers of 2048 B and 384 B",
        unit: "buffer",
        kind: WorkloadKind::FixedSize(Shape::Tiers(Boundary::Cold)),
    },
    Workload {
        name: "tiers-reserved",
        meaning: "the same, with memory reserved one second earlier if the allocator can",
        unit: "buffer",
        kind: WorkloadKind::FixedSize(Shape::Tiers(Boundary::Reserved)),
    },
    Workload {
        name: "tiers-steady",
        meaning: "the same at the end of the next hour, after the buffers of the first were freed",
        unit: "buffer",
        kind: WorkloadKind::FixedSize(Shape::Tiers(Boundary::Steady)),
    },
    tree!(8),
    tree!(10),
    tree!(12),
    tree!(14),
    tree!(16),
    tree!(18),
    tree!(20),
    tree_copy!(8),
    tree_copy!(10),
    tree_copy!(12),
    tree_copy!(14),
    tree_copy!(16),
    tree_copy!(18),
    tree_copy!(20),
    Workload {
        name: "many-trees-each",
        meaning: "4096 trees of 256 nodes: each built and pruned before the next, then all rebuilt",
        unit: "operation",
        kind: WorkloadKind::FixedSize(Shape::ManyTrees(many::PruneOrder::Each)),
    },
    Workload {
        name: "many-trees-all",
        meaning: "4096 trees of 256 nodes: all built, then all pruned, then all rebuilt",
        unit: "operation",
        kind: WorkloadKind::FixedSize(Shape::ManyTrees(many::PruneOrder::All)),
    },
    Workload {
        name: "mixed",
        meaning: "each thread holds 10,000 objects of 16 to 1024 B; a random one is replaced",
        unit: "pair",
        kind: WorkloadKind::Mixed { remote: false },
    },
    Workload {
        name: "mixed-remote",
        meaning: "the same, where another thread frees one object in twenty",
        unit: "pair",
        kind: WorkloadKind::Mixed { remote: true },
    },
    Workload {
        name: "scope",
        meaning: "a request's 2,000 objects of 16 to 1024 B: half freed early, half at its end",
        unit: "allocation",
        kind: WorkloadKind::Scope { exit: false },
    },
    Workload {
        name: "scope-exit",
        meaning: "only the end of such a request, divided by its number of allocations",
        unit: "allocation",
        kind: WorkloadKind::Scope { exit: true },
    },
    pool_request!(
        1_000,
        "pool-request-1000",
        "a request's 50 objects of 16 to 1024 B; one stays in a cache of 1,000 entries"
    ),
    pool_request!(10_000, "pool-request-10000", "the same with a cache of 10,000 entries"),
    pool_request!(100_000, "pool-request-100000", "the same with a cache of 100,000 entries"),
    Workload {
        name: "handler",
        meaning: "a JSON request to an ordinary handler: serde_json, String, Vec, HashMap",
        unit: "request",
        kind: WorkloadKind::Handler,
    },
    Workload {
        name: "categories",
        meaning: "a request to a server with shared objects: all locked, or by locking category",
        unit: "request",
        kind: WorkloadKind::Locking,
    },
    Workload {
        name: "published",
        meaning: "a read of two fields of a configuration that all threads share",
        unit: "read",
        kind: WorkloadKind::Published,
    },
    Workload {
        name: "letters-read",
        meaning: "the letters A of a word list are counted: one system call per byte",
        unit: "byte",
        kind: WorkloadKind::FileScan(FileSearch::Read),
    },
    Workload {
        name: "letters-buffered",
        meaning: "the same through a buffer of 4 KiB",
        unit: "byte",
        kind: WorkloadKind::FileScan(FileSearch::Buffered),
    },
    Workload {
        name: "letters-mapped",
        meaning: "the same in a mapped file",
        unit: "byte",
        kind: WorkloadKind::FileScan(FileSearch::Mapped),
    },
    Workload {
        name: "c-arena",
        meaning: "query-alloc's objects in C, with allotment.h, compared with Rust",
        unit: "object",
        kind: WorkloadKind::Inline(InlineLoop::Arena),
    },
    Workload {
        name: "c-free-list",
        meaning: "pair in C, with the free list of allotment.h, compared with Rust",
        unit: "pair",
        kind: WorkloadKind::Inline(InlineLoop::FreeList),
    },
    Workload {
        name: "c-slab-handle",
        meaning: "pair in C, with the slab handle of allotment.h, compared with Rust",
        unit: "pair",
        kind: WorkloadKind::Inline(InlineLoop::SlabHandle),
    },
    Workload {
        name: "c-stress",
        meaning: "stress in C, with the array allocator's functions, compared with malloc",
        unit: "pair",
        kind: WorkloadKind::Inline(InlineLoop::Stress),
    },
    Workload {
        name: "pmr-vector",
        meaning: "500 std::pmr::vectors, grown to 1 to 48 numbers of 8 B, summed and destroyed",
        unit: "element",
        kind: WorkloadKind::Container(Container::Vector),
    },
    Workload {
        name: "pmr-map",
        meaning: "100 std::pmr::maps of up to 16 std::pmr::strings of 20 to 49 B, then destroyed",
        unit: "key",
        kind: WorkloadKind::Container(Container::Map),
    },
    Workload {
        name: "client-sqlite",
        meaning: "SQLite: a shop's database is filled, indexed, queried, changed, archived, closed",
        unit: "statement",
        kind: WorkloadKind::Client(Client::Sqlite),
    },
    Workload {
        name: "client-lua",
        meaning: "Lua: a script makes records, closures and a report, in a new state each time",
        unit: "record",
        kind: WorkloadKind::Client(Client::Lua),
    },
    Workload {
        name: "client-expat",
        meaning: "expat: a 4 MB document is parsed into a tree, its orders summed, all is freed",
        unit: "element",
        kind: WorkloadKind::Client(Client::Expat),
    },
];
