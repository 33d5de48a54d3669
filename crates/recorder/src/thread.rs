//! What a thread has for recording.
//!
//! A state is found by the thread's word and is the thread's own from [`enter`] to the end of [`Entered`]. When a thread ends, its state is
//! marked free and is another thread's later, with its stream, its tables and the chunk that it was writing to; a hook that
//! runs behind that, in a destructor, takes a free state for that one call.
//!
//! Invariants: states are never unmapped. A state whose `owner` isn't 0 belongs to one thread, and `busy` is set while that
//! thread is in a hook. The word of a thread is 0 at first, `WITHOUT` while it gets a state or when it can't record any more, the state's address, or
//! its number with `ENDED` once it has ended, and then `WITHOUT` while it has a state for one call.

use crate::clock;
use crate::generation;
use crate::raw_file;
use crate::record::{Kind, Node};
use crate::sys;
use crate::table::Table;
use crate::tls;
use crate::unwind::cache::Cache;
use crate::unwind::modules;
use crate::unwind::rules::{Context, Rules};
use crate::unwind::walk::Frames;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};
use trace_format::raw::{CHUNK_HEADER_SIZE, CHUNK_ROOM, EVENT_ROOM, Encoder, FIRST_NODE};

const WITHOUT: usize = 1;
const ENDED: usize = 3;

/// Nodes and kinds of a stream before all are forgotten and numbered anew.
const MOST_NUMBERS: u32 = 1 << 20;

/// A thread's state.
#[derive(Debug)]
pub struct Thread {
    busy: bool,
    /// The thread has ended: the state is for one call.
    passing: bool,
    generation: u32,
    /// Calls until the next one that is measured.
    until_measured: u32,
    /// Where events are written.
    pub encoder: Encoder,
    /// Stacks that are known.
    pub cache: Cache,
    /// The frames of the last walk.
    pub frames: Frames,
    /// Rules that are known.
    pub rules: Rules,
    /// Where unwind tables are evaluated.
    pub context: Context,
    pub(crate) nodes: Table<Node>,
    pub(crate) kinds: Table<Kind>,
    chunk: *mut u8,
    stream: u32,
    sequence: u32,
    /// Whose events the stream has had last; one more than the number.
    announced: u32,
    number: u32,
    owner: AtomicU32,
    next: *mut Thread,
}

static THREADS: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// The process is being set up, after its begin or a fork.
static SETTING: AtomicU32 = AtomicU32::new(0);
static BEGUN: AtomicU32 = AtomicU32::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// A thread that is in a hook, with its state.
#[derive(Debug)]
pub struct Entered(*mut Thread);

impl Entered {
    /// The state, which is this thread's.
    #[inline(always)]
    pub fn thread(&self) -> *mut Thread {
        self.0
    }
}

/// Calls between two that are measured: at least so many, and up to as many more, by chance, so that no program's own rhythm is met.
const LEAST_BETWEEN: u32 = 128;
const MOST_MORE: u32 = 256;

impl Entered {
    /// Whether this call is one to be measured; then the thread has left the hook, to enter it anew.
    #[inline(always)]
    pub fn leaves_to_be_measured(self) -> Result<(), Self> {
        let thread = self.thread();
        // SAFETY: the state is this thread's.
        unsafe {
            if (*thread).until_measured != 0 {
                (*thread).until_measured -= 1;
                return Err(self);
            }
        }
        self.leaves()
    }

