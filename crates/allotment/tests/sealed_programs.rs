//! Random programs on sealed memory through the `Allocator` traits: blocks don't overlap and keep
//! their contents, also when they are sealed; statistics are exact; a refused call changes nothing.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test. With the feature
//! `nightly-allocator-api`, on a nightly toolchain, the standard library's trait is tested too.
#![cfg_attr(feature = "nightly-allocator-api", feature(allocator_api))]

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

use allotment::{AllocError, Budget, OnRefusal, Sealed, Sealer};
use proptest::test_runner::{Config, TestError, TestRunner};

/// One step of a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate { size: usize, align: u32, zeroed: bool },
    Free(usize),
    Resize { which: usize, size: usize, zeroed: bool },
}

fn size() -> impl proptest::strategy::Strategy<Value = usize> {
    proptest::prop_oneof![8 => 0usize..200, 4 => 0usize..6000, 2 => 30_000usize..100_000, 1 => 0usize..600_000]
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::strategy::Strategy;
    let zeroed = proptest::bool::ANY;
    proptest::prop_oneof![
        5 => (size(), 0u32..18, zeroed)
            .prop_map(|(size, align, zeroed)| Step::Allocate { size, align, zeroed }),
        2 => (0usize..64).prop_map(Step::Free),
        3 => (0usize..64, size(), zeroed)
            .prop_map(|(which, size, zeroed)| Step::Resize { which, size, zeroed }),
    ]
}

/// A live block, and the byte that fills it.
#[derive(Clone, Copy)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    byte: u8,
}

impl Block {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a live block, filled.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    fn fill(&self) {
        // SAFETY: as above.
        unsafe { self.start.write_bytes(self.byte, self.layout.size()) };
    }

    fn holds(&self, len: usize) -> bool {
        self.bytes()[..len].iter().all(|&byte| byte == self.byte)
    }
}

fn none_overlaps(blocks: &[Block]) {
    let mut ranges: Vec<_> = blocks
        .iter()
        .filter(|block| block.layout.size() > 0)
        .map(|block| (block.start.addr().get(), block.layout.size()))
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "two blocks overlap");
    }
}

