//! The events of a chunk as columns, which compress better than one event after the other.
//!
//! Each column contains similar values: the codes of events, the times between them, addresses,
//! numbers of kinds. An address that occurred before in this chunk is stored as a distance: how
//! many events ago it occurred last. A block with a short life is freed a few events after its
//! allocation, and allocators return blocks that were freed just before. Other addresses are stored
//! as the difference from the previous one. For some programs all differences together are shorter
//! than distances; the packer uses whichever is shorter. A kind is left out if it follows the same
//! kind as the last time.
//!
//! A packed chunk begins with a byte for its format. [`PLAIN`]: the unchanged events, compressed by
//! zstd. [`COLUMNS`], with bits for how addresses are stored: all columns in order, each with its
//! length, its compressed length and its bytes. Unpacking returns exactly the bytes that were
//! packed.

mod pack;
mod unpack;

pub(crate) use pack::pack;
pub(crate) use unpack::unpack;

/// The format of unchanged events.
const PLAIN: u8 = 0;
/// The format of columns.
const COLUMNS: u8 = 1;
/// Added to [`COLUMNS`] if addresses of allocations are stored as distances.
const ALLOCATION_DISTANCES: u8 = 2;
/// Added to [`COLUMNS`] if addresses of frees are stored as distances.
const FREE_DISTANCES: u8 = 4;

/// The columns, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum EventColumn {
    /// A byte for each event: its [`event_code`].
    EventCodes,
    /// A byte for the time from the previous event to each allocation; [`LONG`] if it is in
    /// `LongTimes`.
    AllocationTimes,
    /// The same for frees and queries for the usable size.
    FreeTimes,
    LongTimes,
    /// A byte for the address of each allocation: how many events ago it occurred; 0 if it did not
    /// occur, [`LONG`] if the distance is in `LongAllocationDistances`.
    AllocationDistances,
    LongAllocationDistances,
    /// The same for frees and queries for the usable size.
    FreeDistances,
    LongFreeDistances,
    /// The lowest byte of the difference from the previous address (zigzag), for the address of an
    /// allocation that is not stored as a distance.
    AllocationLow,
    /// The higher bits.
    AllocationHigh,
    /// The same for frees and queries for the usable size.
    FreeLow,
    FreeHigh,
    /// The lowest byte of a kind's number.
    KindLow,
    /// The higher bits.
    KindHigh,
    /// The fields of new nodes.
    NodeParents,
    NodeAddresses,
    /// The fields of new kinds.
    KindNodes,
    KindSizes,
    KindFlags,
    /// All other events without their first byte, unchanged.
    Others,
}

const COUNT: usize = EventColumn::Others as usize + 1;

/// The columns of allocations, or those of frees.
#[derive(Debug, Clone, Copy)]
struct AddressColumns {
    /// The bit of the format that selects distances.
    distances_bit: u8,
    times: EventColumn,
    distances: EventColumn,
    long_distances: EventColumn,
    low: EventColumn,
    high: EventColumn,
}

const ALLOCATIONS: AddressColumns = AddressColumns {
    distances_bit: ALLOCATION_DISTANCES,
    times: EventColumn::AllocationTimes,
    distances: EventColumn::AllocationDistances,
    long_distances: EventColumn::LongAllocationDistances,
    low: EventColumn::AllocationLow,
    high: EventColumn::AllocationHigh,
};

const FREES: AddressColumns = AddressColumns {
    distances_bit: FREE_DISTANCES,
    times: EventColumn::FreeTimes,
    distances: EventColumn::FreeDistances,
    long_distances: EventColumn::LongFreeDistances,
    low: EventColumn::FreeLow,
    high: EventColumn::FreeHigh,
};

/// The codes of events with an address. Other events have their first byte as their code.
mod event_code {
    /// A free, plus the lowest two bits of its first byte.
    pub const FREE: u8 = 0x80;
    /// An allocation whose kind is stored.
    pub const KIND_STORED: u8 = 0x90;
    /// An allocation of the predicted kind.
    pub const KIND_PREDICTED: u8 = 0x91;
    /// An allocation of the kind that was announced last.
    pub const KIND_NEWEST: u8 = 0x92;
}

/// Stands for a number that does not fit into a byte.
const LONG: u8 = 255;

