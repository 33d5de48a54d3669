//! Unpacking a chunk, which may contain anything.

use super::{
    ALLOCATION_DISTANCES, ALLOCATIONS, AddressColumns, COLUMNS, COUNT, EventColumn, FREE_DISTANCES,
    FREES, KindPredictor, LONG, PLAIN, event_code,
};
use crate::raw::{code, field_size_log2, unzigzag, zigzag};
use zstd::bulk::Decompressor;

/// Unpacks `length` bytes of events into a buffer, which can be reused. An error says what is wrong
/// with them.
pub(crate) fn unpack(packed: &[u8], length: usize, events: &mut Vec<u8>) -> Result<(), String> {
    let mut decompressor = Decompressor::new().map_err(|error| error.to_string())?;
    events.clear();
    let (&format, packed) = packed.split_first().ok_or("a chunk without a first byte")?;
    match format {
        PLAIN => {
            events.resize(length, 0);
            if decompress(&mut decompressor, packed, events)? != length {
                return Err("a chunk whose length is wrong".to_owned());
            }
            Ok(())
        }
        _ if format & COLUMNS != 0
            && format & !(COLUMNS | ALLOCATION_DISTANCES | FREE_DISTANCES) == 0 =>
        {
            // `EventWriter` may write this many bytes after the end of the last event.
            events.resize(length + SLACK, 0);
            let bytes = read_columns(packed, length, &mut decompressor)?;
            let mut columns = bytes.each_ref().map(|bytes| ColumnReader { bytes, position: 0 });
            let mut out = EventWriter { events, position: 0, length };
            merge_columns(format, &mut columns, &mut out)
                .ok_or("columns that don't fit together")?;
            let complete = out.position == length && columns.iter().all(ColumnReader::is_empty);
            events.truncate(length);
            if complete { Ok(()) } else { Err("columns whose length is wrong".to_owned()) }
        }
        _ => Err("a chunk that is packed in an unknown way".to_owned()),
    }
}

fn decompress(
    decompressor: &mut Decompressor<'_>,
    packed: &[u8],
    into: &mut [u8],
) -> Result<usize, String> {
    decompressor
        .decompress_to_buffer(packed, into)
        .map_err(|error| format!("a chunk can't be decompressed: {error}"))
}

/// Reads a column.
struct ColumnReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ColumnReader<'a> {
    fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.position..self.position.checked_add(length)?)?;
        self.position += length;
        Some(taken)
    }

    /// The bytes of the next number.
    fn number_bytes(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        let end = rest.iter().position(|&byte| byte < 0x80)?;
        self.take(end + 1)
    }
}

fn read_columns(
    packed: &[u8],
    length: usize,
    decompressor: &mut Decompressor<'_>,
) -> Result<[Vec<u8>; COUNT], String> {
    let short = || "a chunk that ends before its columns do".to_owned();
    let mut rest = ColumnReader { bytes: packed, position: 0 };
    let mut columns: [Vec<u8>; COUNT] = Default::default();
    for column in &mut columns {
        let size = rest.number().ok_or_else(short)?;
        // No column has more bytes than the events.
        if size > length as u64 {
            return Err("a column that is too long".to_owned());
        }
        if size == 0 {
            continue;
        }
        let size = size as usize;
        let stored = rest.number().and_then(|stored| usize::try_from(stored).ok());
        let bytes = stored.and_then(|stored| rest.take(stored)).ok_or_else(short)?;
        if bytes.len() == size {
            column.extend_from_slice(bytes);
            continue;
        }
        column.resize(size, 0);
        if decompress(decompressor, bytes, column)? != size {
            return Err("a column whose length is wrong".to_owned());
        }
    }
    if rest.is_empty() {
        Ok(columns)
    } else {
        Err("a chunk that is longer than its columns".to_owned())
    }
}

/// Bytes that may be written after the end of an event.
const SLACK: usize = 32;

/// Writes events as an encoder does.
struct EventWriter<'a> {
    events: &'a mut [u8],
    position: usize,
    length: usize,
}

