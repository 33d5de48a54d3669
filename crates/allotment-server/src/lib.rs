//! The life cycle of a server with several threads: initialise, run workers, stop, and initialise
//! again.
//!
//! After *Locking Categories* (in *Performance Patterns*). Each object of a server belongs to one
//! of three categories, and each category has its place here:
//!
//! | category | used by | here |
//! |---|---|---|
//! | read-only shared | all workers, without a lock | [`Context::read_only`] |
//! | shared | all workers, one at a time | [`Context::shared`] |
//! | transient | one worker, for one request | [`Context::arena`] and the worker's pool |
//!
//! - The type of the read-only objects implements [`ReadOnlyShared`], as sealed objects do.
//! - Each shared object is under a lock of its own, [`Shared`]. [`lock_all`] locks several
//!   together.
//! - The worker's pool is entered while the handler runs. The arena is reset after each request.
//!
//! The phases are types. What a phase forbids does not compile:
//!
//! ```text
//! Initialiser --objects()--> Initialised --start()--> Running --stop()--> Stopped
//!      ^                          ^                      | publish()        |
//!      |                          +----- unchanged(), with_read_only() -----+
//!      +------------------------------ reinitialise() ----------------------+
//! ```
//!
//! ```
//! use allotment_server::{Context, Initialiser, Outcome, Shared};
//! use std::time::Duration;
//!
//! let visits = Shared::new(0_u32);
//! let initialised = Initialiser::new("greeter").workers(2).objects((), visits);
//! let running = initialised.start(|context: &mut Context<'_, _, Shared<u32>>, name: String| {
//!     let visit = context.shared().with(|visits| {
//!         *visits += 1;
//!         *visits
//!     });
//!     let reply = allotment::ArenaString::from_str_in(&name, context.arena()); // transient
//!     format!("{visit}: {reply}")
//! })?;
//! let ticket = running.submit(String::from("hello"))?;
//! assert!(matches!(ticket.wait(), Outcome::Done(reply) if reply == "1: hello"));
//! let stopped = running.stop(Duration::from_secs(10))?;
//! assert_eq!(stopped.counts().done, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `initialiser`, `initialised`, `running`, `stopped` | the phases |
//! | `queue` | waiting requests, and the state of each worker |
//! | `worker`, `context` | a worker's loop, and what a handler gets |
//! | `outcome`, `ticket` | what happens to a request, and how its sender gets the outcome |
//! | `configuration` | data that describes which objects to make |
//! | `makers`, `objects` | the functions that make the objects, and the lookup by name |
//! | `shared`, `locked_numbers`, `lock_all` | objects under a lock, without deadlocks |
//! | `arena_bytes` | a reply together with the arena that it was rendered in |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `toml` | [`Configuration`] from TOML |
//!
//! Only `arena_bytes` and `objects` contain unsafe code.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arena_bytes;
mod configuration;
mod context;
mod initialised;
mod initialiser;
mod lock_all;
mod locked_numbers;
mod makers;
mod objects;
mod outcome;
mod panics;
mod queue;
mod running;
mod shared;
mod stopped;
mod ticket;
mod worker;

pub use arena_bytes::ArenaBytes;
pub use configuration::{
    Configuration, ConfigurationError, ConfigurationProblem, FromValue, Section, Value, WrongValue,
};
pub use context::{Context, ReadOnlyShared};
pub use initialised::{Initialised, StartCause, StartError};
pub use initialiser::{Initialiser, WhenFull};
pub use lock_all::{LockSet, lock_all, lock_all_in_any_order, try_lock_all};
pub use makers::{MakeError, Makers};
pub use objects::{NotFound, ReadOnlyObjects, SharedObjects};
pub use outcome::{Outcome, PanickedRequest, Refused, RefusedBecause};
pub use queue::{Call, Counts, WorkerState};
pub use running::{Handle, Running};
pub use shared::{LockError, LockErrorKind, Locked, Shared};
pub use stopped::{Stopped, Stuck};
pub use ticket::Ticket;

/// The code examples of the Markdown pages, run as doc tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/src/locking-categories.md")]
    struct LockingCategories;
    #[doc = include_str!("../../../docs/src/phases.md")]
    struct Phases;
}
