//! The checked slab: every call takes the slow path, and each object is recorded.
//!
//! | mode | when | memory of an object |
//! |---|---|---|
//! | tool | AddressSanitizer or Valgrind runs | a slot with a red zone of at least 16 bytes |
//! | hardened | the builder's option | the same; the red zone holds a pattern |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | its own malloc block |
//!
//! Hardened mode finds double and stale frees, foreign pointers, overruns (it checks the pattern)
//! and writes after free. In the other modes, malloc or the tool finds what it can.
//!
//! A freed slot stays in quarantine until [`RESTING`] more slots are freed.
//!
//! # Invariants
//!
//! 1. `objects` has an entry for each slot that was handed out and has not gone back to its page.
//!    The table lies outside the slots' memory, so that a stray write can't change the evidence.
//! 2. Hardened: every byte of a slot without an object is [`FREE`], and every byte behind an object
//!    to the end of its slot is [`ZONE`]. Any other value is a misuse by the program.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::page_table::SlabPage;
use super::registry;
use super::shared::{SlabChecks, SlabShared};
use super::tags::TAG_MARK;
use crate::checked::misuse::Misuse;
use crate::checked::{FREE, GUARD, Mode, RESTING, ZONE, holds};
use crate::error::{AllocError, ErrorKind};
use crate::memory::{segments, tools};
use crate::statistics::Statistics;

#[derive(Debug, Default)]
struct State {
    /// The slots handed out, and whether they were freed after that.
    objects: HashMap<usize, bool>,
    resting: VecDeque<NonNull<u8>>,
}

// SAFETY: the slots in quarantine belong to the slab, not to the threads that freed them.
unsafe impl Send for State {}

/// What a checked slab records besides its pages.
#[derive(Debug)]
pub(super) struct Watch {
    mode: Mode,
    state: Mutex<State>,
}

/// In pass-through mode, the slab of each malloc block. The address of a block does not lead to its
/// slab.
static BLOCKS: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

/// The number of the slab that handed out a malloc block, if one did.
pub(super) fn slab_of_malloc_block(block: NonNull<u8>) -> Option<u32> {
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks.get(&block.addr().get()).copied()
}

impl Watch {
    /// Makes the records that a slab needs in its mode; `None` if it is not checked.
    pub(super) fn wanted(hardened: bool) -> Option<Self> {
        let mode = Mode::wanted(hardened)?;
        if mode == Mode::Hardened {
            // A fast path that is given a foreign pointer reads the map, and then comes here.
            segments::make_all_askable();
        }
        Some(Self { mode, state: Mutex::default() })
    }

    /// The layout of a slot that has room for the red zone.
    pub(super) fn slot_layout(&self, layout: Layout) -> Result<Layout, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let size = layout.size().checked_add(GUARD).ok_or(overflow)?;
        Layout::from_size_align(size, layout.align().max(GUARD)).map_err(|_| overflow)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_untouched(&self, core: &SlabShared, slot: NonNull<u8>) {
        if self.mode == Mode::Hardened {
            let size = core.geometry.slot;
            tools::allow_defined(slot, size);
            // SAFETY: a free slot of ours. Every byte of it was written when its page was taken.
            if !unsafe { holds(slot, size, FREE) } {
                core.abort_on_misuse(Misuse::WriteAfterFree, slot.addr().get());
            }
        }
    }

    /// Takes a slot or a block that is not recorded yet.
    fn take(&self, core: &SlabShared) -> Result<NonNull<u8>, AllocError> {
        match self.mode {
            Mode::Passthrough => self.alloc_by_malloc(core),
            Mode::Tool | Mode::Hardened => core.alloc_uncached(0),
        }
    }

    /// Whether an address that is no object's is a free slot of this slab.
    fn was_freed_before(&self, core: &SlabShared, address: usize) -> bool {
        let Some((page, tag)) = segments::page_of(address) else { return false };
        if tag & !TAG_MARK != core.tag() {
            return false;
        }
        // SAFETY: the tag says that it is a descriptor of this slab. Descriptors stay as long as
        // the core. It may describe another page by this time; then only the answer is wrong, and
        // the process ends either way.
        let page = unsafe { page.cast::<SlabPage>().as_ref() };
        let start = page.info.start.load(core::sync::atomic::Ordering::Relaxed).addr();
        let offset = address.wrapping_sub(start);
        offset < page.slots() * core.geometry.slot && offset % core.geometry.slot == 0
    }

    /// Returns a slot from quarantine to its page.
    fn give_back(&self, core: &SlabShared, slot: NonNull<u8>) {
        self.check_untouched(core, slot);
        tools::forbid(slot, core.geometry.slot);
        // SAFETY: only the quarantine held the slot, and the caller has a reference to the core.
        unsafe { core.free_one(slot) };
    }

