//! Waiting for a slot, in the models.
//!
//! A model's thread does not sleep, because loom can't follow the system. The system compares the
//! event with the value that the thread has read, and suspends the thread, in one step. So a
//! model's waiting thread ends where it would sleep, with that value, and stays counted as waiting.
//! If the event has changed when all threads have ended, the thread would have been woken, and
//! looks again. If not, it sleeps on, and no slot may be free.

use allotment::AllocError;
use allotment::for_loom::page::SLOTS_PER_WORD;
use allotment::for_loom::page_steps::PageSteps;
use loom::sync::atomic::{AtomicU32, Ordering};

use super::{PagesModel, Slots};

/// The process of all threads.
pub const PROCESS: u32 = 1;

/// Why a thread has no slot.
#[derive(Debug)]
pub enum NoSlot {
    /// There is none, and no page.
    Refused,
    /// The thread sleeps while the event has this value.
    Asleep(u32),
}

impl From<AllocError> for NoSlot {
    fn from(_: AllocError) -> Self {
        Self::Refused
    }
}

impl PagesModel {
    /// The same, but one thread at a time takes a new page. Another thread has the turn.
    pub fn taking_turns(mut self) -> Self {
        self.takes_turns = true;
        assert!(self.waiters.try_take_turn(PROCESS));
        self
    }

    // ---- a thread that waits ----

    /// Waits for a slot, for a thread that has found no listed page.
    pub fn wait_for_slot(&self, mark: u32) -> Result<Slots, NoSlot> {
        self.pass_wake_gate();
        loop {
            let supply = self.grow(0, 0)?;
            if let Some((page, index)) = self.take_one_of(supply) {
                let (word, mask) = (index / SLOTS_PER_WORD, 1 << (index % SLOTS_PER_WORD));
                return Ok(self.taken(Slots { page: self.number(page), word, mask, mark }));
            }
        }
    }

    /// Ends a thread where it would sleep.
    pub(super) fn end_asleep(&self, event: &AtomicU32, seen: u32) -> Result<(), NoSlot> {
        if event.load(Ordering::SeqCst) == seen { Err(NoSlot::Asleep(seen)) } else { Ok(()) }
    }

    /// Whether a thread that ended where it would sleep would have been woken since.
    pub fn is_woken(&self, seen: u32) -> bool {
        self.waiters.event().load(Ordering::SeqCst) != seen
    }

    /// What a waiting thread gets in the end, when all others have ended and there is a slot for
    /// it.
    pub fn after_waking(&self, got: Result<Slots, NoSlot>, mark: u32) -> Slots {
        match got {
            Ok(slots) => slots,
            Err(NoSlot::Refused) => panic!("a waiting thread was refused a slot"),
            Err(NoSlot::Asleep(seen)) => {
                assert!(self.is_woken(seen), "a thread sleeps beside a free slot");
                self.wait_for_slot(mark).expect("there is a slot")
            }
        }
    }

    // ---- a thread that makes something available ----

    /// A gate where threads wait for each other.
    pub(super) fn pass_wake_gate(&self) {
        if self.takes_turns {
            self.wake_gate.pass();
        }
    }

    /// Frees slots without a thread cache.
    pub fn free_and_wake(&self, slots: Slots) {
        self.free_by(slots, |page, bits, mask| self.free_uncached(page, bits, mask, false));
    }

    /// Clears a page's mark, as is done where it is claimed or has become full enough.
    pub fn clear_mark(&self, page: usize) {
        self.pass_wake_gate();
        self.update_mark(self.page(page), false);
    }

    /// Counts the caller as waiting and marks all pages. The caller waits on.
    pub fn begin_to_wait(&self) {
        self.pass_wake_gate();
        let sleep = |_: &AtomicU32, seen| Err(NoSlot::Asleep(seen));
        let got: Result<(), _> = self.waiters.wait(|| self.mark_all_pages(), || None, sleep);
        assert!(got.is_err(), "it sleeps");
    }
}
