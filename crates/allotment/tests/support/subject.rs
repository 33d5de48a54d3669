//! What the suites of claims (`claims_*.rs`) ask of an allocator, so that a claim is written once
//! and tested with every allocator. `adapters.rs` implements it for each of them.
//!
//! A claim is a function with a type parameter. [`claims!`] makes a module of its name with one
//! test for each allocator of a set, so that a failure reads `a_double_free_is_stopped::reap`:
//!
//! | set | allocators | left out |
//! |---|---|---|
//! | `every` | all | |
//! | `writable` | whose objects may be written to at any time | sealed memory |
//! | `limited` | with a budget, figures and typed errors | slabs by size, `PoolGlobalAlloc` |
//! | `sourced` | with a source | pools, sealed memory, slabs by size |
//! | `checked` | with a hardened mode | sealed memory, slabs by size |
//! | `checked_calls` | whose own `free` checks any address | also blocks that any thread frees |
//! | `reusing` | whose freed memory serves new objects | arenas |
//! | `sized_frees` | whose `free` takes a layout | slabs, free lists |
//! | `sized_blocks` | whose `free` checks the alignment, too | also arenas, whose objects keep theirs |
//! | `resets` | with a `reset` | all but arenas and reaps |
//! | `ending` | whose live objects end with them | slabs, pools |
//! | `filled` | that checks memory which was never allocated | reaps, pools |
//! | `reporting` | that can report the objects that are live at its end | arenas, reaps, sealed memory |
//!
//! `adapters.rs` says why an allocator has no such capability.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use allotment::source::SharedSource;
use allotment::{AllocError, Budget, ErrorKind, Release, Statistics};

use super::slab::{Object, layout};

/// The options with which an allocator is created. An allocator ignores those that it does not
/// have.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only layout that is allocated, where an allocator serves a single one.
    pub layout: Layout,
    pub name: Option<String>,
    pub source: Option<SharedSource>,
    pub release: Option<Release>,
    pub budget: Option<Budget>,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

impl Options {
    pub fn of(layout: Layout) -> Self {
        Self {
            layout,
            name: None,
            source: None,
            release: None,
            budget: None,
            hardened: false,
            report_live: None,
        }
    }

    pub fn of_size(size: usize) -> Self {
        Self::of(layout(size, 8))
    }

    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub fn source(mut self, source: SharedSource) -> Self {
        self.source = Some(source);
        self
    }

    pub fn release(mut self, release: Release) -> Self {
        self.release = Some(release);
        self
    }

    pub fn budget(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    pub fn hardened(mut self, hardened: bool) -> Self {
        self.hardened = hardened;
        self
    }

    pub fn report_live(mut self, report: bool) -> Self {
        self.report_live = Some(report);
        self
    }
}

/// An allocator, or one way to call it.
pub trait Subject: Sized {
    /// Whether one allocator serves objects of any layout.
    const ANY_LAYOUT: bool;
    /// The values of the option `hardened`.
    const MODES: &'static [bool] = &[false, true];
    /// Whether two objects of size zero have different addresses.
    const ZERO_SIZES_APART: bool = true;
    /// Whether a freed object's memory serves the next one.
    const REUSES: bool = true;
    /// Whether all subjects of a size are one allocator, which rounds the size up.
    const SHARED: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError>;

    fn create(options: &Options) -> Self {
        Self::try_create(options).expect("nothing is refused")
    }

    /// Allocates an object. Its bytes may be written only if the allocator is in `writable`.
    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// # Safety
    /// The object is live, and was allocated with this layout.
    unsafe fn free(&self, object: NonNull<u8>, layout: Layout);

    /// Gives back what is empty, as far as the allocator has such a call.
    fn trim(&self);

    /// Allocates an object and stamps it.
    fn try_stamped(&self, layout: Layout, number: u64) -> Result<Object, AllocError> {
        self.try_alloc(layout).map(|start| Object::stamp(start, layout, number))
    }

