//! What the processor and the kernel may be told beforehand: hints, which change nothing but the time.

/// Asks for memory that will be read soon, where the processor can be asked.
#[inline]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it is a hint that changes nothing, and the address is a reference's.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Tables from this size on may have huge pages.
const LEAST_HUGE: usize = 4 << 20;
/// What a huge page is aligned to.
const HUGE: usize = 2 << 20;

/// Asks for huge pages for a table that is about to be filled in no order. Where most accesses need another page, the
/// processor waits for the page tables first; in pages of 4 KiB it does so more than for the table.
pub fn huge<T>(table: &mut Vec<T>) {
    let bytes = table.capacity() * size_of::<T>();
    if bytes < LEAST_HUGE {
        return;
    }
    let start = table.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE);
    let length = bytes.saturating_sub(skipped) & !(HUGE - 1);
    // SAFETY: the range lies in the table's own capacity, `skipped` and `length` being no more than it has together; the
    // advice says how its pages are to be made and changes no byte. Where the kernel doesn't know it, it says so.
    unsafe { libc::madvise(start.wrapping_add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
}
