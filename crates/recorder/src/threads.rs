//! How a thread enters and leaves a hook, and which state it has.
//!
//! A thread finds its state through its word (see [`tls`]). While it is in a hook, it has a
//! [`HookEntry`]. When a thread ends, its state is marked as free, and another thread takes it
//! later, with its stream, its tables and its current chunk. A hook that runs after that, in a
//! destructor of the ended thread, takes a free state for one call.
//!
//! Invariant: a thread's word is 0 at first. It is `NO_STATE` while the thread gets a state, and
//! when it cannot record any more. Otherwise it is the address of the thread's state. Once the
//! thread has ended, the word is its number with `ENDED`, and `NO_STATE` while it has a state for
//! one call.

use crate::clock;
use crate::generation;
use crate::modules;
use crate::raw_file;
use crate::sys;
use crate::thread_state::ThreadState;
use crate::tls::{self, ENDED, NO_STATE};
use crate::trial::{chunks, settings};
use crate::unwind::rules::UnwindContext;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};
use trace_format::raw::{CHUNK_SIZE, Encoder};

/// All states, linked by `next`.
static STATES: AtomicPtr<ThreadState> = AtomicPtr::new(core::ptr::null_mut());
/// Not 0 while a thread sets up the recording of the process, at its begin or after a fork.
static SETUP_LOCK: AtomicU32 = AtomicU32::new(0);
/// Not 0 if this process or one of its ancestors has been set up.
static SET_UP_BEFORE: AtomicU32 = AtomicU32::new(0);
/// The `pthread` key whose destructor runs when a thread ends.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

type Handler = Option<extern "C" fn()>;
/// The function that registers handlers of forks. glibc's `pthread_atfork` is not in the shared
/// library, but calls this function of it; its last argument is the library that registers. musl has
/// no such function, and calls `pthread_atfork` with the other arguments.
type RegisterAtFork = extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
/// A [`RegisterAtFork`], or null.
static REGISTER_AT_FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the address of `__register_atfork` or `pthread_atfork`.
pub fn set_register_at_fork(function: *mut c_void) {
    // Relaxed: the address alone is used, and it is that of code.
    REGISTER_AT_FORK.store(function, Ordering::Relaxed);
}

/// A thread that is in a hook, with its state.
#[derive(Debug)]
pub struct HookEntry(*mut ThreadState);

/// Calls between two timed calls: at least this many.
const MIN_CALLS_BETWEEN_TIMED: u32 = 128;
/// A random number of calls, below this one, is added, so that no rhythm of a program is hit.
const RANDOM_CALLS_BETWEEN_TIMED: u32 = 256;

impl HookEntry {
    /// The state, which is this thread's.
    #[inline(always)]
    pub fn state(&self) -> *mut ThreadState {
        self.0
    }

    /// Leaves the hook if this call is one to be timed, so that the timed call enters it again.
    /// Returns the entry if it is not.
    #[inline(always)]
    pub fn leave_if_timed(self) -> Result<(), Self> {
        let state = self.state();
        // SAFETY: the state is this thread's.
        unsafe {
            if (*state).calls_until_timed != 0 {
                (*state).calls_until_timed -= 1;
                return Err(self);
            }
        }
        self.leave_to_be_timed()
    }

    #[cold]
    fn leave_to_be_timed(self) -> Result<(), Self> {
        let random = (clock::stamp().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
        // SAFETY: the state is this thread's.
        unsafe {
            (*self.state()).calls_until_timed =
                MIN_CALLS_BETWEEN_TIMED + random % RANDOM_CALLS_BETWEEN_TIMED;
            // A state for one call cannot be left and entered again.
            if (*self.state()).for_one_call {
                return Err(self);
            }
        }
        drop(self);
        Ok(())
    }
}

impl Drop for HookEntry {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        // SAFETY: the state is this thread's until here.
        unsafe {
            (*self.0).in_hook = false;
            if (*self.0).for_one_call {
                give_back(self.0);
            }
        }
    }
}

