//! Going from frame to frame.
//!
//! The frames of the stack that was walked last are kept. A new walk that meets one of them, at the same place and with what its
//! caller is found by, needs no rules for those outside of it: it reads again the words that led from each to the next.
//!
//! Invariants of [`Frames`]: `kept[first..]` are frames of one stack, the innermost first; each leads to the next by its
//! `return_slot`, and by its `frame_slot` where the next one needs its frame pointer. A walk has the thread's state by its address
//! alone: rules, modules and nodes borrow that state for the time of a call, so no borrow of the frames lasts over one.

use super::memory::Readable;
use super::rules::{self, Base, Registers, Rule};
use super::{Caller, Word, unsigned};
use crate::thread::Thread;
use trace_format::raw::{CUT_OFF, DEEPEST_STACK, ROOT};

/// Frames that can be kept: those of one walk, and as many that were there before.
const KEPT: usize = 2 * DEEPEST_STACK;

/// A frame of a stack.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    registers: Registers,
    /// Where the address of the next frame was read; 0 where it was in a register.
    return_slot: u64,
    /// Where the next frame's frame pointer was read; 0 where it's this one's.
    frame_slot: u64,
    /// This frame's frame pointer was used to find its caller, or a frame farther out was found by it.
    needs_frame: bool,
    /// The stack from the outermost frame to this one.
    node: u32,
}

/// The frames of the last walk, and room for the next. Zeroed memory is one without frames.
#[derive(Debug)]
pub struct Frames {
    kept: [Frame; KEPT],
    /// One more than the index of the first, counted from the end: 0 is none.
    count: usize,
    fresh: [Frame; DEEPEST_STACK],
    pub(super) readable: Readable,
}

impl Frames {
    /// Forgets the frames of the last walk.
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Forgets what can be read, too.
    pub fn clear(&mut self) {
        self.forget();
        self.readable.clear();
    }

    /// Whether the frame where the last walk began was needed to have its frame pointer.
    pub fn needs_frame(&self) -> bool {
        self.count > 0 && self.kept[KEPT - self.count].needs_frame
    }

    /// The words that the last walk depended on, from the inside to the outside.
    pub fn words(&self, mut each: impl FnMut(Word)) {
        for pair in self.kept[KEPT - self.count..].windows(2) {
            let (frame, next) = (&pair[0], &pair[1]);
            if frame.return_slot != 0 {
                each(Word { address: frame.return_slot, value: next.registers.address });
            }
            if frame.frame_slot != 0 && next.needs_frame {
                each(Word { address: frame.frame_slot, value: next.registers.frame });
            }
        }
    }
}

/// How a step ended.
enum Step {
    To(Registers),
    Outermost,
    Lost,
}

/// The node of a stack, and whether the frames that led to it are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// The stream's number of the node.
    pub node: u32,
    /// Whether [`Frames::words`] says all that it depended on.
    pub known: bool,
}

/// Finds the stack of a call. `None`: there is no room to say what it is.
///
/// # Safety
///
/// The thread is the caller's own, and the call is the one that it is in.
pub unsafe fn walk(thread: *mut Thread, tick: u64, caller: Caller, afresh: bool) -> Option<Walked> {
    // SAFETY: the caller's thread.
    let frames = unsafe { &raw mut (*thread).frames };
    if afresh {
        // SAFETY: the caller's thread, of which nothing is borrowed.
        unsafe { (*frames).forget() };
    }
    // SAFETY: the same.
    unsafe { (*frames).readable.begin() };
    let mut registers = Registers {
        address: caller.return_address,
        stack: caller.stack_pointer,
        frame: caller.frame_pointer,
        interrupted: false,
    };
    let mut count = 0;
    // SAFETY: the caller's thread, of which nothing is borrowed.
    let mut old = unsafe { KEPT - (*frames).count };
    let mut odd = false;
    // The index of the kept frame that the fresh ones lead to, or what is outside of the last.
    let outside = loop {
        // SAFETY: the caller's thread, of which nothing is borrowed.
        if let Some(joined) = unsafe { (*frames).join(&mut old, &registers, count) } {
            break Ok(joined);
        }
        if count == DEEPEST_STACK {
            break Err(CUT_OFF);
        }
        // SAFETY: the caller's thread, of which nothing is borrowed.
        let rule = unsafe { rules::rule(thread, tick, &registers) };
        let step = if rule.base == Base::Odd {
            odd = true;
            // SAFETY: the same.
            unsafe {
                (*frames).fresh[count] = Frame::at(registers);
                rules::odd_caller(thread, tick, &registers).map_or(Step::Lost, Step::To)
            }
        } else {
            // SAFETY: the same.
            unsafe { (*frames).step(count, registers, rule) }
        };
        count += 1;
        match step {
            // A stack grows downwards; only a signal's may lie above what it interrupted.
            Step::To(next)
                if next.address != 0 && (next.stack > registers.stack || next.interrupted) =>
            {
                registers = next;
            }
            Step::To(next) if next.address == 0 => break Err(ROOT),
            Step::Outermost => break Err(ROOT),
            _ => break Err(CUT_OFF),
        }
    };
    // SAFETY: the caller's thread, of which nothing is borrowed over a call.
    unsafe {
        (*frames).take_over(count, outside.ok());
        let mut parent = match outside {
            Ok(joined) => (*frames).kept[joined].node,
            Err(root) => root,
        };
        let first = KEPT - (*frames).count;
        for i in (first..first + count).rev() {
            let address = unsigned((*frames).kept[i].registers.address);
            match (*thread).node(tick, parent, address) {
                Some(node) => parent = node,
                None => {
                    (*frames).forget();
                    return None;
                }
            }
            (*frames).kept[i].node = parent;
        }
        if odd {
            (*frames).forget();
        }
        Some(Walked { node: parent, known: !odd })
    }
}

