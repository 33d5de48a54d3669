//! The protocol of [`Published`](super::published::Published): how a generation is replaced while threads read it, and how
//! it ends with its last reader.
//!
//! ```text
//! reader                                writer
//!   announce the generation in a slot     replace the current generation
//!   light fence                           heavy fence
//!   is it still the current one?          put the old one on the retired list
//!   … reads …                             look
//!   clear the slot
//!   light fence                         look (whoever has left a generation that is no longer current)
//!   is it still the current one?          take the list, end what no slot announces, put the rest back
//!     no: look                            was something left meanwhile? Again.
//! ```
//!
//! A pair of fences is there for each pair of accesses in which at least one side has to see the other's: the light and the heavy
//! one (`fences.rs`), so that readers pay nothing.
//!
//! # Invariants
//!
//! 1. The current generation lives. A generation is put on the retired list once, by the one who replaced it, after a heavy fence
//!    that he passed after he had replaced it. So whoever takes it from the list sees the slot of each thread that may read it:
//!    a thread whose announcement came later looks again, and finds that the generation is not the current one.
//! 2. What was taken from a list belongs to the taker alone, until he puts it back or gives it to his caller.
//! 3. A slot is written by one thread at a time. An announcement keeps the generation that it names from its end. It may
//!    keep one that it was not meant for: a reader finds out that the generation has been replaced only after he announced it.
//! 4. Nothing on the list stays there for want of a look: whoever clears a slot that may have kept a replaced generation counts that in
//!    `leavings`, then looks at the list; whoever puts something back on the list looks at `leavings` after that, and looks
//!    again if it has changed since before he took the list. One of the two sees the other's write.
//! 5. A word in a slot is the generation's address with the publication's mark: an announcement that is about to be withdrawn does not
//!    keep another publication's generation, which was given the same address meanwhile. Nothing but promptness rests on that.
//!
//! The announcement with a second look is Michael's (*Hazard Pointers*, 2004).

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::fences::{heavy, light};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// Where a thread announces what it reads.
pub type Slot = AtomicUsize;

/// A slot that announces nothing.
pub const FREE: usize = 0;

/// One value, and what belongs to it.
#[derive(Debug)]
pub struct Generation<T> {
    next: Cell<*mut Self>,
    /// Counted up with each one that is published. Written before that, and not after.
    pub number: u64,
    /// What is read.
    pub value: T,
}

impl<T> Generation<T> {
    /// A generation that is on no list.
    pub fn new(number: u64, value: T) -> Self {
        Self { next: Cell::new(ptr::null_mut()), number, value }
    }
}

/// The current generation, and those that were replaced.
#[derive(Debug)]
pub struct Publication<T> {
    current: AtomicPtr<Generation<T>>,
    mark: usize,
    /// Replaced generations, after a heavy fence.
    retired: AtomicPtr<Generation<T>>,
    /// Those for which the heavy fence was refused: they wait for the next one.
    unfenced: AtomicPtr<Generation<T>>,
    /// How many slots were cleared that may have kept a replaced generation.
    leavings: AtomicUsize,
}

impl<T> Publication<T> {
    /// One with this generation, which is its own from now on.
    pub fn new(first: NonNull<Generation<T>>, mark: usize) -> Self {
        Self {
            current: AtomicPtr::new(first.as_ptr()),
            mark,
            retired: AtomicPtr::new(ptr::null_mut()),
            unfenced: AtomicPtr::new(ptr::null_mut()),
            leavings: AtomicUsize::new(0),
        }
    }

    /// How a slot announces a generation.
    #[inline(always)]
    fn word(&self, generation: *mut Generation<T>) -> usize {
        // An address is never zero, and a word with one in it neither.
        generation.addr() | self.mark
    }

    /// Announces the current generation in a slot of the calling thread's, which is free. It stays until the thread
    /// [leaves](Self::leave) it. Nothing if it was replaced meanwhile: the slot is free again then, and the caller has to
    /// [`look`](Self::look) before it tries again.
    #[inline(always)]
    pub fn enter(&self, slot: &Slot) -> Option<NonNull<Generation<T>>> {
        let seen = self.current.load(Ordering::Relaxed);
        // Release pairs with the Acquire of who scans: what the thread read before by this slot comes before the end of that.
        slot.store(self.word(seen), Ordering::Release);
        light();
        // Acquire pairs with the Release in `replace`: the value was made before.
        let current = self.current.load(Ordering::Acquire);
        if current != seen {
            slot.store(FREE, Ordering::Release);
            return None;
        }
        // SAFETY: there is a current generation at all times.
        Some(unsafe { NonNull::new_unchecked(current) })
    }

