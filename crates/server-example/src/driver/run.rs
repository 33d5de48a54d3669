//! The load on one child, and its figures.

use super::child::ServiceProcess;
use super::client::{Client, ClientError};
use super::sample_order::SampleOrder;
use super::variant::{Programs, Variant};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The number of requests that are measured.
    pub requests: u64,
    /// The number of connections. Each sends its next request when it has the reply.
    pub connections: u64,
    /// The number of requests after which a connection is closed, and another one takes its place.
    pub requests_per_connection: u64,
}

/// The number of small orders that are sent at once to fill the cache.
const BATCH: u64 = 64;
/// The number of connections that fill the cache.
const FILLING: u64 = 4;
/// The number of the first order that fills the cache. All numbers have as many digits, so that all
/// summaries have one length: a block that leaves the cache can be used for the next one.
const FIRST_FILLING: u64 = 1_000_000_000_000;
/// The number of the first order of the usual size that is not measured.
const FIRST_USUAL: u64 = 2_000_000_000_000;
/// The number of the first order that is measured.
const FIRST_MEASURED: u64 = 3_000_000_000_000;

/// The figures of one run. What the kernel does not say is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// The child's processor time, in microseconds for each request.
    pub cpu_us: Option<f64>,
    /// Its part outside the kernel. The kernel counts it in ticks of 10 ms.
    pub user_us: Option<f64>,
    /// Requests per second.
    pub per_second: Option<f64>,
    /// Resident bytes before the first request.
    pub base_rss_bytes: Option<u64>,
    /// The peak of resident bytes in the measured part.
    pub peak_rss_bytes: Option<u64>,
    /// Resident bytes at the end, with a full cache.
    pub end_rss_bytes: Option<u64>,
    /// Minor page faults in the measured part.
    pub minor_faults: Option<u64>,
}

/// Why a run has no figures.
#[derive(Debug)]
pub struct RunError(String);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

/// Starts a variant, fills its cache, loads it, and ends it.
///
/// # Errors
/// When the service does not start, a request fails, a reply is wrong, or the service has written
/// to standard error, as it does at a panic.
pub fn run(
    programs: &Programs,
    variant: Variant,
    cache: usize,
    load: &Load,
) -> Result<Figures, RunError> {
    let failed = |error: &dyn fmt::Display| {
        RunError(format!("{} with a cache of {cache}: {error}", variant.name))
    };
    let service =
        ServiceProcess::start(programs, variant, cache).map_err(|error| failed(&error))?;
    let measured = measure(&service, cache, load);
    let errors = service.end();
    let errors = errors.trim();
    match measured {
        Ok(figures) if errors.is_empty() => Ok(figures),
        Ok(_) => Err(failed(&format!("the service wrote: {errors}"))),
        Err(error) if errors.is_empty() => Err(failed(&error)),
        Err(error) => Err(failed(&format!("{error}; the service wrote: {errors}"))),
    }
}

fn measure(service: &ServiceProcess, cache: usize, load: &Load) -> Result<Figures, ClientError> {
    let address = service.address();
    let base_rss_bytes = service.resident_bytes();
    fill(address, cache as u64)?;
    // Each worker has then seen orders of the usual size: the regular expressions' caches and the
    // pools have their sizes.
    send(address, FIRST_USUAL, &Load { requests: load.requests / 5, ..*load })?;

    service.forget_peak();
    let faults = service.minor_faults();
    let time = service.processor_time();
    let user_time = service.user_time();
    let began = Instant::now();
    send(address, FIRST_MEASURED, load)?;
    let seconds = began.elapsed().as_secs_f64();
    let time = service.processor_time().zip(time).map(|(after, before)| after - before);
    let user_time = service.user_time().zip(user_time).map(|(after, before)| after - before);
    let per_request = |time: Duration| time.as_secs_f64() * 1e6 / load.requests as f64;
    Ok(Figures {
        cpu_us: time.map(per_request),
        user_us: user_time.map(per_request),
        per_second: Some(load.requests as f64 / seconds),
        base_rss_bytes,
        peak_rss_bytes: service.peak_resident_bytes(),
        end_rss_bytes: service.resident_bytes(),
        minor_faults: service.minor_faults().zip(faults).map(|(after, before)| after - before),
    })
}

/// Runs `work` on each of this many connections at once, with the range of requests that is its
/// part.
fn on_connections(
    connections: u64,
    requests: u64,
    work: impl Fn(u64, u64) -> Result<(), ClientError> + Sync,
) -> Result<(), ClientError> {
    let work = &work;
    std::thread::scope(|scope| {
        let part = |connection: u64| requests * connection / connections;
        let threads: Vec<_> = (0..connections)
            .map(|one| scope.spawn(move || work(part(one), part(one + 1))))
            .collect();
        // All threads end before the first error is returned.
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        results
            .into_iter()
            .try_for_each(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Fills the cache with small orders.
fn fill(address: SocketAddr, orders: u64) -> Result<(), ClientError> {
    on_connections(FILLING, orders, |from, to| {
        let mut client = Client::connect(address)?;
        let mut batch = Vec::new();
        for begin in (from..to).step_by(BATCH as usize) {
            batch.clear();
            let ids = begin..to.min(begin + BATCH);
            batch.extend(ids.map(|id| SampleOrder::small(FIRST_FILLING + id)));
            client.confirm(&batch)?;
        }
        Ok(())
    })
}

/// Sends orders of the usual size, from the one with the number `first` on.
fn send(address: SocketAddr, first: u64, load: &Load) -> Result<(), ClientError> {
    on_connections(load.connections, load.requests, |from, to| {
        for begin in (from..to).step_by(load.requests_per_connection as usize) {
            let mut client = Client::connect(address)?;
            for id in begin..to.min(begin + load.requests_per_connection) {
                client.confirm(&[SampleOrder::usual(first + id)])?;
            }
        }
        Ok(())
    })
}
