//! One word for each thread.
//!
//! `thread_local!` in a library calls `__tls_get_addr`, which may allocate when a thread uses it
//! first. A word in the initial part of a thread's storage exists from the thread's beginning until
//! after its destructors, and is read in two instructions. A preloaded library always gets that
//! part.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.recorder,\"awT\",@nobits",
    ".globl allot_recorder_word",
    ".hidden allot_recorder_word",
    ".type allot_recorder_word, @object",
    ".size allot_recorder_word, 8",
    ".p2align 3",
    "allot_recorder_word:",
    ".zero 8",
    ".popsection",
);

/// The word of a thread that gets a state at the moment, or that does not record any more.
pub const NO_STATE: usize = 1;
/// The two lowest bits of the word of a thread that has ended; the others hold its number.
pub const ENDED: usize = 3;

#[inline(always)]
fn word() -> *mut usize {
    let word: *mut usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions read the word's offset and the thread's own address.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + allot_recorder_word@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) word, options(pure, readonly, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instructions read the word's offset and the thread's own address.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:allot_recorder_word",
            "ldr {0}, [{0}, :gottprel_lo12:allot_recorder_word]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) word, out(reg) _, options(pure, readonly, nostack, preserves_flags));
    }
    word
}

/// The address of the word. It is among the thread's own data, which lie above its stack if both
/// are in one mapping.
pub fn address() -> u64 {
    word() as u64
}

/// The thread's word: 0 at first, [`NO_STATE`], the address of the thread's state, which is even,
/// or the thread's number and [`ENDED`].
#[inline(always)]
pub fn get() -> usize {
    // SAFETY: only this thread accesses its word.
    unsafe { word().read() }
}

/// Sets the thread's word.
pub fn set(value: usize) {
    // SAFETY: only this thread accesses its word.
    unsafe { word().write(value) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own_word_and_it_is_zero_at_first() {
        let threads: Vec<_> = (1..5)
            .map(|i| {
                std::thread::spawn(move || {
                    assert_eq!(super::get(), 0);
                    super::set(i);
                    std::thread::yield_now();
                    assert_eq!(super::get(), i);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(super::get(), 0);
    }
}