macro_rules! version {
    ($module:ident, $crate_name:ident) => {
        mod $module {
            use $crate_name::alloc::Allocator;

            use super::*;

            /// Runs a program; gives what lives at its end.
            fn run(sealer: Sealer<'_>, steps: &[Step]) -> Vec<Block> {
                let mut blocks: Vec<Block> = Vec::new();
                let mut byte = 0u8;
                for &step in steps {
                    byte = byte.wrapping_add(1);
                    match step {
                        Step::Allocate { size, align, zeroed } => {
                            let layout = Layout::from_size_align(size, 1 << align).unwrap();
                            let made = if zeroed {
                                sealer.allocate_zeroed(layout)
                            } else {
                                sealer.allocate(layout)
                            };
                            let Ok(made) = made else { continue };
                            let block = Block { start: made.cast(), layout, byte };
                            assert_eq!(block.start.addr().get() % layout.align(), 0);
                            assert!(!zeroed || block.bytes().iter().all(|&byte| byte == 0));
                            block.fill();
                            blocks.push(block);
                        }
                        Step::Free(which) if !blocks.is_empty() => {
                            let block = blocks.swap_remove(which % blocks.len());
                            assert!(block.holds(block.layout.size()));
                            // SAFETY: a live block of this layout, freed once.
                            unsafe { sealer.deallocate(block.start, block.layout) };
                        }
                        Step::Resize { which, size, zeroed } if !blocks.is_empty() => {
                            let which = which % blocks.len();
                            let block = &mut blocks[which];
                            let old = block.layout;
                            let new = Layout::from_size_align(size, old.align()).unwrap();
                            // SAFETY: a live block of the old layout.
                            let made = unsafe {
                                if size < old.size() {
                                    sealer.shrink(block.start, old, new)
                                } else if zeroed {
                                    sealer.grow_zeroed(block.start, old, new)
                                } else {
                                    sealer.grow(block.start, old, new)
                                }
                            };
                            if let Ok(made) = made {
                                *block = Block { start: made.cast(), layout: new, ..*block };
                                assert_eq!(block.start.addr().get() % new.align(), 0);
                                assert!(block.holds(size.min(old.size())));
                                if zeroed && size > old.size() {
                                    assert!(block.bytes()[old.size()..].iter().all(|&b| b == 0));
                                }
                                block.fill();
                            } else {
                                assert!(block.holds(old.size()), "a refused call changes nothing");
                            }
                        }
                        _ => {}
                    }
                    none_overlaps(&blocks);
                }
                assert!(blocks.iter().all(|block| block.holds(block.layout.size())));
                blocks
            }

            fn check(steps: &[Step], cap: usize) {
                let budget = Budget::new(cap);
                let left = Cell::new(Vec::new());
                let builder = Sealed::<u64>::builder().on_refusal(OnRefusal::ReturnError);
                let builder = if cap == 0 { builder } else { builder.budget(&budget) };
                let sealed = builder.try_build(|sealer| {
                    left.set(run(sealer, steps));
                    Ok::<_, AllocError>(7)
                });
                let Ok(sealed) = sealed else {
                    return assert_eq!(budget.used(), 0);
                };
                let blocks = left.take();
                assert!(*sealed.get() == 7 && blocks.iter().all(|b| b.holds(b.layout.size())));
                let statistics = sealed.statistics();
                let live = blocks.iter().filter(|block| block.layout.size() > 0);
                let bytes: usize = live.clone().map(|block| block.layout.size()).sum();
                assert_eq!(statistics.live_objects, 1 + live.count() as u64);
                assert_eq!(sealed.statistics().live_bytes as usize, 8 + bytes);
                assert_eq!(
                    statistics.held_bytes,
                    statistics.live_bytes + statistics.structure_bytes + statistics.wasted_bytes
                );
                assert!(cap == 0 || budget.used() == sealed.statistics().held_bytes as usize);
                drop(sealed);
                assert_eq!(budget.used(), 0);
            }

            fn programs(cases: u32, caps: std::ops::Range<usize>) {
                let given = std::env::var("PROPTEST_CASES").ok();
                let given = given.and_then(|cases| cases.parse().ok());
                let config = Config {
                    cases: given.unwrap_or(cases),
                    failure_persistence: None,
                    ..Config::default()
                };
                let program = (proptest::collection::vec(step(), 0..60), caps);
                let result = TestRunner::new(config).run(&program, |(steps, cap)| {
                    check(&steps, cap);
                    Ok(())
                });
                match result {
                    Ok(()) => {}
                    Err(TestError::Fail(reason, program)) => panic!("{reason}: {program:?}"),
                    Err(abort) => panic!("{abort}"),
                }
            }

            #[test]
            fn programs_keep_the_model_in_warm_chunks() {
                programs(100, 0..1);
            }

            #[test]
            fn programs_keep_the_model_within_a_budget_that_refuses_now_and_then() {
                programs(100, 1..1_000_000);
            }

            #[test]
            fn a_vector_and_a_box_of_the_other_crate_are_sealed_as_slices() {
                let sealed = Sealed::<&'static [u32]>::new(|sealer| {
                    let mut numbers = $crate_name::vec::Vec::new_in(sealer);
                    numbers.extend(0..1000u32);
                    let boxed = $crate_name::boxed::Box::new_in([1u8; 100], sealer);
                    assert_eq!(boxed[99], 1);
                    drop(boxed);
                    numbers.leak()
                });
                assert!(sealed.get().iter().copied().eq(0..1000));
            }
        }
    };
}

version!(version_02, allocator_api2_02);
version!(version_03, allocator_api2_03);
version!(version_04, allocator_api2_04);
#[cfg(feature = "nightly-allocator-api")]
version!(version_std, std);