    fn alloc_by_malloc(&self, core: &SlabShared) -> Result<NonNull<u8>, AllocError> {
        let layout = Self::block_layout(core);
        core.charge(layout.size())?;
        // SAFETY: the size is not zero.
        let Some(block) = NonNull::new(unsafe { System.alloc(layout) }) else {
            core.credit(layout.size());
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        };
        // The fast paths look up every address that they are given in the map.
        if let Err(error) = segments::make_askable(block.addr().get()) {
            // SAFETY: allocated above with this layout, and not used.
            unsafe { System.dealloc(block.as_ptr(), layout) };
            core.credit(layout.size());
            return Err(error);
        }
        let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.insert(block.addr().get(), core.number);
        registry::add_reference(core.number);
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It came from `alloc_by_malloc`, and is freed once. The caller has a reference to the core.
    unsafe fn free_by_malloc(&self, core: &SlabShared, block: NonNull<u8>) {
        let layout = Self::block_layout(core);
        BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).remove(&block.addr().get());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(block.as_ptr(), layout) };
        core.credit(layout.size());
        SlabShared::release_reference(core.number);
    }

    fn block_layout(core: &SlabShared) -> Layout {
        let size = core.layout.size().max(1);
        Layout::from_size_align(size, core.layout.align()).unwrap_or(core.layout)
    }
}

impl SlabChecks for Watch {
    fn has_no_pages(&self) -> bool {
        self.mode == Mode::Passthrough
    }

    fn alloc(&self, core: &SlabShared) -> Result<NonNull<u8>, AllocError> {
        let size = core.layout.size();
        let slot = self.take(core).or_else(|error| {
            // Slots in quarantine are free: reusing them early is better than an error.
            if self.end_rest(core) { self.take(core) } else { Err(error) }
        })?;
        let mut state = self.state();
        // The table's own memory may be refused, too.
        let room = state.objects.try_reserve(1).and_then(|()| state.resting.try_reserve(1));
        if room.is_err() {
            drop(state);
            if self.mode == Mode::Passthrough {
                // SAFETY: allocated above, and not used. The caller has a reference to the core.
                unsafe { self.free_by_malloc(core, slot) };
            } else {
                self.give_back(core, slot);
            }
            return Err(AllocError::new(ErrorKind::SourceRefused, size));
        }
        state.objects.insert(slot.addr().get(), false);
        drop(state);
        if self.mode == Mode::Hardened {
            self.check_untouched(core, slot);
            // SAFETY: the slot is ours and has the geometry's size, which has room for the zone.
            unsafe { slot.add(size).write_bytes(ZONE, core.geometry.slot - size) };
            tools::forbid(slot, core.geometry.slot);
        }
        if self.mode != Mode::Passthrough {
            tools::allow(slot, size);
        }
        Ok(slot)
    }

    unsafe fn free(&self, core: &SlabShared, slot: NonNull<u8>) {
        let address = slot.addr().get();
        let mut state = self.state();
        match state.objects.get_mut(&address) {
            Some(freed @ false) => *freed = true,
            Some(true) => core.abort_on_misuse(Misuse::DoubleFree, address),
            None if self.was_freed_before(core, address) => {
                core.abort_on_misuse(Misuse::DoubleFree, address)
            }
            None => core.abort_on_misuse(Misuse::ForeignPointer, address),
        }
        if self.mode == Mode::Passthrough {
            state.objects.remove(&address);
            drop(state);
            // SAFETY: the address is in the table, so it came from `alloc_by_malloc`. It was
            // removed, so it is freed once.
            return unsafe { self.free_by_malloc(core, slot) };
        }
        let (size, whole) = (core.layout.size(), core.geometry.slot);
        if self.mode == Mode::Hardened {
            tools::allow_defined(slot, whole);
            // SAFETY: the slot is `whole` bytes long, and belonged to the caller of `free` until
            // here.
            unsafe {
                if !holds(slot.add(size), whole - size, ZONE) {
                    core.abort_on_misuse(Misuse::Overrun, address);
                }
                slot.write_bytes(FREE, whole);
            }
        }
        tools::forbid(slot, whole);
        state.resting.push_back(slot);
        if state.resting.len() > RESTING {
            let oldest = state.resting.pop_front().expect("more than none");
            state.objects.remove(&oldest.addr().get());
            drop(state);
            self.give_back(core, oldest);
        } else if !core.waiters.allow_caching() {
            // A thread waits for a slot, or the slab was dropped. In the second case no later free
            // may follow this one, and the quarantine would keep the slot and its slab forever.
            drop(state);
            self.end_rest(core);
        }
    }

    fn page_taken(&self, _: &SlabShared, start: NonNull<u8>, bytes: usize) {
        if self.mode == Mode::Hardened {
            // SAFETY: a page that was just taken, and is used by no thread yet.
            unsafe { start.write_bytes(FREE, bytes) };
        }
        tools::forbid(start, bytes);
    }

    fn page_going(&self, core: &SlabShared, page: &SlabPage, start: NonNull<u8>, bytes: usize) {
        tools::allow_defined(start, bytes);
        if self.mode == Mode::Hardened {
            for index in 0..page.slots() {
                self.check_untouched(core, core.slot_address(page, index));
            }
        }
    }

    fn end_rest(&self, core: &SlabShared) -> bool {
        let mut any = false;
        loop {
            let mut state = self.state();
            let Some(slot) = state.resting.pop_front() else { return any };
            state.objects.remove(&slot.addr().get());
            drop(state);
            self.give_back(core, slot);
            any = true;
        }
    }

    fn statistics(&self, core: &SlabShared) -> Statistics {
        let (objects, resting) = {
            let state = self.state();
            (state.objects.len(), state.resting.len())
        };
        let pages = core.page_statistics(resting);
        if self.mode != Mode::Passthrough {
            return pages;
        }
        let live_bytes = (objects * core.layout.size()) as u64;
        Statistics {
            live_objects: objects as u64,
            live_bytes,
            structure_bytes: pages.held_bytes.saturating_sub(live_bytes),
            ..pages
        }
    }
}
