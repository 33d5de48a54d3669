//! The one source of randomness: the same sequence from the same seed for every allocator.

/// The seed of every workload.
pub const SEED: u64 = 0x0A11_07E7;

/// SplitMix64: small, fast, and good enough to choose sizes and values.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A separate sequence for `stream` (a thread, a chart), from the workloads' seed.
    pub fn stream(stream: u64) -> Self {
        Self(SEED ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`; the bias is below 2^-32 for the bounds that workloads use.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.draw() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_itself_and_streams_differ() {
        let take = |stream| {
            let mut random = Random::stream(stream);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn numbers_below_a_bound_reach_both_ends() {
        let mut random = Random::stream(0);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