fn step(frame: &mut Frame, rule: Rule, readable: &mut Readable) -> Step {
    let registers = frame.registers;
    let base = match rule.base {
        Base::Stack => registers.stack,
        Base::Frame => {
            frame.needs_frame = true;
            registers.frame
        }
        Base::Guessed => {
            frame.needs_frame = true;
            if registers.frame < registers.stack
                || readable.stay_on_stack(registers.stack).is_none()
            {
                return Step::Lost;
            }
            registers.frame
        }
        Base::Outermost => return Step::Outermost,
        _ => return Step::Lost,
    };
    let end = base.wrapping_add_signed(rule.end.into());
    if rule.return_address == Rule::IN_REGISTER {
        // Only of the innermost frame is it known, and that one is the call's own, which has left it.
        return Step::Lost;
    }
    frame.return_slot = end.wrapping_add_signed(rule.return_address.into());
    let Some(address) = readable.read(frame.return_slot, registers.stack) else {
        return Step::Lost;
    };
    let mut next = registers.frame;
    if rule.frame_pointer != Rule::KEPT {
        frame.frame_slot = end.wrapping_add_signed(rule.frame_pointer.into());
        match readable.read(frame.frame_slot, registers.stack) {
            Some(saved) => next = saved,
            None => return Step::Lost,
        }
    }
    Step::To(Registers { address, stack: end, frame: next, interrupted: false })
}

impl Frame {
    const fn at(registers: Registers) -> Self {
        Self { registers, return_slot: 0, frame_slot: 0, needs_frame: false, node: 0 }
    }
}

impl Frames {
    /// Goes on from a fresh frame by its rule.
    #[inline]
    fn step(&mut self, fresh: usize, registers: Registers, rule: Rule) -> Step {
        self.fresh[fresh] = Frame::at(registers);
        step(&mut self.fresh[fresh], rule, &mut self.readable)
    }

    /// The kept frame that a walk has come to with `count` fresh ones, if it is one of which all outer ones still are. The frames
    /// before `old` need not be looked at.
    #[inline]
    fn join(&self, old: &mut usize, registers: &Registers, count: usize) -> Option<usize> {
        while *old < KEPT && self.kept[*old].registers.stack < registers.stack {
            *old += 1;
        }
        if let Some(known) = self.kept.get(*old)
            && known.registers.stack == registers.stack
            && known.registers.address == registers.address
            && known.registers.interrupted == registers.interrupted
            && (!known.needs_frame || known.registers.frame == registers.frame)
        {
            let differs = self.first_that_differs(*old);
            if differs == KEPT && count + KEPT - *old <= KEPT {
                return Some(*old);
            }
            *old = differs;
        }
        None
    }

    /// The first kept frame behind `from` that isn't led to any more; [`KEPT`] if all are.
    #[inline]
    fn first_that_differs(&self, from: usize) -> usize {
        for i in from..KEPT - 1 {
            let (frame, next) = (&self.kept[i], &self.kept[i + 1]);
            // SAFETY: the frames up to here are as they were, so these are the words that a walk would read now; they
            // were read before, on a stack that is still there.
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
        KEPT
    }

    /// Puts the fresh frames before the kept ones from `joined` on, or instead of them.
    fn take_over(&mut self, count: usize, joined: Option<usize>) {
        let end = joined.unwrap_or(KEPT);
        let first = end - count;
        self.kept[first..end].copy_from_slice(&self.fresh[..count]);
        for i in (first..end).rev() {
            let outer = self.kept.get(i + 1).is_some_and(|outer| outer.needs_frame);
            let frame = &mut self.kept[i];
            frame.needs_frame |= frame.frame_slot == 0 && outer;
        }
        self.count = KEPT - first;
    }
}