    /// Stamped objects, numbered from 0.
    fn stamped(&self, layout: Layout, count: usize) -> Vec<Object> {
        let stamped = |number| self.try_stamped(layout, number).expect("nothing is refused");
        (0..count as u64).map(stamped).collect()
    }

    /// Checks and frees objects of this layout.
    fn free_all(&self, layout: Layout, objects: impl IntoIterator<Item = Object>) {
        for object in objects {
            // SAFETY: live until now, and of this layout.
            unsafe { self.free(object.end(), layout) };
        }
    }

    /// Makes the memory of freed objects available to new ones, if freeing alone does not.
    fn recycle(&mut self) {}
}

/// What an allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub live_objects: usize,
    pub held_bytes: usize,
    pub structure_bytes: usize,
}

impl From<Statistics> for Figures {
    fn from(statistics: Statistics) -> Self {
        Self {
            live_objects: statistics.live_objects as usize,
            held_bytes: statistics.held_bytes as usize,
            structure_bytes: statistics.structure_bytes as usize,
        }
    }
}

/// An allocator with a name, a budget, figures and typed errors.
pub trait Limited: Subject {
    /// The number of live objects counts those of size zero.
    const COUNTS_ZERO_SIZES: bool = true;
    /// Whether a trim gives back everything, if no object is live.
    const EMPTIES: bool = true;

    /// Whether it shares a range of addresses with others, which may be full before the process has
    /// no memory.
    const SHARES_A_RANGE: bool = false;

    /// The infallible call.
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    fn figures(&self) -> Figures;

    /// The sources to test it with; one entry of `None` where it has no such option.
    fn sources() -> Vec<Option<SharedSource>> {
        vec![None]
    }
}

/// An allocator with a source.
pub trait Sourced: Limited {
    fn statistics(&self) -> Statistics;

    /// The bytes that the source has lent. Most allocators have their structures in their chunks.
    fn lent_bytes(&self) -> usize {
        self.figures().held_bytes
    }
}

/// An allocator with a hardened mode.
pub trait Checked: Subject {
    /// What messages call it.
    const KIND: &'static str;
    /// The bytes from the end of an object of [`VICTIM`] bytes to the end of its block.
    const RED_ZONE: usize = 24;
    /// Addresses at and above this one may fault in `free`.
    const ADDRESSES: usize = usize::MAX;
    /// What the message says of a free block that was never handed out and is freed.
    const NEVER_ALLOCATED: &'static str = FOREIGN;
    /// The size that the message names for a block that has left the quarantine.
    const VACANT_SIZE: usize = VICTIM;
    /// What the message says of a double free in pass-through mode. Malloc may hand out the block
    /// again, so most allocators forget it at the free.
    const PASSED_DOUBLE_FREE: &'static str = FOREIGN;
}

/// An allocator whose freed memory serves new objects.
pub trait Reuses: Subject {}

/// An allocator that frees all its objects at once.
pub trait Resets: Subject {
    fn reset(&mut self);
}

/// An allocator whose hardened mode fills memory before it is allocated for the first time.
pub trait Fills: Checked {
    /// What the message says of a write to such memory.
    const WRITE_BEFORE_ALLOCATION: &'static str = WRITE_AFTER_FREE;
}

/// An allocator that can report, when it is dropped, how many objects are live.
pub trait Reports: Checked {
    /// What the line says after the allocator's kind and name, for objects of [`VICTIM`] bytes.
    fn words(live: usize) -> String {
        format!("dropped with {live} live objects of {VICTIM} bytes")
    }
}

/// The bytes of an object that is misused.
pub const VICTIM: usize = 24;

// What messages call each misuse, whatever the allocator.
pub const DOUBLE_FREE: &str = "double free";
pub const FOREIGN: &str = "foreign pointer, no live object of this allocator";
pub const OVERRUN: &str = "overrun, bytes behind the object were written";
pub const WRITE_AFTER_FREE: &str = "write after free";
pub const WRITE_AFTER_RESET: &str = "write after reset";

