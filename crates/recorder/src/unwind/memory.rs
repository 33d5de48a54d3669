//! Reading the stack where nobody says how far it goes.
//!
//! Invariants: a range's pages were asked for and could be read. A stack stays as long as its thread runs on it; what is
//! read beyond the frames that run is read because a rule says so, and asked for page by page. Behind a frame without a rule
//! nothing but the mapping that the frame lies in is read: its frame pointer may be any number, and what that points to may be
//! unmapped at any time.

use crate::sys::{self, File, How};
use crate::tls;

const PAGE: u64 = 4096;
/// The largest frame that is believed.
const LARGEST_STEP: u64 = 64 << 20;
const RANGES: usize = 8;
/// Stacks that a thread is known to have run on lately.
const STACKS: usize = 4;
/// Times that a thread's stacks are looked for in the list of mappings, which takes long where there are many.
const MOST_LOOKS: u32 = 1000;

/// What of the stacks of a thread is known to be readable. Zeroed memory is one that knows nothing.
#[derive(Debug, Default)]
pub struct Readable {
    ranges: [Range; RANGES],
    /// The range that was used last.
    last: usize,
    /// The range to be replaced next.
    next: usize,
    /// Where stacks lie, from their mapping's beginning to the end of what is stack in it.
    stacks: [Range; STACKS],
    next_stack: usize,
    looks: u32,
    /// From here on nothing is read; 0: there is no such bound.
    bound: u64,
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

    /// Lifts the bound that was set for the walk before.
    pub fn begin(&mut self) {
        self.bound = 0;
    }

    /// From here on nothing is read but the stack that a frame at `from` lies in. `None`: nobody knows where that ends.
    pub fn stay_on_stack(&mut self, from: u64) -> Option<()> {
        let stack = match self.stacks.iter().find(|stack| stack.has(from)) {
            Some(&known) => known,
            None => {
                self.looks += 1;
                if self.looks > MOST_LOOKS {
                    return None;
                }
                let found = stack_of(from)?;
                self.stacks[self.next_stack] = found;
                self.next_stack = (self.next_stack + 1) % STACKS;
                found
            }
        };
        if self.bound == 0 || stack.to < self.bound {
            self.bound = stack.to;
        }
        Some(())
    }

    /// The word at an address that a rule found from a frame at `from`, if there is one.
    #[inline]
    pub fn read(&mut self, address: u64, from: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || self.bound != 0 && address >= self.bound {
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

/// The mapping that a stack pointer lies in, up to the thread's own data where these lie in it: the system joins what is mapped
/// side by side.
#[cold]
fn stack_of(pointer: u64) -> Option<Range> {
    let mut found = mapping(pointer)?;
    let own = tls::address();
    if found.has(own) && own > pointer {
        found.to = own;
    }
    Some(found)
}

/// The mapping that has an address: each line of the list begins with `from-to` and a space.
fn mapping(address: u64) -> Option<Range> {
    let file = File::open(b"/proc/self/maps\0", How::Read).ok()?;
    let mut buffer = [0; 512];
    let mut range = Range::default();
    let mut in_numbers = true;
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        for &byte in &buffer[..length] {
            match byte {
                b'\n' => (range, in_numbers) = (Range::default(), true),
                _ if !in_numbers => {}
                b'-' => range.from = core::mem::take(&mut range.to),
                b' ' if range.has(address) => return Some(range),
                b' ' => in_numbers = false,
                digit => {
                    range.to = range.to << 4 | u64::from(char::from(digit).to_digit(16)?);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_bound_is_the_stack_alone_and_it_ends_before_the_thread_s_own_data() {
        let beside = sys::map(PAGE as usize).unwrap() as u64;
        let here = [7_u64; 2];
        let from = here.as_ptr() as u64;
        let stack = stack_of(from).unwrap();
        assert!(stack.has(from) && stack.has(from + 8), "{stack:?}");
        assert!(!stack.has(tls::address()), "{stack:?}");
        assert!(stack.from.is_multiple_of(PAGE));
        assert_eq!(mapping(8).map(|range| range.to), None);
        let mut readable = Readable::default();
        readable.stay_on_stack(from).unwrap();
        assert_eq!(readable.read(from, from), Some(7));
        let end = stack.to;
        assert_eq!(readable.read(end, end), None, "it's no stack any more");
        assert_eq!(readable.read(beside, beside).is_some(), beside < end);
        readable.begin();
        assert_eq!(readable.read(beside, beside), Some(0));
    }

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
