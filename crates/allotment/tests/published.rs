//! `Published`: what a reading returns, when a generation is dropped, and on which call.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use allotment::Published;
use allotment::sealed::PublishedGuard;
use support::child::{self, Child};
use support::traits::has;

/// A value that counts drops, and fails when it is read after its drop.
struct Counted {
    number: usize,
    alive: AtomicBool,
    ended: Arc<AtomicUsize>,
}

impl Counted {
    fn new(number: usize, ended: &Arc<AtomicUsize>) -> Self {
        Self { number, alive: AtomicBool::new(true), ended: Arc::clone(ended) }
    }

    fn number(&self) -> usize {
        assert!(self.alive.load(Ordering::Relaxed), "read after its drop");
        self.number
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Ordering::Relaxed), "dropped twice");
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn ended(counter: &Arc<AtomicUsize>) -> usize {
    counter.load(Ordering::Relaxed)
}

#[test]
fn a_reader_keeps_what_it_read_and_the_next_one_reads_what_was_published() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(1, &counter));
    let first = published.read();
    assert_eq!((first.number(), PublishedGuard::generation(&first)), (1, 1));
    assert_eq!(published.publish(Counted::new(2, &counter)), 2);
    let second = published.read();
    assert_eq!((first.number(), second.number(), published.generation()), (1, 2, 2));
    assert_eq!((ended(&counter), published.retired()), (0, 1));
    drop(first);
    assert_eq!((ended(&counter), published.retired()), (1, 0));
    drop(second);
    assert_eq!(ended(&counter), 1, "the current one stays");
    drop(published);
    assert_eq!(ended(&counter), 2);
}

#[test]
fn without_a_reader_the_writer_drops_the_old_generation_before_it_returns() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    for number in 1..=1000 {
        assert_eq!(published.publish(Counted::new(number, &counter)), number as u64 + 1);
        assert_eq!((ended(&counter), published.retired()), (number, 0));
    }
}

#[test]
fn the_last_of_many_readings_drops_the_generation_in_whatever_order_they_end() {
    let counter = Arc::<AtomicUsize>::default();
    for last in 0..20 {
        counter.store(0, Ordering::Relaxed);
        let published = Published::new(Counted::new(1, &counter));
        let mut readings: Vec<_> = (0..20).map(|_| published.read()).collect();
        published.publish(Counted::new(2, &counter));
        let last = readings.swap_remove(last);
        readings.clear();
        assert_eq!((last.number(), ended(&counter)), (1, 0));
        drop(last);
        assert_eq!(ended(&counter), 1);
    }
}

#[test]
fn each_of_many_generations_ends_with_its_own_reader() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    let mut readings = Vec::new();
    for number in 1..=100 {
        readings.push(published.read());
        published.publish(Counted::new(number, &counter));
    }
    assert_eq!((ended(&counter), published.retired()), (0, 100));
    for (count, index) in [50, 0, 97, 3].into_iter().enumerate() {
        assert!(readings[index].number() < 100);
        drop(readings.swap_remove(index));
        assert_eq!(ended(&counter), count + 1);
    }
    readings.clear();
    assert_eq!((ended(&counter), published.retired()), (100, 0));
}

#[test]
fn a_thread_reads_many_publications_at_a_time() {
    let all: Vec<_> = (0..100).map(Published::new).collect();
    let readings: Vec<_> = all.iter().map(Published::read).collect();
    for (number, published) in all.iter().enumerate() {
        published.publish(number + 1000);
    }
    for (number, (reading, published)) in readings.iter().zip(&all).enumerate() {
        assert_eq!((**reading, *published.read()), (number, number + 1000));
        assert_eq!(published.retired(), 1);
    }
    drop(readings);
    assert!(all.iter().all(|published| published.retired() == 0));
}

#[test]
fn an_update_loses_no_other_one() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let sum = Published::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|_| _ = sum.update(|sum| sum + 1)));
        }
    });
    let updates = THREADS * ROUNDS;
    assert_eq!((*sum.read(), sum.generation(), sum.retired()), (updates, updates as u64 + 1, 0));
}

