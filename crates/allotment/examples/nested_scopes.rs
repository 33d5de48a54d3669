//! Scopes: scratch memory that is freed when a closure ends, while older objects stay.
//!
//! A recursive walk needs scratch space at each level. Each level's scope frees its own scratch
//! space, so the walk holds as much memory as its depth needs, and not as much as all its steps
//! need.

use allotment::Arena;
use allotment::arena::Scope;

/// The number of ways to climb `stairs` stairs in steps of one to three, with a scratch copy at
/// each level.
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
