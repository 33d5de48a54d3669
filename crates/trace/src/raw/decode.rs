//! Reading the events of a chunk, which may contain anything.

use super::event::{AllocationFlags, Damage, LockKind, LockWait, RawEvent, RawModule, code};
use super::{FIRST_NODE, MAX_BUILD_ID_LENGTH, MAX_PATH_LENGTH, unrotated, unzigzag};

/// Reads the events of one chunk in order.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// The offset of the next event.
    position: usize,
    tick: u64,
    address: u64,
    return_address: u64,
    nodes: u32,
    kinds: u32,
}

impl Decoder {
    /// A decoder for a chunk that begins at `tick`.
    pub fn new(tick: u64) -> Self {
        Self { position: 0, tick, address: 0, return_address: 0, nodes: 0, kinds: 0 }
    }

    /// The time of the last event.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The number of bytes of events that were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next event of `chunk`, the events of a chunk without its header. `Ok(None)` at the end.
    #[inline]
    pub fn next<'a>(&mut self, chunk: &'a [u8]) -> Result<Option<RawEvent<'a>>, Damage> {
        let Some(&first) = chunk.get(self.position) else { return Ok(None) };
        if first < 0x80 {
            return if first == 0 { Ok(None) } else { self.coded(chunk, first).map(Some) };
        }
        let (time, address) = (1 << (first >> 4 & 3), 1 << (first >> 2 & 3));
        let is_allocation = first & 0x40 != 0;
        let of_newest_kind = is_allocation && first & 3 == 3;
        let kind = if is_allocation && !of_newest_kind { 1 << (first & 3) } else { 0 };
        let length = 1 + time + address + kind;
        let damaged = |what| Err(Damage { at: self.position, what });
        if self.position + length > chunk.len() {
            return damaged("an event that extends beyond its chunk");
        }
        let delta = field(chunk, self.position + 1, time);
        let Some(tick) = self.tick.checked_add(delta) else {
            return damaged("an impossible time");
        };
        let difference = unzigzag(field(chunk, self.position + 1 + time, address));
        let rotated = self.address.wrapping_add(difference);
        let address_of_block = unrotated(rotated);
        let event = if of_newest_kind {
            let Some(kind) = self.kinds.checked_sub(1) else {
                return damaged("an allocation of the latest kind, before any kind");
            };
            RawEvent::Alloc { address: address_of_block, kind }
        } else if is_allocation {
            let kind = field(chunk, self.position + 1 + time + address, kind);
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
        (self.tick, self.address) = (tick, rotated);
        self.position += length;
        Ok(Some(event))
    }

    /// The next event, whose first byte is one of [`code`].
    fn coded<'a>(&mut self, chunk: &'a [u8], first: u8) -> Result<RawEvent<'a>, Damage> {
        let mut fields = FieldReader { chunk, position: self.position + 1, event: self.position };
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
                let difference = unzigzag(fields.number()?);
                self.return_address = self.return_address.wrapping_add(difference);
                self.nodes = fields.incremented(self.nodes)?;
                RawEvent::Node { parent, return_address: self.return_address }
            }
            code::KIND => {
                let node = fields.node(self.nodes)?;
                let (size, flags) = (fields.number()?, AllocationFlags(fields.number_u8()?));
                self.kinds = fields.incremented(self.kinds)?;
                RawEvent::Kind { node, size, flags }
            }
            code::NUMBERS => {
                (self.nodes, self.kinds) = (fields.number_u32()?, fields.number_u32()?);
                RawEvent::Numbers { nodes: self.nodes, kinds: self.kinds }
            }
            code::THREAD => {
                RawEvent::Thread { thread: fields.number_u32()?, system_id: fields.number_u32()? }
            }
            code::THREAD_END => RawEvent::ThreadEnd,
            code::WAIT => RawEvent::Wait(LockWait {
                ticks: fields.number()?,
                node: fields.number_u32()?,
                address: fields.number()?,
                lock: match fields.number_u8()? {
                    0 => LockKind::Mutex,
                    1 => LockKind::Read,
                    2 => LockKind::Write,
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
            code::MODULE_UNLOADED => RawEvent::ModuleUnloaded { start: fields.number()? },
            code::FORGET => {
                (self.nodes, self.kinds) = (0, 0);
                RawEvent::Forget
            }
            _ => return Err(fields.damaged("an unknown event")),
        };
        self.tick = tick;
        self.position = fields.position;
        Ok(event)
    }
}

/// The field of `size` bytes at an offset. All of it lies in the chunk.
#[inline]
fn field(chunk: &[u8], offset: usize, size: usize) -> u64 {
    if let Some(bytes) = chunk.get(offset..offset + 8) {
        let whole = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        return whole & (u64::MAX >> (64 - 8 * size as u32));
    }
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&chunk[offset..offset + size]);
    u64::from_le_bytes(bytes)
}

/// Reads the fields of one event.
struct FieldReader<'a> {
    chunk: &'a [u8],
    position: usize,
    /// The offset of the event, for errors.
    event: usize,
}

impl<'a> FieldReader<'a> {
    fn damaged(&self, what: &'static str) -> Damage {
        Damage { at: self.event, what }
    }

    fn number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number without an end"))
    }

    fn number_u32(&mut self) -> Result<u32, Damage> {
        self.number()?.try_into().map_err(|_| self.damaged("a number that is too large"))
    }

    /// A node, stored as its distance from the newest of `nodes` announced ones.
    fn node(&mut self, nodes: u32) -> Result<u32, Damage> {
        let distance = self.number_u32()?;
        if distance < FIRST_NODE {
            return Ok(distance);
        }
        let newest = u64::from(nodes) + u64::from(FIRST_NODE) - 1;
        match newest.checked_sub(u64::from(distance - FIRST_NODE)) {
            Some(node) if node >= u64::from(FIRST_NODE) => Ok(node as u32),
            _ => Err(self.damaged("a stack that was not announced")),
        }
    }

    /// The count after one more node or kind.
    fn incremented(&self, count: u32) -> Result<u32, Damage> {
        let next = count.checked_add(1).filter(|&next| next < u32::MAX - FIRST_NODE);
        next.ok_or_else(|| self.damaged("more numbers than there are"))
    }

    fn number_u8(&mut self) -> Result<u8, Damage> {
        self.number()?.try_into().map_err(|_| self.damaged("a number that is too large"))
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        let byte = *self
            .chunk
            .get(self.position)
            .ok_or_else(|| self.damaged("an event that extends beyond its chunk"))?;
        self.position += 1;
        Ok(byte)
    }

    fn string(&mut self, max_length: usize) -> Result<&'a [u8], Damage> {
        let length = self.number_u32()? as usize;
        if length > max_length {
            return Err(self.damaged("a string that is too long"));
        }
        let string = self
            .chunk
            .get(self.position..self.position + length)
            .ok_or_else(|| self.damaged("a string that extends beyond its chunk"))?;
        self.position += length;
        Ok(string)
    }
}