    /// Clears the slot that announces a generation. Whether that one has been replaced, so that the caller has to
    /// [`look`](Self::look).
    #[inline(always)]
    pub fn leave(&self, slot: &Slot, generation: NonNull<Generation<T>>) -> bool {
        // Release pairs with the Acquire of who scans: all reads come before the generation's end.
        slot.store(FREE, Ordering::Release);
        light();
        self.current.load(Ordering::Relaxed) != generation.as_ptr()
    }

    /// Puts `new` in the place of `old`, unless that is no longer the current one. The caller has to leave `old` and to
    /// [`look`](Self::look) after that. `replaced` is called between the exchange and the moment from which on others may end `old`.
    ///
    /// # Safety
    /// The caller has announced `old`. `new` is the caller's, and belongs to the publication if this succeeds.
    pub unsafe fn replace(
        &self,
        old: NonNull<Generation<T>>,
        new: NonNull<Generation<T>>,
        replaced: impl FnOnce(),
    ) -> bool {
        // Release pairs with the Acquire in `enter`. What is announced is not made anew: the same address is the same generation.
        let exchanged = self.current.compare_exchange(
            old.as_ptr(),
            new.as_ptr(),
            Ordering::AcqRel,
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
        // SAFETY: `old` was replaced by the caller and is on no list; what was taken is ours (2).
        unsafe {
            (*old).next.set(before);
            let list = if heavy() { &self.retired } else { &self.unfenced };
            push(list, old, last_of(old));
        }
    }

    /// Takes the replaced generations that nobody reads: the first of a chain, which is the caller's now, or null.
    /// `announced` says whether a word is in any slot, and reads slots with Acquire.
    pub fn look(&self, announced: impl Fn(usize) -> bool) -> *mut Generation<T> {
        // Release pairs with the Acquire below: who knows of the leaving sees the slot cleared.
        self.leavings.fetch_add(1, Ordering::Release);
        // Pairs with the one below: what is on the list, or what was left, is seen by one of both.
        fence(Ordering::SeqCst);
        let mut ended = ptr::null_mut();
        loop {
            let leavings = self.leavings.load(Ordering::Acquire);
            let mut hand = take(&self.retired);
            if hand.is_null() {
                return ended;
            }
            let (mut kept, mut last) = (ptr::null_mut::<Generation<T>>(), ptr::null_mut());
            while !hand.is_null() {
                let generation = hand;
                let to = if announced(self.word(generation)) {
                    if kept.is_null() {
                        last = generation;
                    }
                    &mut kept
                } else {
                    &mut ended
                };
                // SAFETY: ours (2).
                hand = unsafe { (*generation).next.replace(*to) };
                *to = generation;
            }
            if kept.is_null() {
                return ended;
            }
            // SAFETY: ours, linked from `kept` to `last`.
            unsafe { push(&self.retired, kept, last) };
            fence(Ordering::SeqCst);
            if self.leavings.load(Ordering::Relaxed) == leavings {
                return ended;
            }
        }
    }

    /// All generations, as a chain.
    ///
    /// # Safety
    /// Nobody reads any of them, and the publication is not used again.
    pub unsafe fn take_all(&mut self) -> *mut Generation<T> {
        let current = self.current.load(Ordering::Acquire);
        for list in [&self.retired, &self.unfenced] {
            let chain = take(list);
            if !chain.is_null() {
                // SAFETY: ours (2); the current generation is on no list.
                unsafe {
                    (*last_of(chain)).next.set((*current).next.get());
                    (*current).next.set(chain);
                }
            }
        }
        current
    }
}

/// Takes one off a chain that is the caller's.
///
/// # Safety
/// It is, and `first` is null or lives.
pub unsafe fn unlink<T>(first: &mut *mut Generation<T>) -> Option<NonNull<Generation<T>>> {
    let generation = NonNull::new(*first)?;
    // SAFETY: passed on to the caller.
    *first = unsafe { generation.as_ref() }.next.get();
    Some(generation)
}

/// Takes a whole list. Acquire pairs with the Release in `push`: the links, and what was done with the generations.
fn take<T>(list: &AtomicPtr<Generation<T>>) -> *mut Generation<T> {
    list.swap(ptr::null_mut(), Ordering::Acquire)
}

/// # Safety
/// The chain is the caller's, and not null.
unsafe fn last_of<T>(first: *mut Generation<T>) -> *mut Generation<T> {
    let mut last = first;
    loop {
        // SAFETY: passed on to the caller.
        let next = unsafe { (*last).next.get() };
        if next.is_null() {
            return last;
        }
        last = next;
    }
}

/// # Safety
/// The generations are the caller's, linked from `first` to `last`; they belong to the list from now on.
unsafe fn push<T>(
    list: &AtomicPtr<Generation<T>>,
    first: *mut Generation<T>,
    last: *mut Generation<T>,
) {
    let mut head = list.load(Ordering::Relaxed);
    loop {
        // SAFETY: passed on to the caller.
        unsafe { (*last).next.set(head) };
        match list.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}
