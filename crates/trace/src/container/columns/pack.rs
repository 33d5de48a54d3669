//! Packing a chunk.

use super::{
    ALLOCATIONS, AddressColumns, COLUMNS, COUNT, EventColumn, FREES, KindPredictor, LONG, PLAIN,
    event_code,
};
use crate::error::TraceError;
use crate::raw::{Decoder, RawEvent, code, field_size_log2, rotated, zigzag};
use zstd::bulk::Compressor;

/// The fastest level of zstd: packing runs concurrently with the program.
const LEVEL: i32 = 1;

/// Chunks with fewer bytes than this may be shorter without columns.
const SHORT_CHUNK: usize = 4096;

/// Packs the events of a chunk.
pub(crate) fn pack(events: &[u8]) -> Result<Vec<u8>, TraceError> {
    let mut compressor = Compressor::new(LEVEL)?;
    let columns = match columns(events) {
        Some(columns) => Some(columns.compressed(&mut compressor)?),
        None => None,
    };
    match columns {
        Some(columns) if events.len() >= SHORT_CHUNK => Ok(columns),
        columns => {
            let mut plain = vec![PLAIN];
            plain.extend(compressor.compress(events)?);
            Ok(columns.filter(|columns| columns.len() < plain.len()).unwrap_or(plain))
        }
    }
}

struct EventColumns {
    bytes: [Vec<u8>; COUNT],
    /// The low and the high column for all addresses as differences, of allocations and of frees.
    /// An alternative to distances.
    differences: [[Vec<u8>; 2]; 2],
}

