//! No thread waits while a slot is freed: with the source blocked inside a page's allocation, a
//! free by another thread serves a waiting thread before the source returns.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use allotment::slab::Lifetime;
use allotment::{AllocError, ErrorKind, RawSlab, Slab, SlabBox};
use support::kernel::{thread_number, wait_until_asleep};
use support::slab::{self, Object};
use support::slab_sources::Gate;

const WORDS: Layout = Layout::new::<[u64; 8]>();
/// A thread that has waited this long waits forever.
const FOR_EVER: Duration = Duration::from_secs(60);

/// A slab on a gate, and the objects of its first page: all of its slots.
fn full_page(gate: &Arc<Gate>) -> (RawSlab, Vec<Object>) {
    let slab = RawSlab::builder(WORDS).source(gate.clone()).name("gated").build();
    let mut objects = vec![Object::stamp(slab.alloc(), WORDS, 0)];
    let more = slab.statistics().free_bytes / WORDS.size() as u64;
    objects.extend((1..=more).map(|number| Object::stamp(slab.alloc(), WORDS, number)));
    assert_eq!(slab.statistics().free_bytes, 0);
    (slab, objects)
}

/// A thread that allocates.
struct Caller<'s> {
    got: Receiver<Result<Object, AllocError>>,
    number: i32,
    thread: ScopedJoinHandle<'s, ()>,
}

impl Caller<'_> {
    fn wait_until_asleep(&self) {
        wait_until_asleep(self.number);
    }

    /// What the thread got. Waits for the thread's end, which the end of a scope alone does not.
    fn result(self) -> Result<Object, AllocError> {
        let got = self.got.recv_timeout(FOR_EVER).expect("the call returned");
        self.thread.join().unwrap();
        got
    }

    fn object(self) -> Object {
        self.result().unwrap()
    }
}

/// Begins an allocation on a new thread, which the source blocks.
fn block<'s, 'e>(scope: &'s Scope<'s, 'e>, slab: &'e RawSlab, gate: &Gate) -> Caller<'s> {
    gate.close();
    let caller = begin(scope, slab, 1000, Lifetime::Short);
    gate.wait_for_visitor();
    caller
}

/// Begins an allocation on a new thread.
fn begin<'s, 'e>(
    scope: &'s Scope<'s, 'e>,
    slab: &'e RawSlab,
    stamp: u64,
    lifetime: Lifetime,
) -> Caller<'s> {
    let (told, number) = mpsc::channel();
    let (give, got) = mpsc::channel();
    let thread = scope.spawn(move || {
        told.send(thread_number()).unwrap();
        let slot = slab.try_alloc_for(lifetime);
        give.send(slot.map(|slot| Object::stamp(slot, WORDS, stamp))).unwrap();
    });
    Caller { got, number: number.recv().unwrap(), thread }
}

/// Frees a slot by `free` while one thread is in the source and another one waits, which must get
/// that slot.
fn is_served(free: impl FnOnce(&RawSlab, Object) + Send) {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    let served = std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let waiter = begin(scope, slab, 2000, Lifetime::Short);
        waiter.wait_until_asleep();
        let object = objects.swap_remove(17);
        let address = object.start;
        free(slab, object);
        let served = waiter.object();
        assert_eq!(served.start, address, "by the one slot that was free");
        assert_eq!((gate.visitors(), gate.acquired()), (1, 1), "the source has not returned");
        gate.open();
        objects.push(blocked.object());
        served
    });
    objects.push(served);
    slab::assert_apart(&objects);
    slab::assert_exact(slab, objects.len(), None);
    objects.into_iter().for_each(|object| slab::free(slab, object));
    slab::assert_empties(slab);
}

#[test]
fn a_free_serves_a_waiter_before_the_source_returns() {
    is_served(slab::free);
}

#[test]
fn a_free_by_a_handle_serves_a_waiter() {
    is_served(|slab, object| {
        // SAFETY: live, from this slab, and ended.
        unsafe { slab.handle().free(object.end()) };
    });
}

#[test]
fn frees_in_one_go_serve_a_waiter() {
    is_served(|slab, object| {
        // SAFETY: as above.
        unsafe { slab.free_many(&[object.end()]) };
    });
}

