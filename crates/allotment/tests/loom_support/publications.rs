//! A publication for models: values whose accesses loom checks, and a second copy of the protocol,
//! with one mistake.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize as Counter, Ordering::Relaxed as Counting};

use std::sync::Mutex;

use allotment::for_loom::fences::{heavy, light};
use allotment::for_loom::publication::{self, FREE_SLOT, HazardSlot, Publication, unlink};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

pub const THREADS: usize = 3;
const VALUES: usize = 4;

/// What the models call. Implemented by the shipped protocol ([`Real`]) and by the copy
/// ([`Written`]).
pub trait Protocol: Send + Sync + 'static {
    type Generation: 'static;
    fn make(wrong: Wrong, first: usize) -> Self;
    fn value(generation: &Self::Generation) -> usize;
    fn announce(&self, slot: &HazardSlot) -> Option<*mut Self::Generation>;
    /// Whether a failed `announce` is not followed by a scan, which is a mistake.
    fn withdraws_quietly(&self) -> bool;
    fn withdraw(&self, slot: &HazardSlot, generation: *mut Self::Generation) -> bool;
    fn replace(&self, old: *mut Self::Generation, value: usize) -> bool;
    /// The values of the generations that this scan takes.
    fn scan(&self, slots: &[HazardSlot]) -> Vec<usize>;
}

fn announced(slots: &[HazardSlot], word: usize) -> bool {
    slots.iter().any(|slot| slot.load(Ordering::Acquire) == word)
}

/// The publication, the threads' slots, and the values.
pub struct Model<P> {
    protocol: P,
    slots: [HazardSlot; THREADS],
    alive: [UnsafeCell<bool>; VALUES],
    ended: Counter,
}

impl<P: Protocol> Model<P> {
    pub fn new(wrong: Wrong) -> Arc<Self> {
        Arc::new(Self {
            protocol: P::make(wrong, 0),
            slots: core::array::from_fn(|_| HazardSlot::new(FREE_SLOT)),
            alive: core::array::from_fn(|value| UnsafeCell::new(value == 0)),
            ended: Counter::new(0),
        })
    }

    /// Enters the current generation as this thread. The caller ends the reading.
    pub fn begin(&self, thread: usize) -> *mut P::Generation {
        let slot = &self.slots[thread];
        loop {
            if let Some(generation) = self.protocol.announce(slot) {
                self.use_value(generation);
                return generation;
            }
            if !self.protocol.withdraws_quietly() {
                self.scan();
            }
        }
    }

    fn use_value(&self, generation: *mut P::Generation) -> usize {
        // SAFETY: generations are never freed, and are not written.
        let value = P::value(unsafe { &*generation });
        // SAFETY: announced; loom fails the model if another thread ends it meanwhile.
        let alive = self.alive[value].with(|alive| unsafe { *alive });
        assert!(alive, "what is read has not ended");
        value
    }

    pub fn end(&self, thread: usize, generation: *mut P::Generation) {
        self.use_value(generation);
        if self.protocol.withdraw(&self.slots[thread], generation) {
            self.scan();
        }
    }

    pub fn read(&self, thread: usize) {
        let generation = self.begin(thread);
        self.end(thread, generation);
    }

    pub fn publish(&self, thread: usize, value: usize) {
        // SAFETY: no other thread has the value yet.
        self.alive[value].with_mut(|alive| unsafe { *alive = true });
        loop {
            let current = self.begin(thread);
            let replaced = self.protocol.replace(current, value);
            // The thread that replaced it may still read it.
            self.end(thread, current);
            if replaced {
                return;
            }
        }
    }

    fn scan(&self) {
        for value in self.protocol.scan(&self.slots) {
            // SAFETY: by the protocol no thread reads it; loom fails the model if one does.
            let alive = self.alive[value]
                .with_mut(|alive| unsafe { core::mem::replace(&mut *alive, false) });
            assert!(alive, "a generation ends once");
            self.ended.fetch_add(1, Counting);
        }
    }

