//! The load of a server: requests in tasks that move between threads, pools around polls and for each
//! request, and blocks that escape from them in every way.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use allotment::pool::{self, enter_thread_pool, poll_in_thread_pools};
use allotment::{Budget, LocalPool, Release};

use super::executor::{Executor, yield_now};
use super::filled_block::{Calls, FilledBlock, Ledger};
use super::slab::{Random, layout};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The number of threads that poll tasks.
const WORKERS: usize = 4;
/// The number of polls after which a worker ends and another one takes its place.
const POLLS: usize = 20_000;
/// The number of connections at a time, each a task.
const CONNECTIONS: usize = 40;
/// The number of requests of a connection, after which another one takes its place.
const REQUESTS: u64 = 50;
/// The number of blocks that the cache keeps.
const CACHED: usize = 2000;
/// The number of blocks that a thread keeps in a thread-local.
const KEPT_BY_A_THREAD: usize = 30;
/// A block that is larger has no size class.
const LARGEST_CLASS: usize = 32 * KIB;
/// A freed block that is larger does not wait for its owner.
const HUGE: usize = 4 * MIB;

/// What happens to blocks. Each must have happened in a run that is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// A cache has kept one.
    Cached,
    /// A global that is filled once, and one that is replaced, have kept one.
    KeptByAGlobal,
    /// A thread-local has kept one, maybe until the thread has ended.
    KeptByAThread,
    /// Another request has got one.
    HandedOver,
    /// Threads that are always in their pool, and those in none, have freed one.
    SentToAThread,
    /// One was live when its pool ended.
    OutlivedItsPool,
    /// One was freed by the unwinding of a panic inside its pool.
    Unwound,
    /// A panic has carried one out of its pool.
    Thrown,
    /// One had no size class.
    Large,
    /// One was larger than what waits for its owner.
    Huge,
    /// One had to read zeros.
    Zeroed,
    /// One was resized by a thread or request other than the one that allocated it.
    ResizedElsewhere,
    /// A pool has refused one, because of its limit.
    Refused,
    /// One was allocated while its thread was in no pool.
    OutsideEveryPool,
}

const EVENTS: [Event; 14] = [
    Event::Cached,
    Event::KeptByAGlobal,
    Event::KeptByAThread,
    Event::HandedOver,
    Event::SentToAThread,
    Event::OutlivedItsPool,
    Event::Unwound,
    Event::Thrown,
    Event::Large,
    Event::Huge,
    Event::Zeroed,
    Event::ResizedElsewhere,
    Event::Refused,
    Event::OutsideEveryPool,
];

/// What a run has done.
#[derive(Debug)]
pub struct Served {
    /// The requests.
    pub requests: u64,
    /// The events that have not happened.
    pub missing: Vec<Event>,
    /// The number of each event.
    pub events: Vec<(Event, u64)>,
    /// The threads that have polled tasks.
    pub workers: u64,
}

/// Where a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pools {
    /// In what the connection's polls are in: a thread's pool, or none.
    Polls,
    /// In a pool of its own.
    Request,
    /// In a pool of its own with this limit.
    Limited(usize),
    /// In a pool of its own with the budget that such requests share.
    Tenant,
    /// In a pool of its own with this release policy and this reserved memory.
    Options(Release, usize),
    /// In a pool of its own inside another.
    Nested,
    /// In a pool of its own whose blocks are checked.
    Hardened,
}

impl Pools {
    fn choose(random: &mut Random) -> Self {
        match random.below(100) {
            0..=34 => Self::Polls,
            35..=59 => Self::Request,
            60..=74 => Self::Limited((2 * KIB) << random.below(9)),
            75..=84 => Self::Tenant,
            85..=93 => {
                let release = match random.below(4) {
                    0 => Release::AtOnce,
                    1 => Release::Keep(random.below(MIB)),
                    2 => Release::Decay(Duration::from_millis(1)),
                    _ => Release::Adaptive,
                };
                Self::Options(release, random.below(2) * 100 * KIB)
            }
            94..=98 => Self::Nested,
            _ => Self::Hardened,
        }
    }
}

