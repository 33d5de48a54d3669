//! One word for each thread.
//!
//! `thread_local!` in a library asks `__tls_get_addr`, which may allocate at a thread's first question; a word in the
//! initial part of the thread's storage is there with the thread, and behind its end, and is read in two instructions.
//! A library that is preloaded always gets that part.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.allot_recorder,\"awT\",@nobits",
    ".globl allot_recorder_word",
    ".hidden allot_recorder_word",
    ".type allot_recorder_word, @object",
    ".size allot_recorder_word, 8",
    ".p2align 3",
    "allot_recorder_word:",
    ".zero 8",
    ".popsection",
);

#[inline(always)]
fn place() -> *mut usize {
    let place: *mut usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads the word's offset and the thread's own address.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + allot_recorder_word@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) place, options(pure, readonly, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it reads the word's offset and the thread's own address.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:allot_recorder_word",
            "ldr {0}, [{0}, :gottprel_lo12:allot_recorder_word]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) place, out(reg) _, options(pure, readonly, nostack, preserves_flags));
    }
    place
}

/// Where the word lies, among what the thread has of its own: above its stack, if they are mapped together.
pub fn address() -> u64 {
    place() as u64
}

/// The thread's word; 0 at first.
#[inline(always)]
pub fn get() -> usize {
    // SAFETY: the place is this thread's alone.
    unsafe { place().read() }
}

/// Sets the thread's word.
pub fn set(word: usize) {
    // SAFETY: the place is this thread's alone.
    unsafe { place().write(word) }
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
