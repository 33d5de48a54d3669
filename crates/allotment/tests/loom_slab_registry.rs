//! Models of how long a slab lives (`src/slab/registry.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The entries lie in static memory, which loom's atomics can't, so their protocol is written here once more:
//! `enter`, `refer`, `refer_more`, `unrefer` and the stack of vacant numbers, which is the one that ships. A core
//! is a cell that loom watches: it is read by who refers to it, and written by who makes or destroys it.
#![cfg(loom)]

use allotment::for_loom::lifo::{Lifo, Links, NIL};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// What is done instead of what should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// References are counted up from zero, too.
    RefersToNothing,
    /// The last reference is given up without the order after the others' uses.
    UnrefersRelaxed,
    /// A core is entered without the order that hands it over.
    EntersRelaxed,
    /// The number serves again before its core is forgotten.
    GivesNumberFirst,
    /// Who frees by address has no reference but the page's, which goes with the page.
    FreesWithoutReference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unmade,
    Alive,
    Destroyed,
}

/// One entry, and the cores that it stands for one after the other.
struct Registry {
    wrong: Wrong,
    gate: Gate,
    references: AtomicUsize,
    /// A core's number plus one, or 0.
    core: AtomicUsize,
    cores: [UnsafeCell<State>; 2],
    vacant: Lifo,
    next: AtomicU32,
}

impl Links for Registry {
    fn next(&self, _: u32) -> &AtomicU32 {
        &self.next
    }
}

impl Registry {
    /// The first core is there, with one reference.
    fn new(wrong: Wrong) -> Arc<Self> {
        let registry = Self {
            wrong,
            gate: Gate::new(),
            references: AtomicUsize::new(0),
            core: AtomicUsize::new(0),
            cores: [UnsafeCell::new(State::Unmade), UnsafeCell::new(State::Unmade)],
            vacant: Lifo::new(),
            next: AtomicU32::new(NIL),
        };
        registry.enter(0);
        Arc::new(registry)
    }

    fn change(&self, core: usize, from: State, to: State) {
        // SAFETY: the caller makes or destroys the core; loom fails the model if another thread touches it.
        let before =
            self.cores[core].with_mut(|state| unsafe { core::mem::replace(&mut *state, to) });
        assert_eq!(before, from, "a core is made once and destroyed once");
    }

    /// What a reference is for.
    fn use_core(&self, core: usize) {
        // SAFETY: the caller has a reference; loom fails the model if another thread writes meanwhile.
        let state = self.cores[core].with(|state| unsafe { *state });
        assert_eq!(state, State::Alive, "a core that is referred to lives");
    }

    fn enter(&self, core: usize) {
        self.gate.pass();
        self.change(core, State::Unmade, State::Alive);
        self.core.store(core + 1, Ordering::Relaxed);
        let order =
            if self.wrong == Wrong::EntersRelaxed { Ordering::Relaxed } else { Ordering::Release };
        self.references.store(1, order);
    }

    fn refer(&self) -> Option<usize> {
        self.gate.pass();
        if self.wrong == Wrong::RefersToNothing {
            self.references.fetch_add(1, Ordering::Acquire);
            return self.core.load(Ordering::Relaxed).checked_sub(1);
        }
        let mut references = self.references.load(Ordering::Relaxed);
        while references > 0 {
            match self.references.compare_exchange_weak(
                references,
                references + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return self.core.load(Ordering::Relaxed).checked_sub(1),
                Err(now) => references = now,
            }
        }
        None
    }

    fn refer_more(&self) {
        let before = self.references.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a reference to nothing");
    }

    fn unrefer(&self) {
        self.gate.pass();
        let order =
            if self.wrong == Wrong::UnrefersRelaxed { Ordering::Relaxed } else { Ordering::AcqRel };
        if self.references.fetch_sub(1, order) != 1 {
            return;
        }
        if self.wrong == Wrong::GivesNumberFirst {
            self.vacant.push(self, 0);
        }
        let core = self.core.swap(0, Ordering::Relaxed);
        let core = core.checked_sub(1).expect("a referred core");
        self.change(core, State::Alive, State::Destroyed);
        if self.wrong != Wrong::GivesNumberFirst {
            self.vacant.push(self, 0);
        }
    }

