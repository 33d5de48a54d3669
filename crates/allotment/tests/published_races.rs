//! One thread reads a `Published` in a loop while another publishes: the models' claims about
//! fences, on a real processor. `ALLOTMENT_SOAK_SECONDS` sets the duration (1 by default).
//!
//! On two processors and without the kernel's fence, half of the runs fail, and with optimisation
//! nearly all.
#![cfg(system_memory)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allotment::Published;

fn time() -> Duration {
    let seconds = std::env::var("ALLOTMENT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

const ENTRIES: usize = 1 << 16;

/// A value whose drop is recorded outside of it.
struct RecordsDrop<'n> {
    number: usize,
    ends: &'n [AtomicUsize],
}

/// The entry that holds `number` after its drop, until a later number reuses the entry.
fn entry(ends: &[AtomicUsize], number: usize) -> &AtomicUsize {
    &ends[number % ENTRIES]
}

impl Drop for RecordsDrop<'_> {
    fn drop(&mut self) {
        entry(self.ends, self.number).store(self.number, Ordering::Release);
    }
}

#[test]
fn what_is_read_in_a_loop_while_another_thread_publishes_in_a_loop_never_ends_early() {
    let ends: Vec<_> = (0..ENTRIES).map(|_| AtomicUsize::new(usize::MAX)).collect();
    let published = Published::new(RecordsDrop { number: 0, ends: &ends });
    let (stop, early) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + time();
            for number in 1.. {
                published.publish(RecordsDrop { number, ends: &ends });
                if number % 64 == 0 && Instant::now() > until {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut far = vec![0u8; 64 << 20];
            let mut random = 1usize;
            while !stop.load(Ordering::Relaxed) {
                // Stores that wait for memory. The announcement waits behind them in the store
                // buffer; the loads after it don't.
                for _ in 0..8 {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                    let index = (random >> 33) % far.len();
                    far[index] = 1;
                }
                let reading = published.read();
                let number = reading.number;
                // Long enough for a writer that did not see the announcement.
                for _ in 0..20 {
                    if entry(&ends, number).load(Ordering::Acquire) == number {
                        early.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        });
    });
    assert_eq!(
        early.load(Ordering::Relaxed),
        0,
        "generations that were dropped while they were read"
    );
    assert_eq!(published.retired(), 0);
}
