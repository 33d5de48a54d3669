//! `client-sqlite`, `client-lua`, `client-expat`: libraries of other projects, on an allocator of
//! ours and on malloc. The user time of both is compared.
//!
//! The work is done by the examples of `allotment-c`, which are compiled into this program.
//!
//! # Invariants
//!
//! 1. The declarations below match `client.h`. These calls throw nothing, and every error is a text
//!    that lasts as long as its thread.
//! 2. `work_on` reads what `prepare` returned. `dispose` frees it once, after its last use.
//! 3. SQLite is configured for the whole process: code that uses it holds
//!    [`linked::ONE_AT_A_TIME`].

use crate::workloads::kind::{Client, WorkloadKind};
use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::variant::Variant;
use crate::workloads::workload::RunSpec;

const MALLOC: Variant = Variant::peer(
    super::LIBC,
    "the C library's malloc, which the library calls by default",
    "the C library's own",
    |spec, observer| run(spec, ClientAllocator::Malloc, observer),
);

static SQLITE: [Variant; 2] = [
    Variant::ours(
        "allotment-pool",
        "allot_malloc() in a pool that the thread has entered; page cache on a slab",
        "adaptive; the pool is released when the work is done",
        |spec, observer| run(spec, ClientAllocator::Ours, observer),
    ),
    MALLOC,
];

static LUA: [Variant; 2] = [
    Variant::ours(
        "allotment-pool",
        "a pool for each state",
        "adaptive; each pool is released with its state",
        |spec, observer| run(spec, ClientAllocator::Ours, observer),
    ),
    MALLOC,
];

static EXPAT: [Variant; 2] = [
    Variant::ours(
        "allotment-arena",
        "an arena for each document, with its parser and its tree",
        "adaptive: chunks stay warm for later documents; unused memory is released",
        |spec, observer| run(spec, ClientAllocator::Ours, observer),
    ),
    MALLOC,
];

impl Client {
    /// Why this program was built without the library, and what to do; `None` if it has it.
    pub fn missing(self) -> Option<&'static str> {
        linked::missing(self)
    }

    pub fn variants(self) -> &'static [Variant] {
        match self {
            Self::Sqlite => &SQLITE,
            Self::Lua => &LUA,
            Self::Expat => &EXPAT,
        }
    }
}

/// Numbered as in `client.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
enum ClientAllocator {
    Malloc = 0,
    Ours = 1,
}

fn run(
    spec: &RunSpec,
    allocator: ClientAllocator,
    observer: &dyn Observer,
) -> Result<Measurement, RunError> {
    let WorkloadKind::Client(client) = spec.workload.kind else {
        unreachable!("the variants are clients'")
    };
    linked::run(client, spec, allocator, observer)
}

#[cfg(not(feature = "fast-peers"))]
mod linked {
    use super::{Client, ClientAllocator, Measurement, Observer, RunError, RunSpec};

    /// Each run says it.
    pub(super) fn missing(_: Client) -> Option<&'static str> {
        None
    }

    pub(super) fn run(
        _: Client,
        spec: &RunSpec,
        _: ClientAllocator,
        _: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        Err(RunError::without_c(spec.workload))
    }
}

#[cfg(feature = "fast-peers")]
mod linked {
    use super::{Client, ClientAllocator, Measurement, Observer, RunError, RunSpec};
    use crate::workloads::setting::Effort;
    use crate::workloads::thread_group;
    use std::ffi::{CStr, c_char, c_uint, c_void};
    use std::ptr::NonNull;
    use std::sync::{Mutex, PoisonError};

    /// `client_result`.
    #[derive(Debug, Clone, Copy)]
    #[repr(C)]
    struct Done {
        operations: u64,
        checksum: u64,
        error: *const c_char,
    }

    /// `client_program`.
    #[repr(C)]
    struct ClientProgram {
        name: *const c_char,
        operation: *const c_char,
        work: *const c_char,
        size_is: *const c_char,
        size: c_uint,
        times: c_uint,
        prepare: unsafe extern "C" fn(c_uint) -> Option<NonNull<c_void>>,
        work_on: unsafe extern "C" fn(ClientAllocator, NonNull<c_void>, c_uint) -> Done,
        dispose: unsafe extern "C" fn(NonNull<c_void>),
    }

    // SAFETY: all of it is constant, and so is what it points to.
    unsafe impl Sync for ClientProgram {}

