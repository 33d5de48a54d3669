//! The agent's life: initialise, serve, read the configuration again on SIGHUP, drain, end.

use super::agent_objects::{AgentCounters, AgentObjects};
use super::handler::handle;
use super::http_server::{self, HttpLimits, HttpRequest};
use super::open_files;
use super::reply::Reply;
use super::worker_application::{WorkerApplication, WorkersHandle};
use crate::cli::{self, AllocatorChoice, ServeArguments};
use crate::clock::{Clock, Speed};
use crate::collect::synthetic::SyntheticShape;
use crate::collect::{self, CollectorHandle, CollectorSources};
use crate::configuration::{SealedConfiguration, seal};
use crate::log::Log;
use crate::memory::{MallocMemory, Memory, SlabStoreMemory};
use crate::store::{Retention, Store, StoreWriter};
use allotment::{Arena, Budget, LocalPool, OnRefusal, Release};
use allotment_server::{Initialiser, Running, Shared, WhenFull};
use rustix::process::{Signal as Death, set_parent_process_death_signal};
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;

/// Why the agent could not start, or did not end well.
#[derive(Debug)]
pub enum AgentError {
    /// It can't listen on the address.
    Listen(SocketAddr, io::Error),
    /// Requests were still running when the time to drain was over.
    UnansweredRequests(String),
    /// Another part of the start failed: what, and why.
    Setup(&'static str, Box<dyn Error + Send + Sync>),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(
                f,
                "can't listen on {address}: {error}; give --listen an address of this machine and a free port"
            ),
            Self::UnansweredRequests(workers) => {
                write!(f, "ended with unanswered requests: {workers}")
            }
            Self::Setup(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl Error for AgentError {}

fn setup_error<E: Into<Box<dyn Error + Send + Sync>>>(
    what: &'static str,
) -> impl Fn(E) -> AgentError {
    move |error| AgentError::Setup(what, error.into())
}

/// Serves until a signal ends the agent. `line` is the command line, which is read again with the
/// file of options.
///
/// # Errors
/// When the agent can't start, or ends with unanswered requests.
pub fn serve(arguments: &ServeArguments, line: &[OsString]) -> Result<(), AgentError> {
    if arguments.end_with_parent {
        set_parent_process_death_signal(Some(Death::TERM))
            .map_err(setup_error("can't register for the parent's end"))?;
    }
    match arguments.allocator {
        AllocatorChoice::Allotment => serve_with::<SlabStoreMemory>(arguments, line),
        AllocatorChoice::Malloc => serve_with::<MallocMemory>(arguments, line),
    }
}

fn serve_with<M: Memory>(arguments: &ServeArguments, line: &[OsString]) -> Result<(), AgentError> {
    let log = Arc::new(match &arguments.log {
        None => Log::stderr(),
        Some(path) => Log::open(path).map_err(setup_error("can't open the log"))?,
    });
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let limit = arguments.memory_limit.map(|limit| Budget::new(bytes(limit.0)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(setup_error("can't start the event loop"))?;
    let listener = runtime
        .block_on(async { listen(arguments.listen) })
        .map_err(|error| AgentError::Listen(arguments.listen, error))?;
    let address =
        listener.local_addr().map_err(setup_error("can't read the address that it listens on"))?;

    keep_warm(arguments);
    let memory = Arc::new(M::new(limit.as_ref()).map_err(setup_error("no memory for the store"))?);
    let (store, writer) = Store::new(memory, Retention(arguments.keep.0));
    let collector = collector(writer, arguments, &log)?;
    let objects = AgentObjects {
        store,
        sessions: Shared::default(),
        contexts: Shared::default(),
        counters: Arc::new(AgentCounters::default()),
        collector: Arc::clone(collector.statistics()),
        log: Arc::clone(&log),
        limit: limit.clone(),
        started: Instant::now(),
    };
    let running = workers::<M>(arguments, objects, limit)?;
    running.shared().counters.configurations.set(running.generation());

    log.info(format_args!(
        "listening on http://{address}/ with {} workers on {}",
        arguments.workers(),
        M::NAME
    ));
    let signals = runtime
        .block_on(async { SignalStreams::new() })
        .map_err(setup_error("can't handle signals"))?;
    // A parent process may wait for this line and then send a signal at once. An error means that
    // nothing reads it.
    let _ = writeln!(io::stdout(), "listening on http://{address}/")
        .and_then(|()| io::stdout().flush());

    let limits = limits(arguments, open_files::raise_limit());
    let drained = LocalSet::new().block_on(
        &runtime,
        serve_signalled(listener, running.handle(), limits, signals, arguments, line),
    );
    let unanswered = drained.abandoned;
    if let Err(error) = collector.stop() {
        log.error(format_args!("{error}"));
    }
    end(running, arguments, &log)?;
    log.info(format_args!("ended after {} requests", drained.statistics.answered));
    match unanswered {
        0 => Ok(()),
        connections => Err(AgentError::UnansweredRequests(format!(
            "{connections} connections were still open"
        ))),
    }
}

/// Keeps the memory that requests free in the recycler, so that it does not go to the system
/// between requests. It belongs to no budget, so it is limited to a quarter of the memory limit.
fn keep_warm(arguments: &ServeArguments) {
    const ENOUGH: u64 = 512 << 20;
    let bytes = arguments.memory_limit.map_or(ENOUGH, |limit| ENOUGH.min(limit.0 / 4));
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    allotment::recycler().set_limit(bytes);
    allotment::recycler().set_policy(Release::Keep(bytes));
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    // A burst of clients waits in the system's queue. A client that finds the queue full tries
    // again a second later.
    const QUEUE: u32 = 4096;
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a new agent start right after another one has ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// Starts to collect this machine's counters and the computed metrics. With simulated time it
/// collects computed metrics only.
fn collector<M: Memory>(
    writer: StoreWriter<M>,
    arguments: &ServeArguments,
    log: &Arc<Log>,
) -> Result<CollectorHandle, AgentError> {
    let ServeArguments { start_at, speed, synthetic, charts, contexts, .. } = arguments;
    let clock = match (start_at, speed) {
        (None, None) => Clock::real(),
        (start, speed) => Clock::simulated(
            start.unwrap_or_else(|| Clock::real().now()),
            speed.unwrap_or(Speed::Times(1.0)),
        ),
    };
    let synthetic =
        synthetic.map(|metrics| SyntheticShape::new(metrics, *charts, *contexts)).transpose();
    let synthetic = synthetic.map_err(setup_error("can't create the computed metrics"))?;
    let sources = CollectorSources { machine: !clock.is_simulated(), synthetic };
    collect::start(writer, sources, Arc::new(clock), Arc::clone(log))
        .map_err(setup_error("can't collect metrics"))
}

fn limits(arguments: &ServeArguments, open_files: u64) -> HttpLimits {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    HttpLimits {
        connections: open_files::connections_within(open_files, arguments.max_connections as usize),
        header_bytes: usize::try_from(arguments.max_header.0).unwrap_or(usize::MAX),
        header_time: seconds(arguments.header_seconds),
        write_time: seconds(arguments.write_seconds),
        drain: seconds(arguments.drain_seconds),
        ..HttpLimits::default()
    }
}

/// Starts the workers. Each has its pool and its arena before the first request.
fn workers<M: Memory>(
    arguments: &ServeArguments,
    objects: AgentObjects<M>,
    limit: Option<Budget>,
) -> Result<Running<SealedConfiguration, AgentObjects<M>, HttpRequest, Reply>, AgentError> {
    const RESERVED: usize = 256 << 10;
    let generation = seal(arguments).map_err(setup_error("no memory for the configuration"))?;
    let plain = arguments.allocator == AllocatorChoice::Malloc;
    let most = usize::try_from(arguments.request_memory.0).unwrap_or(usize::MAX);
    let of_pools = limit.clone();
    Initialiser::new("agent")
        .workers(arguments.workers() as usize)
        .queue(arguments.queue as usize)
        .when_full(WhenFull::Refuse)
        .pool(move |worker| {
            let pool = LocalPool::builder().name(worker);
            match &of_pools {
                // A pool with a maximum of 0 bytes passes all requests on to malloc.
                _ if plain => pool.maximum(0),
                None => pool.reserved(RESERVED),
                Some(limit) => pool.reserved(RESERVED).budget(limit),
            }
        })
        .arena(move |worker| {
            let request = match &limit {
                None => Budget::new(most),
                Some(all) => all.child(most),
            };
            let arena = Arena::builder().name(worker).budget(&request);
            // The query's collections return the error, and the request gets an answer that says
            // so.
            let arena = arena.on_refusal(OnRefusal::ReturnError);
            if plain { arena } else { arena.hint(RESERVED) }
        })
        .objects(generation, objects)
        .start(handle::<M>)
        .map_err(setup_error("can't start the workers"))
}

/// The signals that the agent handles.
struct SignalStreams {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl SignalStreams {
    /// Registers the handlers. From then on none of these signals ends the process by itself. Must
    /// be called inside the event loop.
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Serves until SIGTERM or SIGINT, and reads the configuration again at SIGHUP.
async fn serve_signalled<M: Memory>(
    listener: TcpListener,
    workers: WorkersHandle<M>,
    limits: HttpLimits,
    signals: SignalStreams,
    arguments: &ServeArguments,
    line: &[OsString],
) -> http_server::DrainResult {
    let SignalStreams { mut terminate, mut interrupt, hangup } = signals;
    let log = Arc::clone(&workers.shared().log);
    let stop = async {
        let which = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        log.info(format_args!("{which}: answering the accepted requests"));
    };
    let application = WorkerApplication::new(workers.clone(), arguments.queue as usize);
    tokio::select! {
        drained = http_server::serve(listener, application, limits, stop) => drained,
        () = reconfigure(hangup, workers, arguments.clone(), line) => unreachable!("it never ends"),
    }
}

/// Reads the file of options at each SIGHUP, and publishes the new configuration. An invalid file
/// changes nothing.
async fn reconfigure<M: Memory>(
    mut hangup: Signal,
    workers: WorkersHandle<M>,
    mut arguments: ServeArguments,
    line: &[OsString],
) {
    let AgentObjects { log, counters, .. } = workers.shared();
    while hangup.recv().await.is_some() {
        if let Err(error) = log.reopen() {
            log.error(format_args!("SIGHUP: {error}"));
        }
        let read = cli::read(line).map_err(|error| error.to_string());
        let sealed = read.and_then(|read| {
            let kept = arguments.options_that_need_a_restart(&read.serve);
            let taken = arguments.with_reloadable_options_of(&read.serve);
            seal(&taken).map(|sealed| (kept, taken, sealed)).map_err(|error| error.to_string())
        });
        match sealed {
            Ok((kept, taken, sealed)) => {
                let generation = workers.publish(sealed);
                arguments = taken;
                counters.configurations.set(generation);
                log.info(format_args!("SIGHUP: configuration {generation} is in force"));
                if !kept.is_empty() {
                    let kept = kept.join(", ").replace('_', "-");
                    log.warning(format_args!("SIGHUP: these options need a restart: {kept}"));
                }
            }
            Err(error) => {
                counters.broken_configurations.add();
                log.error(format_args!("SIGHUP: the configuration is unchanged: {error}"));
            }
        }
    }
    // The stream of signals has ended. This future must not end, or the server would.
    std::future::pending::<()>().await;
}

fn end<M: Memory>(
    running: Running<SealedConfiguration, AgentObjects<M>, HttpRequest, Reply>,
    arguments: &ServeArguments,
    log: &Log,
) -> Result<(), AgentError> {
    match running.stop(Duration::from_secs(arguments.drain_seconds.into())) {
        Ok(_stopped) => Ok(()),
        Err(stuck) => {
            let message = stuck.to_string();
            log.error(format_args!("{message}"));
            drop(stuck.abandon());
            Err(AgentError::UnansweredRequests(message))
        }
    }
}
