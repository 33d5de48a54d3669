//! What every allocator of boxes must do.

use std::sync::{Barrier, mpsc};
use std::thread;

use bench::peers::{About, Boxes, BoxesVisitor, LocalBoxes, Service, known};

const BOXES: u64 = 5_000;

#[test]
fn a_box_keeps_its_value_until_any_thread_drops_it() {
    struct Claim;

    impl BoxesVisitor for Claim {
        type Output = ();

        fn visit<A: Boxes>(self, _: &'static About) {
            let allocator = A::new();
            let barrier = Barrier::new(2);
            let (to_left, from_right) = mpsc::channel();
            let (to_right, from_left) = mpsc::channel();
            thread::scope(|scope| {
                for (into, from) in [(to_right, from_right), (to_left, from_left)] {
                    let (allocator, barrier) = (&allocator, &barrier);
                    scope.spawn(move || {
                        let local = allocator.local();
                        local.within(|| {
                            for round in 0..3 {
                                let boxes: Vec<_> =
                                    (0..BOXES).map(|word| local.boxed([word + round; 8])).collect();
                                into.send(boxes).unwrap();
                                for (word, boxed) in from.recv().unwrap().into_iter().enumerate() {
                                    // SAFETY: a live box of this allocator, which was moved here.
                                    unsafe {
                                        assert_eq!(local.value(&boxed), [word as u64 + round; 8]);
                                        local.drop_box(boxed);
                                    }
                                }
                            }
                        });
                        barrier.wait();
                    });
                }
            });
        }
    }

    let rows = known().iter().filter(|about| about.serves(Service::Boxes));
    let served = rows.map(|about| {
        eprintln!("{}", about.name);
        Claim.with(about.name).unwrap();
    });
    assert!(served.count() > 3);
}
