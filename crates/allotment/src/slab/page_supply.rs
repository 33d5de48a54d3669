//! How a slab takes pages from the source, and how a slot is allocated without a thread cache.
//!
//! The invariants are those of `shared.rs`.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use super::geometry::DEFAULT_PAGE;
use super::page::PageClaim;
use super::page_group::PageUse;
use super::page_steps::{PageBackend, PageSteps};
use super::page_table::{SlabClaim, SlabPage};
use super::registry;
use super::shared::SlabShared;
use super::tags::TAG_MARK;
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::SmallTouch;
use crate::memory::segment_map;
use crate::memory::span_allocator::addresses_of;

/// A slab that holds at least this many bytes and is used by one thread faults in each new page of
/// the usual size as a whole. Several threads that did so at the same time would wait for each
/// other in the kernel, which plain page faults don't.
const POPULATE_FROM: usize = 512 << 10;

impl SlabShared {
    /// Takes a new page from the source. With `populate`, it is faulted in as a whole. If there is
    /// none, takes what `instead` returns.
    pub(super) fn take_page<'s>(
        &'s self,
        lifetime: usize,
        populate: bool,
        instead: impl FnOnce() -> Option<SlabClaim<'s>>,
    ) -> Result<SlabClaim<'s>, AllocError> {
        let bytes = self.geometry.next_page(self.page_bytes.load(Ordering::Relaxed));
        let smallest = self.geometry.min_page;
        self.take_page_of(bytes, lifetime, populate).or_else(|error| match instead() {
            Some(claim) => Ok(claim),
            // If there is no large page, there may still be a smallest one.
            None if bytes > smallest => self.take_page_of(smallest, lifetime, populate),
            None => Err(error),
        })
    }

    fn take_page_of(
        &self,
        bytes: usize,
        lifetime: usize,
        populate: bool,
    ) -> Result<SlabClaim<'_>, AllocError> {
        self.charge(bytes)?;
        let undo = |error: AllocError| {
            self.credit(bytes);
            error
        };
        let page = self
            .page_table
            .take_vacant(|bytes| self.charge(bytes), |bytes| self.credit(bytes))
            .map_err(undo)?;
        let held = self.page_bytes.load(Ordering::Relaxed);
        let populate = self.checks.is_none()
            && (populate
                || (held >= POPULATE_FROM && bytes <= DEFAULT_PAGE && self.has_one_cache()));
        let small = if populate { SmallTouch::Populate } else { SmallTouch::Faults };
        let span = match self.spans.take(bytes, self.layout.align(), small) {
            Ok(span) => span,
            Err(error) => {
                self.page_table.return_vacant(page);
                return Err(undo(error));
            }
        };
        let addresses = addresses_of(bytes);
        let record = ptr::from_ref(self.record()).expose_provenance();
        let owner = NonZeroUsize::new(record).expect("a reference is not null");
        if let Err(error) = segment_map::register(span.start, addresses, owner) {
            // SAFETY: taken above, and not used.
            unsafe { self.spans.release(span, bytes, self.layout.align()) };
            self.page_table.return_vacant(page);
            return Err(undo(error));
        }
        page.info.start.store(span.start.as_ptr(), Ordering::Relaxed);
        page.info.set_bytes(bytes);
        page.info.range.store(span.range, Ordering::Relaxed);
        page.info.set_lifetime(lifetime);
        let tag = self.tag() | if lifetime != 0 { TAG_MARK } else { 0 };
        let bits = NonNull::from(page.bits()).cast();
        segment_map::enter_page(span.start, bytes, NonNull::from(page).cast(), bits, tag);
        registry::add_reference(self.number);
        self.page_count.fetch_add(1, Ordering::Relaxed);
        self.page_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.slot_count.fetch_add(self.geometry.slots(bytes), Ordering::Relaxed);
        self.empty_pages.count_new_page(bytes);
        if let Some(checks) = &self.checks {
            checks.page_taken(self, span.start, bytes);
        } else if populate {
            self.spans.populate(span, bytes);
        }
        Ok(self.enter_page(page, self.geometry.slots(bytes)))
    }

    /// Takes pages until this many slots are free in empty pages, and faults them in.
    pub(super) fn reserve(&self, slots: usize) -> Result<(), AllocError> {
        self.check_not_orphaned()?;
        // One slot's share of the smallest page: no page has more bytes per slot.
        let smallest = self.geometry.min_page;
        let bytes = slots
            .checked_mul(smallest / self.geometry.slots(smallest))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, slots))?;
        self.empty_pages.reserve_kept(bytes);
        let kept = self.page_table.descriptors().filter(|page| page.is_kept_empty());
        let mut missing = slots.saturating_sub(kept.map(SlabPage::slots).sum());
        // No more than `bytes` for all slots.
        self.spans.check_room(missing * (smallest / self.geometry.slots(smallest)))?;
        let mut taken = None;
        while missing > 0 {
            let claim = match self.take_page(0, true, || None) {
                Ok(claim) => claim,
                Err(error) => {
                    self.each_of_chain(taken, |claim| self.release(claim));
                    return Err(error);
                }
            };
            missing = missing.saturating_sub(claim.page().slots());
            if claim.take_all() {
                claim.page().info.set_link(taken);
                taken = Some(claim.into_page().info.index());
            } else {
                // A thread that would otherwise have waited took some slots.
                self.put_back(claim);
            }
        }
        self.each_of_chain(taken, |claim| {
            self.empty_pages.add_reserved(claim.page().info.bytes());
            self.list_empty(claim);
        });
        self.wake_waiters();
        Ok(())
    }

    /// Calls `pass_on` with the claim of each page of a chain: the pages that a call of `reserve`
    /// has taken with all of their slots.
    fn each_of_chain(&self, first: Option<u32>, pass_on: impl Fn(SlabClaim<'_>)) {
        let mut next = first;
        while let Some(page) = next.and_then(|index| self.page_table.page(index)) {
            next = page.info.link();
            pass_on(PageClaim::from_page(page));
        }
    }

    /// Allocates a slot without a thread cache.
    pub(super) fn alloc_uncached(&self, lifetime: usize) -> Result<NonNull<u8>, AllocError> {
        // The slot keeps its page from being released.
        self.take_one(lifetime).map(|(page, index)| self.slot_address(page, index))
    }
}
