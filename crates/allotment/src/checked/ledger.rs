//! The ledger of a checked allocator.
//!
//! ```text
//!              ┌────────────┐ alloc  ┌───────────────┬─────────┐  free   ┌────────────┐
//! new or       │    FREE    │ ─────▶ │    object     │  ZONE   │ ──────▶ │    FREE    │
//! vacant block └────────────┘        └───────────────┴─────────┘         └────────────┘
//!                    ▲                                                 in the quarantine
//!                    └──────────── when 1,024 more are freed ──────────────────┘
//! ```
//!
//! A freed object stays in quarantine until [`MAX_QUARANTINED`] more objects are freed. After that
//! its block is vacant, or goes back to the allocator. (An arena has no quarantine: it reuses no
//! byte before it is reset or rewound.)
//!
//! # Invariants
//!
//! 1. `by_address` has an entry for each object that was handed out and is not vacant. The entry
//!    says whether the object was freed. `vacant` holds, by class, the blocks that were handed out
//!    before and may be handed out again.
//! 2. The ledger lies outside the objects' memory, so that a stray write can't change the evidence.
//! 3. Hardened: every byte of a quarantined or vacant block is `FREE`, and every byte from the
//!    end of a live object to the end of its block is `ZONE`. Any other value is a misuse by the
//!    program.
//! 4. Freeing needs no memory: what it may need is reserved when an object is allocated.
//! 5. The lock is not held during a call to the allocator's `new_block` or `release_block`, which
//!    may use the ledger.
//! 6. No other thread holds the lock at a fork (`memory/fork_mutex.rs`). So in the child the ledger
//!    is whole. What a thread of the parent had taken from the ledger and not yet given on is lost.
//!
//! | file | what it holds |
//! |---|---|
//! | `patterns` | the patterns of free bytes and red zones |
//! | `malloc_blocks` | the objects of pass-through mode |
//! | `quarantine` | how freed blocks leave the quarantine |

mod malloc_blocks;
mod patterns;
mod quarantine;

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::collections::{HashMap, VecDeque};

use super::misuse::{Misuse, abort_on_misuse};
use super::mode::CheckMode;
use super::places::PlaceNumber;
use crate::error::{AllocError, ErrorKind};
use crate::memory::fork_mutex::{self, ForkMutex, ForkMutexGuard};
use crate::memory::tools;
use crate::statistics::{AllocatorKind, Record};

/// The largest number of freed objects of one allocator in quarantine.
const MAX_QUARANTINED: usize = 1024;

/// The allocator that a ledger checks: where the blocks of its objects come from.
pub(crate) trait CheckedAllocator {
    /// The allocator's statistics.
    fn record(&self) -> &'static Record;

    /// Charges the bytes of a malloc block (pass-through mode).
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Undoes [`charge`](Self::charge).
    fn credit(&self, bytes: usize);

    /// Notes a malloc block that was just taken. On an error the block is freed.
    fn note_malloc_block(&self, _: NonNull<u8>, bytes: usize) -> Result<(), AllocError> {
        self.record().add_held_bytes(bytes);
        self.record().source_calls.add(1);
        Ok(())
    }

    /// Forgets a malloc block that is about to be freed.
    fn forget_malloc_block(&self, _: NonNull<u8>, bytes: usize) {
        self.record().held_bytes.sub(bytes as u64);
        self.record().source_calls.add(1);
    }

    /// Whether an object may be freed or resized as one of this layout.
    fn is_of_layout(&self, object: &CheckedObject, layout: Layout) -> bool {
        object.layout == layout
    }

    /// The bytes of the block of an object of this layout, with its red zone.
    fn block_size(&self, layout: Layout) -> usize;

    /// The class of vacant blocks that the block of an object of this layout belongs to, less than
    /// the ledger's number of classes. `None` if its block goes back to the allocator.
    fn vacant_class(&self, _: Layout) -> Option<usize> {
        None
    }

    /// The largest layout whose block is of this class.
    fn class_layout(&self, _: usize) -> Layout {
        unreachable!("an allocator with classes implements this")
    }