#[test]
fn an_update_that_panics_publishes_nothing() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(1, &counter));
    let result = catch_unwind(AssertUnwindSafe(|| published.update(|_| panic!("no"))));
    assert!(result.is_err());
    assert_eq!((published.read().number(), published.generation(), ended(&counter)), (1, 1, 0));
    published.publish(Counted::new(2, &counter));
    assert_eq!(ended(&counter), 1, "the panicking update reads no more");
}

#[test]
fn writers_give_each_generation_a_number_of_its_own_in_the_order_of_publication() {
    let published = Published::new(0);
    let numbers = Mutex::new(vec![1]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut before = 0;
                for _ in 0..250 {
                    let number = published.publish(0);
                    assert!(number > before && published.generation() >= number);
                    before = number;
                    numbers.lock().unwrap().push(number);
                }
            });
        }
    });
    let mut numbers = numbers.into_inner().unwrap();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=1001));
}

#[test]
fn values_of_any_size_and_alignment_are_published() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let pages = Published::new(Page([1; 4096]));
    pages.publish(Page([2; 4096]));
    let page = pages.read();
    assert_eq!(std::ptr::from_ref(&*page).addr() % 4096, 0);
    assert!(page.0.iter().all(|byte| *byte == 2));
    let nothing = Published::new(());
    assert_eq!((nothing.publish(()), *nothing.read()), (2, ()));
}

#[test]
fn what_borrows_may_be_published() {
    let names = ["a".to_owned(), "b".to_owned()];
    let published = Published::new(&names[0]);
    published.publish(&names[1]);
    assert_eq!(**published.read(), "b");
}

#[test]
fn a_published_is_shared_by_threads_and_a_reading_stays_with_its_own() {
    assert!(has!(Published<usize>: Send) && has!(Published<usize>: Sync));
    assert!(
        !has!(PublishedGuard<'static, usize>: Send) && has!(PublishedGuard<'static, usize>: Sync)
    );
}

#[test]
fn debug_shows_the_value_and_its_number() {
    let published = Published::from(7);
    assert_eq!(format!("{published:?}"), "Published { generation: 1, value: 7, retired: 0 }");
    assert_eq!(format!("{:?} {}", published.read(), published.read()), "7 7");
    assert_eq!(*Published::<String>::default().read(), "");
}

// ---- many threads ----

