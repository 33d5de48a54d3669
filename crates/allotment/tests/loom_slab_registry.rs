//! Models of how long a slab lives (`src/slab/references.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! The references and the stack of vacant numbers are those that ship. The table of entries
//! (`registry.rs`) lies in static memory, which loom's atomics can't; the models have one entry. A
//! slab is a cell that loom watches: it is read by a thread with a reference, and written by the
//! thread that makes or destroys it.
#![cfg(loom)]

use std::ptr::NonNull;

use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use allotment::for_loom::references::References;
use allotment::for_loom::{Mutant, mutant};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unmade,
    Alive,
    Destroyed,
}

/// A slab, which is one of those that the number stands for one after the other.
type ModelSlab = UnsafeCell<Life>;

/// One entry, and its slabs.
struct Registry {
    gate: Gate,
    references: References<ModelSlab>,
    slabs: [ModelSlab; 2],
    vacant: IndexStack,
    next: AtomicU32,
}

// SAFETY: the references hand out addresses of `slabs`, which loom watches.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

impl Links for Registry {
    fn next(&self, _: u32) -> &AtomicU32 {
        &self.next
    }
}

fn change(slab: &ModelSlab, from: Life, to: Life) {
    // SAFETY: the caller makes or destroys the slab; loom fails the model if another thread touches
    // it.
    let before = slab.with_mut(|life| unsafe { core::mem::replace(&mut *life, to) });
    assert_eq!(before, from, "a slab is made once and destroyed once");
}

/// What a reference is for.
fn use_slab(slab: &ModelSlab) {
    // SAFETY: the caller has a reference; loom fails the model if another thread writes meanwhile.
    let life = slab.with(|life| unsafe { *life });
    assert_eq!(life, Life::Alive, "a slab with references lives");
}

impl Registry {
    /// The first slab is registered, with one reference.
    fn new() -> Arc<Self> {
        let registry = Arc::new(Self {
            gate: Gate::new(),
            references: References::none(),
            slabs: [UnsafeCell::new(Life::Unmade), UnsafeCell::new(Life::Unmade)],
            vacant: IndexStack::new(),
            next: AtomicU32::new(NIL),
        });
        registry.register(0);
        registry
    }

    fn register(&self, index: usize) {
        self.gate.pass();
        let slab = &self.slabs[index];
        change(slab, Life::Unmade, Life::Alive);
        self.references.set(NonNull::from(slab));
    }

    fn try_add(&self) -> Option<&ModelSlab> {
        self.gate.pass();
        // SAFETY: one of `slabs`.
        self.references.try_add().map(|slab| unsafe { slab.as_ref() })
    }

    /// Releases a reference. The last one destroys the slab, and returns its number.
    fn release(&self) {
        self.gate.pass();
        self.references.release(|slab| {
            // SAFETY: one of `slabs`.
            change(unsafe { slab.as_ref() }, Life::Alive, Life::Destroyed);
            self.vacant.push(self, 0);
        });
    }

    /// Visits the slab, as a report does.
    fn visit(&self) {
        if let Some(slab) = self.try_add() {
            use_slab(slab);
            self.release();
        }
    }

    fn is_destroyed(&self, index: usize) -> bool {
        // SAFETY: no other thread runs.
        self.slabs[index].with(|life| unsafe { *life }) == Life::Destroyed
    }
}

/// The last reference is released while two other threads visit the slab.
fn a_slab_is_dropped_while_others_visit_it() {
    explore(3, || {
        let registry = Registry::new();
        let visitors = [(); 2].map(|()| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.visit())
        });
        use_slab(&registry.slabs[0]);
        registry.release();
        for visitor in visitors {
            visitor.join().unwrap();
        }
        assert!(registry.is_destroyed(0), "a slab is destroyed with its last reference");
    });
}

#[test]
fn a_slab_is_destroyed_once_after_its_last_use() {
    a_slab_is_dropped_while_others_visit_it();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_counted_up_from_zero_is_one_to_a_destroyed_slab() {
    let _mutant = Mutant::new("try add: up from zero");
    a_slab_is_dropped_while_others_visit_it();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_released_without_order_destroys_a_slab_in_use() {
    let _mutant = Mutant::new("release: relaxed");
    a_slab_is_dropped_while_others_visit_it();
}

/// A slab is dropped, its number is taken for the next one, and a third thread visits whatever
/// there is.
fn a_number_is_reused_while_another_visits() {
    explore(3, || {
        let registry = Registry::new();
        let (visits, makes) = (Arc::clone(&registry), Arc::clone(&registry));
        let visitor = thread::spawn(move || visits.visit());
        let maker = thread::spawn(move || {
            makes.gate.pass();
            let made = makes.vacant.pop(&*makes).is_some();
            if made {
                makes.register(1);
                use_slab(&makes.slabs[1]);
            }
            made
        });
        registry.release();
        let made = maker.join().unwrap();
        visitor.join().unwrap();
        if made {
            registry.visit();
            registry.release();
        }
        let destroyed = [0, 1].map(|index| registry.is_destroyed(index));
        assert_eq!(destroyed, [true, made], "a slab is destroyed with its last reference");
    });
}

#[test]
fn a_number_stands_for_one_slab_at_a_time() {
    a_number_is_reused_while_another_visits();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slab_registered_without_order_is_used_before_it_is_made() {
    let _mutant = Mutant::new("set: relaxed");
    a_number_is_reused_while_another_visits();
}

#[test]
#[should_panic(expected = "a slab is destroyed with its last reference")]
fn a_number_returned_before_its_slab_is_forgotten_forgets_the_next_one() {
    let _mutant = Mutant::new("release: object forgotten late");
    a_number_is_reused_while_another_visits();
}

/// The slab is dropped while another thread frees its last object by address: the page's reference
/// is released in that call.
fn the_last_object_is_freed_while_its_slab_is_dropped() {
    explore(3, || {
        let registry = Registry::new();
        // The page's.
        registry.references.add();
        let frees = Arc::clone(&registry);
        let freer = thread::spawn(move || {
            let adds = !mutant("free: no reference");
            if adds {
                frees.references.add();
            }
            // SAFETY: one of `slabs`; the page's reference keeps it.
            let slab = unsafe { &*frees.references.object() };
            use_slab(slab);
            // The page is released, and then the slab is used once more.
            frees.release();
            use_slab(slab);
            if adds {
                frees.release();
            }
        });
        use_slab(&registry.slabs[0]);
        registry.release();
        freer.join().unwrap();
        assert!(registry.is_destroyed(0));
    });
}

#[test]
fn an_object_freed_after_its_slabs_drop_destroys_the_slab_when_it_is_done() {
    the_last_object_is_freed_while_its_slab_is_dropped();
}

#[test]
#[should_panic(expected = "a slab with references lives")]
fn a_free_that_has_only_its_pages_reference_uses_a_destroyed_slab() {
    let _mutant = Mutant::new("free: no reference");
    the_last_object_is_freed_while_its_slab_is_dropped();
}