    /// Takes a block for an object of this layout that was never handed out, or that went back to
    /// the allocator.
    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Takes back a block of no class.
    ///
    /// # Safety
    /// It came from [`new_block`](Self::new_block), and nothing refers to it.
    unsafe fn release_block(&self, _: NonNull<u8>) {
        unreachable!("an allocator with a quarantine and blocks of no class implements this")
    }

    /// Whether an address is that of a block that went back to the allocator.
    fn is_released_block(&self, _address: usize) -> bool {
        false
    }
}

/// An object in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedObject {
    /// The allocation's own pointer. The caller's may reach only the object, not its red zone.
    pub start: NonNull<u8>,
    /// The layout that it was allocated with; of a malloc block that was resized, its new layout.
    pub layout: Layout,
    /// The current size in bytes, which a shrink may have made smaller than the layout's.
    pub size: usize,
    /// The number of objects that this ledger's allocator had allocated before.
    pub number: u64,
    /// The place that allocated it, if the ledger records places.
    #[cfg_attr(not(feature = "places"), expect(dead_code, reason = "only reports read it"))]
    pub place: PlaceNumber,
    pub freed: bool,
}

#[derive(Debug, Default)]
struct LedgerState {
    by_address: HashMap<usize, CheckedObject>,
    /// The entries that were reserved and are not used yet.
    reserved: usize,
    /// The number of the next object.
    next_number: u64,
    /// The bytes of live objects.
    live_bytes: usize,
    quarantine: VecDeque<NonNull<u8>>,
    vacant: Vec<Vec<NonNull<u8>>>,
}

impl LedgerState {
    /// Removes the object that was in quarantine longest, if there is one.
    fn pop_quarantined(&mut self) -> Option<CheckedObject> {
        let oldest = self.quarantine.pop_front()?;
        self.by_address.remove(&oldest.addr().get())
    }
}

// SAFETY: the blocks in quarantine and the vacant ones belong to the allocator, not to the threads
// that freed them.
unsafe impl Send for LedgerState {}

/// What a checked allocator records in addition to its chunks.
pub(crate) struct Ledger {
    mode: CheckMode,
    records_places: bool,
    kind: AllocatorKind,
    name: Option<Box<str>>,
    objects: ForkMutex<LedgerState>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Ledger {
    /// An empty ledger for an allocator with this many classes of vacant blocks. `None` if there is
    /// no reason to check it. An error if forks can't be watched.
    pub(crate) fn new_if_checked(
        hardened: bool,
        kind: AllocatorKind,
        name: Option<&str>,
        classes: usize,
    ) -> Result<Option<Box<Self>>, AllocError> {
        let Some(mode) = CheckMode::of_process(hardened) else { return Ok(None) };
        Self::new(mode, false, kind, name, classes).map(Some)
    }

    /// As [`new_if_checked`](Self::new_if_checked), for an allocator that records the place of each
    /// allocation, which is a reason to check it.
    pub(crate) fn new_with_places(
        hardened: bool,
        kind: AllocatorKind,
        name: Option<&str>,
        classes: usize,
    ) -> Result<Box<Self>, AllocError> {
        let mode = CheckMode::of_process(hardened).unwrap_or(CheckMode::Recorded);
        Self::new(mode, true, kind, name, classes)
    }

    fn new(
        mode: CheckMode,
        records_places: bool,
        kind: AllocatorKind,
        name: Option<&str>,
        classes: usize,
    ) -> Result<Box<Self>, AllocError> {
        fork_mutex::watch_forks()?;
        let objects = LedgerState { vacant: vec![Vec::new(); classes], ..LedgerState::default() };
        let (name, objects) = (name.map(Box::from), ForkMutex::new(objects));
        Ok(Box::new(Self { mode, records_places, kind, name, objects }))
    }

    pub(crate) fn mode(&self) -> CheckMode {
        self.mode
    }

    /// Whether each object is a malloc block, so that the allocator needs no memory of its own.
    pub(crate) fn is_passthrough(&self) -> bool {
        self.mode == CheckMode::Passthrough
    }

    fn objects(&self) -> ForkMutexGuard<'_, LedgerState> {
        self.objects.lock()
    }