struct Server {
    ledger: &'static Ledger,
    executor: Arc<Executor>,
    /// The requests that have begun.
    begun: AtomicU64,
    /// The requests that have ended.
    served: AtomicU64,
    wanted: u64,
    events: [AtomicU64; EVENTS.len()],
    cache: Mutex<VecDeque<FilledBlock>>,
    filled_once: [OnceLock<FilledBlock>; 16],
    replaced: [Mutex<Option<FilledBlock>>; 64],
    mailboxes: [Mutex<Vec<FilledBlock>>; 8],
    threads: [Mutex<Sender<FilledBlock>>; 2],
    tenant: Budget,
}

thread_local! {
    static KEPT: RefCell<VecDeque<FilledBlock>> = const { RefCell::new(VecDeque::new()) };
}

/// A payload that a request throws on purpose.
struct Thrown(FilledBlock);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a failed check ends the test anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn size(random: &mut Random) -> usize {
    match random.below(200) {
        0 => LARGEST_CLASS + 1 + random.below(200 * KIB),
        1..=3 => 1 + random.below(LARGEST_CLASS),
        4..=40 => 1 + random.below(3000),
        _ => 1 + random.below(300),
    }
}

impl Server {
    fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn block(&self, random: &mut Random, size: usize) -> FilledBlock {
        let align = 1 << if random.one_in(20) { random.below(13) } else { random.below(5) };
        if size > LARGEST_CLASS {
            self.count(Event::Large);
        }
        if size > HUGE {
            self.count(Event::Huge);
        }
        if !pool::current().is_usable() {
            self.count(Event::OutsideEveryPool);
        }
        match random.below(8) {
            0 => {
                self.count(Event::Zeroed);
                FilledBlock::zeroed(self.ledger, layout(size, align))
            }
            1..=2 => FilledBlock::new(self.ledger, layout(size, align), Calls::Reference),
            _ => FilledBlock::new(self.ledger, layout(size, align), Calls::Global),
        }
    }

    /// Resizes some blocks.
    fn resize_some(&self, random: &mut Random, blocks: &mut Vec<FilledBlock>) {
        for _ in 0..random.below(3) {
            let Some(last) = blocks.len().checked_sub(1) else { return };
            let block = blocks.swap_remove(random.below(last + 1));
            let new_size = match random.below(4) {
                0 => block.size() * 2,
                1 => block.size().div_ceil(2),
                2 => block.size() + 1 + random.below(100),
                _ => size(random),
            };
            blocks.push(block.resize(new_size.min(8 * MIB)));
        }
    }

    /// Gives a block to what outlives the request.
    fn let_escape(&self, random: &mut Random, block: FilledBlock) {
        match random.below(9) {
            0..=2 => {
                self.count(Event::Cached);
                let mut cache = lock(&self.cache);
                cache.push_back(block);
                let place = random.below(cache.len());
                let replaced =
                    if cache.len() > CACHED { cache.swap_remove_back(place) } else { None };
                drop(cache);
                drop(replaced);
            }
            3 => {
                self.count(Event::KeptByAGlobal);
                let once = &self.filled_once[random.below(self.filled_once.len())];
                // The block that comes too late is freed.
                once.get_or_init(|| block).check();
            }
            4 => {
                self.count(Event::KeptByAGlobal);
                let place = &self.replaced[random.below(self.replaced.len())];
                let replaced = lock(place).replace(block);
                drop(replaced);
            }
            5 => {
                self.count(Event::KeptByAThread);
                KEPT.with_borrow_mut(|kept| {
                    kept.push_back(block);
                    if kept.len() > KEPT_BY_A_THREAD {
                        kept.pop_front();
                    }
                });
            }
            6..=7 => {
                self.count(Event::HandedOver);
                lock(&self.mailboxes[random.below(self.mailboxes.len())]).push(block);
            }
            _ => {
                self.count(Event::SentToAThread);
                let sender = lock(&self.threads[random.below(self.threads.len())]).clone();
                sender.send(block).expect("the thread receives until the end");
            }
        }
    }

