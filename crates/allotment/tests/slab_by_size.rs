//! Slabs that are shared by size.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use allotment::{AllocError, ErrorKind, RawSlab, Source};
use support::kernel::page_size;
use support::slab::{self, Object, Random, layout};

#[test]
fn slabs_by_size_are_shared_among_sizes_that_round_to_one() {
    let at = |size, align| RawSlab::by_size(layout(size, align));
    let forty = at(40, 8);
    assert!(Arc::ptr_eq(&forty, &at(48, 16)) && Arc::ptr_eq(&forty, &at(33, 1)));
    assert!(!Arc::ptr_eq(&forty, &at(49, 8)) && !Arc::ptr_eq(&forty, &at(32, 8)));
    assert!(!Arc::ptr_eq(&forty, &at(40, 32)), "another alignment");
    assert_eq!(forty.layout(), layout(48, 16));
    assert!(Arc::ptr_eq(&at(0, 1), &at(16, 1)));
    let large = at(5000, 8);
    assert!(large.layout().size() >= 5000 && large.layout().size() <= 5000 + 5000 / 8);
    assert!(Arc::ptr_eq(&large, &at(large.layout().size(), 16)));
    let most = isize::MAX as usize - 15;
    assert_eq!(RawSlab::try_by_size(layout(most, 8)).unwrap_err().kind(), ErrorKind::SizeOverflow);
}

#[test]
fn an_address_alone_tells_whether_it_is_a_slabs_to_free() {
    // The tests beside this one share slabs of smaller sizes.
    let (one, other) = (RawSlab::by_size(layout(1000, 8)), RawSlab::new(layout(200, 64)));
    let slots = [one.alloc(), other.alloc()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for slot in [one.alloc(), other.alloc()] {
                // SAFETY: allocated above, freed once.
                assert!(unsafe { RawSlab::free_if_slot(slot) });
            }
        });
    });
    for slot in slots {
        // SAFETY: as above.
        assert!(unsafe { RawSlab::free_if_slot(slot) });
    }
    assert_eq!(one.statistics().live_objects + other.statistics().live_objects, 0);
    let local = 7u64;
    let elsewhere = [std::ptr::from_ref(&local).addr(), 1, 1 << 47, 1 << 50, usize::MAX - 7];
    for address in elsewhere {
        let address = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
        // SAFETY: in no slab's memory.
        assert!(!unsafe { RawSlab::free_if_slot(address) });
    }
}

/// Lends the beginning of a block that it keeps. The rest of the block is its user's.
struct Beginnings(NonNull<u8>);

// SAFETY: an address, whose memory is lent by the rules of `Source`.
unsafe impl Send for Beginnings {}
// SAFETY: as above.
unsafe impl Sync for Beginnings {}

// SAFETY: one block, which the tests never have lent twice, and which is never freed.
unsafe impl Source for Beginnings {
    fn name(&self) -> &str {
        "beginnings"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        assert!(layout.align() <= 1 << 16 && layout.size() < 1 << 16);
        Ok(self.0)
    }

    unsafe fn release(&self, _: NonNull<u8>, _: Layout) {}
}

#[test]
fn memory_behind_a_page_is_no_slot_though_it_shares_the_pages_granule() {
    // SAFETY: the size is not zero.
    let block = unsafe { std::alloc::alloc(layout(1 << 16, 1 << 16)) };
    let source = Arc::new(Beginnings(NonNull::new(block).expect("memory")));
    let slab = RawSlab::builder(layout(64, 8)).source(source).build();
    let slot = slab.alloc();
    assert_eq!(slab.statistics().chunks, 1);
    for offset in page_size()..1 << 16 {
        let behind = NonNull::new(block.wrapping_add(offset)).expect("an address");
        let mut asked = false;
        // SAFETY: no slab's memory.
        unsafe {
            RawSlab::free_cached_or(behind, || asked = true);
            assert!(asked && !RawSlab::free_if_slot(behind), "offset {offset}");
        }
    }
    assert_eq!(slab.statistics().live_objects, 1);
    // SAFETY: allocated above, freed once.
    assert!(unsafe { RawSlab::free_if_slot(slot) });
    assert_eq!(slab.statistics().live_objects, 0);
    drop(slab);
    // SAFETY: allocated above with this layout; the slab is gone.
    unsafe { std::alloc::dealloc(block, layout(1 << 16, 1 << 16)) };
}

#[test]
fn a_slab_by_size_is_dropped_with_its_last_reference() {
    let size = 7777;
    let first = RawSlab::by_size(layout(size, 8));
    let second = RawSlab::by_size(layout(size, 8));
    let slot = first.alloc();
    assert_eq!(second.statistics().live_objects, 1);
    // SAFETY: allocated above from the same slab, freed once.
    unsafe { second.free(slot) };
    drop(first);
    assert_eq!(Arc::strong_count(&second), 1, "the table keeps none");
    let weak = Arc::downgrade(&second);
    drop(second);
    assert!(weak.upgrade().is_none());
    let new = RawSlab::by_size(layout(size, 8));
    assert_eq!(new.statistics().chunks, 0);
}

#[test]
fn threads_that_acquire_and_release_slabs_by_size_get_the_right_ones() {
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for number in 0..1500 {
                    let size = 1 + random.below(400);
                    let slab = RawSlab::by_size(layout(size, 8));
                    assert_eq!(slab.layout().size(), size.next_multiple_of(16));
                    let object =
                        Object::stamp(slab.alloc(), slab.layout(), (thread << 32) + number);
                    std::thread::yield_now();
                    slab::free(&slab, object);
                }
            });
        }
    });
}