impl EventWriter<'_> {
    /// Writes an event of up to three fields, each with the position of its size in the first byte.
    #[inline]
    fn event(&mut self, first: u8, fields: [(u64, u32); 3]) -> Option<()> {
        let bytes = self.events.get_mut(self.position..self.position + SLACK)?;
        let mut first = first;
        let mut length = 1;
        for (field, shift) in fields {
            if shift == NO_FIELD {
                continue;
            }
            let size = field_size_log2(field);
            bytes[length..length + 8].copy_from_slice(&field.to_le_bytes());
            first |= (size as u8) << shift;
            length += 1 << size;
        }
        bytes[0] = first;
        // The next event overwrites the bytes after this one.
        self.position += length;
        (self.position <= self.length).then_some(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.len() > self.length - self.position {
            return None;
        }
        self.events[self.position..self.position + bytes.len()].copy_from_slice(bytes);
        self.position += bytes.len();
        Some(())
    }
}

const NO_FIELD: u32 = u32::MAX;

/// Writes the events of all columns. `None` if the columns contradict each other.
fn merge_columns(
    format: u8,
    columns: &mut [ColumnReader<'_>; COUNT],
    out: &mut EventWriter<'_>,
) -> Option<()> {
    let mut addresses = Vec::with_capacity(out.length / 3);
    let mut predictor = KindPredictor::new();
    while !columns[EventColumn::EventCodes as usize].is_empty() {
        let event_code = columns[EventColumn::EventCodes as usize].byte()?;
        if event_code >= event_code::KIND_STORED {
            let (time, difference) = block_fields(&ALLOCATIONS, format, columns, &mut addresses)?;
            let (kind, known) = match event_code {
                event_code::KIND_STORED => {
                    let low = columns[EventColumn::KindLow as usize].byte()?;
                    let high = columns[EventColumn::KindHigh as usize].number()?;
                    if high >> 24 != 0 {
                        return None;
                    }
                    ((high as u32) << 8 | u32::from(low), true)
                }
                event_code::KIND_PREDICTED => (predictor.predicted(), true),
                event_code::KIND_NEWEST => (0, false),
                _ => return None,
            };
            if known {
                predictor.update(kind);
                out.event(0b1100_0000, [(time, 4), (difference, 2), (kind.into(), 0)])?;
            } else {
                out.event(0b1100_0011, [(time, 4), (difference, 2), (0, NO_FIELD)])?;
            }
        } else if event_code >= event_code::FREE {
            let (time, difference) = block_fields(&FREES, format, columns, &mut addresses)?;
            let first = 0b1000_0000 | event_code & 3;
            out.event(first, [(time, 4), (difference, 2), (0, NO_FIELD)])?;
        } else {
            out.bytes(&[event_code])?;
            let fields: &[EventColumn] = match event_code {
                code::NODE => &[EventColumn::NodeParents, EventColumn::NodeAddresses],
                code::KIND => {
                    &[EventColumn::KindNodes, EventColumn::KindSizes, EventColumn::KindFlags]
                }
                _ => {
                    let others = &mut columns[EventColumn::Others as usize];
                    let length = others.number()?.try_into().ok()?;
                    out.bytes(others.take(length)?)?;
                    continue;
                }
            };
            for &field in fields {
                out.bytes(columns[field as usize].number_bytes()?)?;
            }
        }
    }
    Some(())
}

/// The time of an event, and the difference of its address.
#[inline]
fn block_fields(
    which: &AddressColumns,
    format: u8,
    columns: &mut [ColumnReader<'_>; COUNT],
    addresses: &mut Vec<u64>,
) -> Option<(u64, u64)> {
    let mut time = u64::from(columns[which.times as usize].byte()?);
    if time == u64::from(LONG) {
        time = time.checked_add(columns[EventColumn::LongTimes as usize].number()?)?;
    }
    let last = addresses.last().copied().unwrap_or(0);
    let distance = if format & which.distances_bit == 0 {
        0
    } else {
        match columns[which.distances as usize].byte()? {
            LONG => columns[which.long_distances as usize].number()?.checked_add(LONG.into())?,
            distance => distance.into(),
        }
    };
    let address = if distance == 0 {
        let low = columns[which.low as usize].byte()?;
        let high = columns[which.high as usize].number()?;
        if high >> 56 != 0 {
            return None;
        }
        let difference = high << 8 | u64::from(low);
        addresses.push(last.wrapping_add(unzigzag(difference)));
        return Some((time, difference));
    } else {
        addresses[addresses.len().checked_sub(usize::try_from(distance).ok()?)?]
    };
    addresses.push(address);
    Some((time, zigzag(address.wrapping_sub(last))))
}
