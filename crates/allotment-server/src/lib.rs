//! The life cycle of a server with several threads: initialise, run workers, stop, and initialise
//! again. The workers allocate with [`allotment`].
//!
//! After *Locking Categories* (in *Performance Patterns*). Each object of a server belongs to one
//! of three categories:
//!
//! | category | used by | how a handler gets it |
//! |---|---|---|
//! | read-only shared | all workers, without a lock | [`RequestContext::read_only`] |
//! | shared | all workers, one at a time | [`RequestContext::shared`] |
//! | transient | one worker, for one request | [`RequestContext::arena`] and the worker's pool |
//!
//! - The type of the read-only objects implements [`ReadOnlyShared`], as sealed objects do.
//! - Each shared object is under a lock of its own, [`Shared`]. [`lock_all`] locks several
//!   together.
//! - The worker's pool is entered while the handler runs. The arena is reset after each request.
//!
//! # Example
//!
//! ```
//! use allotment::ArenaString;
//! use allotment_server::{Initialiser, Outcome, RequestContext, Shared};
//! use std::time::Duration;
//!
//! type Context<'w> = RequestContext<'w, (), Shared<u32>>; // one shared object
//!
//! let visits = Shared::new(0_u32);
//! let initialised = Initialiser::new("greeter").workers(2).objects((), visits);
//! let running = initialised.start(|context: &mut Context<'_>, name: String| {
//!     let visit = context.shared().with(|visits| {
//!         *visits += 1;
//!         *visits
//!     });
//!     let greeting = ArenaString::from_str_in(&name, context.arena()); // transient
//!     format!("{visit}: {greeting}")
//! })?;
//! let ticket = running.submit(String::from("hello"))?;
//! assert_eq!(ticket.wait(), Outcome::Done(String::from("1: hello")));
//! let stopped = running.stop(Duration::from_secs(10))?;
//! assert_eq!(stopped.counts().done, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Phases
//!
//! Each phase is a type, so that what a phase forbids does not compile:
//!
//! ```text
//! Initialiser --objects()--> Initialised --start()--> Running --stop()--> Stopped
//!      ^                          ^                      | publish()        |
//!      |                          +----- unchanged(), with_read_only() -----+
//!      +------------------------------ reinitialise() ----------------------+
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `toml` | [`Configuration`] from TOML |
//!
//! # Files
//!
//! A file imports only from files above it in this table.
//!
//! | file | contents |
//! |---|---|
//! | `panics` | panics of the user's code: caught, read, dropped |
//! | `current_server` | the server that the calling thread works for |
//! | `counts` | how many requests there have been, by outcome |
//! | `outcome` | the outcome of a request, or why it was refused |
//! | `ticket` | how the sender of a request gets the outcome |
//! | `queue` | waiting requests, and the state of each worker |
//! | `initialiser` | the first phase: options |
//! | `worker_memory` | a worker's pool and arena |
//! | `read_only_shared` | the category of objects that need no lock |
//! | `context` | what a handler gets |
//! | `server_state` | what workers and handles share |
//! | `submit` | submits a request from an async task |
//! | `handle` | submits requests |
//! | `start_error` | why a server did not start |
//! | `worker` | a worker's thread |
//! | `initialised` | the second phase: objects |
//! | `running` | the third phase: workers |
//! | `start` | from the second phase to the third |
//! | `stopped` | the last phase |
//! | `stop` | from the third phase to the last |
//! | `lock_error`, `locked_numbers`, `shared`, `lock_all` | objects under a lock, without deadlocks |
//! | `objects` | objects that a configuration describes, found by kind and name |
//! | `configuration` | data that describes which objects to make |
//! | `object_factories` | the functions that make the objects |
//! | `arena_bytes` | a reply together with the arena that it was rendered in |
//!
//! Only `arena_bytes` and `objects` contain unsafe code.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arena_bytes;
mod configuration;
mod context;
mod counts;
mod current_server;
mod handle;
mod initialised;
mod initialiser;
mod lock_all;
mod lock_error;
mod locked_numbers;
mod object_factories;
mod objects;
mod outcome;
mod panics;
mod queue;
mod read_only_shared;
mod running;
mod server_state;
mod shared;
mod start;
mod start_error;
mod stop;
mod stopped;
mod submit;
mod ticket;
mod worker;
mod worker_memory;

pub use arena_bytes::ArenaBytes;
pub use configuration::{
    Configuration, ConfigurationError, ConfigurationProblem, FromValue, Section, Value, WrongValue,
};
pub use context::RequestContext;
pub use counts::RequestCounts;
pub use handle::ServerHandle;
pub use initialised::Initialised;
pub use initialiser::Initialiser;
pub use lock_all::{LockSet, lock_all, try_lock_all};
pub use lock_error::{LockError, LockErrorKind};
pub use object_factories::{FactoryError, ObjectFactories};
pub use objects::{NotFound, ReadOnlyObjects, SharedObjects};
pub use outcome::{Outcome, PanickedRequest, RefusalReason, Refused};
pub use queue::{CurrentRequest, WhenFull, WorkerState};
pub use read_only_shared::ReadOnlyShared;
pub use running::Running;
pub use shared::{Shared, SharedGuard};
pub use start_error::{StartCause, StartError};
pub use stop::StopTimedOut;
pub use stopped::Stopped;
pub use submit::Submit;
pub use ticket::Ticket;

/// The code examples of the Markdown pages, run as doc tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/src/locking-categories.md")]
    struct LockingCategories;
    #[doc = include_str!("../../../docs/src/server.md")]
    struct Server;
}
