//! The frames that a thread has looked up in the trial's file.
//!
//! Invariant: a slot whose `address` is not 0 holds what the file has for a frame whose callee
//! returns to that address; `callee` is the callee's number in the file.

use crate::number_table::mix;
use trace_format::raw::TrialNode;

const SLOTS: usize = 2048;

/// What the file says of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameRoute {
    /// The route of all stacks that have it.
    Decided(u8),
    /// The caller's frame decides.
    CallerDecides {
        /// The frame's own number.
        number: u32,
        /// The offset from its stack pointer of the slot that holds its return address; 0 if that is
        /// not always the same.
        return_slot: u32,
    },
}

#[derive(Debug, Clone, Copy)]
struct KnownFrame {
    address: u64,
    callee: u32,
    /// Bits 0 to 7: the route, or [`CALLER_DECIDES`]; above: the frame's number.
    route: u32,
    return_slot: u32,
}

const CALLER_DECIDES: u32 = 255;

/// The frames that a thread has looked up. Zeroed memory knows none.
#[derive(Debug)]
pub struct FrameCache {
    slots: [KnownFrame; SLOTS],
}

impl FrameCache {
    fn slot(callee: u32, address: u64) -> usize {
        mix(address ^ u64::from(callee) << 32) as usize % SLOTS
    }

    /// What is known of a frame.
    #[inline(always)]
    pub fn get(&self, callee: u32, address: u64) -> Option<FrameRoute> {
        let slot = &self.slots[Self::slot(callee, address)];
        let is_known = slot.address == address && slot.callee == callee;
        is_known.then_some(match slot.route & 255 {
            CALLER_DECIDES => {
                FrameRoute::CallerDecides { number: slot.route >> 8, return_slot: slot.return_slot }
            }
            route => FrameRoute::Decided(route as u8),
        })
    }

    /// Keeps what the file has for a frame. What it does not have is malloc's.
    pub fn insert(
        &mut self,
        callee: u32,
        address: u64,
        found: Option<TrialNode>,
        return_slot: u32,
    ) -> FrameRoute {
        let known = match found {
            None => FrameRoute::Decided(0),
            Some(node) => {
                let number = node.number;
                node.route
                    .map_or(FrameRoute::CallerDecides { number, return_slot }, FrameRoute::Decided)
            }
        };
        let route = match known {
            FrameRoute::Decided(route) => u32::from(route),
            FrameRoute::CallerDecides { number, .. } => number << 8 | CALLER_DECIDES,
        };
        self.slots[Self::slot(callee, address)] =
            KnownFrame { address, callee, route, return_slot };
        known
    }

    /// Forgets all frames.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| (slot.address, slot.callee) = (0, u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_by_what_they_call() {
        let none = KnownFrame { address: 0, callee: 0, route: 0, return_slot: 0 };
        let mut frames = FrameCache { slots: [none; SLOTS] };
        let node = |number, route| Some(TrialNode { number, route });
        assert_eq!(frames.get(0, 10), None);
        assert_eq!(
            frames.insert(0, 10, node(5, None), 24),
            FrameRoute::CallerDecides { number: 5, return_slot: 24 }
        );
        assert_eq!(frames.insert(5, 10, node(6, Some(3)), 0), FrameRoute::Decided(3));
        assert_eq!(frames.insert(0, 20, None, 0), FrameRoute::Decided(0));
        assert_eq!(
            frames.get(0, 10),
            Some(FrameRoute::CallerDecides { number: 5, return_slot: 24 })
        );
        assert_eq!(frames.get(5, 10), Some(FrameRoute::Decided(3)));
        assert_eq!(frames.get(0, 20), Some(FrameRoute::Decided(0)));
        frames.clear();
        assert_eq!(frames.get(5, 10), None);
    }
}
