//! Finding the stack of a call.
//!
//! [`cache`] answers most of the time: it knows for a return address and a stack pointer which stacks there were, and takes
//! one only if every word that the unwinder read for it is still there. Otherwise [`walk`] goes from frame to frame by
//! the rules that [`rules`] reads from the modules' `.eh_frame`, until it meets a frame of the stack before, whose
//! outer frames it takes over after reading their words again. Frame pointers are used only where there is no rule.

pub mod cache;
pub mod memory;
pub mod modules;
pub mod rules;
pub mod walk;

/// A word of a stack that something depended on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Where it is.
    pub address: u64,
    /// What was there.
    pub value: u64,
}

/// The place of a call, as its callee found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Where the call returns to.
    pub return_address: u64,
    /// The stack pointer behind the return.
    pub stack_pointer: u64,
    /// The caller's frame pointer register, whatever is in it.
    pub frame_pointer: u64,
}

/// An address of code without the signature that some processors put into it.
#[inline(always)]
pub fn unsigned(address: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { address & 0x0000_ffff_ffff_ffff } else { address }
}
