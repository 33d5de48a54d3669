//! Relaxed loads and stores that the compiler moves other memory accesses across.
//!
//! A fast path that takes a value must write it once. `arena.alloc([0; 192])` fills an array on the
//! stack, takes memory, and copies the array there. The compiler leaves the array out and fills the
//! memory, but only if nothing between the two may touch the array. LLVM assumes that each atomic
//! access may touch all memory. It assumes so even of a relaxed access, and even of an array whose
//! address no other thread has. So an atomic load in the fast path of `alloc` causes every value to
//! be written twice.
//!
//! Inline assembly has no such effect: it can't touch an array whose address it does not receive.
//! The functions here are a relaxed load and a relaxed store in inline assembly. They are atomic on
//! every processor that the library supports: an aligned load or store of 64 bits is one access.
//! The golden tests show the effect (`tests/golden_fast_paths.rs`). Under Miri they are the
//! ordinary atomics, so that it checks the same accesses.
//!
//! # Invariant
//!
//! Each function makes exactly one access, to the 8 bytes of the atomic.

use core::sync::atomic::{AtomicU64, AtomicUsize};

/// A relaxed load and store for fast paths. All other accesses to the same atomic may be ordinary
/// ones.
pub(crate) trait RelaxedAccess {
    type Value;

    /// As `load(Ordering::Relaxed)`.
    fn relaxed_load(&self) -> Self::Value;

    /// As `store(value, Ordering::Relaxed)`.
    fn relaxed_store(&self, value: Self::Value);
}

macro_rules! relaxed_access {
    ($($atomic:ty, $value:ty;)*) => {$(
        impl RelaxedAccess for $atomic {
            type Value = $value;

            #[inline(always)]
            fn relaxed_load(&self) -> $value {
                // SAFETY: the pointer is that of an atomic.
                unsafe { word::load::<0>(self.as_ptr().cast()) as $value }
            }

            #[inline(always)]
            fn relaxed_store(&self, value: $value) {
                // SAFETY: as above.
                unsafe { word::store(self.as_ptr().cast(), value as u64) }
            }
        }
    )*};
}

relaxed_access! {
    AtomicU64, u64;
    AtomicUsize, usize;
}

/// Loads the atomic that lies `OFFSET` bytes behind `base`. The offset is a constant, so it becomes
/// a part of the instruction.
///
/// # Safety
/// An `AtomicU64` or `AtomicUsize` lies there.
#[inline(always)]
pub(crate) unsafe fn relaxed_load_at<const OFFSET: usize>(base: *const u8) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { word::load::<OFFSET>(base) }
}

#[cfg(not(miri))]
mod word {
    use core::arch::asm;

    /// # Safety
    /// An atomic of 8 bytes lies `OFFSET` bytes behind `base`.
    #[inline(always)]
    pub(super) unsafe fn load<const OFFSET: usize>(base: *const u8) -> u64 {
        let value;
        // SAFETY: one aligned load of 8 bytes that are valid, which is what a relaxed load is.
        // `pure` and `readonly`: it has no other effect. It is not `nomem`, so it is not moved
        // across a store to the same atomic.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "mov {value}, qword ptr [{base} + {offset}]",
                value = lateout(reg) value,
                base = in(reg) base,
                offset = const OFFSET,
                options(pure, readonly, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "ldr {value}, [{base}, #{offset}]",
                value = lateout(reg) value,
                base = in(reg) base,
                offset = const OFFSET,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        value
    }

    /// # Safety
    /// `atomic` is an atomic of 8 bytes.
    #[inline(always)]
    pub(super) unsafe fn store(atomic: *mut u64, value: u64) {
        // SAFETY: one aligned store of 8 bytes that are valid, which is what a relaxed store is.
        // The memory is that of an atomic, so a shared reference may write it.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "mov qword ptr [{atomic}], {value}",
                atomic = in(reg) atomic,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "str {value}, [{atomic}]",
                atomic = in(reg) atomic,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(miri)]
mod word {
    use core::sync::atomic::{AtomicU64, Ordering};

    /// # Safety
    /// An atomic of 8 bytes lies `OFFSET` bytes behind `base`.
    pub(super) unsafe fn load<const OFFSET: usize>(base: *const u8) -> u64 {
        // SAFETY: guaranteed by the caller. Both atomics have the layout of a `u64`.
        unsafe { (*base.add(OFFSET).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }

    /// # Safety
    /// `atomic` is an atomic of 8 bytes.
    pub(super) unsafe fn store(atomic: *mut u64, value: u64) {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(atomic) }.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_was_stored_is_loaded_and_the_neighbours_stay() {
        let words = [const { AtomicU64::new(7) }; 3];
        for value in [0, 1, u64::MAX, 1 << 40] {
            words[1].relaxed_store(value);
            assert_eq!(words[1].relaxed_load(), value);
            assert_eq!(words[1].load(Ordering::Relaxed), value);
            // SAFETY: the second of three.
            assert_eq!(unsafe { relaxed_load_at::<8>(words.as_ptr().cast()) }, value);
            assert_eq!([words[0].relaxed_load(), words[2].relaxed_load()], [7, 7]);
        }
        let size = AtomicUsize::new(usize::MAX);
        assert_eq!(size.relaxed_load(), usize::MAX);
        size.relaxed_store(5);
        assert_eq!(size.into_inner(), 5);
    }

    #[test]
    fn a_reader_on_another_thread_sees_whole_values_that_only_grow() {
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = 0;
                while last != u64::MAX {
                    let value = word.load(Ordering::Relaxed);
                    assert_eq!(value >> 32, value & 0xffff_ffff, "two halves of two stores");
                    assert!(value >= last);
                    last = value;
                }
            });
            for half in 0..if cfg!(miri) { 100 } else { 1_000_000u64 } {
                word.relaxed_store(half << 32 | half);
            }
            word.relaxed_store(u64::MAX);
        });
    }
}
