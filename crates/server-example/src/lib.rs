//! An example service for axum that allocates from pools, and the benchmark that compares the ways
//! to do so with plain allocators.
//!
//! A folder imports from the folders above it in this table only:
//!
//! | folder or file | holds |
//! |---|---|
//! | `mimalloc` | mimalloc as a global allocator |
//! | [`service`] | the example: an HTTP service that confirms orders; `src/bin` has its programs |
//! | [`driver`] | the benchmark `server`: starts the programs, sends requests, checks each reply, and compares |
//! | [`week`] | the benchmark `week`: plays a simulated week, and draws memory over time |
//!
//! ```text
//! cargo run --release -p allotment-server-example --bin service-pools -- --pools connection
//! cargo bench -p allotment-server-example --bench server -- --quick
//! cargo bench -p allotment-server-example --bench week -- --quick
//! ```

pub mod driver;
#[cfg(feature = "mimalloc")]
pub mod mimalloc;
pub mod service;
pub mod week;
