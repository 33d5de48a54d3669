//! The protocol of [`Published`](super::published::Published): how a generation is replaced while
//! threads read it, and how it is reclaimed after its last reader.
//!
//! ```text
//! reader                                  writer
//!   announce the generation in a slot       replace the current generation
//!   light fence                             heavy fence
//!   is it still the current one?            put the old one on the retired list
//!     no: clear the slot, scan, retry       withdraw the announcement, scan
//!   … reads …
//!   clear the slot
//!   light fence
//!   is it still the current one?
//!     no: scan
//!
//! scan, by a thread that cleared a slot that may have kept a replaced generation
//!   increment `scans`
//!   take the retired list
//!   reclaim what no slot announces, put the rest back
//!   did `scans` change in the meantime? Scan again.
//! ```
//!
//! Where at least one of two threads must see the other's access, each of them has a fence between
//! its two accesses. Between readers and writers these are the light fence and the heavy fence
//! (`memory/fences.rs`), so that readers pay nothing.
//!
//! # Invariants
//!
//! 1. The current generation is live. The thread that replaced a generation puts it on the retired
//!    list, after a heavy fence that follows the replacement. If that fence is refused, the
//!    generation waits on the `unfenced` list, until a thread that replaces a later one puts it on
//!    the retired list after a heavy fence of its own. So a thread that takes a generation from the
//!    retired list sees the slot of each thread that may read it. A thread that announced it later
//!    checks again, and finds that the generation is no longer the current one.
//! 2. Generations taken from a list belong to the taking thread alone, until it puts them back or
//!    returns them to its caller.
//! 3. One thread at a time writes a slot. While a slot announces a generation, the generation is
//!    not reclaimed. An announcement may also delay the reclamation of a generation that was
//!    already replaced: a reader finds out about the replacement only after it announced the
//!    generation.
//! 4. No generation stays on the list because a scan is missing. A thread that clears a slot that
//!    may have kept a replaced generation increments `scans`, and then takes the list. A thread
//!    that puts generations back on the list reads `scans` after that, and scans again if it
//!    changed since before the list was taken. Both change the list, so one of the two comes first:
//!    the put is seen by the thread that takes, or the increment by the thread that puts.
//! 5. A word in a slot is the generation's address combined with the publication's tag. So an
//!    announcement that is about to be withdrawn does not keep another publication's generation
//!    that was allocated at the same address in the meantime. The tag affects only how soon a
//!    generation is reclaimed; safety does not depend on it.
//!
//! The announcement with a second check is Michael's (*Hazard Pointers*, 2004).

use core::cell::Cell;
use core::ptr::{self, NonNull};

use crate::memory::fences::{heavy, light};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, fence, mutant, order};

/// A word in which a thread announces the generation that it reads.
pub type HazardSlot = AtomicUsize;

/// A slot that announces nothing.
pub const FREE_SLOT: usize = 0;

/// One value, with its number and its link.
#[derive(Debug)]
pub struct Generation<T> {
    next: Cell<*mut Self>,
    /// One more than the number of the generation published before. Written before the generation
    /// is published, and not after.
    pub number: u64,
    /// The value that readers read.
    pub value: T,
}

impl<T> Generation<T> {
    /// A generation that is on no list.
    pub fn new(number: u64, value: T) -> Self {
        Self { next: Cell::new(ptr::null_mut()), number, value }
    }
}

/// The current generation, and the replaced generations that are not reclaimed yet.
#[derive(Debug)]
pub struct Publication<T> {
    current: AtomicPtr<Generation<T>>,
    tag: usize,
    /// The retired list: replaced generations, put here after a heavy fence.
    retired: AtomicPtr<Generation<T>>,
    /// Replaced generations whose heavy fence was refused. They wait for the next heavy fence.
    unfenced: AtomicPtr<Generation<T>>,
    /// Counts the scans, each of which follows a cleared slot that may have kept a replaced
    /// generation.
    scans: AtomicUsize,
}

impl<T> Publication<T> {
    /// A publication whose current generation is `first`, which belongs to it from here on.
    pub fn new(first: NonNull<Generation<T>>, tag: usize) -> Self {
        Self {
            current: AtomicPtr::new(first.as_ptr()),
            tag,
            retired: AtomicPtr::new(ptr::null_mut()),
            unfenced: AtomicPtr::new(ptr::null_mut()),
            scans: AtomicUsize::new(0),
        }
    }

