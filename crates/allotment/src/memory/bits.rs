//! Masks of the bits of a word, without unsafe code.
#![forbid(unsafe_code)]

/// The lowest `bits` bits, at most 64.
pub(super) const fn low_bits(bits: usize) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The position of the lowest run of `len` ones, at least one.
#[cfg(not(loom))]
pub(super) fn lowest_run(ones: u64, len: usize) -> Option<u32> {
    let mut starts = ones;
    let mut found = 1;
    while found < len && starts != 0 {
        // A start of `found` ones is a start of `found + more` if the bits behind it are ones too.
        let more = found.min(len - found);
        starts &= starts >> more;
        found += more;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_run_is_found_exactly_where_enough_ones_are_contiguous() {
        for len in 1..=64 {
            for ones in
                [0, 1, 0b1011, u64::MAX >> 1, u64::MAX << 3, 0x0f0f_0f0f_0f0f_0f0f, u64::MAX]
            {
                let is_run = |shift: &u32| !ones & (low_bits(len) << shift) == 0;
                let expected = (0..=64 - len as u32).find(is_run);
                assert_eq!(lowest_run(ones, len), expected, "{len} ones of {ones:#x}");
            }
        }
    }
}
