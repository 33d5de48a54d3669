//! Plays the week in a child process.

use super::calendar::{Calendar, HOUR};
use super::escapees::Escapees;
use super::sample::{Sample, resident_bytes};
use crate::driver::sample_order::SampleOrder;
use crate::service::GlobalAllocator;
use crate::service::arguments::PoolsArgument;
use crate::service::pools::Pools;
use crate::service::shop::Shop;
use allotment::{LocalPool, pool};
use bench::workloads::random::Random;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::yield_now;

/// The simulated minutes from one sample to the next.
pub const SAMPLE_MINUTES: u32 = 10;
/// The number of tokio's worker threads.
pub const WORKERS: usize = 2;

/// The number of orders whose summaries are kept.
const SUMMARIES: usize = 20_000;
/// The requests of a connection.
const REQUESTS: u64 = 20;
/// The number of the first order. All numbers have as many digits.
const FIRST: u64 = 1_000_000_000_000;
/// One request in this number makes an export.
const EXPORTS: u32 = 300;
/// One request in this number panics.
const PANICS: u32 = 2000;
/// One request in this number has a new word.
const NEW_WORDS: u32 = 20;
/// The reply to one request in this number is compared with what it must be.
const COMPARED: u64 = 16;

/// The command line of a child.
#[derive(Debug, Clone, Parser)]
#[command(about = "Plays a simulated week, and prints its memory over time")]
struct Arguments {
    /// Where pools are used
    #[arg(long, value_enum, default_value = "none")]
    pools: PoolsArgument,
    /// Limit on the memory of a request's pool; without it there is none
    #[arg(long, value_name = "BYTES")]
    limit: Option<usize>,
    /// Number of simulated days
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
    /// Mean number of requests in a simulated minute
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Least time of a simulated hour, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=3_600_000))]
    hour_ms: u32,
    /// End when standard input is closed
    #[arg(long)]
    until_stdin_closes: bool,
}

impl Arguments {
    fn pools(&self) -> Pools {
        match self.pools {
            PoolsArgument::None => Pools::None,
            PoolsArgument::Connection => Pools::Connection,
            PoolsArgument::Handler => Pools::Handler,
            PoolsArgument::Request => Pools::Request { limit: self.limit },
        }
    }

    fn check(&self, allocator: GlobalAllocator) -> Result<(), clap::Error> {
        let wrong = |text| Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        if self.limit.is_some() && self.pools != PoolsArgument::Request {
            return wrong("--limit is for the pool of a request: add --pools request");
        }
        if self.pools != PoolsArgument::None && allocator == GlobalAllocator::Plain {
            return wrong("this program's allocator does not know pools: run week-pools");
        }
        Ok(())
    }
}

/// The service, with what its requests share.
struct Simulation {
    shop: Shop,
    escapees: Escapees,
    pools: Pools,
    served: AtomicU64,
    failed: AtomicU64,
}

