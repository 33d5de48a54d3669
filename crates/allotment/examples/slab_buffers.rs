//! Buffers of one size that collectors fill and another thread writes out and frees; a burst that was seen coming.

use std::mem::MaybeUninit;
use std::sync::mpsc;

use allotment::{RawSlab, Slab};

/// What one collector hands over each second.
struct Buffer {
    collector: usize,
    points: [f64; 62],
}

fn main() {
    let buffers = Slab::<Buffer>::builder().name("points").build();
    let (to_writer, from_collectors) = mpsc::channel();
    std::thread::scope(|scope| {
        for collector in 0..4 {
            let (buffers, to_writer) = (&buffers, to_writer.clone());
            scope.spawn(move || {
                for second in 0..1000 {
                    let points = [f64::from(second); 62];
                    to_writer.send(buffers.alloc(Buffer { collector, points })).expect("it reads");
                }
            });
        }
        drop(to_writer);
        // Each buffer is freed here, where it was not made, and neither thread waits for the other.
        let mut sums = [0.0; 4];
        for buffer in from_collectors {
            sums[buffer.collector] += buffer.points.iter().sum::<f64>();
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    });
    println!("{}", allotment::report());

    // At the full hour a million metrics want a buffer each: have the pages there a second before.
    let hourly = RawSlab::new(std::alloc::Layout::new::<[u64; 48]>());
    hourly.reserve(10_000);
    let calls = hourly.statistics().source_calls;
    let mut slots = vec![MaybeUninit::uninit(); 10_000];
    hourly.alloc_many(&mut slots);
    assert_eq!(hourly.statistics().source_calls, calls, "no page was asked for in the burst");
    // SAFETY: `alloc_many` wrote all of them.
    let slots: Vec<_> = slots.into_iter().map(|slot| unsafe { slot.assume_init() }).collect();
    // SAFETY: allocated above, each freed once, and not used after.
    unsafe { hourly.free_many(&slots) };
    hourly.trim();
    println!("held when the burst is over: {} bytes", hourly.statistics().held_bytes);
}