    #[cold]
    fn leaves(self) -> Result<(), Self> {
        let by_chance = (clock::stamp().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
        // SAFETY: the state is this thread's.
        unsafe {
            (*self.thread()).until_measured = LEAST_BETWEEN + by_chance % MOST_MORE;
            // A state for one call can't be left and entered again.
            if (*self.thread()).passing {
                return Err(self);
            }
        }
        drop(self);
        Ok(())
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        // SAFETY: the state is this thread's until here.
        unsafe {
            (*self.0).busy = false;
            if (*self.0).passing {
                pass_on(self.0);
            }
        }
    }
}

/// Begins what a hook does. `None`: the process isn't recorded, or the thread is in a hook already.
#[inline(always)]
pub fn enter() -> Option<Entered> {
    let word = tls::get();
    if word == 0 || word & 1 != 0 {
        return enter_without(word);
    }
    let thread = word as *mut Thread;
    // SAFETY: the word is a state's address, and the state this thread's.
    unsafe {
        if (*thread).busy {
            return None;
        }
        (*thread).busy = true;
        compiler_fence(Ordering::Acquire);
        let entered = Entered(thread);
        if (*thread).generation != generation::compared() && !catch_up(thread) {
            return None;
        }
        Some(entered)
    }
}

/// For a thread that has no state.
#[cold]
fn enter_without(word: usize) -> Option<Entered> {
    if word == WITHOUT || !raw_file::is_on() {
        return None;
    }
    tls::set(WITHOUT);
    if !generation::is_begun() {
        begin();
    }
    let Some(thread) = take() else {
        raw_file::missed();
        tls::set(word);
        return None;
    };
    let ended = word & ENDED == ENDED;
    // SAFETY: the state is ours now.
    unsafe {
        (*thread).passing = ended;
        (*thread).number = if ended { (word >> 2) as u32 } else { raw_file::new_thread() };
        (*thread).busy = true;
        if !ended {
            tls::set(thread as usize);
            // Another destructor of the thread may run before ours, or behind it.
            pthread_setspecific(KEY.load(Ordering::Relaxed), thread.cast());
        }
        // A thread that has ended stays without a state: what the call calls itself would else be another one.
        let entered = Entered(thread);
        catch_up(thread).then_some(entered)
    }
}

/// Begins with the process, or with the child of a fork.
#[cold]
fn begin() {
    while SETTING.swap(1, Ordering::Acquire) != 0 {
        sys::give_way();
        if generation::is_begun() {
            return;
        }
    }
    if !generation::is_begun() {
        if BEGUN.swap(1, Ordering::Relaxed) == 0 {
            // SAFETY: the page is ours alone; the key's destructor is a function of that type; so is the handler.
            unsafe {
                let mut key = u32::MAX;
                pthread_key_create(&raw mut key, thread_ends);
                KEY.store(key, Ordering::Relaxed);
                generation::wipe_on_fork();
                pthread_atfork(None, None, Some(forked));
            }
        } else {
            // The states of the other threads are the parent's, in the middle of whatever it was.
            THREADS.store(core::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: the child of a fork has one thread.
            unsafe { raw_file::begin_in_child() };
        }
        generation::begin();
    }
    SETTING.store(0, Ordering::Release);
}

/// In the child of a fork, unless the program has asked the kernel for it itself.
extern "C" fn forked() {
    generation::forget();
    let word = tls::get();
    if word & ENDED == ENDED {
        // Its number is one of the parent's threads.
        tls::set(0);
    }
    if word == 0 || word & 1 != 0 {
        return;
    }
    let thread = word as *mut Thread;
    // SAFETY: the word is a state's address, and the state this thread's; only it uses the chunk's mapping here.
    unsafe {
        // A handler has forked in the middle of an event: the rest of it must not go to the parent's chunk, which is shared.
        if (*thread).busy && !(*thread).chunk.is_null() {
            sys::map_instead((*thread).chunk, trace_format::raw::CHUNK_SIZE);
        }
    }
}

/// A state that nobody has.
fn take() -> Option<*mut Thread> {
    let mut free = THREADS.load(Ordering::Acquire);
    while !free.is_null() {
        // SAFETY: states are never unmapped, and their links never change; the rest of a state is its owner's.
        let (owner, next) = unsafe { (&(*free).owner, (*free).next) };
        if owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some(free);
        }
        free = next;
    }
    let made = sys::map(size_of::<Thread>()).ok()?.cast::<Thread>();
    // SAFETY: zeroed memory is a state that has nothing, but for its context, which is put there.
    unsafe {
        (&raw mut (*made).context).write(Context::new_in());
        (*made).encoder = Encoder::closed();
        (*made).stream = raw_file::new_stream();
        (*made).owner = AtomicU32::new(1);
    }
    add(made);
    Some(made)
}

fn add(made: *mut Thread) {
    let mut first = THREADS.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else knows the state yet.
        unsafe { (*made).next = first };
        match THREADS.compare_exchange_weak(first, made, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// The recording has ended: the thread makes no call for it any more, and doesn't ask the clock, since the program may have forbidden
/// itself either.
fn without(thread: *mut Thread) -> bool {
    // SAFETY: the state is this thread's.
    if unsafe { !(*thread).passing } {
        tls::set(WITHOUT);
    }
    false
}

/// Brings a state up to date: after a fork, after a module has gone, and for a thread that has just got it. Says whether
/// it can record.
///
/// # Safety
///
/// The state is this thread's.
#[cold]
unsafe fn catch_up(thread: *mut Thread) -> bool {
    // SAFETY: the state is this thread's, and what is borrowed of it is borrowed for one call at a time.
    unsafe {
        if !generation::is_begun() {
            begin();
            if !raw_file::is_on() {
                return without(thread);
            }
            // The chunk is the parent's.
            (*thread).drop_chunk();
            (*thread).next = core::ptr::null_mut();
            add(thread);
            (*thread).stream = raw_file::new_stream();
            (*thread).sequence = 0;
            (*thread).announced = 0;
            (*thread).number = raw_file::new_thread();
            (*thread).generation = 0;
        }
        if !raw_file::is_on() {
            return without(thread);
        }
        let now = clock::ticks();
        let generation = generation::get();
        if (*thread).generation != generation {
            let is_new = (*thread).sequence == 0 && (*thread).chunk.is_null();
            let begins = (*thread).generation == 0 && is_new;
            (*thread).generation = generation;
            (*thread).cache.clear();
            (*thread).rules.clear();
            (*thread).frames.forget();
            if begins {
                // The first calls are like no others.
                (*thread).until_measured = LEAST_BETWEEN / 2 + now as u32 % MOST_MORE;
                (*thread).nodes.clear();
                (*thread).kinds.clear();
                if (*thread).stream == 0 {
                    modules::announce_all(thread, now);
                }
            } else if !(*thread).forget(now) {
                return false;
            }
        }
        (*thread).announce(now)
    }
}

/// Gives back the state of a thread that has ended.
///
/// # Safety
///
/// The state is this thread's, and nobody comes back to it.
#[cold]
unsafe fn pass_on(thread: *mut Thread) {
    // SAFETY: as the caller promised.
    unsafe {
        let word = ((*thread).number as usize) << 2 | ENDED;
        (*thread).passing = false;
        (*thread).cache.clear();
        (*thread).frames.clear();
        (*thread).owner.store(0, Ordering::Release);
        // Last: until then a handler's calls must not come here.
        tls::set(word);
    }
}

extern "C" fn thread_ends(state: *mut c_void) {
    let word = tls::get();
    if word & 1 != 0 || word != state as usize {
        return;
    }
    let Some(entered) = enter() else { return };
    let thread = entered.thread();
    // SAFETY: the state is this thread's; `passing` gives it away at the end.
    unsafe {
        let now = clock::ticks();
        if (*thread).make_room(now, 0) {
            (*thread).encoder.thread_end(now);
        }
        // Whatever this thread still does begins with a new announcement.
        (*thread).announced = 0;
        (*thread).passing = true;
        tls::set(WITHOUT);
    }
}

impl Thread {
    /// Makes room for an event of `room` bytes, 0 for a small one. False: the recording has ended.
    #[inline(always)]
    pub fn make_room(&mut self, tick: u64, room: usize) -> bool {
        self.encoder.room() >= room.max(EVENT_ROOM) || self.next_chunk(tick)
    }

    #[cold]
    fn next_chunk(&mut self, tick: u64) -> bool {
        if !self.chunk.is_null() {
            let length = CHUNK_ROOM - self.encoder.room();
            let chunk = core::mem::replace(&mut self.chunk, core::ptr::null_mut());
            // The child of a handler must not find it where something else may be by then.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: the chunk was this state's, and the encoder is closed below.
            unsafe { raw_file::close_chunk(chunk, length) };
            self.encoder.close();
        }
        // The clocks of two processors may differ, and a stream's times never go back.
        let tick = tick.max(self.encoder.last_tick());
        // A handler can fork here, and anywhere in what follows: then the file is the parent's, and so is a chunk of it.
        let taken = if !generation::is_begun() {
            sys::map(trace_format::raw::CHUNK_SIZE).ok()
        } else {
            raw_file::take_chunk(self.stream, self.sequence, tick)
        };
        let Some(chunk) = taken else {
            if !self.passing {
                tls::set(WITHOUT);
            }
            return false;
        };
        self.sequence += 1;
        self.chunk = chunk;
        // From here on a fork in a handler finds the chunk; one before is seen here.
        compiler_fence(Ordering::SeqCst);
        if !generation::is_begun() {
            // SAFETY: it was just mapped, and nothing is in it that this process needs.
            unsafe { sys::map_instead(chunk, trace_format::raw::CHUNK_SIZE) };
        }
        // SAFETY: the chunk is zero behind its header, ours, and mapped until it's closed above.
        unsafe { self.encoder.open(chunk.add(CHUNK_HEADER_SIZE), CHUNK_ROOM, tick) };
        true
    }

    /// Forgets a chunk that belongs to another process.
    fn drop_chunk(&mut self) {
        if !self.chunk.is_null() {
            let chunk = core::mem::replace(&mut self.chunk, core::ptr::null_mut());
            // As in `next_chunk`.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: nobody uses the mapping but this state.
            unsafe { sys::unmap(chunk, trace_format::raw::CHUNK_SIZE) };
        }
        self.encoder = Encoder::closed();
    }

    /// Says whose events follow.
    fn announce(&mut self, tick: u64) -> bool {
        if self.announced == self.number + 1 {
            return true;
        }
        if !self.make_room(tick, 0) {
            return false;
        }
        // SAFETY: there is room.
        unsafe { self.encoder.thread(tick, self.number, sys::thread()) };
        self.announced = self.number + 1;
        true
    }

    /// Begins to number nodes and kinds anew.
    fn forget(&mut self, tick: u64) -> bool {
        self.nodes.clear();
        self.kinds.clear();
        self.cache.clear();
        self.frames.forget();
        if !self.make_room(tick, 0) {
            return false;
        }
        // SAFETY: there is room.
        unsafe { self.encoder.forget() };
        true
    }

    /// Makes sure that there are numbers for what comes next.
    pub(crate) fn has_numbers(&mut self, tick: u64) -> bool {
        self.nodes.len().max(self.kinds.len()) < MOST_NUMBERS || self.forget(tick)
    }

    /// The node of a frame, announced if it is new.
    pub(crate) fn node(&mut self, tick: u64, parent: u32, return_address: u64) -> Option<u32> {
        let key = Node { return_address, parent };
        if let Some(known) = self.nodes.get(key) {
            return Some(known + FIRST_NODE);
        }
        if !self.make_room(tick, 0) {
            return None;
        }
        let Some(number) = self.nodes.add(key) else {
            raw_file::missed();
            return None;
        };
        // SAFETY: there is room.
        unsafe { self.encoder.node(parent, return_address) };
        Some(number + FIRST_NODE)
    }
}
