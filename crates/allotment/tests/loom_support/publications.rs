//! A publication for models: values that loom watches, and the protocol once more, wrong in one way.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize as Counter, Ordering::Relaxed as Counting};

use std::sync::Mutex;

use allotment::for_loom::fences::{heavy, light};
use allotment::for_loom::publication::{self, FREE, Publication, Slot, unlink};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

pub const THREADS: usize = 3;
const VALUES: usize = 4;

/// What the models need of the protocol: the real one has it, and [`Written`].
pub trait Protocol: Send + Sync + 'static {
    type Generation: 'static;
    fn make(wrong: Wrong, first: usize) -> Self;
    fn value(generation: &Self::Generation) -> usize;
    fn enter(&self, slot: &Slot) -> Option<*mut Self::Generation>;
    /// Whether nothing has to be looked at after a failed `enter`, wrongly.
    fn withdraws_quietly(&self) -> bool;
    fn leave(&self, slot: &Slot, generation: *mut Self::Generation) -> bool;
    fn replace(&self, old: *mut Self::Generation, value: usize) -> bool;
    /// The values that have ended.
    fn look(&self, slots: &[Slot]) -> Vec<usize>;
}

fn announced(slots: &[Slot], word: usize) -> bool {
    slots.iter().any(|slot| slot.load(Ordering::Acquire) == word)
}

/// The publication, the threads' slots, and the values.
pub struct Model<P> {
    protocol: P,
    slots: [Slot; THREADS],
    alive: [UnsafeCell<bool>; VALUES],
    ended: Counter,
}

impl<P: Protocol> Model<P> {
    pub fn new(wrong: Wrong) -> Arc<Self> {
        Arc::new(Self {
            protocol: P::make(wrong, 0),
            slots: core::array::from_fn(|_| Slot::new(FREE)),
            alive: core::array::from_fn(|value| UnsafeCell::new(value == 0)),
            ended: Counter::new(0),
        })
    }

    /// Reads as this thread does, and gives the value, whose reading has to be ended.
    pub fn begin(&self, thread: usize) -> *mut P::Generation {
        let slot = &self.slots[thread];
        loop {
            if let Some(generation) = self.protocol.enter(slot) {
                self.use_value(generation);
                return generation;
            }
            if !self.protocol.withdraws_quietly() {
                self.look();
            }
        }
    }

    fn use_value(&self, generation: *mut P::Generation) -> usize {
        // SAFETY: generations stay until the model ends, and are not written.
        let value = P::value(unsafe { &*generation });
        // SAFETY: announced; loom fails the model if another thread ends it meanwhile.
        let alive = self.alive[value].with(|alive| unsafe { *alive });
        assert!(alive, "what is read has not ended");
        value
    }

    pub fn end(&self, thread: usize, generation: *mut P::Generation) {
        self.use_value(generation);
        if self.protocol.leave(&self.slots[thread], generation) {
            self.look();
        }
    }

    pub fn read(&self, thread: usize) {
        let generation = self.begin(thread);
        self.end(thread, generation);
    }

    pub fn publish(&self, thread: usize, value: usize) {
        // SAFETY: nobody else has the value yet.
        self.alive[value].with_mut(|alive| unsafe { *alive = true });
        loop {
            let current = self.begin(thread);
            let replaced = self.protocol.replace(current, value);
            // Whoever replaced it may still read it.
            self.end(thread, current);
            if replaced {
                return;
            }
        }
    }

    fn look(&self) {
        for value in self.protocol.look(&self.slots) {
            // SAFETY: the protocol says that nobody reads it; loom fails the model if somebody does.
            let alive = self.alive[value]
                .with_mut(|alive| unsafe { core::mem::replace(&mut *alive, false) });
            assert!(alive, "a generation ends once");
            self.ended.fetch_add(1, Counting);
        }
    }

    /// Once all readers are gone.
    pub fn assert_ended(&self, count: usize) {
        assert_eq!(self.ended.load(Counting), count, "every replaced generation has ended");
    }
}

// ---- what ships ----

type Generation = publication::Generation<usize>;

/// What ships. Either no generation's address comes again, so that what is read too late is found; or each one's does.
pub struct Real<const AGAIN: bool> {
    publication: Publication<usize>,
    /// Ended, for the next ones.
    spare: Mutex<Vec<Spare>>,
}

struct Spare(NonNull<Generation>);

// SAFETY: nobody else has it.
unsafe impl Send for Spare {}

/// Some bytes for each schedule, never freed.
fn generation(value: usize) -> NonNull<Generation> {
    NonNull::from(Box::leak(Box::new(Generation::new(0, value))))
}

impl<const AGAIN: bool> Protocol for Real<AGAIN> {
    type Generation = Generation;

    fn make(_: Wrong, first: usize) -> Self {
        Self { publication: Publication::new(generation(first), 0), spare: Mutex::default() }
    }

    fn value(generation: &Generation) -> usize {
        generation.value
    }

    fn enter(&self, slot: &Slot) -> Option<*mut Generation> {
        self.publication.enter(slot).map(NonNull::as_ptr)
    }