/// The payload of a request that panics on purpose.
struct OnPurpose(#[expect(dead_code, reason = "it is live until the panic is caught")] String);

impl Simulation {
    /// The work of a request. Returns the reply.
    fn work(&self, id: u64, minute: u32) -> Option<Vec<u8>> {
        let mut random = Random::stream(id);
        let order = SampleOrder::usual(FIRST + id);
        let mut received = Vec::new();
        order.put_order(&mut received);
        let reply = self.shop.confirm(&received).ok()?;
        if id.is_multiple_of(COMPARED) {
            let mut expected = Vec::new();
            order.put_confirmation(&mut expected);
            if reply != expected {
                return None;
            }
        }
        if random.below(2) == 0 {
            self.escapees.begin_session(id, minute, &mut random);
        }
        if random.below(EXPORTS) == 0 {
            self.escapees.make_export(id, minute, &mut random);
        }
        if random.below(NEW_WORDS) == 0 {
            self.escapees.intern(&format!("word {id}"));
        }
        self.escapees.cache_page(id, minute, &reply);
        if random.below(PANICS) == 0 {
            resume_unwind(Box::new(OnPurpose(format!("request {id}"))));
        }
        Some(reply)
    }

    /// The same in a pool of its own, if requests have one.
    fn work_in_pool(&self, id: u64, minute: u32) -> Option<Vec<u8>> {
        let Pools::Request { limit } = self.pools else { return self.work(id, minute) };
        let pool = match limit {
            None => LocalPool::try_new(),
            Some(limit) => LocalPool::builder().maximum(limit).try_build(),
        };
        pool.ok()?.enter(|| self.work(id, minute))
    }

    async fn serve_request(&self, id: u64, minute: u32) {
        let reply = catch_unwind(AssertUnwindSafe(|| self.work_in_pool(id, minute)));
        // Another thread may go on with the request.
        yield_now().await;
        let is_served = match reply {
            Ok(reply) => reply.is_some(),
            Err(panic) => panic.is::<OnPurpose>(),
        };
        let count = if is_served { &self.served } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    async fn serve_connection(self: Arc<Self>, ids: Range<u64>, minute: u32) {
        for id in ids {
            if self.pools == Pools::Handler {
                pool::poll_in_thread_pools(Box::pin(self.serve_request(id, minute))).await;
            } else {
                self.serve_request(id, minute).await;
            }
        }
    }

    /// Ends what ends at this minute.
    async fn end(self: Arc<Self>, minute: u32) {
        if !self.escapees.end(minute) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a task as the service runs a connection.
    fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        if self.pools == Pools::Connection {
            tokio::spawn(pool::poll_in_thread_pools(task))
        } else {
            tokio::spawn(task)
        }
    }

    /// Plays a minute. All of its requests have ended when it returns.
    async fn play_minute(
        self: &Arc<Self>,
        ids: Range<u64>,
        minute: u32,
    ) -> Result<(), tokio::task::JoinError> {
        let mut tasks = Vec::new();
        for begin in ids.clone().step_by(REQUESTS as usize) {
            let connection =
                self.clone().serve_connection(begin..ids.end.min(begin + REQUESTS), minute);
            tasks.push(self.spawn(connection));
        }
        tasks.push(self.spawn(self.clone().end(minute)));
        for task in tasks {
            task.await?;
        }
        Ok(())
    }
}

/// The `main` of the programs that play the week. `bytes_in_use` returns those of the program's
/// global allocator.
pub fn main(allocator: GlobalAllocator, bytes_in_use: fn() -> usize) -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = arguments.check(allocator) {
        error.exit();
    }
    match run(&arguments, bytes_in_use) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("week: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, bytes_in_use: fn() -> usize) -> Result<(), Box<dyn Error>> {
    if arguments.until_stdin_closes {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let calendar = Calendar::new(arguments.days, arguments.rate);
    let simulation = Arc::new(Simulation {
        shop: Shop::new(SUMMARIES)?,
        escapees: Escapees::new(calendar.minutes()),
        pools: arguments.pools(),
        served: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).build()?;
    let minute_time = Duration::from_millis(arguments.hour_ms.into()) / HOUR;
    let began = Instant::now();
    let mut begun = 0;
    let sample = |minute| -> Result<(), Box<dyn Error>> {
        let sample = Sample {
            minute,
            requests: simulation.served.load(Ordering::Relaxed),
            live_bytes: bytes_in_use() as u64,
            resident_bytes: resident_bytes().ok_or("the kernel does not say what is resident")?,
        };
        writeln!(io::stdout(), "{}", sample.to_json())?;
        Ok(())
    };
    sample(0)?;
    for minute in 0..calendar.minutes() {
        if calendar.is_deploy(minute) {
            simulation.escapees.deploy();
        }
        let ids = begun..begun + calendar.requests(minute);
        begun = ids.end;
        runtime.block_on(simulation.play_minute(ids, minute))?;
        if (minute + 1) % SAMPLE_MINUTES == 0 {
            sample(minute + 1)?;
        }
        std::thread::sleep((minute_time * (minute + 1)).saturating_sub(began.elapsed()));
    }
    let failed = simulation.failed.load(Ordering::Relaxed);
    if failed > 0 || simulation.served.load(Ordering::Relaxed) != begun {
        return Err(format!("{failed} of {begun} requests had a wrong result").into());
    }
    Ok(())
}
