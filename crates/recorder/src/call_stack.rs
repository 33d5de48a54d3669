//! Walks the stack of a call from frame to frame.
//!
//! Invariant: a walk accesses the thread's state through a pointer only. Rules, modules and nodes
//! borrow parts of the state for the time of a call, so no other borrow lasts over such a call.

use crate::modules;
use crate::thread_state::ThreadState;
use crate::trial::frame_cache::FrameRoute;
use crate::trial::settings;
use crate::unwind::frames::WalkStep;
use crate::unwind::rules::{self, CfaBase, FrameRegisters, UnwindRule};
use crate::unwind::{CallSite, without_signature};
use trace_format::raw::{CUT_OFF, MAX_STACK_FRAMES, ROOT, TrialPlace};

/// The result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkedStack {
    /// The number of the stack's node in the stream.
    pub node: u32,
    /// Whether the kept frames contain every word that the result depends on.
    pub is_cacheable: bool,
}

/// Finds the stack of a call. `from_scratch`: without the frames of the last walk. Returns `None`
/// if the stack cannot be announced.
///
/// # Safety
///
/// The state is the calling thread's, which is in the call that was made at `site`.
pub unsafe fn walk(
    state: *mut ThreadState,
    tick: u64,
    site: CallSite,
    from_scratch: bool,
) -> Option<WalkedStack> {
    // SAFETY: the calling thread's state.
    let frames = unsafe { &raw mut (*state).frames };
    if from_scratch {
        // SAFETY: the calling thread's state, of which nothing is borrowed.
        unsafe { (*frames).forget() };
    }
    // SAFETY: the same.
    unsafe { (*frames).readable.begin_walk() };
    let mut registers = FrameRegisters {
        address: site.return_address,
        stack: site.stack_pointer,
        frame: site.frame_pointer,
        interrupted: false,
    };
    let mut count = 0;
    // SAFETY: the calling thread's state, of which nothing is borrowed.
    let mut candidate = unsafe { (*frames).first() };
    let mut has_complex_rule = false;
    // The index of the kept frame that the new ones lead to, or the node outside of the last frame.
    let outside = loop {
        // SAFETY: the calling thread's state, of which nothing is borrowed.
        if let Some(joined) = unsafe { (*frames).find_join(&mut candidate, &registers, count) } {
            break Ok(joined);
        }
        if count == MAX_STACK_FRAMES {
            break Err(CUT_OFF);
        }
        // SAFETY: the calling thread's state, of which nothing is borrowed.
        let rule = unsafe { rule(state, tick, &registers) };
        let step = if rule.base == CfaBase::Complex {
            has_complex_rule = true;
            // SAFETY: the same.
            unsafe {
                (*frames).add_new(count, registers);
                caller_by_expressions(state, tick, &registers)
                    .map_or(WalkStep::Lost, WalkStep::Caller)
            }
        } else {
            // SAFETY: the same.
            unsafe { (*frames).step(count, registers, rule) }
        };
        count += 1;
        match step {
            // A stack grows downwards. Only the stack of a signal handler may be above what the
            // signal interrupted.
            WalkStep::Caller(next)
                if next.address != 0 && (next.stack > registers.stack || next.interrupted) =>
            {
                registers = next;
            }
            WalkStep::Caller(next) if next.address == 0 => break Err(ROOT),
            WalkStep::Outermost => break Err(ROOT),
            _ => break Err(CUT_OFF),
        }
    };
    // SAFETY: the calling thread's state, of which nothing is borrowed over a call.
    unsafe {
        (*frames).keep_new(count, outside.ok());
        let mut parent = match outside {
            Ok(joined) => (*frames).node(joined),
            Err(root) => root,
        };
        let first = (*frames).first();
        for i in (first..first + count).rev() {
            let address = without_signature((*frames).address(i));
            match (*state).node(tick, parent, address) {
                Some(node) => parent = node,
                None => {
                    (*frames).forget();
                    return None;
                }
            }
            (*frames).set_node(i, parent);
        }
        if has_complex_rule {
            (*frames).forget();
        }
        Some(WalkedStack { node: parent, is_cacheable: !has_complex_rule })
    }
}

/// The route of the call that was made at `site`, in a trial.
///
/// # Safety
///
/// The state is the calling thread's, which is in the call.
#[inline(always)]
pub unsafe fn route(state: *mut ThreadState, site: CallSite) -> u8 {
    let mut registers = FrameRegisters {
        address: site.return_address,
        stack: site.stack_pointer,
        frame: site.frame_pointer,
        interrupted: false,
    };
    // SAFETY: the calling thread's state. Each borrow of a part of it ends before the next call.
    unsafe {
        (*state).frames.readable.begin_walk();
        let mut known = frame_route(state, ROOT, &registers);
        loop {
            let (number, return_slot) = match known {
                FrameRoute::Decided(route) => return route,
                FrameRoute::CallerDecides { number, return_slot } => (number, return_slot),
            };
            // Most often the next frame decides, and its registers are not needed.
            if return_slot != 0
                && let slot = registers.stack + u64::from(return_slot)
                && let Some(address) = (*state).frames.readable.read(slot, registers.stack)
                && let Some(FrameRoute::Decided(route)) =
                    (*state).trial_frames.get(number, without_signature(address))
            {
                return route;
            }
            match caller(state, registers) {
                Some(outer) => registers = outer,
                None => return 0,
            }
            known = frame_route(state, number, &registers);
        }
    }
}