    /// The caller has joined all readers.
    pub fn assert_ended(&self, count: usize) {
        assert_eq!(self.ended.load(Counting), count, "every replaced generation has ended");
    }
}

// ---- the shipped protocol ----

type Generation = publication::Generation<usize>;

/// The shipped protocol. With `REUSE`, each generation's address is used again; without it, none
/// is, so that loom finds a read that comes too late.
pub struct Real<const REUSE: bool> {
    publication: Publication<usize>,
    /// Ended generations, to be used again.
    spare: Mutex<Vec<Spare>>,
}

struct Spare(NonNull<Generation>);

// SAFETY: the list alone has it.
unsafe impl Send for Spare {}

/// Leaked: some bytes for each schedule.
fn generation(value: usize) -> NonNull<Generation> {
    NonNull::from(Box::leak(Box::new(Generation::new(0, value))))
}

impl<const REUSE: bool> Protocol for Real<REUSE> {
    type Generation = Generation;

    fn make(_: Wrong, first: usize) -> Self {
        Self { publication: Publication::new(generation(first), 0), spare: Mutex::default() }
    }

    fn value(generation: &Generation) -> usize {
        generation.value
    }

    fn announce(&self, slot: &HazardSlot) -> Option<*mut Generation> {
        self.publication.announce(slot).map(NonNull::as_ptr)
    }

    fn withdraws_quietly(&self) -> bool {
        false
    }

    fn withdraw(&self, slot: &HazardSlot, generation: *mut Generation) -> bool {
        self.publication.withdraw(slot, NonNull::new(generation).unwrap())
    }

    fn replace(&self, old: *mut Generation, value: usize) -> bool {
        let new =
            self.spare.lock().unwrap().pop().map_or_else(|| generation(value), |spare| spare.0);
        // SAFETY: only this thread has the new one; `old` is announced.
        unsafe {
            (*new.as_ptr()).value = value;
            let replaced = self.publication.replace(NonNull::new(old).unwrap(), new, || ());
            if REUSE && !replaced {
                self.spare.lock().unwrap().push(Spare(new));
            }
            replaced
        }
    }

    fn scan(&self, slots: &[HazardSlot]) -> Vec<usize> {
        let mut chain = self.publication.scan(|word| announced(slots, word));
        let mut ended = Vec::new();
        // SAFETY: the chain belongs to this scan, and its generations are never freed.
        while let Some(generation) = unsafe { unlink(&mut chain) } {
            // SAFETY: as above.
            ended.push(unsafe { generation.as_ref() }.value);
            if REUSE {
                self.spare.lock().unwrap().push(Spare(generation));
            }
        }
        ended
    }
}

// ---- the copy, with one mistake ----

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    /// A reader takes what it announced without a second check.
    NoSecondCheck,
    /// A reader has no fence between its announcement and its second check.
    AnnouncesUnfenced,
    /// A reader that withdraws its announcement does not scan for what it may have kept.
    WithdrawsQuietly,
    /// A reader that leaves does not check whether its generation is still the current one.
    LeavesQuietly,
    /// A reader that leaves checks that without a fence before.
    LeavesUnfenced,
    /// The slot is cleared without the order that puts the reads before the reclamation.
    ClearsRelaxed,
    /// A generation is published without the order that puts its construction before.
    ReplacesRelaxed,
    /// The heavy fence comes before the exchange.
    FencesFirst,
    /// Scans are not counted.
    ScansUncounted,
    /// A scan has no fence between the count and the list.
    ScansUnfenced,
    /// What a scan puts back on the list is not scanned again.
    PutsBackBlindly,
    /// The count is read only after the scan.
    CountsAfterTheScan,
    /// A scan reads the list, and does not take it.
    TakesNothing,
}

pub struct Node {
    value: usize,
    next: Cell<*mut Node>,
}

pub struct Written {
    wrong: Wrong,
    current: AtomicPtr<Node>,
    retired: AtomicPtr<Node>,
    scans: AtomicUsize,
}

fn node(value: usize) -> *mut Node {
    Box::leak(Box::new(Node { value, next: Cell::new(core::ptr::null_mut()) }))
}