/// Enters a hook. Returns `None` if the process is not recorded, or the thread is in a hook
/// already.
#[inline(always)]
pub fn enter() -> Option<HookEntry> {
    let word = tls::get();
    if word == 0 || word & 1 != 0 {
        return enter_without_state(word);
    }
    let state = word as *mut ThreadState;
    // SAFETY: the word is the address of this thread's state.
    unsafe {
        if (*state).in_hook {
            return None;
        }
        (*state).in_hook = true;
        compiler_fence(Ordering::Acquire);
        let entry = HookEntry(state);
        if (*state).generation != generation::get_relaxed() && !bring_up_to_date(state) {
            return None;
        }
        Some(entry)
    }
}

/// [`enter`] for a thread that may hold a lock of an allocator: what it calls must not allocate.
pub fn enter_without_allocating() -> Option<HookEntry> {
    // glibc has room for this many keys in each thread, and allocates for later ones.
    const KEYS_WITHIN_A_THREAD: u32 = 32;
    let is_known = tls::get() != 0;
    let key = KEY.load(Ordering::Relaxed);
    if is_known || key < KEYS_WITHIN_A_THREAD { enter() } else { None }
}

/// [`enter`] for a thread that has no state.
#[cold]
fn enter_without_state(word: usize) -> Option<HookEntry> {
    if word == NO_STATE || !raw_file::is_recording() {
        return None;
    }
    tls::set(NO_STATE);
    if !generation::has_begun() {
        set_up();
    }
    let Some(state) = claim() else {
        raw_file::count_missed();
        tls::set(word);
        return None;
    };
    let ended = word & ENDED == ENDED;
    // SAFETY: this thread has just claimed the state.
    unsafe {
        (*state).for_one_call = ended;
        (*state).number = if ended { (word >> 2) as u32 } else { raw_file::new_thread() };
        (*state).in_hook = true;
        // The word of a thread that has ended stays `NO_STATE`: otherwise a call that this call
        // makes would claim another state.
        if !ended {
            tls::set(state as usize);
            // Another destructor of the thread may run before ours, or after it.
            pthread_setspecific(KEY.load(Ordering::Relaxed), state.cast());
        }
        let entry = HookEntry(state);
        bring_up_to_date(state).then_some(entry)
    }
}

/// Sets up the recording of the process, or of the child of a fork.
#[cold]
fn set_up() {
    while SETUP_LOCK.swap(1, Ordering::Acquire) != 0 {
        sys::yield_now();
        if generation::has_begun() {
            return;
        }
    }
    if !generation::has_begun() {
        if SET_UP_BEFORE.swap(1, Ordering::Relaxed) == 0 {
            // SAFETY: the functions have the types that the C library expects, and the function of
            // either name for handlers of forks has the type of `RegisterAtFork`.
            unsafe {
                let mut key = u32::MAX;
                pthread_key_create(&raw mut key, thread_ends);
                KEY.store(key, Ordering::Relaxed);
                generation::wipe_on_fork();
                let register = REGISTER_AT_FORK.load(Ordering::Relaxed);
                if !register.is_null() {
                    let register: RegisterAtFork = core::mem::transmute(register);
                    register(None, None, Some(forked), core::ptr::null_mut());
                }
            }
        } else {
            // The states of other threads are copies of the parent's, in the middle of anything.
            STATES.store(core::ptr::null_mut(), Ordering::Relaxed);
            chunks::LOCK.free_in_child();
            // SAFETY: the child of a fork has one thread.
            unsafe { raw_file::begin_in_child() };
        }
        generation::begin();
    }
    SETUP_LOCK.store(0, Ordering::Release);
}

/// Runs in the child of a fork, unless the program has made the system call itself.
extern "C" fn forked() {
    generation::reset_in_child();
    let word = tls::get();
    if word & ENDED == ENDED {
        // The number is that of a thread of the parent.
        tls::set(0);
    }
    if word == 0 || word & 1 != 0 {
        return;
    }
    let state = word as *mut ThreadState;
    // SAFETY: the word is the address of this thread's state. Only this thread uses the chunk's
    // mapping in this process.
    unsafe {
        // A signal handler has forked in the middle of an event. The rest of the event must not go
        // to the parent's chunk, whose mapping is shared.
        if (*state).in_hook && !(*state).chunk.is_null() {
            sys::map_over((*state).chunk, CHUNK_SIZE);
        }
    }
}

