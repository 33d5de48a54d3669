//! One stream of a process, read ahead by one event.

use crate::container::decompress;
use crate::raw::{Damage, Decoder, FIRST_NODE, Flags, LockWait, RawEvent, RawModule};
use crate::reader::FrameAt;
use crate::{Modules, NodeId, Stacks, TraceError};
use std::fs::File;
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kind of allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub site: NodeId,
    pub size: u64,
    pub flags: Flags,
}

/// The next event, whose numbers of kinds and nodes wait for its turn.
#[derive(Debug, Clone)]
pub(crate) enum Head {
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
    /// To be read again in its turn, from here.
    Module(Decoder),
    ModuleGone {
        start: u64,
    },
}

/// What is announced between the event before and the head.
#[derive(Debug, Clone, Copy)]
enum Announced {
    Node {
        parent: u32,
        return_address: u64,
    },
    Kind {
        node: u32,
        size: u64,
        flags: Flags,
    },
    Forget,
    /// So many are known.
    Numbers {
        nodes: u32,
        kinds: u32,
    },
}

/// Bytes that all streams of a process hold together: the chunks that they are in, their kinds, and the numbers of their nodes.
pub(crate) const MOST_HELD: usize = 4 << 30;

/// What the streams of a process hold.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    bytes: Arc<AtomicUsize>,
    most: usize,
}

impl Held {
    pub fn new(most: usize) -> Self {
        Self { bytes: Arc::default(), most }
    }

    #[cfg(test)]
    pub fn now(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream<'r> {
    file: &'r File,
    chunks: std::slice::Iter<'r, FrameAt>,
    /// Where the chunk is in the file, for errors.
    offset: u64,
    events: Vec<u8>,
    decoder: Decoder,
    announced: Vec<Announced>,
    nodes: Vec<NodeId>,
    kinds: Vec<Kind>,
    pub thread: u32,
    pub head: Option<Head>,
    held: Held,
    /// What this one holds of that.
    own: usize,
}

impl<'r> Stream<'r> {
    pub fn new(file: &'r File, chunks: &'r [FrameAt], held: Held) -> Self {
        Self {
            file,
            chunks: chunks.iter(),
            offset: 0,
            events: Vec::new(),
            decoder: Decoder::new(0),
            announced: Vec::new(),
            nodes: Vec::new(),
            kinds: Vec::new(),
            thread: 0,
            head: None,
            held,
            own: 0,
        }
    }

    /// The time of the head.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.decoder.tick()
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> TraceError {
        let what = format!("{} (byte {} of the chunk's events)", damage.what, damage.at);
        TraceError::damaged(self.offset, what)
    }

    /// Something is wrong with the chunk.
    #[cold]
    pub fn wrong(&self, what: &str) -> TraceError {
        TraceError::damaged(self.offset, what)
    }

