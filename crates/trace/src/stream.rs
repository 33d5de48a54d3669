//! One stream of a process, which reads one event ahead.

use crate::container::{checksum, decompress};
use crate::error::TraceError;
use crate::modules::Modules;
use crate::process::ChunkLocation;
use crate::raw::{AllocationFlags, Damage, Decoder, FIRST_NODE, LockWait, RawEvent, RawModule};
use crate::stacks::{NodeId, Stacks};
use std::fs::File;
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kind of allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationKind {
    pub site: NodeId,
    pub size: u64,
    pub flags: AllocationFlags,
}

/// The next event of a stream. Its numbers of kinds and nodes are looked up when it is merged.
#[derive(Debug, Clone)]
pub(crate) enum PendingEvent {
    Alloc {
        address: u64,
        kind: u32,
    },
    Free {
        address: u64,
        by_realloc: bool,
    },
    Usable {
        address: u64,
    },
    Thread {
        thread: u32,
        system_id: u32,
    },
    ThreadEnd,
    Wait(LockWait),
    /// A decoder at the event, which is decoded again when it is merged.
    Module(Decoder),
    ModuleUnloaded {
        start: u64,
    },
}

/// An announcement between the previous event and the pending one.
#[derive(Debug, Clone, Copy)]
enum Announcement {
    Node {
        parent: u32,
        return_address: u64,
    },
    Kind {
        node: u32,
        size: u64,
        flags: AllocationFlags,
    },
    Forget,
    /// The counts of what is known.
    Numbers {
        nodes: u32,
        kinds: u32,
    },
}

/// The limit on the memory of all streams of a process together, in bytes: their current chunks,
/// their kinds and the numbers of their nodes.
pub(crate) const MAX_STREAM_MEMORY: usize = 4 << 30;

/// The memory of the streams of a process, and its limit.
#[derive(Debug, Clone)]
pub(crate) struct StreamMemory {
    bytes: Arc<AtomicUsize>,
    limit: usize,
}

impl StreamMemory {
    pub fn new(limit: usize) -> Self {
        Self { bytes: Arc::default(), limit }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream<'r> {
    file: &'r File,
    /// The chunks after the current one.
    chunks: std::slice::Iter<'r, ChunkLocation>,
    /// The offset of the current chunk in the file, for errors.
    offset: u64,
    /// The events of the current chunk.
    events: Vec<u8>,
    decoder: Decoder,
    announcements: Vec<Announcement>,
    /// The nodes and kinds of the stream, by their numbers.
    nodes: Vec<NodeId>,
    kinds: Vec<AllocationKind>,
    /// The thread that the next events belong to.
    pub thread: u32,
    pub pending: Option<PendingEvent>,
    memory: StreamMemory,
    /// The part of `memory` that is this stream's.
    accounted: usize,
}

impl<'r> Stream<'r> {
    pub fn new(file: &'r File, chunks: &'r [ChunkLocation], memory: StreamMemory) -> Self {
        Self {
            file,
            chunks: chunks.iter(),
            offset: 0,
            events: Vec::new(),
            decoder: Decoder::new(0),
            announcements: Vec::new(),
            nodes: Vec::new(),
            kinds: Vec::new(),
            thread: 0,
            pending: None,
            memory,
            accounted: 0,
        }
    }

    /// The time of the pending event.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.decoder.tick()
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> TraceError {
        let what = format!("{} (byte {} of the chunk's events)", damage.what, damage.at);
        TraceError::damaged(self.offset, what)
    }

    /// An error in the current chunk.
    #[cold]
    pub fn error(&self, what: &str) -> TraceError {
        TraceError::damaged(self.offset, what)
    }

