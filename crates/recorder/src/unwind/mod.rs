//! The parts of finding the stack of a call that do not depend on a thread's state.
//!
//! [`StackCache`](cache::StackCache) answers most of the time: it knows which stacks there were for
//! a return address and a stack pointer, and takes one only if every word that was read for it is
//! unchanged. Otherwise [`walk`](crate::call_stack::walk) goes from frame to frame by the rules
//! that [`rules`] reads from `.eh_frame` sections. It stops at a frame of the previous stack, whose
//! outer frames it takes over after reading their words again. Frame pointers are used only where
//! there is no rule.
//!
//! The files, lowest first:
//!
//! | file | what it holds |
//! |---|---|
//! | `loader` | what the loader says about loaded objects |
//! | `readable` | reading a stack whose end is not known |
//! | `rules` | the rules by which the caller of a frame is found |
//! | `frames` | the frames of the last walk |
//! | `cache` | stacks by return address and stack pointer |

pub mod cache;
pub mod frames;
pub mod loader;
pub mod readable;
pub mod rules;

/// A word of a stack that the result of a walk depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackWord {
    /// Its address.
    pub address: u64,
    /// Its value at the time of the walk.
    pub value: u64,
}

/// Where a call was made, as the called function finds it in its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSite {
    /// The address that the call returns to.
    pub return_address: u64,
    /// The stack pointer after the return.
    pub stack_pointer: u64,
    /// The caller's frame pointer register, which may hold any value.
    pub frame_pointer: u64,
}

/// A code address without the signature that some processors put into it.
#[inline(always)]
pub fn without_signature(address: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { address & 0x0000_ffff_ffff_ffff } else { address }
}