    /// The word by which a slot announces a generation.
    #[inline(always)]
    fn announcement(&self, generation: *mut Generation<T>) -> usize {
        // Never `FREE_SLOT`, because the address is not zero.
        generation.addr() | self.tag
    }

    /// Announces the current generation in a free slot of the calling thread. The generation is
    /// kept until the thread [withdraws](Self::withdraw) the announcement.
    ///
    /// Returns `None` if the generation was replaced in the meantime. The slot is then free again,
    /// and the caller must [scan](Self::scan) before it tries again.
    #[inline(always)]
    pub fn announce(&self, slot: &HazardSlot) -> Option<NonNull<Generation<T>>> {
        let seen = self.current.load(Ordering::Relaxed);
        // Release pairs with the Acquire of the scanning thread: what this thread read before
        // through this slot happens before the reclamation of what it read.
        slot.store(self.announcement(seen), Ordering::Release);
        if !mutant("announce: no fence") {
            light();
        }
        // Acquire pairs with the Release in `replace`: the generation was made before.
        let current = self.current.load(Ordering::Acquire);
        if current != seen && !mutant("announce: no second check") {
            slot.store(FREE_SLOT, Ordering::Release);
            return None;
        }
        // `current`, not `seen`: `seen` may point to an earlier generation that was reclaimed, whose
        // address the current one reuses. Its provenance does not extend to the current one.
        let announced = if mutant("announce: no second check") { seen } else { current };
        // SAFETY: there is a current generation at all times.
        Some(unsafe { NonNull::new_unchecked(announced) })
    }

    /// Clears the slot that announces a generation. Returns whether the generation was replaced; if
    /// so, the caller must [scan](Self::scan).
    #[inline(always)]
    pub fn withdraw(&self, slot: &HazardSlot, generation: NonNull<Generation<T>>) -> bool {
        // Release pairs with the Acquire of the scanning thread: all reads happen before the
        // generation is reclaimed.
        slot.store(FREE_SLOT, order(Ordering::Release, "withdraw: relaxed"));
        if !mutant("withdraw: no fence") {
            light();
        }
        let current = self.current.load(Ordering::Relaxed);
        current != generation.as_ptr() && !mutant("withdraw: no check")
    }

    /// Puts `new` in the place of `old`, and returns `true`; returns `false` if `old` is no longer
    /// the current generation. In both cases the caller must then withdraw its announcement of
    /// `old`, and [scan](Self::scan). `replaced` is called after the exchange, and before other
    /// threads may reclaim `old`.
    ///
    /// # Safety
    /// The caller has announced `old`. `new` belongs to the caller, and to the publication if this
    /// succeeds.
    pub unsafe fn replace(
        &self,
        old: NonNull<Generation<T>>,
        new: NonNull<Generation<T>>,
        replaced: impl FnOnce(),
    ) -> bool {
        if mutant("replace: fence before the exchange") {
            let _ = heavy();
        }
        // Release pairs with the Acquire in `announce`. `old` is announced, so it is not reclaimed
        // and its address is not reused: an equal address is the same generation.
        let exchanged = self.current.compare_exchange(
            old.as_ptr(),
            new.as_ptr(),
            order(Ordering::AcqRel, "replace: relaxed"),
            Ordering::Relaxed,
        );
        if exchanged.is_err() {
            return false;
        }
        replaced();
        self.retire(old.as_ptr());
        true
    }

    fn retire(&self, old: *mut Generation<T>) {
        let before = take(&self.unfenced);
        // SAFETY: the caller replaced `old`, which is on no list yet. The generations taken from
        // `unfenced` belong to this call (invariant 2).
        unsafe {
            (*old).next.set(before);
            let fenced = mutant("replace: fence before the exchange") || heavy();
            let list = if fenced { &self.retired } else { &self.unfenced };
            push(list, old, last_of(old));
        }
    }