#[test]
fn sixteen_threads_read_while_two_publish_and_nothing_ends_early_or_stays() {
    const READERS: usize = 14;
    const WRITERS: usize = 2;
    const PUBLICATIONS: usize = 1000;
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    let writing = AtomicUsize::new(WRITERS);
    let start = Barrier::new(READERS + WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (published, writing, start, counter) = (&published, &writing, &start, &counter);
            scope.spawn(move || {
                start.wait();
                for number in 0..PUBLICATIONS {
                    published.publish(Counted::new(writer * PUBLICATIONS + number, counter));
                    if number % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for reader in 0..READERS {
            let (published, writing, start) = (&published, &writing, &start);
            scope.spawn(move || {
                start.wait();
                let mut before = 0;
                let mut held = Vec::new();
                let mut round = reader;
                while writing.load(Ordering::Relaxed) > 0 {
                    round += 1;
                    let reading = published.read();
                    let generation = PublishedGuard::generation(&reading);
                    assert!(generation >= before, "generations go on");
                    before = generation;
                    reading.number();
                    // Some are held for long: more than a record has slots for.
                    if round % 5 == 0 {
                        held.push(reading);
                    }
                    if held.len() > reader {
                        drop(held.swap_remove(round % held.len()));
                    }
                    if round % 64 == 0 {
                        held.iter().for_each(|reading| _ = reading.number());
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let publications = WRITERS * PUBLICATIONS;
    assert_eq!((ended(&counter), published.retired()), (publications, 0));
    assert_eq!(published.generation(), publications as u64 + 1);
}

#[test]
fn a_long_reading_delays_no_other_generations_end() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    let long = published.read();
    for number in 1..=200 {
        published.publish(Counted::new(number, &counter));
        std::thread::scope(|scope| {
            scope.spawn(|| published.read().number());
        });
        assert_eq!((ended(&counter), published.retired()), (number - 1, 1));
    }
    assert_eq!(long.number(), 0);
}

#[test]
fn threads_that_come_and_go_leave_nothing_announced() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    for number in 1..=200 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let readings: Vec<_> = (0..20).map(|_| published.read()).collect();
                    readings.iter().for_each(|reading| _ = reading.number());
                });
            }
            published.publish(Counted::new(number, &counter));
        });
        assert_eq!((ended(&counter), published.retired()), (number, 0));
    }
}

// ---- a thread's end ----

static AT_THE_END: OnceLock<Published<Vec<usize>>> = OnceLock::new();

/// Reads when its thread's values are dropped, and may hold an earlier reading.
struct ReadsAtTheEnd(Option<PublishedGuard<'static, Vec<usize>>>);

impl Drop for ReadsAtTheEnd {
    fn drop(&mut self) {
        let published = AT_THE_END.get().unwrap();
        for _ in 0..3 {
            let readings: Vec<_> = (0..20).map(|_| published.read()).collect();
            assert!(readings.iter().all(|reading| reading.len() == 1));
        }
        assert_eq!(self.0.take().map_or(1, |reading| reading.len()), 1);
    }
}

thread_local! {
    static FIRST: RefCell<Option<ReadsAtTheEnd>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<ReadsAtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_reads_in_the_destructors_of_its_values() {
    let published = AT_THE_END.get_or_init(|| Published::new(vec![0]));
    for number in 1..=50 {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                std::thread::spawn(move || {
                    // One value of the thread is made before it first reads, and one after: one of
                    // them ends after what the library has of the thread.
                    FIRST.with(|value| *value.borrow_mut() = Some(ReadsAtTheEnd(None)));
                    let reading = published.read();
                    let held = (thread % 2 == 0).then(|| published.read());
                    SECOND.with(|value| *value.borrow_mut() = Some(ReadsAtTheEnd(held)));
                    FIRST.with(|value| {
                        value.borrow_mut().as_mut().unwrap().0 = Some(published.read());
                    });
                    drop(reading);
                })
            })
            .collect();
        published.publish(vec![number]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(published.retired(), 0, "no ended thread announces anything");
    }
}

#[test]
fn a_leaked_reading_keeps_its_generation_until_the_published_is_dropped() {
    let counter = Arc::default();
    let published = Published::new(Counted::new(1, &counter));
    for _ in 0..10 {
        std::mem::forget(published.read());
    }
    published.publish(Counted::new(2, &counter));
    published.publish(Counted::new(3, &counter));
    assert_eq!((ended(&counter), published.retired()), (1, 1));
    drop(published);
    assert_eq!(ended(&counter), 3);
    // Generations that reuse those addresses are dropped as usual.
    for _ in 0..100 {
        let next = Published::new(Counted::new(1, &counter));
        next.publish(Counted::new(2, &counter));
        assert_eq!(next.retired(), 0);
    }
}

// ---- destructors ----

struct Panics(bool, Arc<AtomicUsize>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "a destructor's own panic");
    }
}

fn message(result: std::thread::Result<()>) -> String {
    (*result.unwrap_err().downcast::<&str>().unwrap()).to_owned()
}

#[test]
fn a_destructors_panic_comes_out_of_publish_and_the_new_generation_is_in_place() {
    let counter = Arc::default();
    let published = Published::new(Panics(true, Arc::clone(&counter)));
    let new = Panics(false, Arc::clone(&counter));
    let result = catch_unwind(AssertUnwindSafe(|| _ = published.publish(new)));
    assert_eq!(message(result), "a destructor's own panic");
    assert_eq!((published.generation(), published.retired(), ended(&counter)), (2, 0, 1));
    assert!(!published.read().0);
    assert_eq!(published.publish(Panics(false, Arc::clone(&counter))), 3);
    drop(published);
    assert_eq!(ended(&counter), 3);
}

