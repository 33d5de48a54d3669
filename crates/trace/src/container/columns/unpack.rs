//! Unpacking a chunk, whatever it holds.

use super::{
    ALLOCATIONS, AddressColumns, COLUMNS, COUNT, Column, FREES, Followers, LONG, NEAR_ALLOCATIONS,
    NEAR_FREES, PLAIN, what,
};
use crate::raw::code;
use zstd::bulk::Decompressor;

/// Brings back the `length` bytes of events that were packed, into a buffer that is used again and again. An error says what
/// is wrong with them.
pub(crate) fn unpack(packed: &[u8], length: usize, events: &mut Vec<u8>) -> Result<(), String> {
    let mut decompressor = Decompressor::new().map_err(|error| error.to_string())?;
    events.clear();
    let (&how, packed) = packed.split_first().ok_or("a chunk without a first byte")?;
    match how {
        PLAIN => {
            events.resize(length, 0);
            if decompress(&mut decompressor, packed, events)? != length {
                return Err("a chunk whose length is wrong".to_owned());
            }
            Ok(())
        }
        _ if how & COLUMNS != 0 && how & !(COLUMNS | NEAR_ALLOCATIONS | NEAR_FREES) == 0 => {
            // The last event is written with what may lie behind it.
            events.resize(length + SLACK, 0);
            let bytes = read_columns(packed, length, &mut decompressor)?;
            let mut columns = bytes.each_ref().map(|bytes| Rest { bytes, at: 0 });
            let mut out = Out { events, at: 0, length };
            weave(how, &mut columns, &mut out).ok_or("columns that don't fit together")?;
            let whole = out.at == length && columns.iter().all(Rest::is_empty);
            events.truncate(length);
            if whole { Ok(()) } else { Err("columns whose length is wrong".to_owned()) }
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

/// What is left of a column.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
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
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    /// A number's own bytes.
    fn number_bytes(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
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
    let mut rest = Rest { bytes: packed, at: 0 };
    let mut columns: [Vec<u8>; COUNT] = Default::default();
    for column in &mut columns {
        let size = rest.number().ok_or_else(short)?;
        // No column has more bytes than the events that it is a part of.
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

/// What may be written behind an event's end.
const SLACK: usize = 32;

struct Out<'a> {
    events: &'a mut [u8],
    at: usize,
    length: usize,
}

impl Out<'_> {
    /// Writes an event of up to three fields as an encoder does.
    #[inline]
    fn event(&mut self, first: u8, fields: [(u64, u32); 3]) -> Option<()> {
        let room = self.events.get_mut(self.at..self.at + SLACK)?;
        let mut first = first;
        let mut length = 1;
        for (field, shift) in fields {
            if shift == NO_FIELD {
                continue;
            }
            let code = size_code(field);
            room[length..length + 8].copy_from_slice(&field.to_le_bytes());
            first |= code << shift;
            length += 1 << code;
        }
        room[0] = first;
        // What lies behind is the next event's.
        self.at += length;
        (self.at <= self.length).then_some(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.len() > self.length - self.at {
            return None;
        }
        self.events[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }
}

const NO_FIELD: u32 = u32::MAX;

/// The binary logarithm of the bytes of a field.
#[inline]
fn size_code(value: u64) -> u8 {
    const CODES: u32 = 0b11_11_11_11_10_10_01_00;
    let bytes = (63 - (value | 1).leading_zeros()) >> 3;
    (CODES >> (2 * bytes)) as u8 & 3
}

/// Puts the events together again; `None` where the columns contradict each other.
fn weave(how: u8, columns: &mut [Rest<'_>; COUNT], out: &mut Out<'_>) -> Option<()> {
    let mut addresses = Vec::with_capacity(out.length / 3);
    let mut followers = Followers::new();
    while !columns[Column::What as usize].is_empty() {
        let what = columns[Column::What as usize].byte()?;
        if what >= what::KIND_TOLD {
            let (time, difference) = block(&ALLOCATIONS, how, columns, &mut addresses)?;
            let (kind, known) = match what {
                what::KIND_TOLD => {
                    let low = columns[Column::KindLow as usize].byte()?;
                    let high = columns[Column::KindHigh as usize].number()?;
                    if high >> 24 != 0 {
                        return None;
                    }
                    ((high as u32) << 8 | u32::from(low), true)
                }
                what::KIND_AS_BEFORE => (followers.expected(), true),
                what::KIND_NEWEST => (0, false),
                _ => return None,
            };
            if known {
                followers.comes(kind);
                out.event(0b1100_0000, [(time, 4), (difference, 2), (kind.into(), 0)])?;
            } else {
                out.event(0b1100_0011, [(time, 4), (difference, 2), (0, NO_FIELD)])?;
            }
        } else if what >= what::FREE {
            let (time, difference) = block(&FREES, how, columns, &mut addresses)?;
            let first = 0b1000_0000 | what & 3;
            out.event(first, [(time, 4), (difference, 2), (0, NO_FIELD)])?;
        } else {
            out.bytes(&[what])?;
            let fields: &[Column] = match what {
                code::NODE => &[Column::NodeParents, Column::NodeAddresses],
                code::KIND => &[Column::KindNodes, Column::KindSizes, Column::KindFlags],
                _ => {
                    let others = &mut columns[Column::Others as usize];
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

/// The time and the difference of the address of an event.
#[inline]
fn block(
    which: &AddressColumns,
    how: u8,
    columns: &mut [Rest<'_>; COUNT],
    addresses: &mut Vec<u64>,
) -> Option<(u64, u64)> {
    let mut time = u64::from(columns[which.times as usize].byte()?);
    if time == u64::from(LONG) {
        time = time.checked_add(columns[Column::LongTimes as usize].number()?)?;
    }
    let last = addresses.last().copied().unwrap_or(0);
    let distance = if how & which.near == 0 {
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
        addresses.push(last.wrapping_add(crate::raw::unzigzag(difference)));
        return Some((time, difference));
    } else {
        addresses[addresses.len().checked_sub(usize::try_from(distance).ok()?)?]
    };
    addresses.push(address);
    Some((time, crate::raw::zigzag(address.wrapping_sub(last))))
}
