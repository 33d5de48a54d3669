//! Models of `Published` (`src/sealed/generations.rs`, `hazard_records.rs`), explored by loom;
//! `.ci/loom` runs them.
//!
//! Each claim is explored with two full fences, and with the kernel's. Mutants of the protocol,
//! with one step wrong, each break a claim: those models must fail.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::fences::{KernelFences, as_thread};
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::publications::Model;

/// Spawns the model's thread with this number.
fn spawn(
    model: &Arc<Model>,
    number: usize,
    work: impl FnOnce(&Model) + 'static,
) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || {
        as_thread(number);
        work(&model);
    })
}

/// One thread reads while another publishes.
fn one_reads(reuses_addresses: bool) {
    let model = Model::new(reuses_addresses);
    let reader = spawn(&model, 1, |model| model.read(1));
    model.publish(0, 1);
    reader.join().unwrap();
    model.assert_ended(1);
}

/// Two threads read while another publishes.
fn two_read(reuses_addresses: bool) {
    let model = Model::new(reuses_addresses);
    let readers = [1, 2].map(|number| spawn(&model, number, move |model| model.read(number)));
    model.publish(0, 1);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    model.assert_ended(1);
}

/// One thread reads while two others publish.
fn two_publish(reuses_addresses: bool) {
    let model = Model::new(reuses_addresses);
    let other = spawn(&model, 1, |model| model.publish(1, 1));
    let reader = spawn(&model, 2, |model| model.read(2));
    model.publish(0, 2);
    other.join().unwrap();
    reader.join().unwrap();
    model.assert_ended(2);
}

/// One thread reads while another publishes twice.
fn one_publishes_twice(reuses_addresses: bool) {
    let model = Model::new(reuses_addresses);
    let reader = spawn(&model, 1, |model| model.read(1));
    model.publish(0, 1);
    model.publish(0, 2);
    reader.join().unwrap();
    model.assert_ended(2);
}

/// A thread that read before leaves while another one publishes and a third one reads.
fn one_leaves(reuses_addresses: bool) {
    let model = Model::new(reuses_addresses);
    as_thread(1);
    let before = model.begin(1);
    as_thread(0);
    let threads = [
        spawn(&model, 0, |model| model.publish(0, 1)),
        spawn(&model, 1, move |model| model.end(1, before)),
        spawn(&model, 2, |model| model.read(2)),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    model.assert_ended(1);
}

fn explore_with_the_kernels_fences(preemptions: usize, model: fn(bool), reuses_addresses: bool) {
    let _by_kernel = KernelFences::new();
    explore(preemptions, move || model(reuses_addresses));
}

macro_rules! holds {
    ($($name:ident: $model:ident, $preemptions:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn with_full_fences() {
                explore($preemptions, || $model(false));
            }

            #[test]
            fn with_the_kernels_fences() {
                explore_with_the_kernels_fences($preemptions, $model, false);
            }

            /// The next generation has the address of one that ended.
            #[test]
            fn with_addresses_that_are_reused() {
                explore_with_the_kernels_fences($preemptions, $model, true);
            }
        })*
    };
}

holds! {
    a_generation_outlives_its_reader_and_ends_with_it: one_reads, 4;
    the_last_of_two_readers_ends_the_generation: two_read, 2;
    of_two_publications_at_a_time_both_take_place: two_publish, 2;
    generations_end_one_after_the_other: one_publishes_twice, 3;
    a_scan_beside_the_writers_own_ends_nothing_early: one_leaves, 2;
}

macro_rules! fails {
    ($($name:ident: $model:ident, $mutant:literal, $message:literal;)*) => {
        $(#[test]
        #[should_panic(expected = $message)]
        fn $name() {
            let _mutant = Mutant::new($mutant);
            explore_with_the_kernels_fences(2, $model, false);
        })*
    };
}

fails! {
    a_reader_without_a_second_check_reads_what_has_ended: one_reads, "announce: no second check", "Concurrent read and write";
    a_reader_that_announces_without_a_fence_reads_what_has_ended: one_reads, "announce: no fence", "Concurrent read and write";
    a_reader_that_withdraws_quietly_leaves_a_generation_behind: one_reads, "reader: no scan after a failed announcement", "every replaced generation has ended";
    a_reader_that_leaves_quietly_leaves_a_generation_behind: one_reads, "withdraw: no check", "every replaced generation has ended";
    a_reader_that_leaves_without_a_fence_leaves_a_generation_behind: one_reads, "withdraw: no fence", "every replaced generation has ended";
    a_slot_that_is_cleared_relaxed_lets_a_generation_end_beside_its_reader: one_reads, "withdraw: relaxed", "Concurrent read and write";
    a_generation_that_is_published_relaxed_is_read_before_it_is_made: one_leaves, "replace: relaxed", "Concurrent read and write";
    a_writer_that_fences_before_it_replaces_ends_what_is_read: one_reads, "replace: fence before the exchange", "Concurrent read and write";
    a_scan_that_is_not_counted_leaves_a_generation_behind: one_reads, "scan: not counted", "every replaced generation has ended";
    a_list_taken_without_release_leaves_a_generation_behind: one_reads, "take: no release", "every replaced generation has ended";
    a_list_put_back_without_acquire_leaves_a_generation_behind: one_reads, "push: no acquire", "every replaced generation has ended";
    a_list_put_back_blindly_leaves_a_generation_behind: one_reads, "scan: no second scan", "every replaced generation has ended";
    a_count_that_begins_after_the_scan_leaves_a_generation_behind: one_reads, "scan: count read late", "every replaced generation has ended";
    a_list_that_no_scan_takes_ends_a_generation_twice: one_leaves, "scan: list not taken", "Concurrent write";
}