#[test]
fn a_free_by_a_thread_that_never_allocated_serves_a_waiter() {
    is_served(|slab, object| {
        std::thread::scope(|scope| scope.spawn(|| slab::free(slab, object)).join().unwrap());
    });
}

#[test]
fn a_dropped_box_serves_a_waiter() {
    let gate = Gate::new();
    let slab = Slab::<[u64; 8]>::builder().source(gate.clone()).build();
    let mut boxes = vec![slab.alloc([0; 8])];
    while slab.statistics().free_bytes > 0 {
        boxes.push(slab.alloc([1; 8]));
    }
    std::thread::scope(|scope| {
        let blocked = block(scope, slab.raw(), &gate);
        let waiter = begin(scope, slab.raw(), 2000, Lifetime::Short);
        waiter.wait_until_asleep();
        drop(boxes.swap_remove(20));
        let served = waiter.object();
        assert_eq!(gate.visitors(), 1);
        gate.open();
        for object in [served, blocked.object()] {
            slab::free(slab.raw(), object);
        }
    });
    boxes.into_iter().for_each(|boxed| assert!(SlabBox::into_inner(boxed)[7] < 2));
    slab::assert_empties(slab.raw());
}

#[test]
fn the_end_of_a_thread_with_cached_slots_serves_a_waiter() {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        // Another page: this thread has cached all of its slots but one.
        let (end, ends) = mpsc::channel::<()>();
        let (told, has_slots) = mpsc::channel();
        let thread = scope.spawn(move || {
            let object = Object::stamp(slab.alloc(), WORDS, 500);
            slab::free(slab, object);
            told.send(()).unwrap();
            ends.recv().unwrap_err();
        });
        has_slots.recv().unwrap();
        let blocked = block(scope, slab, &gate);
        let waiter = begin(scope, slab, 2000, Lifetime::Short);
        waiter.wait_until_asleep();
        drop(end);
        thread.join().unwrap();
        objects.push(waiter.object());
        assert_eq!(gate.visitors(), 1);
        gate.open();
        objects.push(blocked.object());
    });
    slab::assert_apart(&objects);
    objects.into_iter().for_each(|object| slab::free(slab, object));
    slab::assert_empties(slab);
}

#[test]
fn a_slot_of_a_short_lived_page_serves_a_waiter_for_a_long_lived_one() {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let waiter = begin(scope, slab, 2000, Lifetime::Long);
        waiter.wait_until_asleep();
        slab::free(slab, objects.swap_remove(3));
        objects.push(waiter.object());
        gate.open();
        objects.push(blocked.object());
    });
    slab::assert_apart(&objects);
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn a_thread_does_not_wait_beside_slots_that_it_caches_for_the_other_lifetime() {
    for (mine, wanted) in [(Lifetime::Long, Lifetime::Short), (Lifetime::Short, Lifetime::Long)] {
        let gate = Gate::new();
        let (slab, mut objects) = full_page(&gate);
        let slab = &slab;
        std::thread::scope(|scope| {
            let (go, goes) = mpsc::channel::<()>();
            let (give, got) = mpsc::channel();
            scope.spawn(move || {
                give.send(Object::stamp(slab.alloc_for(mine), WORDS, 500)).unwrap();
                goes.recv().unwrap();
                give.send(Object::stamp(slab.alloc_for(wanted), WORDS, 501)).unwrap();
            });
            objects.push(got.recv().unwrap());
            let blocked = block(scope, slab, &gate);
            go.send(()).unwrap();
            let served = got.recv_timeout(FOR_EVER);
            let still_blocked = gate.visitors();
            gate.open();
            objects.push(served.expect("it has slots of its own"));
            assert_eq!(still_blocked, 1, "the source has not returned");
            objects.push(blocked.object());
        });
        slab::assert_apart(&objects);
        slab::assert_exact(slab, objects.len(), None);
        objects.into_iter().for_each(|object| slab::free(slab, object));
    }
}

