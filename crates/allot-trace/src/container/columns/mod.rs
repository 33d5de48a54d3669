//! The events of a chunk as columns, which compress better than one event behind the other.
//!
//! Each column has what is alike: what the events are, the times between them, addresses, numbers of kinds. An address is told by
//! how many events ago it was met last, if it was met in this chunk: a block that dies young is freed a few events
//! after it was allocated, and allocators give out again what was freed just before. Where addresses follow
//! each other instead, each is what it differs from the one before; the packer takes whichever is shorter. A kind that came
//! behind the kind before the last time, too, is left out.
//!
//! A packed chunk is a byte that says how: [`PLAIN`], the events as they are, compressed by zstd; or a byte with
//! [`COLUMNS`] and the bits that say how addresses are told, then all columns in their order, each with its length,
//! its length when compressed, and its bytes. Unpacking gives the very bytes that were packed.

mod pack;
mod unpack;

pub(crate) use pack::pack;
pub(crate) use unpack::unpack;

/// The events as they are.
const PLAIN: u8 = 0;
/// As columns.
const COLUMNS: u8 = 1;
/// The addresses of allocations are told by when they were met last.
const NEAR_ALLOCATIONS: u8 = 2;
/// The addresses of frees are.
const NEAR_FREES: u8 = 4;

/// The columns, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Column {
    /// A byte for each event: [`what`].
    What,
    /// A byte for each time since the event before, of allocations; [`LONG`] for one that is in `LongTimes`.
    AllocationTimes,
    /// The same of frees and questions for the usable size.
    FreeTimes,
    LongTimes,
    /// A byte for each address of an allocation: how many events ago it was met; 0 for one that wasn't, [`LONG`] for one
    /// that is in `LongAllocationDistances`.
    AllocationDistances,
    LongAllocationDistances,
    /// The same of frees and questions for the usable size.
    FreeDistances,
    LongFreeDistances,
    /// The lowest byte of the difference from the address before (zigzag), for an allocation's address that was not met.
    AllocationLow,
    /// The bits above.
    AllocationHigh,
    /// The same of frees and questions for the usable size.
    FreeLow,
    FreeHigh,
    /// The lowest byte of a kind's number.
    KindLow,
    /// The bits above.
    KindHigh,
    /// The fields of new nodes.
    NodeParents,
    NodeAddresses,
    /// The fields of new kinds.
    KindNodes,
    KindSizes,
    KindFlags,
    /// Other events as they are, without their first byte.
    Others,
}

const COUNT: usize = Column::Others as usize + 1;

/// The columns of the addresses of allocations, or of frees.
#[derive(Debug, Clone, Copy)]
struct AddressColumns {
    near: u8,
    times: Column,
    distances: Column,
    long_distances: Column,
    low: Column,
    high: Column,
}

const ALLOCATIONS: AddressColumns = AddressColumns {
    near: NEAR_ALLOCATIONS,
    times: Column::AllocationTimes,
    distances: Column::AllocationDistances,
    long_distances: Column::LongAllocationDistances,
    low: Column::AllocationLow,
    high: Column::AllocationHigh,
};

const FREES: AddressColumns = AddressColumns {
    near: NEAR_FREES,
    times: Column::FreeTimes,
    distances: Column::FreeDistances,
    long_distances: Column::LongFreeDistances,
    low: Column::FreeLow,
    high: Column::FreeHigh,
};

/// What an event is. Those not here are their own first bytes.
mod what {
    /// A free, by the lowest two bits of its first byte.
    pub const FREE: u8 = 0x80;
    /// An allocation of a kind that is told.
    pub const KIND_TOLD: u8 = 0x90;
    /// Of the kind that came behind the kind before the last time.
    pub const KIND_AS_BEFORE: u8 = 0x91;
    /// Of the kind that was announced last.
    pub const KIND_NEWEST: u8 = 0x92;
}

/// A number that is too long for its byte.
const LONG: u8 = 255;

/// Which kind came behind which, the last time. Two kinds may share a place.
struct Followers {
    kinds: Vec<u32>,
    last: usize,
}

impl Followers {
    const PLACES: usize = 4096;

    fn new() -> Self {
        Self { kinds: vec![0; Self::PLACES], last: 0 }
    }

    /// The kind that is expected now.
    #[inline]
    fn expected(&self) -> u32 {
        self.kinds[self.last]
    }