#[test]
fn a_destructors_panic_comes_out_of_the_last_readings_end_and_nothing_else_is_lost() {
    let counter = Arc::default();
    let panics = |panics| Panics(panics, Arc::clone(&counter));
    let published = Published::new(panics(false));
    // One reading keeps each generation. The end of the second reading drops what both leave.
    let first = published.read();
    published.publish(panics(true));
    let second = published.read();
    published.publish(panics(false));
    drop(first);
    let result = catch_unwind(AssertUnwindSafe(|| drop(second)));
    assert_eq!(message(result), "a destructor's own panic");
    assert_eq!((ended(&counter), published.retired()), (2, 0));
    // The drop of the `Published` drops all other generations too.
    let leaked = published.read();
    std::mem::forget(leaked);
    published.publish(panics(true));
    let result = catch_unwind(AssertUnwindSafe(|| drop(published)));
    assert_eq!(message(result), "a destructor's own panic");
    assert_eq!(ended(&counter), 4);
}

static CHAIN: OnceLock<Published<Chained>> = OnceLock::new();

/// Its destructor reads and publishes in the `Published` that held it.
struct Chained(usize);

impl Drop for Chained {
    fn drop(&mut self) {
        let chain = CHAIN.get().unwrap();
        let before = chain.read();
        if self.0 > 0 {
            chain.publish(Chained(self.0 - 1));
            assert!(chain.generation() > PublishedGuard::generation(&before));
        }
    }
}

#[test]
fn a_destructor_reads_and_publishes_where_its_value_was_published() {
    let chain = CHAIN.get_or_init(|| Published::new(Chained(0)));
    // The drop of 10 publishes 9, which replaces 20; the drop of 20 publishes 19, and so on.
    chain.publish(Chained(10));
    assert_eq!(chain.publish(Chained(20)), 3);
    // The value that is current at the end is not dropped.
    let left = chain.read().0;
    assert_eq!((chain.generation(), chain.retired()), (3 + 10 + 20 - left as u64, 0));
}

// ---- without the kernel's fences ----

/// Forbids `membarrier` to this process from here on. Returns whether that succeeded.
fn forbid_process_fences() -> bool {
    let forbidden = libc::SYS_membarrier as u32;
    let errno = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        // Load the call's number and compare it.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: forbidden,
        },
        statement(libc::BPF_RET | libc::BPF_K, errno),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a filter of four statements, for all threads.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const filter,
            ) == 0
    }
}

#[test]
fn where_the_kernel_has_no_fences_for_a_process_everything_holds_all_the_same() {
    let test = "where_the_kernel_has_no_fences_for_a_process_everything_holds_all_the_same";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    if !forbid_process_fences() {
        return println!("skipped: no system call can be forbidden here");
    }
    sixteen_threads_read_while_two_publish_and_nothing_ends_early_or_stays();
    threads_that_come_and_go_leave_nothing_announced();
    a_thread_reads_in_the_destructors_of_its_values();
}

#[test]
fn where_the_fences_are_forbidden_later_old_generations_stay_until_the_end_and_none_is_lost() {
    let test =
        "where_the_fences_are_forbidden_later_old_generations_stay_until_the_end_and_none_is_lost";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    let counter = Arc::default();
    let published = Published::new(Counted::new(0, &counter));
    published.publish(Counted::new(1, &counter));
    assert_eq!(ended(&counter), 1);
    if !forbid_process_fences() {
        return println!("skipped: no system call can be forbidden here");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (published, counter) = (&published, &counter);
            scope.spawn(move || {
                for number in 0..100 {
                    assert!(published.read().number() < 100);
                    published.publish(Counted::new(number, counter));
                }
            });
        }
    });
    assert_eq!(published.generation(), 402);
    // All replaced generations, unless this kernel never had the fences.
    let kept = published.retired();
    assert!(kept == 400 || kept == 0, "{kept}");
    drop(published);
    assert_eq!(ended(&counter), 402);
}