    /// Accounts for the memory of this stream and `more` bytes. Fails if all streams together
    /// exceed the limit.
    #[cold]
    fn account(&mut self, more: usize) -> Result<(), TraceError> {
        let bytes = self.events.capacity()
            + self.announcements.capacity() * size_of::<Announcement>()
            + self.nodes.capacity() * size_of::<NodeId>()
            + self.kinds.capacity() * size_of::<AllocationKind>()
            + more;
        // All streams are used by one thread.
        let before = self.memory.bytes.load(Ordering::Relaxed);
        let all = before - self.accounted + bytes;
        self.memory.bytes.store(all, Ordering::Relaxed);
        self.accounted = bytes;
        if all > self.memory.limit {
            let gib = self.memory.limit as f64 / f64::from(1 << 30);
            let what = format!("more threads and stacks at once than fit in {gib} GiB");
            return Err(TraceError::damaged(self.offset, what));
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn accounted_bytes(&self) -> usize {
        self.accounted
    }

    #[inline]
    fn add_announcement(&mut self, announcement: Announcement) -> Result<(), TraceError> {
        let length = self.announcements.len();
        if length == self.announcements.capacity() {
            self.account(length * size_of::<Announcement>())?;
        }
        self.announcements.push(announcement);
        Ok(())
    }

    /// Reads ahead to the next event. Returns false at the end of the stream.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            let before = self.decoder.clone();
            let event = match self.decoder.next(&self.events) {
                Ok(Some(event)) => event,
                Ok(None) => {
                    if self.next_chunk()? {
                        continue;
                    }
                    self.pending = None;
                    return Ok(false);
                }
                Err(damage) => return Err(self.damaged(damage)),
            };
            let pending = match event {
                RawEvent::Alloc { address, kind } => PendingEvent::Alloc { address, kind },
                RawEvent::Free { address, by_realloc } => {
                    PendingEvent::Free { address, by_realloc }
                }
                RawEvent::Usable { address } => PendingEvent::Usable { address },
                RawEvent::Thread { thread, system_id } => {
                    PendingEvent::Thread { thread, system_id }
                }
                RawEvent::ThreadEnd => PendingEvent::ThreadEnd,
                RawEvent::Wait(wait) => PendingEvent::Wait(wait),
                RawEvent::Module(_) => PendingEvent::Module(before),
                RawEvent::ModuleUnloaded { start } => PendingEvent::ModuleUnloaded { start },
                RawEvent::Node { parent, return_address } => {
                    self.add_announcement(Announcement::Node { parent, return_address })?;
                    continue;
                }
                RawEvent::Kind { node, size, flags } => {
                    self.add_announcement(Announcement::Kind { node, size, flags })?;
                    continue;
                }
                RawEvent::Forget => {
                    self.add_announcement(Announcement::Forget)?;
                    continue;
                }
                RawEvent::Numbers { nodes, kinds } => {
                    self.add_announcement(Announcement::Numbers { nodes, kinds })?;
                    continue;
                }
            };
            self.pending = Some(pending);
            return Ok(true);
        }
    }

    #[cold]
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        let Some(chunk) = self.chunks.next() else {
            self.memory.bytes.fetch_sub(self.accounted, Ordering::Relaxed);
            *self = Self::new(self.file, &[], self.memory.clone());
            return Ok(false);
        };
        self.offset = chunk.offset;
        let raw_length = chunk.raw_length as usize;
        self.account(raw_length.saturating_sub(self.events.capacity()))?;
        let mut compressed = vec![0; chunk.length as usize];
        self.file.read_exact_at(&mut compressed, chunk.offset)?;
        if checksum(&compressed) != chunk.checksum {
            return Err(TraceError::damaged(chunk.offset, "a chunk with a wrong checksum"));
        }
        decompress(&compressed, raw_length, &mut self.events)
            .map_err(|what| TraceError::damaged(chunk.offset, what))?;
        self.decoder = Decoder::new(chunk.tick);
        Ok(true)
    }

    /// Whether there are announcements before the pending event.
    #[inline]
    pub fn has_announcements(&self) -> bool {
        !self.announcements.is_empty()
    }

    /// Applies the announcements before the pending event.
    #[cold]
    pub fn apply_announcements(
        &mut self,
        stacks: &mut Stacks,
        modules: &Modules,
    ) -> Result<(), TraceError> {
        for index in 0..self.announcements.len() {
            match self.announcements[index] {
                Announcement::Node { parent, return_address } => {
                    let parent = self.node(parent)?;
                    // The call is before the address that it returns to, which may be after the end
                    // of the module.
                    let module = modules.find(return_address.wrapping_sub(1));
                    let node = stacks.add(parent, return_address, module);
                    let too_deep =
                        || TraceError::damaged(self.offset, "a stack deeper than the limit");
                    self.nodes.push(node.ok_or_else(too_deep)?);
                }
                Announcement::Kind { node, size, flags } => {
                    let site = self.node(node)?;
                    self.kinds.push(AllocationKind { site, size, flags });
                }
                Announcement::Forget => {
                    self.nodes.clear();
                    self.kinds.clear();
                }
                Announcement::Numbers { nodes, kinds } => {
                    if (nodes as usize, kinds as usize) != (self.nodes.len(), self.kinds.len()) {
                        let what = "a chunk that continues with other stacks than the one before";
                        return Err(TraceError::damaged(self.offset, what));
                    }
                }
            }
        }
        self.announcements.clear();
        self.account(0)
    }

    /// The node with this number in the stream.
    pub fn node(&self, number: u32) -> Result<NodeId, TraceError> {
        if number < FIRST_NODE {
            return Ok(NodeId(number));
        }
        self.nodes
            .get((number - FIRST_NODE) as usize)
            .copied()
            .ok_or_else(|| TraceError::damaged(self.offset, "a stack that was not announced"))
    }

    /// The kind with this number in the stream.
    #[inline]
    pub fn kind(&self, number: u32) -> Result<AllocationKind, TraceError> {
        self.kinds.get(number as usize).copied().ok_or_else(|| {
            TraceError::damaged(self.offset, "an allocation of a kind that was not announced")
        })
    }

    /// The module in the event at which the decoder is.
    pub fn module(&self, decoder: &Decoder) -> Result<RawModule<'_>, TraceError> {
        match decoder.clone().next(&self.events) {
            Ok(Some(RawEvent::Module(module))) => Ok(module),
            _ => Err(TraceError::damaged(self.offset, "a module that is no longer loaded")),
        }
    }
}
