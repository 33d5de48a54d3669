//! Two threads at one `Published` as close together as they can get: what the models say of fences, on a real processor.
//! `ALLOTMENT_SOAK_SECONDS` makes it longer.
//!
//! Without the kernel's fence this fails in half of its runs, with optimisation in nearly all, where there are two processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allotment::Published;

fn time() -> Duration {
    let seconds = std::env::var("ALLOTMENT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

const PLACES: usize = 1 << 16;

/// A value whose end is noted elsewhere, so that it is known after that.
struct Noted<'n> {
    number: usize,
    ends: &'n [AtomicUsize],
}

/// Where the end of a number is noted, until that of another one is noted there.
fn noted(ends: &[AtomicUsize], number: usize) -> &AtomicUsize {
    &ends[number % PLACES]
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        noted(self.ends, self.number).store(self.number, Ordering::Release);
    }
}

#[test]
fn what_is_read_in_a_loop_while_another_thread_publishes_in_a_loop_never_ends_early() {
    let ends: Vec<_> = (0..PLACES).map(|_| AtomicUsize::new(usize::MAX)).collect();
    let published = Published::new(Noted { number: 0, ends: &ends });
    let (stop, early) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + time();
            for number in 1.. {
                published.publish(Noted { number, ends: &ends });
                if number % 64 == 0 && Instant::now() > until {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut far = vec![0u8; 64 << 20];
            let mut place = 1usize;
            while !stop.load(Ordering::Relaxed) {
                // Stores that wait for memory: the announcement waits behind them, and what is read after it does not.
                for _ in 0..8 {
                    place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                    let index = (place >> 33) % far.len();
                    far[index] = 1;
                }
                let reading = published.read();
                let number = reading.number;
                // Long enough for a writer that did not see the reading.
                for _ in 0..20 {
                    if noted(&ends, number).load(Ordering::Acquire) == number {
                        early.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        });
    });
    assert_eq!(early.load(Ordering::Relaxed), 0, "generations that ended while they were read");
    assert_eq!(published.retired(), 0);
}