/// A state without an owner, a new one if there is none. This thread owns it afterwards.
fn claim() -> Option<*mut ThreadState> {
    let mut state = STATES.load(Ordering::Acquire);
    while !state.is_null() {
        // SAFETY: states are never unmapped, and their links never change. All other fields are the
        // owner's.
        let (owner, next) = unsafe { (&(*state).owner, (*state).next) };
        if owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some(state);
        }
        state = next;
    }
    let new = sys::map(size_of::<ThreadState>()).ok()?.cast::<ThreadState>();
    // SAFETY: zeroed memory is an empty state, except for the context, which is written here.
    unsafe {
        (&raw mut (*new).context).write(UnwindContext::new_in());
        (*new).encoder = Encoder::closed();
        (*new).stream = raw_file::new_stream();
        (*new).owner = AtomicU32::new(1);
    }
    link(new);
    Some(new)
}

fn link(new: *mut ThreadState) {
    let mut first = STATES.load(Ordering::Relaxed);
    loop {
        // SAFETY: no other thread knows the state yet.
        unsafe { (*new).next = first };
        match STATES.compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// The recording has ended: the thread makes no system call for it any more, and does not read the
/// clock, because the program may have forbidden itself either. Returns false.
fn stop_recording(state: *mut ThreadState) -> bool {
    // SAFETY: the state is this thread's.
    if unsafe { !(*state).for_one_call } {
        tls::set(NO_STATE);
    }
    false
}

/// Brings a state up to date: after a fork, after a module was unloaded, and for a thread that has
/// just got the state. Returns whether the thread can record.
///
/// # Safety
///
/// The state is this thread's.
#[cold]
unsafe fn bring_up_to_date(state: *mut ThreadState) -> bool {
    // SAFETY: the state is this thread's, and each borrow of a part of it ends with the call.
    unsafe {
        if !generation::has_begun() {
            set_up();
            if !raw_file::is_recording() {
                return stop_recording(state);
            }
            // The chunk is the parent's.
            (*state).drop_chunk();
            (*state).next = core::ptr::null_mut();
            link(state);
            (*state).stream = raw_file::new_stream();
            (*state).sequence = 0;
            (*state).announced = 0;
            (*state).number = raw_file::new_thread();
            (*state).generation = 0;
        }
        if !raw_file::is_recording() {
            return stop_recording(state);
        }
        let now = clock::ticks();
        let generation = generation::get();
        if (*state).generation != generation {
            let is_new_stream = (*state).sequence == 0 && (*state).chunk.is_null();
            let begins = (*state).generation == 0 && is_new_stream;
            (*state).generation = generation;
            (*state).cache.clear();
            (*state).rules.clear();
            if settings::is_on() {
                (*state).trial_frames.clear();
            }
            (*state).frames.forget();
            if begins {
                // The first calls are not typical, so none of them is timed.
                (*state).calls_until_timed =
                    MIN_CALLS_BETWEEN_TIMED / 2 + now as u32 % RANDOM_CALLS_BETWEEN_TIMED;
                (*state).nodes.clear();
                (*state).kinds.clear();
                if (*state).stream == 0 {
                    modules::announce_all(state, now);
                }
            } else if !(*state).forget_numbers(now) {
                return false;
            }
        }
        (*state).announce_thread(now)
    }
}

/// Gives back the state of a thread that has ended.
///
/// # Safety
///
/// The state is this thread's, which does not use it any more.
#[cold]
unsafe fn give_back(state: *mut ThreadState) {
    // SAFETY: as the caller promised.
    unsafe {
        let word = ((*state).number as usize) << 2 | ENDED;
        (*state).for_one_call = false;
        (*state).cache.clear();
        (*state).frames.clear();
        (*state).owner.store(0, Ordering::Release);
        // Last: until then, the calls of a signal handler must not get here.
        tls::set(word);
    }
}

/// The destructor of [`KEY`]: the thread ends.
extern "C" fn thread_ends(state: *mut c_void) {
    let word = tls::get();
    if word & 1 != 0 || word != state as usize {
        return;
    }
    let Some(entry) = enter() else { return };
    let state = entry.state();
    // SAFETY: the state is this thread's. `for_one_call` has it given back when the entry is
    // dropped.
    unsafe {
        (*state).end_consecutive_frees();
        let now = clock::ticks();
        if (*state).make_space(now, 0) {
            (*state).encoder.thread_end(now);
        }
        // Later events of this thread begin with a new announcement.
        (*state).announced = 0;
        (*state).for_one_call = true;
        tls::set(NO_STATE);
    }
}
