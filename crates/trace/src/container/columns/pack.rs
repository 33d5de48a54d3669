//! Packing a chunk.

use super::{
    ALLOCATIONS, AddressColumns, COLUMNS, COUNT, Column, FREES, Followers, LONG, PLAIN, what,
};
use crate::TraceError;
use crate::raw::{Decoder, RawEvent, code, turned, zigzag};
use zstd::bulk::Compressor;

/// The fastest level that compresses: it happens beside the program.
const LEVEL: i32 = 1;

/// Chunks of fewer bytes may be shorter without columns.
const SHORT: usize = 4096;

/// Packs the events of a chunk.
pub(crate) fn pack(events: &[u8]) -> Result<Vec<u8>, TraceError> {
    let mut compressor = Compressor::new(LEVEL)?;
    let columns = match columns(events) {
        Some(columns) => Some(columns.compressed(&mut compressor)?),
        None => None,
    };
    match columns {
        Some(columns) if events.len() >= SHORT => Ok(columns),
        columns => {
            let mut plain = vec![PLAIN];
            plain.extend(compressor.compress(events)?);
            Ok(columns.filter(|columns| columns.len() < plain.len()).unwrap_or(plain))
        }
    }
}

struct Columns {
    bytes: [Vec<u8>; COUNT],
    /// The columns for addresses told by their differences, instead of those told by distances.
    differences: [[Vec<u8>; 2]; 2],
}