/// Asserts that an error is one of a request that no machine can meet.
pub fn assert_too_much(error: AllocError, what: impl core::fmt::Debug) {
    let kind = error.kind();
    let known = matches!(
        kind,
        ErrorKind::SizeOverflow
            | ErrorKind::LimitReached
            | ErrorKind::SourceRefused
            | ErrorKind::System(libc::ENOMEM)
    );
    assert!(known, "{what:?}: {error:?}");
    assert!(!error.to_string().is_empty());
}

/// The message with which `work` panics.
pub fn panic_message<R>(work: impl FnOnce() -> R) -> String {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(_) => panic!("the call returned"),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => (*payload.downcast::<&str>().expect("a panic with a message")).to_owned(),
    }
}

/// Asserts that `work` panics because of a budget of this many bytes.
pub fn assert_over_budget<R>(limit: usize, work: impl FnOnce() -> R) {
    let message = panic_message(work);
    assert!(message.starts_with("allotment: "), "{message}");
    assert!(message.contains(&format!("the budget of {limit} bytes")), "{message}");
    assert!(message.contains("raise its limit"), "{message}");
}

/// Makes the tests of claims: `set: claim, claim;`.
macro_rules! claims {
    ($($set:ident: $($claim:ident),+;)+) => {$($(
        mod $claim {
            use $crate::support::subject::claims;
            claims! { @$set $claim }
        }
    )+)+};

    // The sets.
    (@every $claim:ident) => { claims! { $claim of writable sealed } };
    (@writable $claim:ident) => { claims! { $claim of checked slab_by_size } };
    (@limited $claim:ident) => { claims! { $claim of checked_calls sealed } };
    (@checked $claim:ident) => { claims! { $claim of checked_calls pool_elsewhere pool_global } };
    (@checked_calls $claim:ident) => { claims! { $claim of sourced pool } };
    (@sourced $claim:ident) => { claims! { $claim of filled reap } };
    (@filled $claim:ident) => { claims! { $claim of arena slots } };
    (@reusing $claim:ident) => { claims! { $claim of slots sized_blocks } };
    (@reporting $claim:ident) => { claims! { $claim of slots pools } };
    (@sized_frees $claim:ident) => { claims! { $claim of arena sized_blocks } };
    (@sized_blocks $claim:ident) => { claims! { $claim of reap pools } };
    (@resets $claim:ident) => { claims! { $claim of arena reap } };
    (@ending $claim:ident) => { claims! { $claim of arena free_list reap } };
    (@slots $claim:ident) => { claims! { $claim of free_list slab slab_handle } };
    (@pools $claim:ident) => { claims! { $claim of pool pool_elsewhere pool_global } };

    // The allocators.
    (@arena $claim:ident) => { claims! { $claim::arena by Arena } };
    (@free_list $claim:ident) => { claims! { $claim::free_list by FreeList } };
    (@slab $claim:ident) => { claims! { $claim::slab by Slab } };
    (@slab_handle $claim:ident) => { claims! { $claim::slab_handle by SlabHandle } };
    (@slab_by_size $claim:ident) => { claims! { $claim::slab_by_size by SlabBySize } };
    (@reap $claim:ident) => { claims! { $claim::reap by Reap } };
    (@pool $claim:ident) => { claims! { $claim::pool by Pool } };
    (@pool_elsewhere $claim:ident) => { claims! { $claim::pool_elsewhere by PoolElsewhere } };
    (@pool_global $claim:ident) => { claims! { $claim::pool_global by PoolGlobal } };
    (@sealed $claim:ident) => { claims! { $claim::sealed by Sealed } };

    ($claim:ident of $($set:ident)+) => { $(claims! { @$set $claim })+ };
    ($claim:ident::$test:ident by $adapter:ident) => {
        #[test]
        fn $test() {
            let test = concat!(stringify!($claim), "::", stringify!($test));
            super::$claim::<$crate::support::adapters::$adapter>(test);
        }
    };
}
pub(crate) use claims;
