//! What a thread knows of the trial's file: the routes of frames that it has looked up.
//!
//! Invariant: a slot whose `address` is not 0 holds what the file has for a frame with that return
//! address, which calls the frame with the number `inner`.

use crate::number_table::mix;
use trace_format::raw::TrialNode;

const SLOTS: usize = 2048;

/// What the file says of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameRoute {
    /// The route of all stacks that have it.
    Decided(u8),
    /// The frame outside of it decides; its own number, and the offset of its return address from
    /// its stack pointer, or 0 if that is not always the same.
    OutsideOf(u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct KnownFrame {
    address: u64,
    inner: u32,
    /// The number above eight bits for the route; a route of [`OUTSIDE`] is none.
    route: u32,
    offset: u32,
}

const OUTSIDE: u32 = 255;

/// The frames that a thread has looked up. Zeroed memory knows none.
#[derive(Debug)]
pub struct KnownFrames {
    slots: [KnownFrame; SLOTS],
}

impl KnownFrames {
    fn slot(inner: u32, address: u64) -> usize {
        mix(address ^ u64::from(inner) << 32) as usize % SLOTS
    }

    /// What is known of a frame.
    #[inline(always)]
    pub fn get(&self, inner: u32, address: u64) -> Option<FrameRoute> {
        let slot = &self.slots[Self::slot(inner, address)];
        let is_known = slot.address == address && slot.inner == inner;
        is_known.then_some(match slot.route & 255 {
            OUTSIDE => FrameRoute::OutsideOf(slot.route >> 8, slot.offset),
            route => FrameRoute::Decided(route as u8),
        })
    }

    /// Keeps what the file has for a frame. What it does not have is malloc's.
    pub fn insert(
        &mut self,
        inner: u32,
        address: u64,
        found: Option<TrialNode>,
        offset: u32,
    ) -> FrameRoute {
        let known = match found {
            None => FrameRoute::Decided(0),
            Some(node) => {
                node.route.map_or(FrameRoute::OutsideOf(node.number, offset), FrameRoute::Decided)
            }
        };
        let route = match known {
            FrameRoute::Decided(route) => u32::from(route),
            FrameRoute::OutsideOf(number, _) => number << 8 | OUTSIDE,
        };
        self.slots[Self::slot(inner, address)] = KnownFrame { address, inner, route, offset };
        known
    }

    /// Forgets all frames.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.address = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_by_what_they_call() {
        let none = KnownFrame { address: 0, inner: 0, route: 0, offset: 0 };
        let mut frames = KnownFrames { slots: [none; SLOTS] };
        let node = |number, route| Some(TrialNode { number, route });
        assert_eq!(frames.get(0, 10), None);
        assert_eq!(frames.insert(0, 10, node(5, None), 24), FrameRoute::OutsideOf(5, 24));
        assert_eq!(frames.insert(5, 10, node(6, Some(3)), 0), FrameRoute::Decided(3));
        assert_eq!(frames.insert(0, 20, None, 0), FrameRoute::Decided(0));
        assert_eq!(frames.get(0, 10), Some(FrameRoute::OutsideOf(5, 24)));
        assert_eq!(frames.get(5, 10), Some(FrameRoute::Decided(3)));
        assert_eq!(frames.get(0, 20), Some(FrameRoute::Decided(0)));
        frames.clear();
        assert_eq!(frames.get(5, 10), None);
    }
}