    /// Scans the retired list: takes the replaced generations that no slot announces. Returns the
    /// first of a chain that belongs to the caller, or null if there are none. `announced` returns
    /// whether a word is in any slot, and reads the slots with Acquire.
    pub fn scan(&self, announced: impl Fn(usize) -> bool) -> *mut Generation<T> {
        // Release pairs with the Acquire below: a thread that sees this scan counted also sees
        // the slot cleared.
        if !mutant("scan: not counted") {
            self.scans.fetch_add(1, Ordering::Release);
        }
        let mut unread = ptr::null_mut();
        loop {
            let mut scans = self.scans.load(Ordering::Acquire);
            let mut next = take(&self.retired);
            if next.is_null() {
                return unread;
            }
            // Follows the writer's heavy fence, which is before its `push`. C++20 lets that fence
            // order this thread's reads of the slots too, but C++11, which Miri follows, does not.
            fence(Ordering::SeqCst);
            let (mut kept, mut last) = (ptr::null_mut::<Generation<T>>(), ptr::null_mut());
            while !next.is_null() {
                let generation = next;
                let to = if announced(self.announcement(generation)) {
                    if kept.is_null() {
                        last = generation;
                    }
                    &mut kept
                } else {
                    &mut unread
                };
                // SAFETY: taken from the list, so it belongs to this call (invariant 2).
                next = unsafe { (*generation).next.replace(*to) };
                *to = generation;
            }
            if kept.is_null() {
                return unread;
            }
            if mutant("scan: count read late") {
                scans = self.scans.load(Ordering::Acquire);
            }
            if !mutant("scan: list not taken") {
                // SAFETY: they belong to this call, and are linked from `kept` to `last`.
                unsafe { push(&self.retired, kept, last) };
            }
            // Another thread increments `scans`, and then takes the list. Either it takes what this
            // thread just put there, or `push` acquires what that thread's `take` released, and
            // this load sees the increment.
            if self.scans.load(Ordering::Relaxed) == scans || mutant("scan: no second scan") {
                return unread;
            }
        }
    }

    /// Takes all generations, as a chain.
    ///
    /// # Safety
    /// No thread reads any of them, and the publication is not used again.
    pub unsafe fn take_all(&mut self) -> *mut Generation<T> {
        let current = self.current.load(Ordering::Acquire);
        for list in [&self.retired, &self.unfenced] {
            let chain = take(list);
            if !chain.is_null() {
                // SAFETY: the chain belongs to this call (invariant 2). The current generation is
                // on no list, and belongs to it too: the publication is not used again.
                unsafe {
                    (*last_of(chain)).next.set((*current).next.get());
                    (*current).next.set(chain);
                }
            }
        }
        current
    }
}

/// Takes the first generation off a chain.
///
/// # Safety
/// The chain belongs to the caller, and `first` is null or a live generation.
pub unsafe fn unlink<T>(first: &mut *mut Generation<T>) -> Option<NonNull<Generation<T>>> {
    let generation = NonNull::new(*first)?;
    // SAFETY: guaranteed by the caller.
    *first = unsafe { generation.as_ref() }.next.get();
    Some(generation)
}

/// Takes a whole list. Acquire pairs with the Release in `push`: this thread sees the links, and
/// everything that was done with the generations before. Release pairs with the Acquire in `push`.
fn take<T>(list: &AtomicPtr<Generation<T>>) -> *mut Generation<T> {
    if mutant("scan: list not taken") {
        return list.load(Ordering::Acquire);
    }
    let taken = if mutant("take: no release") { Ordering::Acquire } else { Ordering::AcqRel };
    list.swap(ptr::null_mut(), taken)
}

/// # Safety
/// The chain belongs to the caller, and is not null.
unsafe fn last_of<T>(first: *mut Generation<T>) -> *mut Generation<T> {
    let mut last = first;
    loop {
        // SAFETY: guaranteed by the caller.
        let next = unsafe { (*last).next.get() };
        if next.is_null() {
            return last;
        }
        last = next;
    }
}

/// # Safety
/// The generations belong to the caller, and are linked from `first` to `last`. They belong to the
/// list from here on.
unsafe fn push<T>(
    list: &AtomicPtr<Generation<T>>,
    first: *mut Generation<T>,
    last: *mut Generation<T>,
) {
    let mut head = list.load(Ordering::Relaxed);
    loop {
        // SAFETY: guaranteed by the caller.
        unsafe { (*last).next.set(head) };
        // Release pairs with the Acquire in `take`, and Acquire with its Release: what a thread did
        // before it took the list, this thread sees. Only these two functions write the list, so
        // every write continues the release sequences of the ones before.
        let pushed = if mutant("push: no acquire") { Ordering::Release } else { Ordering::AcqRel };
        match list.compare_exchange_weak(head, first, pushed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}
