//! Reading the events of a chunk, whatever it holds.

use super::{
    FIRST_NODE, Flags, Lock, LockWait, MAX_BUILD_ID_LENGTH, MAX_EVENT_SIZE, MAX_PATH_LENGTH, code,
    unturned, unzigzag,
};

/// Bytes that have to be free before a module is written.
pub const MAX_MODULE_SIZE: usize = MAX_PATH_LENGTH + MAX_BUILD_ID_LENGTH + MAX_EVENT_SIZE;

/// A module as a raw file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawModule<'a> {
    /// What was added to the addresses of its file.
    pub bias: u64,
    /// Its first address.
    pub start: u64,
    /// The address behind its last one.
    pub end: u64,
    /// Its build id; empty where it has none.
    pub build_id: &'a [u8],
    /// Where it was loaded from; empty for what the kernel brings.
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
    /// A block is freed.
    Free {
        /// Its address.
        address: u64,
        /// By a reallocation, whose new block is the thread's next event.
        by_realloc: bool,
    },
    /// The usable size of a block was asked for.
    Usable {
        /// Its address.
        address: u64,
    },
    /// The stream's next node.
    Node {
        /// Its parent, a node announced before, [`super::ROOT`] or [`super::CUT_OFF`].
        parent: u32,
        /// The address behind the call.
        return_address: u64,
    },
    /// The stream's next kind.
    Kind {
        /// The stack that allocates.
        node: u32,
        /// Bytes that were asked for.
        size: u64,
        /// How.
        flags: Flags,
    },
    /// From here on the stream is this thread's.
    Thread {
        /// The process's number of it.
        thread: u32,
        /// The system's.
        system_id: u32,
    },
    /// The thread has ended.
    ThreadEnd,
    /// The thread waited for a lock until now.
    Wait(LockWait),
    /// A module was found.
    Module(RawModule<'a>),
    /// The module that began there has gone.
    ModuleGone {
        /// Its first address.
        start: u64,
    },
    /// Nodes and kinds are numbered anew from here.
    Forget,
    /// So many nodes and kinds were announced in the stream's chunks before.
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

/// Reads the events of one chunk, one after the other.
#[derive(Debug, Clone)]
pub struct Decoder {
    at: usize,
    tick: u64,
    address: u64,
    return_address: u64,
    nodes: u32,
    kinds: u32,
}

impl Decoder {
    /// A decoder for a chunk that begins at `tick`.
    pub fn new(tick: u64) -> Self {
        Self { at: 0, tick, address: 0, return_address: 0, nodes: 0, kinds: 0 }
    }

    /// The time of the last event.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Bytes of events that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next event of `chunk`, the events of a chunk without its header. `Ok(None)` at the end.
    #[inline]
    pub fn next<'a>(&mut self, chunk: &'a [u8]) -> Result<Option<RawEvent<'a>>, Damage> {
        let Some(&first) = chunk.get(self.at) else { return Ok(None) };
        if first < 0x80 {
            return if first == 0 { Ok(None) } else { self.rare(chunk, first).map(Some) };
        }
        let (time, address) = (1 << (first >> 4 & 3), 1 << (first >> 2 & 3));
        let alloc = first & 0x40 != 0;
        let newest = alloc && first & 3 == 3;
        let kind = if alloc && !newest { 1 << (first & 3) } else { 0 };
        let length = 1 + time + address + kind;
        let damaged = |what| Err(Damage { at: self.at, what });
        if self.at + length > chunk.len() {
            return damaged("an event that extends beyond its chunk");
        }
        let delta = field(chunk, self.at + 1, time);
        let Some(tick) = self.tick.checked_add(delta) else {
            return damaged("an impossible time");
        };
        let difference = unzigzag(field(chunk, self.at + 1 + time, address));
        let turned = self.address.wrapping_add(difference);
        let address_of_block = unturned(turned);
        let event = if newest {
            let Some(kind) = self.kinds.checked_sub(1) else {
                return damaged("an allocation of the latest kind, before any kind");
            };
            RawEvent::Alloc { address: address_of_block, kind }
        } else if alloc {
            let kind = field(chunk, self.at + 1 + time + address, kind);
            let Ok(kind) = u32::try_from(kind) else {
                return damaged("a kind's number that is too large");
            };
            RawEvent::Alloc { address: address_of_block, kind }
        } else {
            match first & 3 {
                0 => RawEvent::Free { address: address_of_block, by_realloc: false },
                1 => RawEvent::Free { address: address_of_block, by_realloc: true },
                2 => RawEvent::Usable { address: address_of_block },
                _ => return damaged("an unknown event"),
            }
        };
        (self.tick, self.address) = (tick, turned);
        self.at += length;
        Ok(Some(event))
    }

    fn rare<'a>(&mut self, chunk: &'a [u8], first: u8) -> Result<RawEvent<'a>, Damage> {
        let mut fields = Fields { chunk, at: self.at + 1, begin: self.at };
        let untimed = [code::NODE, code::KIND, code::FORGET, code::NUMBERS];
        let timed = !untimed.contains(&first);
        let mut tick = self.tick;
        if timed {
            tick = tick
                .checked_add(fields.number()?)
                .ok_or_else(|| fields.damaged("an impossible time"))?;
        }
        let event = match first {
            code::NODE => {
                let parent = fields.node(self.nodes)?;
                let away = unzigzag(fields.number()?);
                self.return_address = self.return_address.wrapping_add(away);
                self.nodes = fields.one_more(self.nodes)?;
                RawEvent::Node { parent, return_address: self.return_address }
            }
            code::KIND => {
                let node = fields.node(self.nodes)?;
                let (size, flags) = (fields.number()?, Flags(fields.byte()?));
                self.kinds = fields.one_more(self.kinds)?;
                RawEvent::Kind { node, size, flags }
            }
            code::NUMBERS => {
                (self.nodes, self.kinds) = (fields.small()?, fields.small()?);
                RawEvent::Numbers { nodes: self.nodes, kinds: self.kinds }
            }
            code::THREAD => {
                RawEvent::Thread { thread: fields.small()?, system_id: fields.small()? }
            }
            code::THREAD_END => RawEvent::ThreadEnd,
            code::WAIT => RawEvent::Wait(LockWait {
                ticks: fields.number()?,
                node: fields.small()?,
                address: fields.number()?,
                lock: match fields.byte()? {
                    0 => Lock::Mutex,
                    1 => Lock::Read,
                    2 => Lock::Write,
                    _ => return Err(fields.damaged("an unknown kind of lock")),
                },
            }),
            code::MODULE => RawEvent::Module(RawModule {
                bias: fields.number()?,
                start: fields.number()?,
                end: fields.number()?,
                build_id: fields.string(MAX_BUILD_ID_LENGTH)?,
                path: fields.string(MAX_PATH_LENGTH)?,
            }),
            code::MODULE_GONE => RawEvent::ModuleGone { start: fields.number()? },
            code::FORGET => {
                (self.nodes, self.kinds) = (0, 0);
                RawEvent::Forget
            }
            _ => return Err(fields.damaged("an unknown event")),
        };
        self.tick = tick;
        self.at = fields.at;
        Ok(event)
    }
}

