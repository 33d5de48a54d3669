//! Reading a stack whose end is not known.
//!
//! Invariants: the kernel was asked about the pages of a range, and they were readable. A stack
//! stays mapped as long as its thread runs on it. Words beyond the running frames are read only
//! because a rule says so, and after the kernel was asked about their page. Beyond a frame without
//! a rule, only the mapping of that frame is read: its frame pointer may be any number, and what it
//! points to may be unmapped at any time.

use crate::sys::{self, FileDescriptor, OpenMode};
use crate::tls;

const PAGE: u64 = 4096;
/// The largest frame that is considered possible, in bytes.
const MAX_FRAME_BYTES: u64 = 64 << 20;
/// Readable ranges that are remembered for each thread.
const MAX_RANGES: usize = 8;
/// Stacks that are remembered for each thread.
const MAX_STACKS: usize = 4;
/// Searches of each thread in the list of mappings, each of which takes long if there are many.
const MAX_MAPPING_SEARCHES: u32 = 1000;

/// The parts of a thread's stacks that are known to be readable. Zeroed memory is empty.
#[derive(Debug, Default)]
pub struct ReadableMemory {
    ranges: [AddressRange; MAX_RANGES],
    /// The range that was used last.
    last: usize,
    /// The range to be replaced next.
    next: usize,
    /// Known stacks, each from the start of its mapping to the end of the stack in it.
    stacks: [AddressRange; MAX_STACKS],
    next_stack: usize,
    mapping_searches: u32,
    /// From this address on nothing is read; 0 means that there is no such bound.
    bound: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct AddressRange {
    from: u64,
    to: u64,
}

impl AddressRange {
    #[inline(always)]
    fn contains(self, address: u64) -> bool {
        address >= self.from && address < self.to
    }
}

impl ReadableMemory {
    /// Forgets everything, because another thread's stack may be anywhere.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes the bound of the previous walk.
    pub fn begin_walk(&mut self) {
        self.bound = 0;
    }

    /// Limits this walk to the stack that a frame at `from` lies in. Returns `None` if the end of
    /// that stack cannot be found.
    pub fn limit_to_stack(&mut self, from: u64) -> Option<()> {
        let stack = match self.stacks.iter().find(|stack| stack.contains(from)) {
            Some(&known) => known,
            None => {
                self.mapping_searches += 1;
                if self.mapping_searches > MAX_MAPPING_SEARCHES {
                    return None;
                }
                let found = stack_of(from)?;
                self.stacks[self.next_stack] = found;
                self.next_stack = (self.next_stack + 1) % MAX_STACKS;
                found
            }
        };
        if self.bound == 0 || stack.to < self.bound {
            self.bound = stack.to;
        }
        Some(())
    }

    /// The word at an address that a rule for the frame at `from` has led to, if it is readable.
    #[inline]
    pub fn read(&mut self, address: u64, from: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || self.bound != 0 && address >= self.bound {
            return None;
        }
        if !self.ranges[self.last].contains(address) {
            self.extend_to(address, from)?;
        }
        // SAFETY: an aligned word in a readable page.
        Some(unsafe { (address as *const u64).read() })
    }

    #[cold]
    fn extend_to(&mut self, address: u64, from: u64) -> Option<()> {
        if let Some(index) = self.ranges.iter().position(|range| range.contains(address)) {
            self.last = index;
            return Some(());
        }
        let page = address & !(PAGE - 1);
        // The frame may have saved registers just below it. Addresses far below or above are not of
        // its stack.
        if address < from.saturating_sub(MAX_FRAME_BYTES)
            || address > from.checked_add(MAX_FRAME_BYTES)?
        {
            return None;
        }
        if !sys::is_readable(page) {
            return None;
        }
        let touching = |range: &AddressRange| range.to == page || range.from == page + PAGE;
        self.last = match self.ranges.iter().position(|range| range.to > 0 && touching(range)) {
            Some(index) => {
                let range = &mut self.ranges[index];
                range.from = range.from.min(page);
                range.to = range.to.max(page + PAGE);
                index
            }
            None => {
                let index = self.next;
                self.next = (index + 1) % MAX_RANGES;
                self.ranges[index] = AddressRange { from: page, to: page + PAGE };
                index
            }
        };
        Some(())
    }
}

/// The mapping that a stack pointer lies in. If the thread's own data lie in it too, it ends there:
/// the kernel joins adjacent mappings.
#[cold]
fn stack_of(pointer: u64) -> Option<AddressRange> {
    let mut found = mapping(pointer)?;
    let thread_data = tls::address();
    if found.contains(thread_data) && thread_data > pointer {
        found.to = thread_data;
    }
    Some(found)
}

/// The mapping that contains an address. Each line of the list begins with `from-to` and a space.
fn mapping(address: u64) -> Option<AddressRange> {
    let file = FileDescriptor::open(b"/proc/self/maps\0", OpenMode::Read).ok()?;
    let mut buffer = [0; 512];
    let mut range = AddressRange::default();
    let mut in_numbers = true;
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        for &byte in &buffer[..length] {
            match byte {
                b'\n' => (range, in_numbers) = (AddressRange::default(), true),
                _ if !in_numbers => {}
                b'-' => range.from = core::mem::take(&mut range.to),
                b' ' if range.contains(address) => return Some(range),
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
    fn below_a_bound_only_the_stack_is_read_and_it_ends_before_the_thread_s_own_data() {
        let other = sys::map(PAGE as usize).unwrap() as u64;
        let here = [7_u64; 2];
        let from = here.as_ptr() as u64;
        let stack = stack_of(from).unwrap();
        assert!(stack.contains(from) && stack.contains(from + 8), "{stack:?}");
        assert!(!stack.contains(tls::address()), "{stack:?}");
        assert!(stack.from.is_multiple_of(PAGE));
        assert_eq!(mapping(8).map(|range| range.to), None);
        let mut readable = ReadableMemory::default();
        readable.limit_to_stack(from).unwrap();
        assert_eq!(readable.read(from, from), Some(7));
        let end = stack.to;
        assert_eq!(readable.read(end, end), None, "it is after the stack");
        assert_eq!(readable.read(other, other).is_some(), other < end);
        readable.begin_walk();
        assert_eq!(readable.read(other, other), Some(0));
    }

    #[test]
    fn mapped_memory_is_read_and_other_memory_is_refused() {
        let first = sys::map(3 * PAGE as usize).unwrap();
        // SAFETY: the last page was mapped above, and is not used.
        unsafe { sys::unmap(first.wrapping_add(2 * PAGE as usize), PAGE as usize) };
        let base = first as u64;
        // SAFETY: the word lies in the first page.
        unsafe { first.cast::<u64>().write(77) };
        let mut readable = ReadableMemory::default();
        assert_eq!(readable.read(base, base), Some(77));
        assert_eq!(readable.read(base + 2 * PAGE - 8, base), Some(0));
        assert_eq!(readable.read(base + 2 * PAGE, base), None);
        assert_eq!(readable.read(base + 4, base), None, "it is not aligned");
        assert_eq!(readable.read(8, 8), None);
        assert_eq!(readable.read(base, base + 2 * MAX_FRAME_BYTES), Some(77), "its page is known");
        readable.clear();
        assert_eq!(readable.read(base, base + 2 * MAX_FRAME_BYTES), None);
        assert_eq!(readable.read(u64::MAX - 7, u64::MAX), None);
    }
}
