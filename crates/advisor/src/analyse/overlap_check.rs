//! Checks that no two live blocks overlap. In a sound recording they never do.

use super::findings::OverlapFindings;
use std::collections::BTreeMap;

/// The most examples that are kept.
const MOST_EXAMPLES: usize = 8;

/// All live blocks by address. This is slower than the rest of the analysis, so it only runs with
/// `--check`.
#[derive(Debug, Default)]
pub struct OverlapCheck {
    live: BTreeMap<u64, u64>,
    found: OverlapFindings,
}

impl OverlapCheck {
    pub fn allocated(&mut self, address: u64, size: u64, time_ns: u64) {
        self.found.checked += 1;
        // A block of no bytes still has an address of its own.
        let end = address.saturating_add(size.max(1));
        let below = self.live.range(..end).next_back().map(|(&start, &size)| (start, size));
        if let Some((start, other)) = below
            && start.saturating_add(other.max(1)) > address
        {
            self.found.found += 1;
            if self.found.examples.len() < MOST_EXAMPLES {
                self.found.examples.push(format!(
                    "at {:.6} s a block of {size} bytes at {address:#x} overlaps the live one of {other} bytes at {start:#x}",
                    time_ns as f64 / 1e9
                ));
            }
        }
        self.live.insert(address, size);
    }

    pub fn freed(&mut self, address: u64) {
        self.live.remove(&address);
    }

    pub fn finish(self) -> OverlapFindings {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_side_by_side_are_fine_and_one_byte_over_is_found() {
        let mut check = OverlapCheck::default();
        check.allocated(0x1000, 16, 1);
        check.allocated(0x1010, 16, 2);
        check.allocated(0x0ff0, 16, 3);
        check.freed(0x1010);
        check.allocated(0x1010, 0, 4);
        assert_eq!(check.found.found, 0);
        check.allocated(0x100f, 1, 5);
        check.allocated(0x0f00, 0xf1, 6);
        check.allocated(0x1010, 8, 7);
        let found = check.finish();
        assert_eq!((found.checked, found.found), (7, 3));
        assert!(found.examples[0].contains("0x100f") && found.examples[0].contains("0x1000"));
    }
}