    /// Says which one it is.
    #[inline]
    fn comes(&mut self, kind: u32) {
        self.kinds[self.last] = kind;
        self.last = kind as usize % Self::PLACES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{CHUNK_CAPACITY, Encoder, Flags, Lock, LockWait, Origin};

    /// What an encoder writes.
    fn encoded(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut room = vec![0; CHUNK_CAPACITY];
        let mut encoder = Encoder::closed();
        // SAFETY: the room is zero, ours, and lives until the end.
        unsafe { encoder.open(room.as_mut_ptr(), CHUNK_CAPACITY, 1_000) };
        write(&mut encoder);
        let used = CHUNK_CAPACITY - encoder.bytes_left();
        room.truncate(used);
        room
    }

    fn there_and_back(events: &[u8]) -> usize {
        let packed = pack(events).unwrap();
        let mut unpacked = vec![1; 7];
        unpack(&packed, events.len(), &mut unpacked).unwrap();
        assert!(unpacked == events, "other bytes come back");
        packed.len()
    }

    /// Blocks of `kinds` kinds, of which `live` live at a time, at addresses that are given out again.
    fn churn(kinds: u32, live: usize, events: u32) -> Vec<u8> {
        // SAFETY: there is room for so few.
        encoded(|encoder| unsafe {
            let (mut tick, mut random) = (1_000, 1_u64);
            let mut blocks = Vec::new();
            let mut free: Vec<u64> =
                (0..live as u64 + 1).map(|i| 0x5555_0000 + i * i * 48).collect();
            for i in 0..events {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                tick += random >> 59;
                if blocks.len() < live {
                    let kind = (random >> 40) as u32 % kinds;
                    let address = free.pop().unwrap();
                    if i < kinds {
                        encoder.node(i + 1, 0x40_0000 + u64::from(i) * 7);
                        encoder.kind(i + 2, u64::from(i), Flags::new(Origin::Malloc));
                        encoder.allocated_of_newest_kind(tick, address);
                    } else {
                        encoder.allocated(tick, address, kind);
                    }
                    blocks.push(address);
                } else {
                    let address = blocks.swap_remove((random >> 33) as usize % live);
                    free.push(address);
                    encoder.freed(tick, address);
                }
            }
        })
    }

    #[test]
    fn what_is_packed_comes_back_byte_by_byte() {
        for events in
            [churn(1, 1, 1_000), churn(300, 50, 20_000), churn(3, 2_000, 20_000), Vec::new()]
        {
            there_and_back(&events);
        }
    }

    #[test]
    fn blocks_that_die_young_take_few_bytes() {
        let events = churn(4, 3, 20_000);
        let plain = zstd::bulk::compress(&events, 1).unwrap().len();
        let packed = there_and_back(&events);
        assert!(packed * 4 < plain * 3, "{packed} of {plain}");
    }

    #[test]
    fn every_event_and_every_extreme_comes_back() {
        // SAFETY: there is room for so few.
        let events = encoded(|encoder| unsafe {
            encoder.thread(1_000, 3, 4);
            encoder.node(0, u64::MAX);
            encoder.node(2, 1);
            encoder.kind(3, u64::MAX, Flags(255));
            encoder.allocated_of_newest_kind(1_000, u64::MAX);
            for tick in [254, 255, 256, 65_791, 1 << 33, (1 << 63) - 1] {
                encoder.freed(tick, 0);
                encoder.allocated(tick, 1 << 63, u32::MAX);
                encoder.usable_size_queried(tick, 1 << 63);
                encoder.freed_by_realloc(tick, 1 << 63);
                encoder.allocated(tick, 0x10, 0);
            }
            let wait = LockWait { node: 3, address: 5, lock: Lock::Read, ticks: u64::MAX };
            encoder.waited(1 << 63, wait);
            encoder.module_unloaded(u64::MAX, 7);
            encoder.forget();
            encoder.node(1, 99);
            encoder.thread_end(u64::MAX);
            encoder.freed(u64::MAX, 0x10);
        });
        there_and_back(&events);
        // Far apart: more events than a byte tells.
        let mut far = churn(4, 700, 20_000);
        there_and_back(&far);
        // What no encoder writes is kept as it is: here two bytes for a time that needs one.
        far.extend([0b1001_0000, 1, 0, 2]);
        there_and_back(&far);
        there_and_back(&[0x7f; 100]);
        there_and_back(&[0; 100]);
    }

    #[test]
    fn what_was_not_packed_is_refused() {
        let events = churn(5, 20, 300);
        let packed = pack(&events).unwrap();
        let mut into = Vec::new();
        for length in [0, 1, events.len() - 1, events.len() + 1, CHUNK_CAPACITY] {
            assert!(unpack(&packed, length, &mut into).is_err(), "{length}");
        }
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut], events.len(), &mut into).is_err(), "cut at {cut}");
        }
        for at in 0..packed.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = packed.clone();
                other[at] ^= flip;
                // Whatever it gives, it ends and gives no more than it says.
                if unpack(&other, events.len(), &mut into).is_ok() {
                    assert_eq!(into.len(), events.len());
                }
            }
        }
    }
}