    /// Looks at the slab, as a report does.
    fn look(&self) {
        if let Some(core) = self.refer() {
            self.use_core(core);
            self.unrefer();
        }
    }

    fn is_destroyed(&self, core: usize) -> bool {
        // SAFETY: no other thread is inside.
        self.cores[core].with(|state| unsafe { *state }) == State::Destroyed
    }
}

/// The last reference is given up while two others look.
fn a_slab_goes_while_others_look(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
        let lookers = [(); 2].map(|()| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.look())
        });
        registry.use_core(0);
        registry.unrefer();
        for looker in lookers {
            looker.join().unwrap();
        }
        assert!(registry.is_destroyed(0), "a core is destroyed with its last reference");
    });
}

#[test]
fn a_core_is_destroyed_once_after_its_last_use() {
    a_slab_goes_while_others_look(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_counted_up_from_zero_is_one_to_a_destroyed_core() {
    a_slab_goes_while_others_look(Wrong::RefersToNothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reference_given_up_without_order_lets_a_core_go_under_its_user() {
    a_slab_goes_while_others_look(Wrong::UnrefersRelaxed);
}

/// A slab goes, its number is taken for the next one, and a third thread looks at whatever there is.
fn a_number_serves_again_while_another_looks(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
        let (looks, makes) = (Arc::clone(&registry), Arc::clone(&registry));
        let looker = thread::spawn(move || looks.look());
        let maker = thread::spawn(move || {
            makes.gate.pass();
            let made = makes.vacant.pop(&*makes).is_some();
            if made {
                makes.enter(1);
                makes.use_core(1);
            }
            made
        });
        registry.unrefer();
        let made = maker.join().unwrap();
        looker.join().unwrap();
        if made {
            registry.look();
            registry.unrefer();
        }
        let destroyed = [0, 1].map(|core| registry.is_destroyed(core));
        assert_eq!(destroyed, [true, made], "a core is destroyed with its last reference");
    });
}

#[test]
fn a_number_stands_for_one_core_at_a_time() {
    a_number_serves_again_while_another_looks(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_core_entered_without_order_is_used_before_it_is_made() {
    a_number_serves_again_while_another_looks(Wrong::EntersRelaxed);
}

#[test]
#[should_panic(expected = "a core is destroyed with its last reference")]
fn a_number_given_back_before_its_core_is_forgotten_forgets_the_next_one() {
    a_number_serves_again_while_another_looks(Wrong::GivesNumberFirst);
}

/// The slab is dropped while another thread frees its last object by address: the page's reference goes with it.
fn the_last_object_is_freed_while_its_slab_is_dropped(wrong: Wrong) {
    explore(3, move || {
        let registry = Registry::new(wrong);
        // The page's.
        registry.refer_more();
        let frees = Arc::clone(&registry);
        let freer = thread::spawn(move || {
            if frees.wrong != Wrong::FreesWithoutReference {
                frees.refer_more();
            }
            frees.use_core(0);
            // The page goes, and then the core is used once more.
            frees.unrefer();
            frees.use_core(0);
            if frees.wrong != Wrong::FreesWithoutReference {
                frees.unrefer();
            }
        });
        registry.use_core(0);
        registry.unrefer();
        freer.join().unwrap();
        assert!(registry.is_destroyed(0));
    });
}

#[test]
fn an_object_freed_after_its_slabs_drop_destroys_the_core_when_it_is_done() {
    the_last_object_is_freed_while_its_slab_is_dropped(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a core that is referred to lives")]
fn a_free_that_has_only_its_pages_reference_uses_a_destroyed_core() {
    the_last_object_is_freed_while_its_slab_is_dropped(Wrong::FreesWithoutReference);
}
