//! Programs that forbid themselves system calls.
//!
//! A filter that a program sets up may end the process, or send it a signal, at a call that only the recorder makes. So it is run here
//! before the kernel has it, on each call that recording needs; if one of them would not merely be refused, the recording ends first.
//!
//! Invariant: the program's filter is read only where the kernel says that it can be.

use crate::sys;
use core::ffi::c_void;

/// A program's filter, as it gives it to the kernel.
#[repr(C)]
struct Filter {
    count: u16,
    instructions: *const Instruction,
}

/// An instruction of the kernel's old filter machine.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// A call, as filters see it: its number, the processor, where it is made, its arguments.
struct Call {
    words: [u32; 16],
}

#[cfg(target_arch = "x86_64")]
const PROCESSOR: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const PROCESSOR: u32 = 0xc000_00b7;

impl Call {
    fn new(number: usize, arguments: [usize; 6]) -> Self {
        let mut words = [0; 16];
        (words[0], words[1]) = (number as u32, PROCESSOR);
        let place = (&raw const PROCESSOR_OF_CALLS) as usize;
        (words[2], words[3]) = (place as u32, (place >> 32) as u32);
        for (i, argument) in arguments.into_iter().enumerate() {
            words[4 + 2 * i] = argument as u32;
            words[5 + 2 * i] = (argument >> 32) as u32;
        }
        Self { words }
    }
}

/// Something of this library, near which its calls are made.
static PROCESSOR_OF_CALLS: u32 = PROCESSOR;

/// Most instructions that the kernel takes.
const MOST: u16 = 4096;

/// Whether under a filter the recorder's own calls would do more than fail.
pub fn forbids(filter: *const c_void) -> bool {
    let filter = filter.cast::<Filter>();
    // What can't be read the kernel refuses.
    if !(filter as usize).is_multiple_of(8)
        || !sys::is_readable(filter as u64)
        || !sys::is_readable(filter as u64 + 8)
    {
        return false;
    }
    // SAFETY: both words of it can be read.
    let Filter { count, instructions } = unsafe { filter.read() };
    let bytes = u64::from(count) * size_of::<Instruction>() as u64;
    let first = instructions as u64;
    if count == 0
        || count > MOST
        || !first.is_multiple_of(4)
        || first.checked_add(bytes).is_none()
        || !(first..first + bytes).step_by(8).all(sys::is_readable)
    {
        return false;
    }
    // SAFETY: all of them can be read, whatever is in them.
    let instructions = unsafe { core::slice::from_raw_parts(instructions, count.into()) };
    sys::each_kind_of_call(|number, arguments| {
        is_harmless(run(instructions, &Call::new(number, arguments)))
    })
    .is_err()
}

/// Whether a filter's answer lets a call through or makes it fail.
fn is_harmless(answer: Option<u32>) -> bool {
    const ERROR: u32 = 0x0005_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ALLOW: u32 = 0x7fff_0000;
    // Where the kernel refuses a filter, nothing changes.
    answer.is_none_or(|answer| matches!(answer & 0xffff_0000, ERROR | LOG | ALLOW))
}

/// What a filter answers. `None`: it's none that the kernel takes.
fn run(instructions: &[Instruction], call: &Call) -> Option<u32> {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; 16];
    let mut at = 0;
    // Jumps lead forwards only, so it ends.
    loop {
        let Instruction { code, if_true, if_false, value } = *instructions.get(at)?;
        at += 1;
        match code {
            // Loads: a word of the call, a number, a word of memory, the call's length.
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
            0x05 => at = at.checked_add(value as usize)?,
            code if code & 7 == 4 => {
                let by = if code & 8 == 0 { value } else { x };
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(by),
                    0x10 => a.wrapping_sub(by),
                    0x20 => a.wrapping_mul(by),
                    // The kernel's machine ends with 0 at a division by nothing.
                    0x30 => match a.checked_div(by) {
                        Some(quotient) => quotient,
                        None => return Some(0),
                    },
                    0x40 => a | by,
                    0x50 => a & by,
                    0x60 => a.wrapping_shl(by),
                    0x70 => a.wrapping_shr(by),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ by,
                    _ => return None,
                };
            }
            code if code & 7 == 5 => {
                let with = if code & 8 == 0 { value } else { x };
                let holds = match code & 0xf0 {
                    0x10 => a == with,
                    0x20 => a > with,
                    0x30 => a >= with,
                    0x40 => a & with != 0,
                    _ => return None,
                };
                at += usize::from(if holds { if_true } else { if_false });
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

    fn plain(code: u16, value: u32) -> Instruction {
        Instruction { code, if_true: 0, if_false: 0, value }
    }

    fn is_forbidden(instructions: &[Instruction]) -> bool {
        let filter =
            Filter { count: instructions.len() as u16, instructions: instructions.as_ptr() };
        forbids((&raw const filter).cast())
    }

    /// Answers something for a number of call, and else something else.
    fn but(number: u32, answer: u32, else_answer: u32) -> Vec<Instruction> {
        vec![
            plain(0x20, 0),
            Instruction { code: 0x15, if_true: 0, if_false: 1, value: number },
            plain(0x06, answer),
            plain(0x06, else_answer),
        ]
    }

    #[test]
    fn a_filter_forbids_if_a_call_of_ours_would_do_more_than_fail() {
        assert!(!is_forbidden(&[plain(0x06, ALLOW)]));
        assert!(!is_forbidden(&[plain(0x06, REFUSE)]));
        assert!(is_forbidden(&[plain(0x06, KILL)]));
        assert!(is_forbidden(&[plain(0x06, TRAP)]));
        // A call of ours, and one that isn't.
        assert!(is_forbidden(&but(sys::FALLOCATE as u32, TRAP, ALLOW)));
        assert!(!is_forbidden(&but(511, KILL, ALLOW)));
        assert!(is_forbidden(&but(511, ALLOW, KILL)));
    }

    #[test]
    fn arguments_and_arithmetic_are_what_the_kernel_makes_of_them() {
        // Kills where the lower half of the third argument, read by way of memory and X, has bit 1: PROT_WRITE of mmap.
        let arguments = [
            plain(0x20, 0),
            Instruction { code: 0x15, if_true: 0, if_false: 7, value: sys::MMAP as u32 },
            plain(0x20, 16 + 2 * 8),
            plain(0x02, 3),
            plain(0x61, 3),
            plain(0x87, 0),
            plain(0x54, 2),
            Instruction { code: 0x15, if_true: 1, if_false: 0, value: 0 },
            plain(0x06, KILL),
            plain(0x06, ALLOW),
        ];
        assert!(is_forbidden(&arguments));
    }

    #[test]
    fn what_is_no_filter_is_left_to_the_kernel() {
        assert!(!forbids(core::ptr::null()));
        assert!(!forbids(core::ptr::without_provenance(8)));
        assert!(!is_forbidden(&[]));
        assert!(!is_forbidden(&[plain(0x20, 0)]), "it has no end");
        assert!(!is_forbidden(&[plain(0xffff, 0), plain(0x06, KILL)]));
        let filter = Filter { count: 4, instructions: core::ptr::without_provenance(64) };
        assert!(!forbids((&raw const filter).cast()));
    }
}
