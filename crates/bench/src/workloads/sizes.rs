//! Object sizes with a distribution as in programs: many small objects, few large ones.

use crate::workloads::random::Random;
use std::alloc::Layout;

/// The smallest size, in bytes.
pub const LEAST: u16 = 16;

/// The largest size, in bytes.
pub const GREATEST: u16 = 1024;

/// Of 100 objects, the number with 16 to 31 bytes, with 32 to 63 bytes, and so on; the last range
/// is 512 to 1024.
pub const SKEW: [u32; 6] = [30, 30, 20, 11, 6, 3];

/// The alignment of every object.
const ALIGN: usize = align_of::<u64>();

/// Draws one size. The range comes from [`SKEW`]; within it, all sizes have the same probability.
/// Half of the sizes are rounded up to a word, as sizes of structures are. The others are not, as
/// lengths of text.
pub fn draw(random: &mut Random) -> u16 {
    let mut rest = random.below(SKEW.iter().sum());
    let mut from = LEAST;
    for share in SKEW {
        if rest < share {
            break;
        }
        rest -= share;
        from *= 2;
    }
    // The last range includes its end.
    let sizes = u32::from(from) + u32::from(2 * from == GREATEST);
    let size = from + random.below(sizes) as u16;
    if random.below(2) == 0 { size.next_multiple_of(ALIGN as u16) } else { size }
}

/// The layout of an object of this size.
#[inline(always)]
pub fn layout(size: u16) -> Layout {
    // The compiler sees that this can't fail.
    Layout::from_size_align(usize::from(size), ALIGN)
        .expect("the sizes are small and the alignment a power of two")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_bounds_and_their_skew() {
        const DRAWS: u32 = 200_000;
        let mut random = Random::stream(0);
        let mut counts = [0u32; SKEW.len()];
        let (mut sum, mut words) = (0, 0);
        let mut seen = [false; GREATEST as usize + 1];
        for _ in 0..DRAWS {
            let size = draw(&mut random);
            assert!((LEAST..=GREATEST).contains(&size));
            seen[usize::from(size)] = true;
            sum += u32::from(size);
            words += u32::from(size.is_multiple_of(8));
            // A size that was rounded up may be in the next range.
            let doubling = (size.ilog2() - LEAST.ilog2()).min(SKEW.len() as u32 - 1);
            counts[doubling as usize] += 1;
        }
        assert!(seen[usize::from(LEAST)] && seen[usize::from(GREATEST)]);
        for (count, share) in counts.iter().zip(SKEW) {
            let percent = f64::from(*count) / f64::from(DRAWS) * 100.0;
            assert!((percent - f64::from(share)).abs() < 7.0, "{percent} of {share}");
        }
        let average = sum / DRAWS;
        assert!((100..120).contains(&average), "{average}");
        assert!((DRAWS / 2..DRAWS * 2 / 3).contains(&words), "{words}");
    }
}
