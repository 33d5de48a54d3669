//! Buffers of one size that collectors fill and another thread writes out and frees; then a burst
//! for which the memory was reserved in advance.

use std::mem::MaybeUninit;
use std::sync::mpsc;

use allotment::{RawSlab, Slab};

/// The data that one collector hands over each second.
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
        // Each buffer is freed on a thread that did not make it. Neither thread waits for the
        // other.
        let mut sums = [0.0; 4];
        for buffer in from_collectors {
            sums[buffer.collector] += buffer.points.iter().sum::<f64>();
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    });
    println!("{}", allotment::report());

    // On the hour, a million metrics need one buffer each: reserve the pages a second earlier.
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