    /// Sees to it that all streams together hold no more than they may, this one with so much more.
    #[cold]
    fn holds(&mut self, more: usize) -> Result<(), TraceError> {
        let own = self.events.capacity()
            + self.announced.capacity() * size_of::<Announced>()
            + self.nodes.capacity() * size_of::<NodeId>()
            + self.kinds.capacity() * size_of::<Kind>()
            + more;
        // All of them are on one thread.
        let before = self.held.bytes.load(Ordering::Relaxed);
        let all = before - self.own + own;
        self.held.bytes.store(all, Ordering::Relaxed);
        self.own = own;
        if all > self.held.most {
            let gib = self.held.most as f64 / f64::from(1 << 30);
            let what = format!("more threads and stacks at once than fit in {gib} GiB");
            return Err(TraceError::damaged(self.offset, what));
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn holds_now(&self) -> usize {
        self.own
    }

    #[inline]
    fn announce(&mut self, announced: Announced) -> Result<(), TraceError> {
        let length = self.announced.len();
        if length == self.announced.capacity() {
            self.holds(length * size_of::<Announced>())?;
        }
        self.announced.push(announced);
        Ok(())
    }

    /// Reads ahead to the next event. False at the end.
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
                    self.head = None;
                    return Ok(false);
                }
                Err(damage) => return Err(self.damaged(damage)),
            };
            let head = match event {
                RawEvent::Alloc { address, kind } => Head::Alloc { address, kind },
                RawEvent::Free { address, by_realloc } => Head::Free { address, by_realloc },
                RawEvent::Usable { address } => Head::Usable { address },
                RawEvent::Thread { thread, system_id } => Head::Thread { thread, system_id },
                RawEvent::ThreadEnd => Head::ThreadEnd,
                RawEvent::Wait(wait) => Head::Wait(wait),
                RawEvent::Module(_) => Head::Module(before),
                RawEvent::ModuleGone { start } => Head::ModuleGone { start },
                RawEvent::Node { parent, return_address } => {
                    self.announce(Announced::Node { parent, return_address })?;
                    continue;
                }
                RawEvent::Kind { node, size, flags } => {
                    self.announce(Announced::Kind { node, size, flags })?;
                    continue;
                }
                RawEvent::Forget => {
                    self.announce(Announced::Forget)?;
                    continue;
                }
                RawEvent::Numbers { nodes, kinds } => {
                    self.announce(Announced::Numbers { nodes, kinds })?;
                    continue;
                }
            };
            self.head = Some(head);
            return Ok(true);
        }
    }

    #[cold]
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        let Some(chunk) = self.chunks.next() else {
            self.held.bytes.fetch_sub(self.own, Ordering::Relaxed);
            *self = Self::new(self.file, &[], self.held.clone());
            return Ok(false);
        };
        self.offset = chunk.offset;
        let raw_length = chunk.raw_length as usize;
        self.holds(raw_length.saturating_sub(self.events.capacity()))?;
        let mut compressed = vec![0; chunk.length as usize];
        self.file.read_exact_at(&mut compressed, chunk.offset)?;
        if crate::container::checksum(&compressed) != chunk.checksum {
            return Err(TraceError::damaged(chunk.offset, "a chunk with a wrong checksum"));
        }
        decompress(&compressed, raw_length, &mut self.events)
            .map_err(|what| TraceError::damaged(chunk.offset, what))?;
        self.decoder = Decoder::new(chunk.tick);
        Ok(true)
    }

    /// Whether something was announced before the head.
    #[inline]
    pub fn has_announced(&self) -> bool {
        !self.announced.is_empty()
    }

    /// Takes what was announced before the head.
    #[cold]
    pub fn learn(&mut self, stacks: &mut Stacks, modules: &Modules) -> Result<(), TraceError> {
        for index in 0..self.announced.len() {
            match self.announced[index] {
                Announced::Node { parent, return_address } => {
                    let parent = self.node(parent)?;
                    // The call lies before the address that it returns to, which may be behind its module's end.
                    let module = modules.find(return_address.wrapping_sub(1));
                    let node = stacks.add(parent, return_address, module);
                    let deep = || TraceError::damaged(self.offset, "a stack deeper than the limit");
                    self.nodes.push(node.ok_or_else(deep)?);
                }
                Announced::Kind { node, size, flags } => {
                    let site = self.node(node)?;
                    self.kinds.push(Kind { site, size, flags });
                }
                Announced::Forget => {
                    self.nodes.clear();
                    self.kinds.clear();
                }
                Announced::Numbers { nodes, kinds } => {
                    if (nodes as usize, kinds as usize) != (self.nodes.len(), self.kinds.len()) {
                        let what = "a chunk that continues with other stacks than the one before";
                        return Err(TraceError::damaged(self.offset, what));
                    }
                }
            }
        }
        self.announced.clear();
        self.holds(0)
    }

    /// A node by the stream's number.
    pub fn node(&self, number: u32) -> Result<NodeId, TraceError> {
        if number < FIRST_NODE {
            return Ok(NodeId(number));
        }
        self.nodes
            .get((number - FIRST_NODE) as usize)
            .copied()
            .ok_or_else(|| TraceError::damaged(self.offset, "a stack that was not announced"))
    }

    /// A kind by the stream's number.
    #[inline]
    pub fn kind(&self, number: u32) -> Result<Kind, TraceError> {
        self.kinds.get(number as usize).copied().ok_or_else(|| {
            TraceError::damaged(self.offset, "an allocation of a kind that was not announced")
        })
    }

    /// The module at a place that was read before.
    pub fn module(&self, at: &Decoder) -> Result<RawModule<'_>, TraceError> {
        match at.clone().next(&self.events) {
            Ok(Some(RawEvent::Module(module))) => Ok(module),
            _ => Err(TraceError::damaged(self.offset, "a module that is no longer loaded")),
        }
    }
}