impl Written {
    fn push(&self, first: *mut Node, last: *mut Node) {
        let mut head = self.retired.load(Ordering::Relaxed);
        loop {
            // SAFETY: the generations belong to the caller.
            unsafe { (*last).next.set(head) };
            match self.retired.compare_exchange(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Protocol for Written {
    type Generation = Node;

    fn make(wrong: Wrong, first: usize) -> Self {
        Self {
            wrong,
            current: AtomicPtr::new(node(first)),
            retired: AtomicPtr::new(core::ptr::null_mut()),
            scans: AtomicUsize::new(0),
        }
    }

    fn value(generation: &Node) -> usize {
        generation.value
    }

    fn announce(&self, slot: &HazardSlot) -> Option<*mut Node> {
        let seen = self.current.load(Ordering::Acquire);
        slot.store(seen.addr(), Ordering::Release);
        if self.wrong != Wrong::AnnouncesUnfenced {
            light();
        }
        if self.wrong == Wrong::NoSecondCheck {
            return Some(seen);
        }
        let current = self.current.load(Ordering::Acquire);
        if current == seen {
            return Some(current);
        }
        slot.store(FREE_SLOT, Ordering::Release);
        None
    }

    fn withdraws_quietly(&self) -> bool {
        self.wrong == Wrong::WithdrawsQuietly
    }

    fn withdraw(&self, slot: &HazardSlot, generation: *mut Node) -> bool {
        let order =
            if self.wrong == Wrong::ClearsRelaxed { Ordering::Relaxed } else { Ordering::Release };
        slot.store(FREE_SLOT, order);
        if self.wrong == Wrong::LeavesQuietly {
            return false;
        }
        if self.wrong != Wrong::LeavesUnfenced {
            light();
        }
        self.current.load(Ordering::Relaxed) != generation
    }

    fn replace(&self, old: *mut Node, value: usize) -> bool {
        if self.wrong == Wrong::FencesFirst {
            let _ = heavy();
        }
        let order =
            if self.wrong == Wrong::ReplacesRelaxed { Ordering::Relaxed } else { Ordering::AcqRel };
        if self.current.compare_exchange(old, node(value), order, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.wrong != Wrong::FencesFirst {
            let _ = heavy();
        }
        self.push(old, old);
        true
    }

    fn scan(&self, slots: &[HazardSlot]) -> Vec<usize> {
        if self.wrong != Wrong::ScansUncounted {
            self.scans.fetch_add(1, Ordering::Release);
        }
        if self.wrong != Wrong::ScansUnfenced {
            fence(Ordering::SeqCst);
        }
        let mut ended = Vec::new();
        loop {
            let mut scans = self.scans.load(Ordering::Acquire);
            let mut next_node = if self.wrong == Wrong::TakesNothing {
                self.retired.load(Ordering::Acquire)
            } else {
                self.retired.swap(core::ptr::null_mut(), Ordering::Acquire)
            };
            let (mut kept, mut last) = (core::ptr::null_mut::<Node>(), core::ptr::null_mut());
            while !next_node.is_null() {
                let generation = next_node;
                // SAFETY: never freed. With `TakesNothing` another scan may have it too.
                next_node = unsafe { (*generation).next.get() };
                if !announced(slots, generation.addr()) {
                    // SAFETY: as above.
                    ended.push(unsafe { (*generation).value });
                    continue;
                }
                if kept.is_null() {
                    last = generation;
                }
                // SAFETY: as above.
                unsafe { (*generation).next.set(kept) };
                kept = generation;
            }
            if self.wrong == Wrong::CountsAfterTheScan {
                scans = self.scans.load(Ordering::Acquire);
            }
            if kept.is_null() {
                return ended;
            }
            if self.wrong != Wrong::TakesNothing {
                self.push(kept, last);
            }
            fence(Ordering::SeqCst);
            let unchanged = self.scans.load(Ordering::Relaxed) == scans;
            if unchanged || self.wrong == Wrong::PutsBackBlindly {
                return ended;
            }
        }
    }
}
