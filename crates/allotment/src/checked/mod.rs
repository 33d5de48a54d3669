//! Checked allocators: hardened mode, memory tools and pass-through mode.
//!
//! A *checked* allocator takes the slow path for every call, and records its objects in a
//! [`Ledger`], so that misuse can be detected. Each allocator has its own adapter (`checked.rs` in
//! its folder): its implementation of [`CheckedAllocator`], and what only that allocator needs.
//!
//! | mode | when | memory of an object | what is found |
//! |---|---|---|---|
//! | tool | AddressSanitizer or Valgrind is present | a block of the allocator, with a red zone behind the object | what the tool finds; double frees and foreign pointers where objects are recorded |
//! | hardened | the builder's option | the same; red zones and free bytes hold patterns that are checked | double free, foreign pointer, wrong size or alignment, overrun, write after free, write after reset |
//! | recorded | a pool's option `record_places` | a block of the allocator, with a red zone that is not checked | double frees, until the block is used again, and foreign pointers |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | a malloc block of its own | what malloc or its tool finds |
//!
//! | file | what it holds |
//! |---|---|
//! | `mode` | why an allocator is checked |
//! | `misuse` | the kinds of misuse, and their messages |
//! | `places` | the places of the program that allocate |
//! | `ledger` | live objects, quarantine, red zones, fill patterns and malloc blocks |

#[cfg(system_memory)]
mod ledger;
mod misuse;
#[cfg(system_memory)]
mod mode;
#[cfg(system_memory)]
mod places;

#[cfg(system_memory)]
pub(crate) use ledger::{CheckedAllocator, CheckedObject, Ledger};
pub(crate) use misuse::{Misuse, abort_on_misuse};
#[cfg(system_memory)]
pub(crate) use mode::{CheckMode, GUARD, guarded};
#[cfg(all(system_memory, feature = "places"))]
pub(crate) use places::{MAX_STACKS, PlaceNumber, WALKING_FUNCTION, symbols};