/// Appends a number in groups of seven bits.
fn push_number(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The last occurrence of each address.
struct AddressHistory {
    /// By the hash of an address: one more than the number of the last event with that hash, or 0.
    heads: Vec<u32>,
    /// The address of each event, and the previous event with the same hash, as in `heads`.
    events: Vec<(u64, u32)>,
}

impl AddressHistory {
    const HEADS: usize = 1 << 16;
    /// Events with the same hash that are examined.
    const MAX_STEPS: usize = 32;

    fn new() -> Self {
        Self { heads: vec![0; Self::HEADS], events: Vec::new() }
    }

    /// Adds an event with this address, and returns how many events ago the address occurred last;
    /// 0 if that is not known.
    #[inline]
    fn distance_to_last(&mut self, address: u64) -> u32 {
        let hash = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % Self::HEADS;
        let now = self.events.len() as u32;
        let mut candidate = self.heads[hash];
        self.events.push((address, candidate));
        self.heads[hash] = now + 1;
        for _ in 0..Self::MAX_STEPS {
            let Some(event) = candidate.checked_sub(1) else { break };
            let (occurred, previous) = self.events[event as usize];
            if occurred == address {
                return now - event;
            }
            candidate = previous;
        }
        0
    }
}

/// The columns of events. `None` for events that no encoder writes.
fn columns(events: &[u8]) -> Option<EventColumns> {
    let mut columns = EventColumns { bytes: Default::default(), differences: Default::default() };
    let mut history = AddressHistory::new();
    let mut predictor = KindPredictor::new();
    let (mut tick, mut last) = (0_u64, 0_u64);
    // Only differences of times are stored, so the first time does not matter.
    let mut decoder = Decoder::new(0);
    while decoder.position() < events.len() {
        let begin = decoder.position();
        let event = decoder.next(events).ok()??;
        let first = events[begin];
        let fields = &events[begin + 1..decoder.position()];
        let since = decoder.tick() - tick;
        tick = decoder.tick();
        let bytes = &mut columns.bytes;
        let (columns_of, address, kind) = match event {
            RawEvent::Alloc { address, kind } => (&ALLOCATIONS, address, Some(kind)),
            RawEvent::Free { address, .. } | RawEvent::Usable { address } => {
                (&FREES, address, None)
            }
            _ => {
                bytes[EventColumn::EventCodes as usize].push(first);
                push_fields(first, fields, bytes)?;
                continue;
            }
        };
        let address = rotated(address);
        let difference = zigzag(address.wrapping_sub(last));
        let field_size = |value: u64| 1_usize << field_size_log2(value);
        let mut length = field_size(since) + field_size(difference);
        let event_code = match kind {
            None => event_code::FREE | first & 3,
            Some(_) if first & 3 == 3 => event_code::KIND_NEWEST,
            Some(kind) => {
                length += field_size(kind.into());
                if predictor.predicted() == kind {
                    event_code::KIND_PREDICTED
                } else {
                    bytes[EventColumn::KindLow as usize].push(kind as u8);
                    push_number(&mut bytes[EventColumn::KindHigh as usize], u64::from(kind >> 8));
                    event_code::KIND_STORED
                }
            }
        };
        if length != fields.len() {
            return None;
        }
        if let Some(kind) = kind.filter(|_| event_code != event_code::KIND_NEWEST) {
            predictor.update(kind);
        }
        bytes[EventColumn::EventCodes as usize].push(event_code);
        if since < LONG.into() {
            bytes[columns_of.times as usize].push(since as u8);
        } else {
            bytes[columns_of.times as usize].push(LONG);
            push_number(&mut bytes[EventColumn::LongTimes as usize], since - u64::from(LONG));
        }
        columns.push_address(columns_of, history.distance_to_last(address), difference);
        last = address;
    }
    Some(columns)
}

/// Adds the fields of an event without an address.
fn push_fields(first: u8, fields: &[u8], bytes: &mut [Vec<u8>; COUNT]) -> Option<()> {
    let columns: &[EventColumn] = match first {
        code::NODE => &[EventColumn::NodeParents, EventColumn::NodeAddresses],
        code::KIND => &[EventColumn::KindNodes, EventColumn::KindSizes, EventColumn::KindFlags],
        _ => {
            push_number(&mut bytes[EventColumn::Others as usize], fields.len() as u64);
            bytes[EventColumn::Others as usize].extend_from_slice(fields);
            return Some(());
        }
    };
    let mut numbers = fields.split_inclusive(|&byte| byte < 0x80);
    for &column in columns {
        bytes[column as usize].extend_from_slice(numbers.next()?);
    }
    Some(())
}

impl EventColumns {
    #[inline]
    fn push_address(&mut self, which: &AddressColumns, distance: u32, difference: u64) {
        let distances = &mut self.bytes[which.distances as usize];
        match distance {
            0 => {
                distances.push(0);
                self.bytes[which.low as usize].push(difference as u8);
                push_number(&mut self.bytes[which.high as usize], difference >> 8);
            }
            1..=254 => distances.push(distance as u8),
            _ => {
                distances.push(LONG);
                push_number(
                    &mut self.bytes[which.long_distances as usize],
                    (distance - 255).into(),
                );
            }
        }
        let [low, high] =
            &mut self.differences[usize::from(which.distances_bit == FREES.distances_bit)];
        low.push(difference as u8);
        push_number(high, difference >> 8);
    }

    fn compressed(self, compressor: &mut Compressor<'_>) -> Result<Vec<u8>, TraceError> {
        let mut packed_columns = Vec::with_capacity(COUNT);
        for column in &self.bytes {
            packed_columns.push(pack_column(column, compressor)?);
        }
        let mut format = COLUMNS;
        for (which, differences) in [&ALLOCATIONS, &FREES].into_iter().zip(&self.differences) {
            // Addresses that are not stored as a distance of one byte.
            let long_columns =
                [which.long_distances, which.low].map(|column| &self.bytes[column as usize]);
            let long: usize = long_columns.iter().map(|column| column.len()).sum();
            if long * TRY_DIFFERENCES_SHARE < differences[0].len() {
                format |= which.distances_bit;
                continue;
            }
            let by_distance = [which.distances, which.long_distances, which.low, which.high];
            let low = pack_column(&differences[0], compressor)?;
            let high = pack_column(&differences[1], compressor)?;
            let length: usize =
                by_distance.iter().map(|&column| packed_columns[column as usize].len()).sum();
            if length <= low.len() + high.len() + 2 {
                format |= which.distances_bit;
                continue;
            }
            packed_columns[which.distances as usize] = vec![0];
            packed_columns[which.long_distances as usize] = vec![0];
            packed_columns[which.low as usize] = low;
            packed_columns[which.high as usize] = high;
        }
        let mut packed = vec![format];
        packed.extend(packed_columns.into_iter().flatten());
        Ok(packed)
    }
}

/// If fewer than one address in this many is not stored in one byte, differences are not tried.
const TRY_DIFFERENCES_SHARE: usize = 8;

/// A column with its lengths. A column that compression does not shorten is stored unchanged.
fn pack_column(column: &[u8], compressor: &mut Compressor<'_>) -> Result<Vec<u8>, TraceError> {
    let mut packed = Vec::new();
    push_number(&mut packed, column.len() as u64);
    if column.is_empty() {
        return Ok(packed);
    }
    let compressed = compressor.compress(column)?;
    let bytes = if compressed.len() < column.len() { &compressed[..] } else { column };
    push_number(&mut packed, bytes.len() as u64);
    packed.extend_from_slice(bytes);
    Ok(packed)
}