    /// What a request does before it waits. Returns the blocks that it works on afterwards.
    fn first_part(&self, random: &mut Random) -> Vec<FilledBlock> {
        let mut blocks = Vec::new();
        for _ in 0..3 + random.below(8) {
            let size = size(random);
            blocks.push(self.block(random, size));
            if random.one_in(5) {
                blocks.swap_remove(random.below(blocks.len()));
            }
        }
        if random.one_in(4000) {
            let size = HUGE + 1 + random.below(2 * MIB);
            blocks.push(self.block(random, size));
        }
        self.resize_some(random, &mut blocks);
        if random.one_in(40) {
            // The panic is caught inside the pool.
            self.count(Event::Unwound);
            let caught = catch_unwind(AssertUnwindSafe(|| self.throw(random)));
            blocks.extend(thrown(caught));
        }
        for _ in 0..random.below(3) {
            if let Some(block) = blocks.pop() {
                self.let_escape(random, block);
            }
        }
        if random.one_in(40) {
            // The panic leaves the request's pool, with all of its blocks.
            self.count(Event::Unwound);
            let _freed_by_the_panic = blocks;
            self.throw(random);
            return Vec::new();
        }
        blocks
    }

    /// Panics, with blocks that the panic frees, and one that it carries.
    fn throw(&self, random: &mut Random) {
        self.count(Event::Thrown);
        let sizes = [size(random), size(random), size(random)];
        let [thrown, first, second] = sizes.map(|size| self.block(random, size));
        let _freed_by_the_panic = (first, Box::new(second));
        resume_unwind(Box::new(Thrown(thrown)));
    }

    /// Runs the first part of a request in its pools.
    fn in_pools(&self, pools: Pools, random: &mut Random) -> Vec<FilledBlock> {
        let builder = LocalPool::builder();
        let (pool, budget) = match pools {
            Pools::Polls => return self.first_part(random),
            Pools::Request => (LocalPool::new(), None),
            Pools::Limited(limit) => {
                let budget = Budget::new(limit);
                (builder.budget(&budget).build(), Some(budget))
            }
            Pools::Tenant => (builder.budget(&self.tenant).build(), Some(self.tenant.clone())),
            Pools::Options(release, reserved) => {
                (builder.release(release).reserved(reserved).build(), None)
            }
            Pools::Nested => {
                return LocalPool::new().enter(|| self.in_pools(Pools::Request, random));
            }
            Pools::Hardened => (builder.hardened(true).report_live(false).build(), None),
        };
        let blocks = pool.enter(|| self.first_part(random));
        if !blocks.is_empty() {
            self.count(Event::OutlivedItsPool);
        }
        if let Some(budget) = budget {
            assert!(budget.used() <= budget.limit());
            if pool.refused_bytes() > 0 {
                self.count(Event::Refused);
            }
            drop(pool);
            assert!(pools == Pools::Tenant || budget.used() == 0, "what escapes is the program's");
        }
        blocks
    }

