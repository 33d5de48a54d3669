//! Reading the stack where nobody says how far it goes.
//!
//! Invariants: a range's pages were asked for and could be read. A stack stays as long as its thread runs on it; what is
//! read beyond the frames that run is read because a rule says so, and asked for page by page.

use crate::sys;

const PAGE: u64 = 4096;
/// The largest frame that is believed.
const LARGEST_STEP: u64 = 64 << 20;
const RANGES: usize = 8;

/// What of the stacks of a thread is known to be readable. Zeroed memory is one that knows nothing.
#[derive(Debug, Default)]
pub struct Readable {
    ranges: [Range; RANGES],
    /// The range that was used last.
    last: usize,
    /// The range to be replaced next.
    next: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
}

impl Range {
    #[inline(always)]
    fn has(self, address: u64) -> bool {
        address >= self.from && address < self.to
    }
}

impl Readable {
    /// Forgets everything: another thread's stack may be anywhere.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The word at an address that a rule found from a frame at `from`, if there is one.
    #[inline]
    pub fn read(&mut self, address: u64, from: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        if !self.ranges[self.last].has(address) {
            self.reach(address, from)?;
        }
        // SAFETY: an aligned word in a page that can be read.
        Some(unsafe { (address as *const u64).read() })
    }

    #[cold]
    fn reach(&mut self, address: u64, from: u64) -> Option<()> {
        if let Some(found) = self.ranges.iter().position(|range| range.has(address)) {
            self.last = found;
            return Some(());
        }
        let page = address & !(PAGE - 1);
        // Just below the frame may lie what it saved; far below or above lies nothing of its stack.
        if address < from.saturating_sub(LARGEST_STEP)
            || address > from.checked_add(LARGEST_STEP)?
        {
            return None;
        }
        if !sys::is_readable(page) {
            return None;
        }
        let touching = |range: &Range| range.to == page || range.from == page + PAGE;
        let grown = match self.ranges.iter().position(|range| range.to > 0 && touching(range)) {
            Some(found) => {
                let range = &mut self.ranges[found];
                range.from = range.from.min(page);
                range.to = range.to.max(page + PAGE);
                found
            }
            None => {
                let place = self.next;
                self.next = (place + 1) % RANGES;
                self.ranges[place] = Range { from: page, to: page + PAGE };
                place
            }
        };
        self.last = grown;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_read_and_what_is_not_is_refused() {
        let at = sys::map(3 * PAGE as usize).unwrap();
        // SAFETY: the last page is ours, and nobody uses it.
        unsafe { sys::unmap(at.wrapping_add(2 * PAGE as usize), PAGE as usize) };
        let base = at as u64;
        // SAFETY: the word lies in the first page.
        unsafe { at.cast::<u64>().write(77) };
        let mut readable = Readable::default();
        assert_eq!(readable.read(base, base), Some(77));
        assert_eq!(readable.read(base + 2 * PAGE - 8, base), Some(0));
        assert_eq!(readable.read(base + 2 * PAGE, base), None);
        assert_eq!(readable.read(base + 4, base), None, "no word begins there");
        assert_eq!(readable.read(8, 8), None);
        assert_eq!(readable.read(base, base + 2 * LARGEST_STEP), Some(77), "it's known");
        readable.clear();
        assert_eq!(readable.read(base, base + 2 * LARGEST_STEP), None);
        assert_eq!(readable.read(u64::MAX - 7, u64::MAX), None);
    }
}
