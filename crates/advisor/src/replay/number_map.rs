//! A hash map with numbers as keys, and a bit set.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers of a recording. Its hash is fast, and does not resist chosen
/// collisions.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes a number by multiplication. Both halves of the product are combined, so that all bits of
/// the number influence both the low and the high bits of the hash.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl NumberHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A bit for each number; at first, all are clear.
#[derive(Debug, Default)]
pub struct BitSet(Vec<u64>);

impl BitSet {
    pub fn set(&mut self, number: u64) {
        let word = (number / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    pub fn get(&self, number: u64) -> bool {
        self.0.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_kind_are_spread() {
        let hash = |address: u64| {
            let mut spread = NumberHasher::default();
            spread.write_u64(address);
            spread.finish()
        };
        // The map takes an index from the lower bits, and a tag from the upper seven.
        for stride in [16, 64, 4096, 1 << 21] {
            let hashes: Vec<u64> =
                (0..4096).map(|at| hash(0x7f00_0000_0000 + at * stride)).collect();
            let different = |bits: fn(u64) -> u64| {
                hashes
                    .iter()
                    .map(|hash| bits(*hash))
                    .collect::<std::collections::HashSet<_>>()
                    .len()
            };
            assert!(different(|hash| hash & 4095) > 2000, "stride {stride}");
            assert_eq!(different(|hash| hash >> 57), 128, "stride {stride}");
        }
    }

    #[test]
    fn bits_that_were_never_set_are_clear() {
        let mut bits = BitSet::default();
        bits.set(130);
        assert!(bits.get(130) && !bits.get(129) && !bits.get(1 << 40));
    }
}