/// Predicts the kind of an allocation: the one that followed the previous kind the last time. Two
/// kinds may share a slot.
struct KindPredictor {
    kinds: Vec<u32>,
    last: usize,
}

impl KindPredictor {
    const SLOTS: usize = 4096;

    fn new() -> Self {
        Self { kinds: vec![0; Self::SLOTS], last: 0 }
    }

    /// The predicted kind.
    #[inline]
    fn predicted(&self) -> u32 {
        self.kinds[self.last]
    }

    /// Takes the actual kind.
    #[inline]
    fn update(&mut self, kind: u32) {
        self.kinds[self.last] = kind;
        self.last = kind as usize % Self::SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{
        AllocationFlags, AllocationFunction, CHUNK_CAPACITY, Encoder, LockKind, LockWait,
    };

    /// The events that an encoder writes.
    fn encoded(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut memory = vec![0; CHUNK_CAPACITY];
        let mut encoder = Encoder::closed();
        // SAFETY: the memory is zero, and outlives the encoder.
        unsafe { encoder.open(memory.as_mut_ptr(), CHUNK_CAPACITY, 1_000) };
        write(&mut encoder);
        let used = CHUNK_CAPACITY - encoder.bytes_left();
        memory.truncate(used);
        memory
    }

    fn packed_size(events: &[u8]) -> usize {
        let packed = pack(events).unwrap();
        let mut unpacked = vec![1; 7];
        unpack(&packed, events.len(), &mut unpacked).unwrap();
        assert!(unpacked == events, "unpacking returned other bytes");
        packed.len()
    }

    /// Allocations and frees of blocks of `kinds` kinds, with `live` live blocks at a time, at
    /// addresses that are reused.
    fn churn(kinds: u32, live: usize, events: u32) -> Vec<u8> {
        // SAFETY: this few events fit.
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
                        encoder.kind(
                            i + 2,
                            u64::from(i),
                            AllocationFlags::new(AllocationFunction::Malloc),
                        );
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
    fn unpacking_returns_the_packed_bytes() {
        for events in
            [churn(1, 1, 1_000), churn(300, 50, 20_000), churn(3, 2_000, 20_000), Vec::new()]
        {
            packed_size(&events);
        }
    }

    #[test]
    fn blocks_with_short_lives_take_few_bytes() {
        let events = churn(4, 3, 20_000);
        let plain = zstd::bulk::compress(&events, 1).unwrap().len();
        let packed = packed_size(&events);
        assert!(packed * 4 < plain * 3, "{packed} of {plain}");
    }

    #[test]
    fn every_event_and_every_extreme_value_is_returned() {
        // SAFETY: this few events fit.
        let events = encoded(|encoder| unsafe {
            encoder.thread(1_000, 3, 4);
            encoder.node(0, u64::MAX);
            encoder.node(2, 1);
            encoder.kind(3, u64::MAX, AllocationFlags(255));
            encoder.allocated_of_newest_kind(1_000, u64::MAX);
            for tick in [254, 255, 256, 65_791, 1 << 33, (1 << 63) - 1] {
                encoder.freed(tick, 0);
                encoder.allocated(tick, 1 << 63, u32::MAX);
                encoder.usable_size_queried(tick, 1 << 63);
                encoder.freed_by_realloc(tick, 1 << 63);
                encoder.allocated(tick, 0x10, 0);
            }
            let wait = LockWait { node: 3, address: 5, lock: LockKind::Read, ticks: u64::MAX };
            encoder.waited(1 << 63, wait);
            encoder.module_unloaded(u64::MAX, 7);
            encoder.forget();
            encoder.node(1, 99);
            encoder.thread_end(u64::MAX);
            encoder.freed(u64::MAX, 0x10);
        });
        packed_size(&events);
        // Distances of more events than fit into a byte.
        let mut far = churn(4, 700, 20_000);
        packed_size(&far);
        // Events that no encoder writes are kept unchanged: here two bytes for a time that needs
        // one.
        far.extend([0b1001_0000, 1, 0, 2]);
        packed_size(&far);
        packed_size(&[0x7f; 100]);
        packed_size(&[0; 100]);
    }

    #[test]
    fn other_bytes_than_packed_ones_are_refused() {
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
                // Whatever the result is, unpacking ends, and the length is right.
                if unpack(&other, events.len(), &mut into).is_ok() {
                    assert_eq!(into.len(), events.len());
                }
            }
        }
    }
}
