//! Hints to the processor and the kernel about memory. They change only the speed.

/// Prefetches a value that will be read soon. Does nothing on processors other than x86-64.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it is a hint without effect on memory,
    // and the address is that of a reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The least size in bytes of a table that gets huge pages.
const LEAST_HUGE: usize = 4 << 20;
/// The size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// Asks for huge pages for a table that is about to be filled in random order. With pages of 4 KiB,
/// such accesses wait longer for page table entries than for the table itself.
pub fn advise_huge_pages<T>(table: &mut Vec<T>) {
    let bytes = table.capacity() * size_of::<T>();
    if bytes < LEAST_HUGE {
        return;
    }
    let start = table.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE);
    let length = bytes.saturating_sub(skipped) & !(HUGE - 1);
    // SAFETY: the range lies in the table's capacity, because `skipped + length <= bytes`. The
    // advice changes no byte. A kernel that doesn't know it returns an error, which is harmless.
    unsafe { libc::madvise(start.wrapping_add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
}