#[test]
fn frees_are_cached_while_a_thread_that_waited_before_is_in_the_source() {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let former_waiter = begin(scope, slab, 2000, Lifetime::Short);
        former_waiter.wait_until_asleep();
        gate.refuse_one();
        assert_eq!(blocked.result().unwrap_err().kind(), ErrorKind::SourceRefused);
        gate.wait_for_visitor();
        // It is in the source now, and no thread waits. The refusal has recalled cached slots, which
        // the first free here answers.
        slab::free(slab, objects.swap_remove(7));
        objects.push(Object::stamp(slab.alloc(), WORDS, 3000));
        // From here on this thread caches what it frees.
        slab::free(slab, objects.swap_remove(3));
        let waiter = begin(scope, slab, 2001, Lifetime::Short);
        waiter.wait_until_asleep();
        assert!(waiter.got.try_recv().is_err(), "the slot did not go back to its page");
        // With this free the thread returns what it caches.
        slab::free(slab, objects.swap_remove(5));
        objects.push(waiter.object());
        assert_eq!(gate.visitors(), 1);
        gate.open();
        objects.push(former_waiter.object());
    });
    slab::assert_apart(&objects);
    slab::assert_exact(slab, objects.len(), None);
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn sixteen_waiters_are_served_by_sixteen_frees() {
    const WAITERS: u64 = 16;
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let waiters: Vec<_> =
            (0..WAITERS).map(|n| begin(scope, slab, 2000 + n, Lifetime::Short)).collect();
        waiters.iter().for_each(Caller::wait_until_asleep);
        for _ in 0..WAITERS {
            slab::free(slab, objects.swap_remove(5));
        }
        for waiter in waiters {
            objects.push(waiter.object());
        }
        assert_eq!((gate.visitors(), gate.acquired()), (1, 1), "the source has not returned");
        gate.open();
        objects.push(blocked.object());
    });
    slab::assert_apart(&objects);
    slab::assert_exact(slab, objects.len(), None);
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn calls_at_other_threads_go_on_while_the_source_blocks() {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        for round in 0..1000 {
            slab::free(slab, objects.remove(0));
            objects.push(Object::stamp(slab.alloc(), WORDS, 3000 + round));
        }
        slab.flush();
        assert_eq!(slab.trim(), 0);
        slab::assert_sums(&slab.statistics());
        slab.set_packing(true);
        slab.set_packing(false);
        assert_eq!(gate.visitors(), 1);
        gate.open();
        objects.push(blocked.object());
    });
    slab::assert_apart(&objects);
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn a_new_page_serves_all_threads_that_waited_for_it() {
    let gate = Gate::new();
    let (slab, mut objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let waiters: Vec<_> =
            (0..8).map(|n| begin(scope, slab, 2000 + n, Lifetime::Short)).collect();
        waiters.iter().for_each(Caller::wait_until_asleep);
        gate.open();
        objects.push(blocked.object());
        for waiter in waiters {
            objects.push(waiter.object());
        }
    });
    slab::assert_apart(&objects);
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn a_refusal_reaches_all_threads_that_waited_and_nothing_is_lost() {
    let gate = Gate::new();
    let (slab, objects) = full_page(&gate);
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        let waiters: Vec<_> =
            (0..8).map(|n| begin(scope, slab, 2000 + n, Lifetime::Short)).collect();
        waiters.iter().for_each(Caller::wait_until_asleep);
        gate.open_and_refuse();
        for caller in waiters.into_iter().chain([blocked]) {
            let error = caller.result().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SourceRefused);
        }
    });
    slab::assert_exact(slab, objects.len(), None);
    gate.accept();
    slab::free(slab, Object::stamp(slab.alloc(), WORDS, 1));
    objects.into_iter().for_each(|object| slab::free(slab, object));
}

#[test]
fn hardened_frees_go_on_while_the_source_blocks() {
    let gate = Gate::new();
    let slab = RawSlab::builder(WORDS).source(gate.clone()).hardened(true).build();
    let object = Object::stamp(slab.alloc(), WORDS, 1);
    let mut more = Vec::new();
    while slab.statistics().free_bytes > 0 {
        more.push(slab.alloc());
    }
    let slab = &slab;
    std::thread::scope(|scope| {
        let blocked = block(scope, slab, &gate);
        slab::free(slab, object);
        slab::assert_exact(slab, more.len(), None);
        gate.open();
        slab::free(slab, blocked.object());
    });
    // SAFETY: allocated above, freed once.
    more.into_iter().for_each(|slot| unsafe { slab.free(slot) });
}
