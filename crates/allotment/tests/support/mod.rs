//! What the integration tests and the fuzz targets share. Each of them includes this file by its
//! path and uses a part of it. A test in a build without the system's mappings has the modules
//! that need none. (The fuzz targets are no tests, and need the mappings.)
#![allow(dead_code, reason = "no one of its users needs all of it")]
#![allow(unused_imports, unused_macros, reason = "as above")]

#[cfg(all(test, not(system_memory)))]
pub mod absent_options;
#[cfg(all(test, system_memory))]
pub mod adapters;
#[cfg(all(test, system_memory))]
pub mod child;
#[cfg(any(system_memory, not(test)))]
pub mod collection_program;
#[cfg(test)]
pub mod corpus;
#[cfg(test)]
pub mod executor;
#[cfg(any(system_memory, not(test)))]
pub mod file_program;
#[cfg(all(test, system_memory))]
pub mod filled_block;
#[cfg(all(test, system_memory))]
pub mod fork;
pub mod input;
#[cfg(all(test, system_memory))]
pub mod kernel;
pub mod layout_checks;
pub mod list;
pub mod list_program;
#[cfg(all(test, system_memory))]
pub mod misuse;
pub mod model;
pub mod object;
#[cfg(all(test, system_memory))]
pub mod pool_program;
pub mod program;
#[cfg(all(test, system_memory))]
pub mod request_load;
pub mod setup;
#[cfg(any(system_memory, not(test)))]
pub mod slab;
#[cfg(any(system_memory, not(test)))]
pub mod slab_program;
#[cfg(any(system_memory, not(test)))]
pub mod slab_sources;
#[cfg(any(system_memory, not(test)))]
pub mod small_arena_program;
pub mod sources;
#[cfg(all(test, system_memory))]
pub mod subject;
#[cfg(all(test, system_memory))]
pub mod tool;
pub mod traits;