    async fn serve_request(&self, number: u64) {
        let mut random = Random::new(number);
        let pools = Pools::choose(&mut random);
        let caught = catch_unwind(AssertUnwindSafe(|| self.in_pools(pools, &mut random)));
        let mut blocks =
            caught.unwrap_or_else(|panic| thrown::<()>(Err(panic)).into_iter().collect());
        yield_now().await;
        // Maybe on another thread.
        let taken =
            core::mem::take(&mut *lock(&self.mailboxes[number as usize % self.mailboxes.len()]));
        blocks.extend(taken);
        if !blocks.is_empty() {
            self.count(Event::ResizedElsewhere);
        }
        self.resize_some(&mut random, &mut blocks);
        if random.one_in(2) {
            let size = size(&mut random);
            blocks.push(self.block(&mut random, size));
        }
        if random.one_in(10) {
            blocks.pop().into_iter().for_each(|block| self.let_escape(&mut random, block));
        }
        yield_now().await;
        drop(blocks);
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Serves the requests of a connection, and starts the next connection.
    async fn serve_connection(self: Arc<Self>) {
        for _ in 0..REQUESTS {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            if number >= self.wanted {
                return;
            }
            self.serve_request(number).await;
        }
        self.start_connection();
    }

    fn start_connection(self: &Arc<Self>) {
        let connection = self.clone().serve_connection();
        // Of three connections, the polls of two are in their threads' pools.
        if self.begun.load(Ordering::Relaxed) / 7 % 3 == 0 {
            self.executor.spawn(connection);
        } else {
            self.executor.spawn(poll_in_thread_pools(connection));
        }
    }
}

/// Returns the block that a panic on purpose carries. Goes on with any other panic.
fn thrown<T>(caught: std::thread::Result<T>) -> Option<FilledBlock> {
    let panic = caught.err()?;
    match panic.downcast::<Thrown>() {
        Ok(thrown) => Some(thrown.0),
        Err(panic) => resume_unwind(panic),
    }
}

/// How long a thread waits for a block before it looks whether a check has failed.
const PATIENCE: Duration = Duration::from_millis(50);

/// Takes blocks of requests, keeps some for a while, and resizes and frees them. Ends when no more
/// can come, or a check has failed: the tasks that are left may then keep the channel open.
fn work_on(blocks: &Receiver<FilledBlock>, has_failed: &AtomicBool) {
    let mut random = Random::new(7);
    let mut kept = VecDeque::new();
    loop {
        let block = match blocks.recv_timeout(PATIENCE) {
            Ok(block) => block,
            Err(RecvTimeoutError::Timeout) if !has_failed.load(Ordering::Relaxed) => continue,
            Err(_) => return,
        };
        let size = block.size();
        kept.push_back(if random.one_in(3) {
            block.resize(size + random.below(50))
        } else {
            block
        });
        if kept.len() > 100 {
            kept.swap_remove_back(random.below(100));
        }
    }
}

/// Serves this many requests on several threads. All of them have ended when it returns, and no
/// block is live, unless a check has failed: then it panics.
pub fn serve(ledger: &'static Ledger, requests: u64) -> Served {
    let (in_no_pool, for_no_pool) = channel();
    let (in_a_pool, for_a_pool) = channel();
    let executor = Arc::new(Executor::default());
    let server = Arc::new(Server {
        ledger,
        executor: executor.clone(),
        begun: AtomicU64::new(0),
        served: AtomicU64::new(0),
        wanted: requests,
        events: Default::default(),
        cache: Mutex::default(),
        filled_once: Default::default(),
        replaced: core::array::from_fn(|_| Mutex::default()),
        mailboxes: Default::default(),
        threads: [Mutex::new(in_no_pool), Mutex::new(in_a_pool)],
        tenant: Budget::new(200 * KIB),
    });
    (0..CONNECTIONS).for_each(|_| server.start_connection());
    let (workers, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let has_failed = &has_failed;
    std::thread::scope(|scope| {
        let receivers = [
            scope.spawn(move || work_on(&for_no_pool, has_failed)),
            scope.spawn(move || enter_thread_pool(|| work_on(&for_a_pool, has_failed))),
        ];
        let places: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    // Threads end, and others take their places.
                    loop {
                        workers.fetch_add(1, Ordering::Relaxed);
                        let worker =
                            std::thread::scope(|scope| scope.spawn(|| executor.run(POLLS)).join());
                        match worker {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(panic) => resume_unwind(panic),
                        }
                    }
                })
            })
            .collect();
        // All of them end before the first panic goes on.
        let ended: Vec<_> = places.into_iter().map(|place| place.join()).collect();
        if let Some(panic) = executor.take_panic().or(ended.into_iter().find_map(Result::err)) {
            has_failed.store(true, Ordering::Relaxed);
            resume_unwind(panic);
        }
        let server = Arc::into_inner(server).expect("no task is left");
        assert_eq!(server.served.load(Ordering::Relaxed), requests);
        assert_eq!(server.tenant.used(), 0, "what escapes is the program's");
        let events: Vec<_> = EVENTS
            .iter()
            .map(|event| (*event, server.events[*event as usize].load(Ordering::Relaxed)))
            .collect();
        // The threads end when nothing can be sent to them.
        drop(server);
        for receiver in receivers {
            receiver.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        let missing = events.iter().filter(|(_, count)| *count == 0).map(|(event, _)| *event);
        let missing = missing.collect();
        Served { requests, missing, events, workers: workers.load(Ordering::Relaxed) }
    })
}
