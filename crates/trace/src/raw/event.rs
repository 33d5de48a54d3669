//! The events of a raw file.

use super::{MAX_BUILD_ID_LENGTH, MAX_EVENT_SIZE, MAX_PATH_LENGTH};

/// The first bytes of the rarer events.
pub mod code {
    /// A node of the tree of stacks: parent, return address. A parent is stored as its distance
    /// from the newest node, which is [`FIRST_NODE`](crate::raw::FIRST_NODE) for the newest and
    /// grows from there. An address is stored as the difference from the previous one (zigzag).
    pub const NODE: u8 = 1;
    /// A kind of allocation: node as for [`NODE`], size, flags.
    pub const KIND: u8 = 2;
    /// From here on the stream is this thread's: time, number, the kernel's thread id.
    pub const THREAD: u8 = 3;
    /// The thread has ended: time.
    pub const THREAD_END: u8 = 4;
    /// A thread waited for a lock: time, duration, node, address, kind of lock.
    pub const WAIT: u8 = 5;
    /// A module was found: time, bias, start, end, build id, path.
    pub const MODULE: u8 = 6;
    /// A module was unloaded: time, start.
    pub const MODULE_UNLOADED: u8 = 7;
    /// The stream's nodes and kinds are forgotten, and numbered anew.
    pub const FORGET: u8 = 8;
    /// The counts of the stream before this chunk: nodes, kinds.
    pub const NUMBERS: u8 = 9;
}

/// How a block was allocated: the function, and the requested alignment.
///
/// The lowest three bits are the function. The others are the binary logarithm of the alignment, 0
/// if none was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationFlags(pub u8);

/// The function that allocated a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocationFunction {
    /// `malloc`.
    Malloc,
    /// `calloc`.
    Calloc,
    /// `realloc` and `reallocarray`. If they freed a block, that free is the previous event.
    Realloc,
    /// `memalign`, `aligned_alloc` and `posix_memalign`.
    Aligned,
    /// `valloc` and `pvalloc`.
    Pages,
}

impl AllocationFlags {
    /// Flags of a block from `function`, without an alignment.
    pub const fn new(function: AllocationFunction) -> Self {
        Self(match function {
            AllocationFunction::Malloc => 0,
            AllocationFunction::Calloc => 1,
            AllocationFunction::Realloc => 2,
            AllocationFunction::Aligned => 3,
            AllocationFunction::Pages => 4,
        })
    }

    /// These flags with an alignment, rounded down to a power of two of at most 2^31.
    pub const fn aligned(self, alignment: usize) -> Self {
        let log = if alignment < 2 { 0 } else { alignment.ilog2() };
        Self(self.0 & 7 | ((if log > 31 { 31 } else { log }) as u8) << 3)
    }

    /// The function that allocated the block.
    pub const fn function(self) -> AllocationFunction {
        match self.0 & 7 {
            0 => AllocationFunction::Malloc,
            1 => AllocationFunction::Calloc,
            2 => AllocationFunction::Realloc,
            3 => AllocationFunction::Aligned,
            _ => AllocationFunction::Pages,
        }
    }

    /// The requested alignment; 1 if none was requested.
    pub const fn alignment(self) -> u64 {
        1 << (self.0 >> 3)
    }
}

/// The lock that a thread waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A read-write lock, for reading.
    Read,
    /// A read-write lock, for writing.
    Write,
}

/// A wait for a lock, in a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWait {
    /// The stack that waited.
    pub node: u32,
    /// The lock's address.
    pub address: u64,
    /// The kind of lock.
    pub lock: LockKind,
    /// The duration of the wait in ticks.
    pub ticks: u64,
}

/// Bytes that must be free in a chunk before a module is written.
pub const MAX_MODULE_SIZE: usize = MAX_PATH_LENGTH + MAX_BUILD_ID_LENGTH + MAX_EVENT_SIZE;

/// A module in a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawModule<'a> {
    /// The difference between its addresses in memory and those in its file.
    pub bias: u64,
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// Its build id; empty if it has none.
    pub build_id: &'a [u8],
    /// The path of its file; empty for a module of the kernel.
    pub path: &'a [u8],
}

/// One event of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEvent<'a> {
    /// A block was allocated.
    Alloc {
        /// Its address.
        address: u64,
        /// The stream's number of its kind.
        kind: u32,
    },
    /// A block was freed.
    Free {
        /// Its address.
        address: u64,
        /// By a reallocation. Its new block is the thread's next event.
        by_realloc: bool,
    },
    /// The usable size of a block was queried.
    Usable {
        /// Its address.
        address: u64,
    },
    /// The stream's next node.
    Node {
        /// Its parent, a node announced before, [`super::ROOT`] or [`super::CUT_OFF`].
        parent: u32,
        /// The address that the call returns to.
        return_address: u64,
    },
    /// The stream's next kind.
    Kind {
        /// The stack that allocates.
        node: u32,
        /// The requested size in bytes.
        size: u64,
        /// How it allocates.
        flags: AllocationFlags,
    },
    /// From here on the stream is this thread's.
    Thread {
        /// The number of the thread in the process.
        thread: u32,
        /// The kernel's thread id.
        system_id: u32,
    },
    /// The thread has ended.
    ThreadEnd,
    /// The thread waited for a lock until now.
    Wait(LockWait),
    /// A module was found.
    Module(RawModule<'a>),
    /// A module was unloaded.
    ModuleUnloaded {
        /// Its first address.
        start: u64,
    },
    /// Nodes and kinds are numbered anew from here on.
    Forget,
    /// The counts of nodes and kinds that the stream has announced in earlier chunks.
    Numbers {
        /// Nodes.
        nodes: u32,
        /// Kinds.
        kinds: u32,
    },
}

/// What is wrong with a chunk, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The offset in the chunk's events.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}
