//! The table of workloads.

use super::{Kind, Workload};
use crate::c::clients::Client;
use crate::c::containers::Container;
use crate::c::inline::Inline;
use crate::fixed_size::Shape;
use crate::letters::Program;
use crate::trees::many;

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
            kind: Kind::FixedSize(Shape::Tree { exponent: $exponent }),
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
                " nodes of 32 B, a million in all, laid out and walked"
            ),
            unit: "node",
            kind: Kind::TreeCopy { exponent: $exponent },
        }
    };
}

pub(super) static CATALOGUE: [Workload; 51] = [
    Workload {
        name: "query",
        meaning: "a context query over 1000 charts x 100 dimensions: build, group, render, free",
        unit: "dimension",
        kind: Kind::Query,
    },
    Workload {
        name: "query-alloc",
        meaning: "a query's objects alone: 100,000 x (192, 24, 40, 64 B), every byte written",
        unit: "object",
        kind: Kind::Objects { dimensions: 100_000 },
    },
    Workload {
        name: "query-small",
        meaning: "the same for a small query: 100 x (192, 24, 40, 64 B)",
        unit: "object",
        kind: Kind::Objects { dimensions: 100 },
    },
    Workload {
        name: "grow",
        meaning: "a reply appended in pieces of 1 to 64 B up to 1 MiB, then dropped",
        unit: "byte",
        kind: Kind::Grow,
    },
    Workload {
        name: "pair",
        meaning: "an object of 64 B allocated and freed at once, beside 10,000 live a thread",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Pair),
    },
    Workload {
        name: "lifo",
        meaning: "10,000 objects of 64 B a thread allocated, then freed from the last to the first",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Lifo),
    },
    Workload {
        name: "fifo",
        meaning: "10,000 objects of 64 B a thread allocated, then freed from the first to the last",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Fifo),
    },
    Workload {
        name: "random",
        meaning: "one of 10,000 live objects of 64 B a thread, at random, freed and replaced",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Random),
    },
    Workload {
        name: "exchange-1000",
        meaning: "objects of 64 B allocated by one thread, freed by another, 1000 at a time",
        unit: "object",
        kind: Kind::FixedSize(Shape::Exchange { batch: 1000 }),
    },
    Workload {
        name: "exchange-1",
        meaning: "objects of 64 B allocated by one thread, freed by another, one at a time",
        unit: "object",
        kind: Kind::FixedSize(Shape::Exchange { batch: 1 }),
    },
    Workload {
        name: "stress",
        meaning: "the array allocator's own stress: parts of 10,000 x 64 B a thread replaced",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Stress),
    },
    Workload {
        name: "burst-alloc",
        meaning: "1,000,000 objects of 64 B a thread, allocated at once",
        unit: "object",
        kind: Kind::FixedSize(Shape::BurstAlloc),
    },
    Workload {
        name: "burst-free",
        meaning: "1,000,000 objects of 64 B a thread, freed in random order",
        unit: "object",
        kind: Kind::FixedSize(Shape::BurstFree),
    },
    Workload {
        name: "churn",
        meaning: "90 % of 1,000,000 x 64 B a thread freed; then the rest replaced at random",
        unit: "pair",
        kind: Kind::FixedSize(Shape::Churn),
    },
    Workload {
        name: "tiers-cold",
        meaning: "an hour's end for 1,000,000 metrics: buffers of 2048 B and 384 B for each",
        unit: "buffer",
        kind: Kind::FixedSize(Shape::Tiers { reserved: false }),
    },
    Workload {
        name: "tiers-reserved",
        meaning: "the same, reserved in the second before, where the allocator can",
        unit: "buffer",
        kind: Kind::FixedSize(Shape::Tiers { reserved: true }),
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
        meaning: "4096 trees of 256 nodes, each built and pruned before the next; then rebuilt",
        unit: "operation",
        kind: Kind::FixedSize(Shape::ManyTrees(many::Order::Each)),
    },
    Workload {
        name: "many-trees-all",
        meaning: "4096 trees of 256 nodes: all built, then all pruned, then all rebuilt",
        unit: "operation",
        kind: Kind::FixedSize(Shape::ManyTrees(many::Order::All)),
    },
    Workload {
        name: "mixed",
        meaning: "one of 10,000 live objects of 16 to 1024 B a thread, at random, replaced",
        unit: "pair",
        kind: Kind::Mixed { remote: false },
    },
    Workload {
        name: "mixed-remote",
        meaning: "the same, where one object in twenty is freed by another thread",
        unit: "pair",
        kind: Kind::Mixed { remote: true },
    },
    Workload {
        name: "scope",
        meaning: "a request's 2,000 objects of 16 to 1024 B: half freed within it, half at its end",
        unit: "allocation",
        kind: Kind::Scope { exit: false },
    },
    Workload {
        name: "scope-exit",
        meaning: "the end of such a request alone, by all of its allocations",
        unit: "allocation",
        kind: Kind::Scope { exit: true },
    },
    Workload {
        name: "handler",
        meaning: "a JSON request to an ordinary handler: serde_json, String, Vec, HashMap",
        unit: "request",
        kind: Kind::Handler,
    },
    Workload {
        name: "categories",
        meaning: "a request that uses session list, configuration and reply, locked or by category",
        unit: "request",
        kind: Kind::Categories,
    },
    Workload {
        name: "published",
        meaning: "two fields read of a configuration that all threads share",
        unit: "read",
        kind: Kind::Published,
    },
    Workload {
        name: "letters-read",
        meaning: "the 'A's of a word list counted: one call of the system a byte",
        unit: "byte",
        kind: Kind::Letters(Program::Read),
    },
    Workload {
        name: "letters-buffered",
        meaning: "the same through a buffer of 4 KiB",
        unit: "byte",
        kind: Kind::Letters(Program::Buffered),
    },
    Workload {
        name: "letters-mapped",
        meaning: "the same in the mapped file",
        unit: "byte",
        kind: Kind::Letters(Program::Mapped),
    },
    Workload {
        name: "c-arena",
        meaning: "query-alloc's objects in C, by allotment.h, beside the same in Rust",
        unit: "object",
        kind: Kind::Inline(Inline::Arena),
    },
    Workload {
        name: "c-free-list",
        meaning: "pair's objects of 64 B in C, by allotment.h, beside the same in Rust",
        unit: "pair",
        kind: Kind::Inline(Inline::FreeList),
    },
    Workload {
        name: "c-slab-handle",
        meaning: "the same by a slab's handle",
        unit: "pair",
        kind: Kind::Inline(Inline::SlabHandle),
    },
    Workload {
        name: "c-stress",
        meaning: "stress in C, by the array allocator's own names, beside the same by malloc",
        unit: "pair",
        kind: Kind::Inline(Inline::Stress),
    },
    Workload {
        name: "pmr-vector",
        meaning: "500 std::pmr::vectors that grow to 1 to 48 numbers of 8 B, added up, destroyed",
        unit: "element",
        kind: Kind::Container(Container::Vector),
    },
    Workload {
        name: "pmr-map",
        meaning: "100 std::pmr::maps of up to 16 std::pmr::strings of 20 to 49 B, destroyed",
        unit: "key",
        kind: Kind::Container(Container::Map),
    },
    Workload {
        name: "client-sqlite",
        meaning: "SQLite: a shop's database filled, indexed, asked, changed, archived, closed",
        unit: "statement",
        kind: Kind::Client(Client::Sqlite),
    },
    Workload {
        name: "client-lua",
        meaning: "Lua: a script that makes records, closures and a report; a new state each time",
        unit: "record",
        kind: Kind::Client(Client::Lua),
    },
    Workload {
        name: "client-expat",
        meaning: "expat: a document of 4 MB parsed into a tree, looked at, both freed",
        unit: "element",
        kind: Kind::Client(Client::Expat),
    },
];
