//! What workloads do with a result so that the compiler can't omit the work.

/// Makes the compiler assume that the memory at an address, and all memory that is reachable from
/// it, is read. It then can't omit the write, nor a pair of calls to `malloc` and `free` whose
/// meaning it knows. Unlike [`std::hint::black_box`], this costs no instruction.
#[inline(always)]
pub(crate) fn assume_read<T>(at: *const T) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: the assembly contains no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::hint::black_box(at);
}

/// Pushes numbers to an empty vector, one by one. The vectors of all libraries have these calls.
macro_rules! push_all {
    ($vector:expr, $numbers:expr) => {{
        let mut vector = $vector;
        for number in 0..$numbers {
            vector.push(number);
        }
        $crate::peers::assume_read::assume_read(vector.as_ptr());
    }};
}
pub(crate) use push_all;
