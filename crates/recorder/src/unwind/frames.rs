//! The frames of the last walk.
//!
//! A new walk that meets one of these frames, at the same address and with the same registers that
//! its caller is found by, needs no rules for the frames outside of it. It only reads again the
//! words that led from each of them to the next.
//!
//! Invariant of [`WalkedFrames`]: the last `count` frames of `kept` are those of one stack, the
//! innermost first. Each leads to the next by its `return_slot`, and by its `frame_slot` if the
//! next one needs its frame pointer.

use super::StackWord;
use super::readable::ReadableMemory;
use super::rules::{CfaBase, FrameRegisters, UnwindRule};
use trace_format::raw::MAX_STACK_FRAMES;

/// Frames that can be kept: those of one walk, and as many from before.
pub const KEPT_CAPACITY: usize = 2 * MAX_STACK_FRAMES;

/// A frame of a stack.
#[derive(Debug, Clone, Copy)]
pub struct WalkedFrame {
    registers: FrameRegisters,
    /// The address that the next frame's code address was read from; 0 if it was in a register.
    return_slot: u64,
    /// The address that the next frame's frame pointer was read from; 0 if it is this frame's.
    frame_slot: u64,
    /// The frame pointer of this frame was used to find its caller, or a frame farther out.
    needs_frame: bool,
    /// The node of the stack from the outermost frame to this one.
    node: u32,
}

impl WalkedFrame {
    const fn new(registers: FrameRegisters) -> Self {
        Self { registers, return_slot: 0, frame_slot: 0, needs_frame: false, node: 0 }
    }
}

/// The frames of the last walk, and memory for the next. Zeroed memory has no frames.
#[derive(Debug)]
pub struct WalkedFrames {
    kept: [WalkedFrame; KEPT_CAPACITY],
    /// The number of frames at the end of `kept`.
    count: usize,
    /// The frames that the current walk has found, the innermost first.
    new: [WalkedFrame; MAX_STACK_FRAMES],
    pub(crate) readable: ReadableMemory,
}

/// The end of a step from a frame to its caller.
pub enum WalkStep {
    /// The caller was found.
    Caller(FrameRegisters),
    /// The frame has no caller.
    Outermost,
    /// The caller cannot be found.
    Lost,
}

impl WalkedFrames {
    /// Forgets the frames of the last walk.
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Forgets also which memory is readable.
    pub fn clear(&mut self) {
        self.forget();
        self.readable.clear();
    }

    /// The index of the first kept frame.
    pub fn first(&self) -> usize {
        KEPT_CAPACITY - self.count
    }

    /// Whether the last walk depended on the frame pointer of its first frame.
    pub fn needs_frame(&self) -> bool {
        self.count > 0 && self.kept[self.first()].needs_frame
    }

    /// Calls `each` with the words that the last walk depended on, from the inside to the outside.
    pub fn for_each_word(&self, mut each: impl FnMut(StackWord)) {
        for pair in self.kept[self.first()..].windows(2) {
            let (frame, next) = (&pair[0], &pair[1]);
            if frame.return_slot != 0 {
                each(StackWord { address: frame.return_slot, value: next.registers.address });
            }
            if frame.frame_slot != 0 && next.needs_frame {
                each(StackWord { address: frame.frame_slot, value: next.registers.frame });
            }
        }
    }

    /// The node of a kept frame.
    pub fn node(&self, index: usize) -> u32 {
        self.kept[index].node
    }

    /// Sets the node of a kept frame.
    pub fn set_node(&mut self, index: usize, node: u32) {
        self.kept[index].node = node;
    }

    /// The code address of a kept frame.
    pub fn address(&self, index: usize) -> u64 {
        self.kept[index].registers.address
    }

    /// Adds a frame whose caller is not found by [`step`](Self::step).
    pub fn add_new(&mut self, index: usize, registers: FrameRegisters) {
        self.new[index] = WalkedFrame::new(registers);
    }

    /// Adds a frame, and goes on to its caller by its rule.
    #[inline]
    pub fn step(&mut self, index: usize, registers: FrameRegisters, rule: UnwindRule) -> WalkStep {
        self.new[index] = WalkedFrame::new(registers);
        step(&mut self.new[index], rule, &mut self.readable)
    }