    /// The number of live objects, and their bytes.
    pub(crate) fn live(&self) -> (usize, usize) {
        let objects = self.objects();
        (objects.by_address.len() - objects.quarantine.len(), objects.live_bytes)
    }

    /// Calls `visit` with the place and the bytes of each live object, if places are recorded.
    #[cfg(feature = "places")]
    pub(crate) fn visit_places(&self, mut visit: impl FnMut(PlaceNumber, usize)) {
        if self.records_places {
            let objects = self.objects();
            let live = objects.by_address.values().filter(|object| !object.freed);
            live.for_each(|object| visit(object.place, object.size));
        }
    }

    /// The number of objects in quarantine.
    pub(crate) fn quarantined(&self) -> usize {
        self.objects().quarantine.len()
    }

    /// The number of the next object.
    pub(crate) fn next_number(&self) -> u64 {
        self.objects().next_number
    }

    // ---- objects ----

    /// Allocates an object.
    pub(crate) fn alloc(
        &self,
        allocator: &impl CheckedAllocator,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        self.reserve(allocator.vacant_class(layout), 1, layout.size())?;
        let block = if self.is_passthrough() {
            self.take_malloc_block(allocator, layout)
        } else {
            self.take_block(allocator, layout).or_else(|error| {
                // Objects in quarantine are free: reusing them early is better than an error.
                if self.empty_quarantine(allocator) {
                    self.take_block(allocator, layout)
                } else {
                    Err(error)
                }
            })
        };
        let block = block.inspect_err(|_| self.unreserve(1))?;
        self.hand_out(allocator, block, layout);
        Ok(block)
    }

    /// Reserves the memory that this many objects need in the ledger, before anything else changes:
    /// it may be refused, too.
    pub(crate) fn reserve(
        &self,
        class: Option<usize>,
        count: usize,
        bytes: usize,
    ) -> Result<(), AllocError> {
        let refused = |_| AllocError::new(ErrorKind::SourceRefused, bytes);
        let mut guard = self.objects();
        let objects = &mut *guard;
        let entries = objects.reserved + count;
        objects.by_address.try_reserve(entries).map_err(refused)?;
        // Every object may be in quarantine, and become vacant, at some time.
        let most = objects.by_address.len() + entries;
        let quarantine = most.min(MAX_QUARANTINED + 1).saturating_sub(objects.quarantine.len());
        objects.quarantine.try_reserve(quarantine).map_err(refused)?;
        if let Some(class) = class {
            objects.vacant[class].try_reserve(most).map_err(refused)?;
        }
        objects.reserved = entries;
        Ok(())
    }

    /// Undoes [`reserve`](Self::reserve) for objects that were not handed out.
    pub(crate) fn unreserve(&self, count: usize) {
        self.objects().reserved -= count;
    }

    fn take_block(
        &self,
        allocator: &impl CheckedAllocator,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let class = allocator.vacant_class(layout);
        match class.and_then(|class| self.objects().vacant[class].pop()) {
            Some(block) => {
                self.check_free_block(allocator, block, layout);
                Ok(block)
            }
            None => allocator.new_block(self, layout),
        }
    }

    /// Makes an object of a block. Its entry was reserved.
    pub(crate) fn hand_out(
        &self,
        allocator: &impl CheckedAllocator,
        block: NonNull<u8>,
        layout: Layout,
    ) {
        self.enter(block, layout);
        if !self.is_passthrough() {
            let size = layout.size();
            tools::allow(block, size);
            // SAFETY: the block is the allocator's and has this size, which has room for the zone.
            unsafe { self.mark_zone(block.add(size), allocator.block_size(layout) - size) };
        }
    }

    /// Enters an object, whose entry was reserved. Returns its number.
    pub(crate) fn enter(&self, start: NonNull<u8>, layout: Layout) -> u64 {
        let place = if self.records_places { PlaceNumber::of_caller() } else { PlaceNumber::NONE };
        let (mut objects, size) = (self.objects(), layout.size());
        let number = objects.next_number;
        let entry = CheckedObject { start, layout, size, number, place, freed: false };
        objects.by_address.insert(start.addr().get(), entry);
        objects.reserved -= 1;
        objects.next_number += 1;
        objects.live_bytes += size;
        number
    }