/// The field of `size` bytes at `at`; both lie in the chunk.
#[inline]
fn field(chunk: &[u8], at: usize, size: usize) -> u64 {
    if let Some(bytes) = chunk.get(at..at + 8) {
        let whole = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        return whole & (u64::MAX >> (64 - 8 * size as u32));
    }
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&chunk[at..at + size]);
    u64::from_le_bytes(bytes)
}

struct Fields<'a> {
    chunk: &'a [u8],
    at: usize,
    begin: usize,
}

impl<'a> Fields<'a> {
    fn damaged(&self, what: &'static str) -> Damage {
        Damage { at: self.begin, what }
    }

    fn number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.raw_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number without an end"))
    }

    fn small(&mut self) -> Result<u32, Damage> {
        self.number()?.try_into().map_err(|_| self.damaged("a number that is too large"))
    }

    /// A node, of which so many were announced, by how far it lies behind the newest.
    fn node(&mut self, nodes: u32) -> Result<u32, Damage> {
        let behind = self.small()?;
        if behind < FIRST_NODE {
            return Ok(behind);
        }
        let newest = u64::from(nodes) + u64::from(FIRST_NODE) - 1;
        match newest.checked_sub(u64::from(behind - FIRST_NODE)) {
            Some(node) if node >= u64::from(FIRST_NODE) => Ok(node as u32),
            _ => Err(self.damaged("a stack that was not announced")),
        }
    }

    fn one_more(&self, numbers: u32) -> Result<u32, Damage> {
        let next = numbers.checked_add(1).filter(|&next| next < u32::MAX - FIRST_NODE);
        next.ok_or_else(|| self.damaged("more numbers than there are"))
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        self.number()?.try_into().map_err(|_| self.damaged("a number that is too large"))
    }

    fn raw_byte(&mut self) -> Result<u8, Damage> {
        let byte = *self
            .chunk
            .get(self.at)
            .ok_or_else(|| self.damaged("an event that extends beyond its chunk"))?;
        self.at += 1;
        Ok(byte)
    }

    fn string(&mut self, longest: usize) -> Result<&'a [u8], Damage> {
        let length = self.small()? as usize;
        if length > longest {
            return Err(self.damaged("a string that is too long"));
        }
        let string = self
            .chunk
            .get(self.at..self.at + length)
            .ok_or_else(|| self.damaged("a string that extends beyond its chunk"))?;
        self.at += length;
        Ok(string)
    }
}
