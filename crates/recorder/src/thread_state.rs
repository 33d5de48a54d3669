//! What a thread needs for recording: its stream with the current chunk, its tables and caches.
//!
//! Invariants:
//!
//! 1. States are never unmapped.
//! 2. A state whose `owner` is not 0 belongs to one thread. Only that thread accesses anything but
//!    `owner` and `next`.
//! 3. `in_hook` is set while the owner is in a hook.

use crate::generation;
use crate::number_table::NumberTable;
use crate::raw_file;
use crate::stream_keys::{KindKey, NodeKey};
use crate::sys;
use crate::tls;
use crate::trial::consecutive_frees::ConsecutiveFrees;
use crate::trial::frame_cache::FrameCache;
use crate::trial::heap::ThreadHeap;
use crate::unwind::cache::StackCache;
use crate::unwind::frames::WalkedFrames;
use crate::unwind::rules::{RuleCache, UnwindContext};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use trace_format::raw::{
    CHUNK_CAPACITY, CHUNK_HEADER_SIZE, CHUNK_SIZE, Encoder, FIRST_NODE, MAX_EVENT_SIZE,
    MeasuredCall,
};

/// The number of nodes or of kinds in a stream from which on all are forgotten and numbered anew.
const MAX_NUMBERS: u32 = 1 << 20;

/// The state of a thread.
#[derive(Debug)]
pub struct ThreadState {
    pub(crate) in_hook: bool,
    /// The thread has ended, and has the state for one call only.
    pub(crate) for_one_call: bool,
    pub(crate) generation: u32,
    /// Calls until the next one that is timed.
    pub(crate) calls_until_timed: u32,
    /// Writes events to the chunk.
    pub encoder: Encoder,
    /// The stacks that are known.
    pub cache: StackCache,
    /// The frames of the last walk.
    pub frames: WalkedFrames,
    /// The unwind rules that are known.
    pub rules: RuleCache,
    /// Memory for the evaluation of unwind tables.
    pub context: UnwindContext,
    pub(crate) nodes: NumberTable<NodeKey>,
    pub(crate) kinds: NumberTable<KindKey>,
    /// The chunk that events are written to, or null.
    pub(crate) chunk: *mut u8,
    pub(crate) stream: u32,
    /// The number of the stream's next chunk.
    pub(crate) sequence: u32,
    /// One more than the number of the thread that the stream was last announced to belong to.
    pub(crate) announced: u32,
    /// The thread's number.
    pub(crate) number: u32,
    /// What the thread has in a trial.
    pub(crate) trial_frames: FrameCache,
    pub(crate) trial_heap: ThreadHeap,
    pub(crate) trial_frees: ConsecutiveFrees,
    pub(crate) owner: AtomicU32,
    pub(crate) next: *mut ThreadState,
}

impl ThreadState {
    /// Makes space for an event of `size` bytes, or for a small one if `size` is 0. Returns false
    /// if the recording has ended.
    #[inline(always)]
    pub fn make_space(&mut self, tick: u64, size: usize) -> bool {
        self.encoder.bytes_left() >= size.max(MAX_EVENT_SIZE) || self.next_chunk(tick)
    }

    #[cold]
    fn next_chunk(&mut self, tick: u64) -> bool {
        if !self.chunk.is_null() {
            let length = CHUNK_CAPACITY - self.encoder.bytes_left();
            let chunk = core::mem::replace(&mut self.chunk, core::ptr::null_mut());
            // If a signal handler forks from here on, the child does not find the address of the
            // chunk, where something else may be mapped by then.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: the chunk was this state's, and the encoder is closed below.
            unsafe { raw_file::close_chunk(chunk, length) };
            self.encoder.close();
        }
        // The clocks of two processors may differ, but the times of a stream never decrease.
        let tick = tick.max(self.encoder.last_tick());
        // A signal handler can fork here and at any point below. In the child, the file and its
        // chunks are the parent's.
        let taken = if !generation::has_begun() {
            sys::map(CHUNK_SIZE).ok()
        } else {
            raw_file::take_chunk(self.stream, self.sequence, tick)
        };
        let Some(chunk) = taken else {
            if !self.for_one_call {
                tls::set(tls::NO_STATE);
            }
            return false;
        };
        self.sequence += 1;
        self.chunk = chunk;
        // The child of a fork after this fence finds the chunk in the state. A fork before the
        // fence is noticed here.
        compiler_fence(Ordering::SeqCst);
        if !generation::has_begun() {
            // SAFETY: it was just mapped, and holds nothing that this process needs.
            unsafe { sys::map_over(chunk, CHUNK_SIZE) };
        }
        // SAFETY: the chunk is zero after its header, belongs to this state, and stays mapped until
        // it is closed above.
        unsafe { self.encoder.open(chunk.add(CHUNK_HEADER_SIZE), CHUNK_CAPACITY, tick) };
        true
    }

    /// Unmaps a chunk that belongs to another process.
    pub(crate) fn drop_chunk(&mut self) {
        if !self.chunk.is_null() {
            let chunk = core::mem::replace(&mut self.chunk, core::ptr::null_mut());
            // As in `next_chunk`.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: only this state uses the mapping.
            unsafe { sys::unmap(chunk, CHUNK_SIZE) };
        }
        self.encoder = Encoder::closed();
    }

    /// Announces which thread the following events belong to.
    pub(crate) fn announce_thread(&mut self, tick: u64) -> bool {
        if self.announced == self.number + 1 {
            return true;
        }
        if !self.make_space(tick, 0) {
            return false;
        }
        // SAFETY: there is space.
        unsafe { self.encoder.thread(tick, self.number, sys::thread_id()) };
        self.announced = self.number + 1;
        true
    }

    /// Forgets all nodes and kinds, so that they are numbered anew.
    pub(crate) fn forget_numbers(&mut self, tick: u64) -> bool {
        self.nodes.clear();
        self.kinds.clear();
        self.cache.clear();
        self.frames.forget();
        if !self.make_space(tick, 0) {
            return false;
        }
        // SAFETY: there is space.
        unsafe { self.encoder.forget() };
        true
    }

    /// Ends the consecutive frees of a thread. Their times are added to the header's fields for frees,
    /// as a trial records no calls.
    pub(crate) fn end_consecutive_frees(&mut self) {
        /// Fewer make no tear-down.
        const FEWEST: u64 = 8;
        let frees = core::mem::replace(&mut self.trial_frees, ConsecutiveFrees::NONE);
        if frees.count >= FEWEST {
            raw_file::add_sums(MeasuredCall::Free, frees.count, frees.between);
        }
    }

    /// Makes sure that there are numbers left for the nodes and kinds of the next event.
    pub(crate) fn has_numbers(&mut self, tick: u64) -> bool {
        self.nodes.len().max(self.kinds.len()) < MAX_NUMBERS || self.forget_numbers(tick)
    }

    /// The number of a node, which is announced if it is new.
    pub(crate) fn node(&mut self, tick: u64, parent: u32, return_address: u64) -> Option<u32> {
        let key = NodeKey { return_address, parent };
        if let Some(number) = self.nodes.get(key) {
            return Some(number + FIRST_NODE);
        }
        if !self.make_space(tick, 0) {
            return None;
        }
        let Some(number) = self.nodes.add(key) else {
            raw_file::count_missed();
            return None;
        };
        // SAFETY: there is space.
        unsafe { self.encoder.node(parent, return_address) };
        Some(number + FIRST_NODE)
    }
}