    fn withdraws_quietly(&self) -> bool {
        false
    }

    fn leave(&self, slot: &Slot, generation: *mut Generation) -> bool {
        self.publication.leave(slot, NonNull::new(generation).unwrap())
    }

    fn replace(&self, old: *mut Generation, value: usize) -> bool {
        let new =
            self.spare.lock().unwrap().pop().map_or_else(|| generation(value), |spare| spare.0);
        // SAFETY: the new one is ours, `old` is announced.
        unsafe {
            (*new.as_ptr()).value = value;
            let replaced = self.publication.replace(NonNull::new(old).unwrap(), new, || ());
            if AGAIN && !replaced {
                self.spare.lock().unwrap().push(Spare(new));
            }
            replaced
        }
    }

    fn look(&self, slots: &[Slot]) -> Vec<usize> {
        let mut chain = self.publication.look(|word| announced(slots, word));
        let mut ended = Vec::new();
        // SAFETY: the chain is ours, and stays.
        while let Some(generation) = unsafe { unlink(&mut chain) } {
            // SAFETY: as above.
            ended.push(unsafe { generation.as_ref() }.value);
            if AGAIN {
                self.spare.lock().unwrap().push(Spare(generation));
            }
        }
        ended
    }
}

// ---- the same once more, with one thing wrong ----

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    /// A reader takes what it announced without a second look.
    NoSecondLook,
    /// A reader has no fence between its announcement and its second look.
    AnnouncesUnfenced,
    /// A reader that withdraws its announcement does not look for what it may have kept.
    WithdrawsQuietly,
    /// A reader that ends does not look whether its generation is still the current one.
    LeavesQuietly,
    /// The same, without a fence before that.
    LeavesUnfenced,
    /// The slot is cleared without the order that puts the reads before the end.
    ClearsRelaxed,
    /// A generation is published without the order that puts its making before.
    ReplacesRelaxed,
    /// The heavy fence comes before the exchange.
    FencesFirst,
    /// Leavings are not counted.
    LooksUncounted,
    /// Whoever looks has no fence between what it left and the list.
    LooksUnfenced,
    /// What is put back on the list is not looked at again.
    PutsBackBlindly,
    /// Leavings are counted from after the scan on.
    CountsAfterTheScan,
    /// The list is read by whoever looks, and taken by nobody.
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
    leavings: AtomicUsize,
}

fn node(value: usize) -> *mut Node {
    Box::leak(Box::new(Node { value, next: Cell::new(core::ptr::null_mut()) }))
}

impl Written {
    fn push(&self, first: *mut Node, last: *mut Node) {
        let mut head = self.retired.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's.
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
            leavings: AtomicUsize::new(0),
        }
    }

    fn value(generation: &Node) -> usize {
        generation.value
    }

    fn enter(&self, slot: &Slot) -> Option<*mut Node> {
        let seen = self.current.load(Ordering::Acquire);
        slot.store(seen.addr(), Ordering::Release);
        if self.wrong != Wrong::AnnouncesUnfenced {
            light();
        }
        if self.wrong == Wrong::NoSecondLook {
            return Some(seen);
        }
        let current = self.current.load(Ordering::Acquire);
        if current == seen {
            return Some(current);
        }
        slot.store(FREE, Ordering::Release);
        None
    }

    fn withdraws_quietly(&self) -> bool {
        self.wrong == Wrong::WithdrawsQuietly
    }

    fn leave(&self, slot: &Slot, generation: *mut Node) -> bool {
        let order =
            if self.wrong == Wrong::ClearsRelaxed { Ordering::Relaxed } else { Ordering::Release };
        slot.store(FREE, order);
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

    fn look(&self, slots: &[Slot]) -> Vec<usize> {
        if self.wrong != Wrong::LooksUncounted {
            self.leavings.fetch_add(1, Ordering::Release);
        }
        if self.wrong != Wrong::LooksUnfenced {
            fence(Ordering::SeqCst);
        }
        let mut ended = Vec::new();
        loop {
            let mut leavings = self.leavings.load(Ordering::Acquire);
            let mut hand = if self.wrong == Wrong::TakesNothing {
                self.retired.load(Ordering::Acquire)
            } else {
                self.retired.swap(core::ptr::null_mut(), Ordering::Acquire)
            };
            let (mut kept, mut last) = (core::ptr::null_mut::<Node>(), core::ptr::null_mut());
            while !hand.is_null() {
                let generation = hand;
                // SAFETY: ours, or nobody's who should have it; it stays.
                hand = unsafe { (*generation).next.get() };
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
                leavings = self.leavings.load(Ordering::Acquire);
            }
            if kept.is_null() {
                return ended;
            }
            if self.wrong != Wrong::TakesNothing {
                self.push(kept, last);
            }
            fence(Ordering::SeqCst);
            let unchanged = self.leavings.load(Ordering::Relaxed) == leavings;
            if unchanged || self.wrong == Wrong::PutsBackBlindly {
                return ended;
            }
        }
    }
}
