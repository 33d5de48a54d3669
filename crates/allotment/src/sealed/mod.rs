//! Read-only shared objects: `Sealed`, `Published`, `RwShared`.
//!
//! | files | contents |
//! |---|---|
//! | `typed`, `builder` | `Sealed`: a value that is built once and then only read |
//! | `sealer`, `vec`, `string`, `map` | what an initialiser builds with |
//! | `read_only`, `sealable` | which types may be sealed |
//! | `region`, `ground` | the memory: chunks, and the protection of their pages |
//! | `rw_shared` | `RwShared`: a sealed value that is replaced under a read-write lock |
//! | `published` | `Published`: a value that is replaced while threads read it |
//! | `publication`, `readers`, `fences` | the protocol of `Published`, which loom explores |
//! | `contracts` | doc tests of programs that must not compile |

pub mod fences;
pub mod publication;
#[cfg(not(loom))]
mod published;
pub mod readers;

#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod chunks;
#[cfg(not(loom))]
mod collections;
#[cfg(all(doctest, feature = "derive"))]
mod contracts;
#[cfg(all(not(loom), feature = "hashbrown-017"))]
mod map;
#[cfg(not(loom))]
mod read_only;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod rw_shared;
#[cfg(not(loom))]
mod sealable;
#[cfg(not(loom))]
mod sealer;
#[cfg(not(loom))]
mod typed;

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
pub use published::{Published, Reading};