fn number(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// In how many bytes an encoder writes a field.
fn field_size(value: u64) -> usize {
    (8 - (value | 1).leading_zeros() as usize / 8).next_power_of_two()
}

/// When which address was met last.
struct Met {
    /// By an address's hash: one more than the last event with that hash, or 0.
    heads: Vec<u32>,
    /// Each event's address, and the event before it with the same hash, as in `heads`.
    events: Vec<(u64, u32)>,
}

impl Met {
    const HEADS: usize = 1 << 16;
    /// Addresses of one hash that are looked at.
    const MOST_STEPS: usize = 32;

    fn new() -> Self {
        Self { heads: vec![0; Self::HEADS], events: Vec::new() }
    }

    /// Says that the next event has this address, and gives how many events ago it was met; 0 for never, as far as is known.
    #[inline]
    fn again(&mut self, address: u64) -> u32 {
        let hash = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % Self::HEADS;
        let now = self.events.len() as u32;
        let mut at = self.heads[hash];
        self.events.push((address, at));
        self.heads[hash] = now + 1;
        for _ in 0..Self::MOST_STEPS {
            let Some(event) = at.checked_sub(1) else { break };
            let (there, before) = self.events[event as usize];
            if there == address {
                return now - event;
            }
            at = before;
        }
        0
    }
}

/// The columns of events that an encoder has written; `None` for others.
fn columns(events: &[u8]) -> Option<Columns> {
    let mut columns = Columns { bytes: Default::default(), differences: Default::default() };
    let mut met = Met::new();
    let mut followers = Followers::new();
    let (mut tick, mut last) = (0_u64, 0_u64);
    // Times are told by their differences, whatever the first one is.
    let mut decoder = Decoder::new(0);
    while decoder.position() < events.len() {
        let begin = decoder.position();
        let event = decoder.next(events).ok()??;
        let first = events[begin];
        let fields = &events[begin + 1..decoder.position()];
        let since = decoder.tick() - tick;
        tick = decoder.tick();
        let bytes = &mut columns.bytes;
        let (which, address, kind) = match event {
            RawEvent::Alloc { address, kind } => (&ALLOCATIONS, address, Some(kind)),
            RawEvent::Free { address, .. } | RawEvent::Usable { address } => {
                (&FREES, address, None)
            }
            _ => {
                bytes[Column::What as usize].push(first);
                split(first, fields, bytes)?;
                continue;
            }
        };
        let address = turned(address);
        let difference = zigzag(address.wrapping_sub(last));
        let mut length = field_size(since) + field_size(difference);
        let what = match kind {
            None => what::FREE | first & 3,
            Some(_) if first & 3 == 3 => what::KIND_NEWEST,
            Some(kind) => {
                length += field_size(kind.into());
                if followers.expected() == kind {
                    what::KIND_AS_BEFORE
                } else {
                    bytes[Column::KindLow as usize].push(kind as u8);
                    number(&mut bytes[Column::KindHigh as usize], u64::from(kind >> 8));
                    what::KIND_TOLD
                }
            }
        };
        if length != fields.len() {
            return None;
        }
        if let Some(kind) = kind.filter(|_| what != what::KIND_NEWEST) {
            followers.comes(kind);
        }
        bytes[Column::What as usize].push(what);
        if since < LONG.into() {
            bytes[which.times as usize].push(since as u8);
        } else {
            bytes[which.times as usize].push(LONG);
            number(&mut bytes[Column::LongTimes as usize], since - u64::from(LONG));
        }
        columns.address(which, met.again(address), difference);
        last = address;
    }
    Some(columns)
}

/// Splits a rarer event's fields.
fn split(first: u8, fields: &[u8], bytes: &mut [Vec<u8>; COUNT]) -> Option<()> {
    let columns: &[Column] = match first {
        code::NODE => &[Column::NodeParents, Column::NodeAddresses],
        code::KIND => &[Column::KindNodes, Column::KindSizes, Column::KindFlags],
        _ => {
            number(&mut bytes[Column::Others as usize], fields.len() as u64);
            bytes[Column::Others as usize].extend_from_slice(fields);
            return Some(());
        }
    };
    let mut numbers = fields.split_inclusive(|&byte| byte < 0x80);
    for &column in columns {
        bytes[column as usize].extend_from_slice(numbers.next()?);
    }
    Some(())
}

impl Columns {
    #[inline]
    fn address(&mut self, which: &AddressColumns, distance: u32, difference: u64) {
        let distances = &mut self.bytes[which.distances as usize];
        match distance {
            0 => {
                distances.push(0);
                self.bytes[which.low as usize].push(difference as u8);
                number(&mut self.bytes[which.high as usize], difference >> 8);
            }
            1..=254 => distances.push(distance as u8),
            _ => {
                distances.push(LONG);
                number(&mut self.bytes[which.long_distances as usize], (distance - 255).into());
            }
        }
        let [low, high] = &mut self.differences[usize::from(which.near == FREES.near)];
        low.push(difference as u8);
        number(high, difference >> 8);
    }

    fn compressed(self, compressor: &mut Compressor<'_>) -> Result<Vec<u8>, TraceError> {
        let mut parts = Vec::with_capacity(COUNT);
        for column in &self.bytes {
            parts.push(part(column, compressor)?);
        }
        let mut how = COLUMNS;
        for (which, differences) in [&ALLOCATIONS, &FREES].into_iter().zip(&self.differences) {
            // What is not told by how long ago it was met, or was met long ago.
            let rest = [which.long_distances, which.low].map(|column| &self.bytes[column as usize]);
            let long: usize = rest.iter().map(|column| column.len()).sum();
            if long * FEW < differences[0].len() {
                how |= which.near;
                continue;
            }
            let near = [which.distances, which.long_distances, which.low, which.high];
            let low = part(&differences[0], compressor)?;
            let high = part(&differences[1], compressor)?;
            let length: usize = near.iter().map(|&column| parts[column as usize].len()).sum();
            if length <= low.len() + high.len() + 2 {
                how |= which.near;
                continue;
            }
            parts[which.distances as usize] = vec![0];
            parts[which.long_distances as usize] = vec![0];
            parts[which.low as usize] = low;
            parts[which.high as usize] = high;
        }
        let mut packed = vec![how];
        packed.extend(parts.into_iter().flatten());
        Ok(packed)
    }
}

/// Where fewer than one address in so many is not told by a byte, its differences are not even tried.
const FEW: usize = 8;

/// A column with its lengths; one that doesn't get shorter is kept as it is.
fn part(column: &[u8], compressor: &mut Compressor<'_>) -> Result<Vec<u8>, TraceError> {
    let mut part = Vec::new();
    number(&mut part, column.len() as u64);
    if column.is_empty() {
        return Ok(part);
    }
    let compressed = compressor.compress(column)?;
    let bytes = if compressed.len() < column.len() { &compressed[..] } else { column };
    number(&mut part, bytes.len() as u64);
    part.extend_from_slice(bytes);
    Ok(part)
}
