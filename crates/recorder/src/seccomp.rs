//! Programs that forbid themselves system calls.
//!
//! A program's filter may end the process, or send it a signal, at a call that only the recorder
//! makes. The filter is therefore run here before the kernel gets it, on each call that recording
//! needs. If one of these calls would do more than fail, the recording ends first.
//!
//! Invariant: the program's filter is read only where the kernel says that it is readable.

use crate::sys;
use core::ffi::c_void;

/// A program's filter, as the kernel gets it (`struct sock_fprog`).
#[repr(C)]
struct FilterProgram {
    count: u16,
    instructions: *const FilterInstruction,
}

/// An instruction of the kernel's classic packet filter machine (`struct sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct FilterInstruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// A system call as a filter sees it (`struct seccomp_data`): its number, the architecture, the
/// address of the instruction, the arguments.
struct FilteredCall {
    words: [u32; 16],
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

impl FilteredCall {
    fn new(number: usize, arguments: [usize; 6]) -> Self {
        let mut words = [0; 16];
        (words[0], words[1]) = (number as u32, ARCHITECTURE);
        let address = (&raw const ADDRESS_OF_CALLS) as usize;
        (words[2], words[3]) = (address as u32, (address >> 32) as u32);
        for (i, argument) in arguments.into_iter().enumerate() {
            words[4 + 2 * i] = argument as u32;
            words[5 + 2 * i] = (argument >> 32) as u32;
        }
        Self { words }
    }
}

/// An object of this library. Its address stands for those of the instructions that make calls.
static ADDRESS_OF_CALLS: u32 = ARCHITECTURE;

/// The largest number of instructions that the kernel accepts.
const MAX_INSTRUCTIONS: u16 = 4096;

/// Whether a filter would do more than fail one of the recorder's own calls.
pub fn forbids(filter: *const c_void) -> bool {
    let filter = filter.cast::<FilterProgram>();
    // The kernel refuses what is not readable.
    if !(filter as usize).is_multiple_of(8)
        || !sys::is_readable(filter as u64)
        || !sys::is_readable(filter as u64 + 8)
    {
        return false;
    }
    // SAFETY: both of its words are readable.
    let FilterProgram { count, instructions } = unsafe { filter.read() };
    let bytes = u64::from(count) * size_of::<FilterInstruction>() as u64;
    let first = instructions as u64;
    if count == 0
        || count > MAX_INSTRUCTIONS
        || !first.is_multiple_of(4)
        || first.checked_add(bytes).is_none()
        || !(first..first + bytes).step_by(8).all(sys::is_readable)
    {
        return false;
    }
    // SAFETY: all instructions are readable, and any bytes are valid instructions.
    let instructions = unsafe { core::slice::from_raw_parts(instructions, count.into()) };
    sys::check_each_call(|number, arguments| {
        is_harmless(run(instructions, &FilteredCall::new(number, arguments)))
    })
    .is_err()
}

/// Whether a filter's result allows a call or makes it fail.
fn is_harmless(result: Option<u32>) -> bool {
    const ERROR: u32 = 0x0005_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ALLOW: u32 = 0x7fff_0000;
    // If the kernel refuses the filter, nothing changes.
    result.is_none_or(|result| matches!(result & 0xffff_0000, ERROR | LOG | ALLOW))
}

/// The result of a filter for a call. `None` if the kernel would refuse the filter.
fn run(instructions: &[FilterInstruction], call: &FilteredCall) -> Option<u32> {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; 16];
    let mut next = 0;
    // All jumps are forward, so the loop ends.
    loop {
        let FilterInstruction { code, if_true, if_false, value } = *instructions.get(next)?;
        next += 1;
        match code {
            // Loads of a word of the call, a constant, a word of memory, the length of the call.
            0x20 if value.is_multiple_of(4) => a = *call.words.get(value as usize / 4)?,
            0x00 => a = value,
            0x01 => x = value,
            0x60 => a = *memory.get(value as usize)?,
            0x61 => x = *memory.get(value as usize)?,
            0x80 => a = 64,
            0x81 => x = 64,
            0x02 => *memory.get_mut(value as usize)? = a,
            0x03 => *memory.get_mut(value as usize)? = x,
            0x07 => x = a,
            0x87 => a = x,
            0x06 => return Some(value),
            0x16 => return Some(a),
            0x05 => next = next.checked_add(value as usize)?,
            code if code & 7 == 4 => {
                let operand = if code & 8 == 0 { value } else { x };
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    // A division by zero ends the program with the result 0.
                    0x30 => match a.checked_div(operand) {
                        Some(quotient) => quotient,
                        None => return Some(0),
                    },
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                };
            }
            code if code & 7 == 5 => {
                let operand = if code & 8 == 0 { value } else { x };
                let holds = match code & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                next += usize::from(if holds { if_true } else { if_false });
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: u32 = 0x8000_0000;
    const TRAP: u32 = 0x0003_0000;
    const REFUSE: u32 = 0x0005_0001;
    const ALLOW: u32 = 0x7fff_0000;

    fn instruction(code: u16, value: u32) -> FilterInstruction {
        FilterInstruction { code, if_true: 0, if_false: 0, value }
    }

    fn forbids_ours(instructions: &[FilterInstruction]) -> bool {
        let filter =
            FilterProgram { count: instructions.len() as u16, instructions: instructions.as_ptr() };
        forbids((&raw const filter).cast())
    }

    /// A filter with one result for the call of this number, and another for all others.
    fn unless(number: u32, result: u32, other_result: u32) -> Vec<FilterInstruction> {
        vec![
            instruction(0x20, 0),
            FilterInstruction { code: 0x15, if_true: 0, if_false: 1, value: number },
            instruction(0x06, result),
            instruction(0x06, other_result),
        ]
    }

    #[test]
    fn a_filter_forbids_if_one_of_our_calls_would_do_more_than_fail() {
        assert!(!forbids_ours(&[instruction(0x06, ALLOW)]));
        assert!(!forbids_ours(&[instruction(0x06, REFUSE)]));
        assert!(forbids_ours(&[instruction(0x06, KILL)]));
        assert!(forbids_ours(&[instruction(0x06, TRAP)]));
        // A call that we make, and one that we do not make.
        assert!(forbids_ours(&unless(sys::FALLOCATE as u32, TRAP, ALLOW)));
        assert!(!forbids_ours(&unless(511, KILL, ALLOW)));
        assert!(forbids_ours(&unless(511, ALLOW, KILL)));
    }

    #[test]
    fn arguments_and_arithmetic_are_those_of_the_kernel() {
        // Kills if the lower half of the third argument, read through memory and X, has bit 1:
        // PROT_WRITE of mmap.
        let arguments = [
            instruction(0x20, 0),
            FilterInstruction { code: 0x15, if_true: 0, if_false: 7, value: sys::MMAP as u32 },
            instruction(0x20, 16 + 2 * 8),
            instruction(0x02, 3),
            instruction(0x61, 3),
            instruction(0x87, 0),
            instruction(0x54, 2),
            FilterInstruction { code: 0x15, if_true: 1, if_false: 0, value: 0 },
            instruction(0x06, KILL),
            instruction(0x06, ALLOW),
        ];
        assert!(forbids_ours(&arguments));
    }

    #[test]
    fn an_invalid_filter_is_left_to_the_kernel() {
        assert!(!forbids(core::ptr::null()));
        assert!(!forbids(core::ptr::without_provenance(8)));
        assert!(!forbids_ours(&[]));
        assert!(!forbids_ours(&[instruction(0x20, 0)]), "it does not return");
        assert!(!forbids_ours(&[instruction(0xffff, 0), instruction(0x06, KILL)]));
        let filter = FilterProgram { count: 4, instructions: core::ptr::without_provenance(64) };
        assert!(!forbids((&raw const filter).cast()));
    }
}