    unsafe extern "C" {
        #[cfg(client_sqlite)]
        safe static client_sqlite: ClientProgram;
        #[cfg(client_lua)]
        safe static client_lua: ClientProgram;
        #[cfg(client_expat)]
        safe static client_expat: ClientProgram;
    }

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// The example's program, if the library was found when this was compiled.
    fn program(client: Client) -> Result<&'static ClientProgram, &'static str> {
        match client {
            #[cfg(client_sqlite)]
            Client::Sqlite => Ok(&client_sqlite),
            #[cfg(not(client_sqlite))]
            Client::Sqlite => Err(
                "SQLite 3 was not found when this program was built; install it (libsqlite3-dev, sqlite-devel) and \
                 pkg-config, and build again",
            ),
            #[cfg(client_lua)]
            Client::Lua => Ok(&client_lua),
            #[cfg(not(client_lua))]
            Client::Lua => Err(
                "Lua 5.4 was not found when this program was built; install it (liblua5.4-dev, lua-devel) and \
                 pkg-config, and build again",
            ),
            #[cfg(client_expat)]
            Client::Expat => Ok(&client_expat),
            #[cfg(not(client_expat))]
            Client::Expat => Err(
                "expat was not found when this program was built; install it (libexpat1-dev, expat-devel) and \
                 pkg-config, and build again",
            ),
        }
    }

    /// How often the work is done: about a second on malloc.
    fn times(program: &ClientProgram, effort: Effort) -> c_uint {
        match effort {
            Effort::Full => program.times * 2,
            Effort::Quick => program.times.div_ceil(2),
            Effort::Counted => 1,
        }
    }

    pub(super) fn missing(client: Client) -> Option<&'static str> {
        program(client).err()
    }

    pub(super) fn run(
        client: Client,
        spec: &RunSpec,
        allocator: ClientAllocator,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        let program = program(client)
            .map_err(|what| RunError::Missing { workload: spec.workload.name, what })?;
        let failed = |why: String| RunError::Failed { workload: spec.workload.name, why };
        let times = times(program, spec.effort);
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = thread_group::run(
            1,
            observer,
            // SAFETY: as declared (invariant 1).
            |_| unsafe { (program.prepare)(program.size) },
            |worker, prepared| {
                let prepared = prepared.ok_or("no memory for what it works on")?;
                let mut done = None;
                let wall = worker.measured(|| {
                    // SAFETY: as declared (invariants 1 and 2); the lock is held (invariant 3).
                    done = Some(unsafe { (program.work_on)(allocator, prepared, times) });
                });
                // SAFETY: it is not read any more (invariant 2).
                unsafe { (program.dispose)(prepared) };
                let done = done.expect("the measured part was run");
                let Some(why) = NonNull::new(done.error.cast_mut()) else {
                    return Ok((Measurement::timed(done.operations, wall), done.checksum));
                };
                // SAFETY: a text that lasts as long as this thread (invariant 1).
                let why = unsafe { CStr::from_ptr(why.as_ptr()) };
                Err(why.to_string_lossy().into_owned())
            },
        );
        let (outcome, checksum) = done.pop().expect("there was one worker").map_err(failed)?;
        #[cfg(test)]
        super::tests::CHECKSUM.set(checksum);
        let _ = checksum;
        Ok(outcome)
    }
}

#[cfg(all(test, feature = "fast-peers"))]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::setting::Effort;
    use crate::workloads::workload::Workload;
    use std::cell::Cell;

    thread_local! {
        /// The checksum of the last run on this thread.
        pub(super) static CHECKSUM: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_library_does_the_same_on_either_allocator_or_says_what_is_missing() {
        for name in ["client-sqlite", "client-lua", "client-expat"] {
            let workload = Workload::named(name).unwrap();
            let spec = RunSpec { workload, setting: workload.setting(1), effort: Effort::Counted };
            let outcomes = workload.variants().iter().map(|variant| {
                spec.measure(variant.name, &Unobserved)
                    .map(|outcome| (outcome.ops(), CHECKSUM.get()))
            });
            match &outcomes.collect::<Vec<_>>()[..] {
                [Ok(ours), Ok(malloc)] => {
                    assert_eq!(ours, malloc, "{name}");
                    assert!(ours.0 > 1000, "{name}");
                }
                [Err(RunError::Missing { what, .. }), Err(_)] => {
                    assert!(what.contains("install"), "{what}");
                    println!("{name} was not run: {what}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