    /// The index of the kept frame that a walk has reached after `count` new frames, if all frames
    /// outside of it are unchanged. Frames before `candidate` need not be considered; the walk
    /// passes the same variable again.
    #[inline]
    pub fn find_join(
        &self,
        candidate: &mut usize,
        registers: &FrameRegisters,
        count: usize,
    ) -> Option<usize> {
        while *candidate < KEPT_CAPACITY && self.kept[*candidate].registers.stack < registers.stack
        {
            *candidate += 1;
        }
        if let Some(kept) = self.kept.get(*candidate)
            && kept.registers.stack == registers.stack
            && kept.registers.address == registers.address
            && kept.registers.interrupted == registers.interrupted
            && (!kept.needs_frame || kept.registers.frame == registers.frame)
        {
            let changed = self.first_changed(*candidate);
            if changed == KEPT_CAPACITY && count <= *candidate {
                return Some(*candidate);
            }
            *candidate = changed;
        }
        None
    }

    /// The first kept frame after `from` that the frame before it does not lead to any more;
    /// [`KEPT_CAPACITY`] if there is none.
    #[inline]
    fn first_changed(&self, from: usize) -> usize {
        for i in from..KEPT_CAPACITY - 1 {
            let (frame, next) = (&self.kept[i], &self.kept[i + 1]);
            // SAFETY: the frames up to this one are unchanged, so a walk would read these words
            // now. They were read before, on a stack that is still mapped.
            unsafe {
                if frame.return_slot == 0
                    || (frame.return_slot as *const u64).read_volatile() != next.registers.address
                {
                    return i + 1;
                }
                if frame.frame_slot != 0
                    && next.needs_frame
                    && (frame.frame_slot as *const u64).read_volatile() != next.registers.frame
                {
                    return i + 1;
                }
            }
        }
        KEPT_CAPACITY
    }

    /// Keeps the `count` new frames, followed by the kept ones from `joined` on if there was a
    /// join.
    pub fn keep_new(&mut self, count: usize, joined: Option<usize>) {
        let end = joined.unwrap_or(KEPT_CAPACITY);
        let first = end - count;
        self.kept[first..end].copy_from_slice(&self.new[..count]);
        for i in (first..end).rev() {
            let outer = self.kept.get(i + 1).is_some_and(|outer| outer.needs_frame);
            let frame = &mut self.kept[i];
            frame.needs_frame |= frame.frame_slot == 0 && outer;
        }
        self.count = KEPT_CAPACITY - first;
    }
}

fn step(frame: &mut WalkedFrame, rule: UnwindRule, readable: &mut ReadableMemory) -> WalkStep {
    let registers = frame.registers;
    let base = match rule.base {
        CfaBase::StackPointer => registers.stack,
        CfaBase::FramePointer => {
            frame.needs_frame = true;
            registers.frame
        }
        CfaBase::AssumedFramePointer => {
            frame.needs_frame = true;
            if registers.frame < registers.stack
                || readable.limit_to_stack(registers.stack).is_none()
            {
                return WalkStep::Lost;
            }
            registers.frame
        }
        CfaBase::Outermost => return WalkStep::Outermost,
        _ => return WalkStep::Lost,
    };
    let cfa = base.wrapping_add_signed(rule.cfa.into());
    if rule.return_address == UnwindRule::IN_REGISTER {
        // The register is known only for the innermost frame, which has left it by its call.
        return WalkStep::Lost;
    }
    frame.return_slot = cfa.wrapping_add_signed(rule.return_address.into());
    let Some(address) = readable.read(frame.return_slot, registers.stack) else {
        return WalkStep::Lost;
    };
    let mut frame_pointer = registers.frame;
    if rule.frame_pointer != UnwindRule::UNCHANGED {
        frame.frame_slot = cfa.wrapping_add_signed(rule.frame_pointer.into());
        match readable.read(frame.frame_slot, registers.stack) {
            Some(saved) => frame_pointer = saved,
            None => return WalkStep::Lost,
        }
    }
    WalkStep::Caller(FrameRegisters {
        address,
        stack: cfa,
        frame: frame_pointer,
        interrupted: false,
    })
}
