//! One vector, one string and one box for every allocator.
//!
//! [`ArenaVec`](crate::ArenaVec), [`PoolVec`](crate::PoolVec) and [`SealVec`](crate::SealVec) are
//! names of [`VecIn`] with the memory of an arena, a pool or a sealed value; so are the strings of
//! [`StringIn`], and the boxes of all allocators, such as [`ArenaBox`](crate::ArenaBox) and
//! [`SlabBox`](crate::SlabBox), of [`BoxIn`]. Methods have the standard library's names and
//! behaviour. Each method that may allocate has a `try_` twin, which returns an
//! [`AllocError`](crate::AllocError) instead of panicking or ending the process.
//!
//! ```
//! use allotment::{Arena, ArenaVec};
//!
//! let arena = Arena::new();
//! let mut numbers = ArenaVec::from_iter_in(1..=6, &arena);
//! numbers.insert(0, 7);
//! numbers.retain(|number| number % 2 == 1);
//! for number in &mut numbers {
//!     *number *= 10;
//! }
//! assert_eq!(numbers, [70, 10, 30, 50]);
//! assert!(numbers.into_iter().rev().eq([50, 30, 10, 70]));
//! ```
// The files, lowest first:
//
// | file | what it holds |
// |---|---|
// | `block_source` | `BlockSource`: where a collection's memory comes from |
// | `raw_vec` | uninitialised memory for values, which grows and shrinks |
// | `buffer` | contiguous values in it: the unsafe core of the vector |
// | `vec_iterators` | `IntoIter` and `Drain`, which take values out of a buffer |
// | `vec`, `vec_traits` | `VecIn`, without unsafe code |
// | `string_drain` | `StringDrain`, which takes characters out of a string |
// | `string`, `string_traits` | `StringIn`: a `VecIn` of bytes that are UTF-8 |
// | `boxed` | `BoxIn`: one value with an owner; `unsize_box!` |
// | `slot` | `SlotIn`: memory for one value, without a value; the calls that lists and slabs have |
// | `serde_traits` | serde's traits, and seeds that deserialize into memory |
// | `values` | values, slices and strings that an allocator lends: the bodies of the typed calls |
// | `typed_calls` | the typed calls that arenas and reaps have |
// | `layout_calls` | the calls for raw layouts that arenas, reaps and pools have |

mod block_source;
mod boxed;
mod buffer;
mod layout_calls;
mod raw_vec;
#[cfg(feature = "serde")]
mod serde_traits;
mod slot;
mod string;
mod string_drain;
mod string_traits;
mod typed_calls;
mod values;
mod vec;
mod vec_iterators;
mod vec_traits;

pub use block_source::BlockSource;
pub use boxed::{ArenaMemory, BoxIn, BoxMemory, LendingMemory, StatelessMemory};
#[cfg(system_memory)]
pub use boxed::{PoolMemory, SlabMemory};
pub(crate) use layout_calls::layout_calls;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use serde_traits::{StringSeed, VecSeed};
pub use slot::SlotIn;
pub(crate) use slot::slot_calls;
pub use string::StringIn;
pub use string_drain::StringDrain;
pub(crate) use typed_calls::typed_calls;
pub(crate) use values::{LendingSource, NoDrop};
pub use vec::VecIn;
pub use vec_iterators::{Drain, IntoIter};
