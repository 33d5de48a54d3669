//! Scopes: scratch memory that ends with a closure, while what lies outside stays.
//!
//! A recursive walk needs scratch space at each level. Each level's scope gives its own back, so the walk
//! holds as much as its depth needs, not as its whole work.

use allotment::{Arena, Scope};

/// The number of ways to climb `stairs` in steps of one to three, with a scratch copy at each level.
fn ways(scope: &mut Scope<'_>, stairs: usize) -> u64 {
    let scratch = scope.alloc_slice_with(64, |index| index as u64);
    if stairs == 0 {
        return 1 + scratch[0];
    }
    (1..=3.min(stairs)).map(|step| scope.scope(|inner| ways(inner, stairs - step))).sum()
}

fn main() {
    let mut arena = Arena::new();
    let found = arena.scope(|scope| ways(scope, 16));
    let held = arena.statistics().peak_held_bytes;
    println!("{found} ways; the arena held {held} bytes at its deepest");
    assert_eq!(found, 10_609);
    assert!(held <= 64 << 10, "a level's scratch memory went back when its scope ended");
    assert_eq!(arena.statistics().live_objects, 0);
}
