//! What the integration tests and the fuzz targets share. Each of them includes this file by its
//! path and uses a part of it.
#![allow(dead_code, reason = "no one of its users needs all of it")]
#![allow(unused_imports, unused_macros, reason = "as above")]

#[cfg(test)]
pub mod adapters;
#[cfg(test)]
pub mod child;
pub mod collection_program;
#[cfg(test)]
pub mod corpus;
#[cfg(test)]
pub mod executor;
pub mod file_program;
#[cfg(test)]
pub mod filled_block;
#[cfg(test)]
pub mod fork;
pub mod input;
#[cfg(test)]
pub mod kernel;
pub mod layout_checks;
pub mod list;
pub mod list_program;
#[cfg(test)]
pub mod misuse;
pub mod model;
#[cfg(test)]
pub mod pool_program;
pub mod program;
#[cfg(test)]
pub mod request_load;
pub mod setup;
pub mod slab;
pub mod slab_program;
pub mod slab_sources;
pub mod small_arena_program;
pub mod sources;
#[cfg(test)]
pub mod subject;
#[cfg(test)]
pub mod tool;
pub mod traits;