/// What the trial's file says of a frame.
///
/// # Safety
///
/// The state is the calling thread's, and nothing of it is borrowed.
#[inline(always)]
unsafe fn frame_route(state: *mut ThreadState, callee: u32, frame: &FrameRegisters) -> FrameRoute {
    // SAFETY: as the caller promised.
    unsafe {
        let address = without_signature(frame.address);
        // Beyond the last frame.
        if address == 0 {
            return FrameRoute::Decided(0);
        }
        let known = (*state).trial_frames.get(callee, address);
        known.unwrap_or_else(|| look_up(state, callee, frame, address))
    }
}

/// Looks a frame up in the trial's file.
///
/// # Safety
///
/// The state is the calling thread's, and nothing of it is borrowed.
#[cold]
unsafe fn look_up(
    state: *mut ThreadState,
    callee: u32,
    frame: &FrameRegisters,
    address: u64,
) -> FrameRoute {
    // SAFETY: the calling thread's state, of which nothing is borrowed. A return address may be the
    // first one after its module, so the byte before it is searched. Its code is on the stack, so the
    // module is loaded.
    unsafe {
        let module = modules::find(state, 0, address.wrapping_sub(1));
        let node = settings::sites().zip(module).and_then(|(sites, module)| {
            let offset = address.wrapping_sub(module.bias);
            let module = sites.module(modules::identity(module))?;
            sites.node(TrialPlace { callee, module, offset })
        });
        let rule = rule(state, 0, frame);
        let return_slot = match rule.base {
            CfaBase::StackPointer if rule.return_address != UnwindRule::IN_REGISTER => {
                rule.cfa + rule.return_address
            }
            _ => 0,
        };
        (*state).trial_frames.insert(callee, address, node, return_slot.max(0) as u32)
    }
}

/// The caller of a frame.
///
/// # Safety
///
/// The state is the calling thread's, on whose stack the frame is, and nothing of it is borrowed.
unsafe fn caller(state: *mut ThreadState, registers: FrameRegisters) -> Option<FrameRegisters> {
    // SAFETY: as the caller promised. The kept frames are not changed by a step.
    unsafe {
        let rule = rule(state, 0, &registers);
        if rule.base == CfaBase::Complex {
            return caller_by_expressions(state, 0, &registers);
        }
        match (*state).frames.step(0, registers, rule) {
            WalkStep::Caller(outer) => Some(outer),
            WalkStep::Outermost | WalkStep::Lost => None,
        }
    }
}

/// The rule for a frame.
///
/// # Safety
///
/// The state is the calling thread's, and nothing of it is borrowed.
#[inline]
unsafe fn rule(state: *mut ThreadState, tick: u64, registers: &FrameRegisters) -> UnwindRule {
    let address = registers.code_address();
    // SAFETY: the calling thread's state, of which nothing is borrowed.
    unsafe {
        match (*state).rules.get(address) {
            Some(rule) => rule,
            None => find_rule(state, tick, address),
        }
    }
}

#[cold]
unsafe fn find_rule(state: *mut ThreadState, tick: u64, address: u64) -> UnwindRule {
    // SAFETY: the calling thread's state, of which nothing is borrowed. Code of the module is on
    // the stack, so it is loaded.
    unsafe {
        let module = modules::find(state, tick, address);
        let rule = module.and_then(|module| rules::rule_in(module, &mut (*state).context, address));
        // Code without a rule may have been generated at run time. If it maintains frame pointers,
        // they lead on.
        let rule = rule.unwrap_or(UnwindRule::BY_FRAME_POINTER);
        (*state).rules.insert(address, rule);
        rule
    }
}

/// The caller of a frame whose rule is [`CfaBase::Complex`].
///
/// # Safety
///
/// The state is the calling thread's, and nothing of it is borrowed.
#[cold]
unsafe fn caller_by_expressions(
    state: *mut ThreadState,
    tick: u64,
    registers: &FrameRegisters,
) -> Option<FrameRegisters> {
    // SAFETY: the calling thread's state, of which nothing is borrowed; the context and the
    // readable memory are two fields. Code of the module is on the stack, so it is loaded.
    unsafe {
        let module = modules::find(state, tick, registers.code_address())?;
        let readable = &mut (*state).frames.readable;
        rules::caller_by_expressions(module, &mut (*state).context, readable, registers)
    }
}
