//! Objects that many threads read: [`Sealed`] never changes once it is built. [`Published`] and
//! [`RwShared`] hold a value that is replaced from time to time.

// | file, lowest first | what it holds |
// |---|---|
// | `generations` | the protocol of `Published`: how a generation is replaced and reclaimed |
// | `hazard_records` | the slots in which threads announce the generation that they read |
// | `published` | `Published`: a value that is replaced while threads read it |
// | `read_only` | `ReadOnly`: which types may be sealed |
// | `chunks` | the memory: chunks, blocks in them, and the protection of their pages |
// | `sealer` | `Sealer`: allocates for an initialiser |
// | `memory` | owns the chunks of one value |
// | `collections` | the vector and the string in sealed memory |
// | `sealable` | the type that a `Sealed` holds, at any lifetime |
// | `map` | hash maps and sets in sealed memory |
// | `typed`, `builder` | `Sealed`: a value that is built once and then only read |
// | `rw_shared` | `RwShared`: a sealed value that is replaced under a read-write lock |
// | `compile_fail` | doc tests of programs that must not compile |
//
// Loom explores `generations` and `hazard_records`.

// In this order, the page of `Sealed` shows its calls.
#[cfg(not(loom))]
mod typed;

#[cfg(not(loom))]
mod builder;

pub(crate) mod generations;
pub(crate) mod hazard_records;
#[cfg(not(loom))]
mod published;

#[cfg(not(loom))]
mod chunks;
#[cfg(not(loom))]
mod collections;
#[cfg(all(doctest, feature = "derive"))]
mod compile_fail;
#[cfg(all(not(loom), feature = "hashbrown-017"))]
mod map;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod read_only;
#[cfg(not(loom))]
mod rw_shared;
#[cfg(not(loom))]
mod sealable;
#[cfg(not(loom))]
mod sealer;

#[cfg(not(loom))]
pub use builder::SealedBuilder;
#[cfg(not(loom))]
pub use collections::{SealString, SealVec};
#[cfg(all(not(loom), feature = "hashbrown-017"))]
pub use map::{SealMap, SealSet};
#[cfg(not(loom))]
pub use read_only::ReadOnly;
#[cfg(not(loom))]
pub use rw_shared::{RwShared, RwSharedGuard};
#[cfg(not(loom))]
pub use sealable::Sealable;
#[cfg(not(loom))]
pub use sealer::Sealer;
#[cfg(not(loom))]
pub use typed::Sealed;

#[cfg(not(loom))]
pub use published::{Published, PublishedGuard};
