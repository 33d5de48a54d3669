//! Builds without the system's mappings: chunks are blocks of malloc, and neither pages nor forks are
//! known.

use core::ptr::NonNull;

use crate::error::{AllocError, ErrorKind};

/// The unit of chunks, in bytes. Nothing here depends on the hardware's pages.
pub fn page_size() -> usize {
    4096
}

/// Always refused: malloc decides when its pages get memory.
pub fn populate(_: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    Err(AllocError::new(ErrorKind::SourceRefused, len))
}

/// The milliseconds of a monotonic clock.
#[cfg(all(feature = "std", any(unix, windows)))]
pub fn coarse_millis() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Stands for the milliseconds of a clock: advances by one with every [`READINGS`] readings, which
/// is how many objects a free list sweeps in a millisecond. A list that waits for time to pass reads
/// the clock in each free, so it waits for as many frees as a sweep takes steps.
#[cfg(not(all(feature = "std", any(unix, windows))))]
pub fn coarse_millis() -> u64 {
    use core::sync::atomic::{AtomicUsize, Ordering};

    static READ: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the count orders nothing. A lost reading makes the clock slower.
    let read = READ.load(Ordering::Relaxed).wrapping_add(1);
    READ.store(read, Ordering::Relaxed);
    (read / READINGS) as u64
}

#[cfg(not(all(feature = "std", any(unix, windows))))]
const READINGS: usize = 8192;
