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
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// Which step is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// References are counted up from zero, too.
    CountsUpFromZero,
    /// The last reference is released without the order after the others' uses.
    ReleasesRelaxed,
    /// A slab is registered without the order that hands it over.
    RegistersRelaxed,
    /// The number is returned before its slab is forgotten.
    ReturnsNumberFirst,
    /// A thread that frees by address has no reference but the page's, which is released with the
    /// page.
    FreesWithoutReference,
}

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
    wrong: Wrong,
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
    fn new(wrong: Wrong) -> Arc<Self> {
        let registry = Arc::new(Self {
            wrong,
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
        if self.wrong == Wrong::RegistersRelaxed {
            let (count, object) = self.references.words();
            object.store(core::ptr::from_ref(slab).cast_mut(), Ordering::Relaxed);
            count.store(1, Ordering::Relaxed);
        } else {
            self.references.set(NonNull::from(slab));
        }
    }

    fn try_add(&self) -> Option<&ModelSlab> {
        self.gate.pass();
        let slab = if self.wrong == Wrong::CountsUpFromZero {
            let (count, object) = self.references.words();
            count.fetch_add(1, Ordering::Acquire);
            NonNull::new(object.load(Ordering::Relaxed))
        } else {
            self.references.try_add()
        };
        // SAFETY: one of `slabs`.
        slab.map(|slab| unsafe { slab.as_ref() })
    }

    /// Releases a reference, as `release_reference` in shared.rs does: the last one destroys the
    /// slab and returns its number.
    fn release(&self) {
        self.gate.pass();
        let last = match self.wrong {
            Wrong::ReleasesRelaxed | Wrong::ReturnsNumberFirst => self.release_wrongly(),
            _ => self.references.release(),
        };
        if let Some(slab) = last {
            // SAFETY: one of `slabs`.
            change(unsafe { slab.as_ref() }, Life::Alive, Life::Destroyed);
            if self.wrong != Wrong::ReturnsNumberFirst {
                self.vacant.push(self, 0);
            }
        }
    }

    fn release_wrongly(&self) -> Option<NonNull<ModelSlab>> {
        let (count, object) = self.references.words();
        let relaxed = self.wrong == Wrong::ReleasesRelaxed;
        let order = if relaxed { Ordering::Relaxed } else { Ordering::AcqRel };
        if count.fetch_sub(1, order) != 1 {
            return None;
        }
        if self.wrong == Wrong::ReturnsNumberFirst {
            self.vacant.push(self, 0);
        }
        NonNull::new(object.swap(core::ptr::null_mut(), Ordering::Relaxed))
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
fn a_slab_is_dropped_while_others_visit_it(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
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
    a_slab_is_dropped_while_others_visit_it(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_counted_up_from_zero_is_one_to_a_destroyed_slab() {
    a_slab_is_dropped_while_others_visit_it(Wrong::CountsUpFromZero);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_released_without_order_destroys_a_slab_in_use() {
    a_slab_is_dropped_while_others_visit_it(Wrong::ReleasesRelaxed);
}

/// A slab is dropped, its number is taken for the next one, and a third thread visits whatever
/// there is.
fn a_number_is_reused_while_another_visits(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
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
    a_number_is_reused_while_another_visits(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slab_registered_without_order_is_used_before_it_is_made() {
    a_number_is_reused_while_another_visits(Wrong::RegistersRelaxed);
}

#[test]
#[should_panic(expected = "a slab is destroyed with its last reference")]
fn a_number_returned_before_its_slab_is_forgotten_forgets_the_next_one() {
    a_number_is_reused_while_another_visits(Wrong::ReturnsNumberFirst);
}

/// The slab is dropped while another thread frees its last object by address: the page's reference
/// is released in that call.
fn the_last_object_is_freed_while_its_slab_is_dropped(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
        // The page's.
        registry.references.add();
        let frees = Arc::clone(&registry);
        let freer = thread::spawn(move || {
            let adds = frees.wrong != Wrong::FreesWithoutReference;
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
    the_last_object_is_freed_while_its_slab_is_dropped(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a slab with references lives")]
fn a_free_that_has_only_its_pages_reference_uses_a_destroyed_slab() {
    the_last_object_is_freed_while_its_slab_is_dropped(Wrong::FreesWithoutReference);
}