    /// The live object at an address. Ends the process if there is none, or one of another layout.
    pub(crate) fn live_object(
        &self,
        allocator: &impl CheckedAllocator,
        object: NonNull<u8>,
        layout: Layout,
    ) -> CheckedObject {
        self.find(&self.objects(), allocator, object, layout)
    }

    fn find(
        &self,
        objects: &LedgerState,
        allocator: &impl CheckedAllocator,
        object: NonNull<u8>,
        layout: Layout,
    ) -> CheckedObject {
        let (address, size) = (object.addr().get(), layout.size());
        let is_vacant =
            || objects.vacant.iter().flatten().any(|block| block.addr() == object.addr());
        match objects.by_address.get(&address) {
            Some(found) if found.freed => self.abort_on(Misuse::DoubleFree, address, found.size),
            Some(found) if allocator.is_of_layout(found, layout) => *found,
            Some(found) if found.size == size => {
                self.abort_on(Misuse::WrongAlignment(found.layout.align()), address, size)
            }
            Some(found) => self.abort_on(Misuse::WrongSize(found.size), address, size),
            None if is_vacant() || allocator.is_released_block(address) => {
                self.abort_on(Misuse::DoubleFree, address, size)
            }
            None => self.abort_on(Misuse::ForeignPointer, address, size),
        }
    }

    /// Frees an object, or ends the process at a misuse. The object goes into quarantine.
    pub(crate) fn free(
        &self,
        allocator: &impl CheckedAllocator,
        object: NonNull<u8>,
        layout: Layout,
    ) {
        let mut objects = self.objects();
        let CheckedObject { start, size, .. } = self.find(&objects, allocator, object, layout);
        let address = start.addr().get();
        objects.live_bytes -= size;
        if self.is_passthrough() {
            objects.by_address.remove(&address);
            drop(objects);
            // SAFETY: the object had an entry until here, so it is a malloc block of this layout,
            // and it is freed once.
            return unsafe { self.free_malloc_block(allocator, start, layout) };
        }
        let whole = allocator.block_size(layout);
        self.check_zone(start, size, whole - size);
        // SAFETY: the block has `whole` bytes, and its user has just given it up.
        unsafe { self.fill_free(start, whole) };
        objects.by_address.entry(address).and_modify(|entry| entry.freed = true);
        objects.quarantine.push_back(start);
        let most = if self.mode == CheckMode::Recorded { 0 } else { MAX_QUARANTINED };
        if objects.quarantine.len() > most {
            let oldest = objects.pop_quarantined();
            drop(objects);
            self.release(allocator, oldest.expect("one was pushed above"));
        }
    }

    /// Marks an object as freed that keeps its entry.
    pub(crate) fn mark_freed(&self, object: &CheckedObject) {
        let mut objects = self.objects();
        objects.live_bytes -= object.size;
        let address = object.start.addr().get();
        objects.by_address.entry(address).and_modify(|entry| entry.freed = true);
    }

    /// Changes the start, the layout or the size of an object.
    pub(crate) fn change(&self, old: &CheckedObject, new: CheckedObject) {
        let mut objects = self.objects();
        objects.live_bytes = objects.live_bytes - old.size + new.size;
        if new.start != old.start {
            objects.by_address.remove(&old.start.addr().get());
        }
        objects.by_address.insert(new.start.addr().get(), new);
    }

    /// Removes the entry of the object with this address and number, if it still has one.
    pub(crate) fn remove(&self, address: usize, number: u64) -> Option<CheckedObject> {
        let mut objects = self.objects();
        let entry = *objects.by_address.get(&address)?;
        if entry.number != number {
            // Malloc has used the block of a freed object again.
            return None;
        }
        objects.by_address.remove(&address);
        objects.live_bytes -= if entry.freed { 0 } else { entry.size };
        Some(entry)
    }

    fn abort_on(&self, misuse: Misuse, address: usize, size: usize) -> ! {
        abort_on_misuse(misuse, self.kind.as_str(), self.name.as_deref(), address, size)
    }
}
