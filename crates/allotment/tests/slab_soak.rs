//! A soak: threads start and end, pass objects to each other, switch packing, reach budgets and
//! meet failing sources at random. No two live objects overlap, and every byte is accounted for at
//! the end.
//!
//! `ALLOTMENT_SOAK_SECONDS` in the environment sets its length; 3 if it is not set. `--nocapture`
//! shows what was done.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use allotment::slab::Lifetime;
use allotment::source::SharedSource;
use allotment::{AllocError, Budget, File, Malloc, Mmap, RawSlab, Release, Slab, SlabBox};
use support::object::assert_refusal;
use support::setup::file_directory;
use support::slab::{self, Object, Random, free_many, layout};
use support::slab_sources::PagedRecorder;
use support::sources::{Recorder, Refuse};

/// The most threads at a time.
const THREADS: usize = 16;
/// If more objects than this wait for another thread, the next thread frees some.
const MOST_LEFT: usize = 4000;

/// A slab under test, with its budget and its source.
struct Soaked {
    slab: RawSlab,
    budget: Budget,
    blocks: Option<Arc<Recorder>>,
    ranges: Option<Arc<PagedRecorder>>,
    file: Option<Arc<File>>,
    refused: AtomicU64,
}

/// An object that a thread leaves to other threads.
enum Left {
    Raw(usize, Object),
    /// A value of a slab that may have been dropped.
    Boxed(SlabBox<[u64; 5]>, u64),
}

struct Soak {
    slabs: Vec<Soaked>,
    left: [Mutex<Vec<Left>>; 4],
    /// The budget of the slabs that live for a moment.
    passing: Budget,
    stop: AtomicBool,
    threads_born: AtomicU64,
    calls: AtomicU64,
}

fn soaked(server: &Budget, index: usize) -> Soaked {
    let (size, align, cap) = [
        (64, 8, 400_000),
        (200, 8, 1 << 20),
        (24, 8, 300_000),
        (1000, 64, 3 << 20),
        (9000, 8, 6 << 20),
        (40, 8, 500_000),
        (300_000, 4096, 16 << 20),
    ][index];
    let (mut blocks, mut ranges, mut file) = (None, None, None);
    let source: SharedSource = match index {
        1 => {
            let made = PagedRecorder::new(Mmap::new(), Refuse::OneIn(23));
            ranges = Some(made.clone());
            made.into()
        }
        2 | 4 => {
            let made = Recorder::new(Malloc, Refuse::OneIn(19));
            blocks = Some(made.clone());
            made.into()
        }
        3 => {
            let made = Arc::new(File::in_directory(&file_directory()).expect("a file"));
            file = Some(made.clone());
            made.into()
        }
        _ => Mmap::new().into(),
    };
    let release = match index {
        1 | 6 => Release::AtOnce,
        2 => Release::Keep(100_000),
        3 => Release::Decay(Duration::from_millis(20)),
        _ => Release::Adaptive,
    };
    let budget = server.child(cap);
    let slab = RawSlab::builder(layout(size, align))
        .name(format!("soaked {index}"))
        .source(source)
        .release(release)
        .budget(&budget)
        .max_page_bytes(if index % 2 == 0 { 64 << 10 } else { 16 << 10 })
        .hardened(index == 5)
        .build();
    Soaked { slab, budget, blocks, ranges, file, refused: AtomicU64::new(0) }
}

/// One thread of the soak.
struct Thread<'s> {
    soak: &'s Soak,
    random: Random,
    next_number: u64,
    objects: Vec<Vec<Object>>,
    boxes: Vec<(SlabBox<[u64; 5]>, u64)>,
}

impl Thread<'_> {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn adopt(&mut self, index: usize, slot: Result<core::ptr::NonNull<u8>, AllocError>) {
        let soaked = &self.soak.slabs[index];
        match slot {
            Ok(slot) => {
                let object = Object::stamp(slot, soaked.slab.layout(), self.number());
                self.objects[index].push(object);
            }
            Err(error) => {
                assert_refusal(error);
                soaked.refused.fetch_add(1, Ordering::Relaxed);
                // Room for others.
                let stay = self.objects[index].len() / 2;
                self.objects[index].drain(stay..).for_each(|one| slab::free(&soaked.slab, one));
            }
        }
    }

    fn step(&mut self) {
        let index = self.random.below(self.soak.slabs.len());
        let slab = &self.soak.slabs[index].slab;
        // Large objects in small numbers.
        let count = 1 + self.random.below((400_000 / slab.layout().size()).clamp(2, 300));
        match self.random.below(20) {
            0..=3 => (0..count).for_each(|_| self.adopt(index, slab.try_alloc())),
            4 => {
                let handle = slab.handle();
                (0..count).for_each(|_| self.adopt(index, handle.try_alloc()));
            }
            5 => (0..count / 8 + 1)
                .for_each(|_| self.adopt(index, slab.try_alloc_for(Lifetime::Long))),
            6 => {
                let mut slots = vec![MaybeUninit::uninit(); count];
                match slab.try_alloc_many(&mut slots) {
                    // SAFETY: written, says the result.
                    Ok(()) => slots
                        .iter()
                        .for_each(|slot| self.adopt(index, Ok(unsafe { slot.assume_init() }))),
                    Err(error) => self.adopt(index, Err(error)),
                }
            }
            7..=9 => {
                for _ in 0..count.min(self.objects[index].len()) {
                    let which = self.random.below(self.objects[index].len());
                    slab::free(slab, self.objects[index].swap_remove(which));
                }
            }
            10 => {
                let count = count.min(self.objects[index].len());
                free_many(slab, self.objects[index].drain(..count));
            }
            11 | 12 => self.leave(index, count),
            13..=15 => self.take_over(),
            16 => {
                let handle = slab.handle();
                let stay = self.objects[index].len().saturating_sub(count);
                for object in self.objects[index].drain(stay..).rev() {
                    // SAFETY: live, from this slab, and ended.
                    unsafe { handle.free(object.end()) };
                }
            }
            17 => self.pass_through_a_slab(),
            18 => match self.random.below(4) {
                0 => slab.flush(),
                1 => {
                    slab.trim();
                }
                2 => {
                    if let Err(error) = slab.try_reserve(count) {
                        assert_refusal(error);
                    }
                }
                _ => std::thread::yield_now(),
            },
            _ => {
                let own = &self.objects[index];
                own.iter().step_by(1 + own.len() / 16).for_each(Object::assert_intact);
            }
        }
        self.soak.calls.fetch_add(count as u64, Ordering::Relaxed);
        while self.objects.iter().map(Vec::len).sum::<usize>() > 6000 {
            let most = (0..self.objects.len()).max_by_key(|index| self.objects[*index].len());
            self.leave(most.expect("there are slabs"), 1000);
        }
    }

    fn left(&mut self) -> std::sync::MutexGuard<'_, Vec<Left>> {
        let shelf = &self.soak.left[self.random.below(self.soak.left.len())];
        shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves objects to others.
    fn leave(&mut self, index: usize, count: usize) {
        let count = count.min(self.objects[index].len());
        let objects: Vec<_> = self.objects[index].drain(..count).collect();
        let boxes = self.boxes.split_off(self.boxes.len() / 2);
        let mut left = self.left();
        left.extend(objects.into_iter().map(|object| Left::Raw(index, object)));
        left.extend(boxes.into_iter().map(|(boxed, number)| Left::Boxed(boxed, number)));
    }

    /// Takes what others have left, and frees a part of it.
    fn take_over(&mut self) {
        let (few, all) = (self.random.below(300), self.random.one_in(40));
        let taken = {
            let mut left = self.left();
            let surplus = left.len().saturating_sub(MOST_LEFT);
            let stay = if all { 0 } else { left.len().saturating_sub(few.max(surplus)) };
            left.split_off(stay)
        };
        for one in taken {
            match one {
                Left::Raw(index, object) if self.random.one_in(3) => {
                    object.assert_intact();
                    self.objects[index].push(object);
                }
                Left::Raw(index, object) => slab::free(&self.soak.slabs[index].slab, object),
                Left::Boxed(boxed, number) => assert_eq!(*boxed, [number; 5]),
            }
        }
    }

    /// A slab that lives for a moment, and objects of it that live on.
    fn pass_through_a_slab(&mut self) {
        let slab = Slab::builder().budget(&self.soak.passing).build();
        for _ in 0..self.random.below(200) {
            let number = self.number();
            self.boxes.push((slab.alloc([number; 5]), number));
        }
        if self.random.one_in(2) {
            let stay = self.boxes.len() / 2;
            for (boxed, number) in self.boxes.drain(stay..) {
                assert_eq!(SlabBox::into_inner(boxed), [number; 5]);
            }
        }
    }

    fn run(mut self) {
        let life = [2, 20, 200, 1000][self.random.below(4)];
        for _ in 0..1 + self.random.below(life) {
            if self.soak.stop.load(Ordering::Relaxed) {
                break;
            }
            self.step();
        }
        // The thread leaves its objects to others, or frees them.
        let leaves = self.random.one_in(2);
        for index in 0..self.objects.len() {
            if leaves {
                self.leave(index, usize::MAX);
            }
            slab::assert_apart(&self.objects[index]);
            for object in core::mem::take(&mut self.objects[index]) {
                slab::free(&self.soak.slabs[index].slab, object);
            }
        }
        for (boxed, number) in self.boxes {
            assert_eq!(*boxed, [number; 5]);
        }
    }
}

/// Keeps the number of threads constant until the time is over or one of them has failed.
fn keep_alive(soak: &Soak, time: Duration) {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let mut random = Random::new(began.elapsed().as_nanos() as u64);
        let mut threads: Vec<std::thread::ScopedJoinHandle<'_, ()>> = Vec::new();
        let mut failed = false;
        while began.elapsed() < time && !failed {
            let mut running = Vec::new();
            for thread in threads.drain(..) {
                if thread.is_finished() {
                    failed |= thread.join().is_err();
                } else {
                    running.push(thread);
                }
            }
            threads = running;
            let wanted = 1 + random.below(THREADS);
            while threads.len() < wanted {
                let id = soak.threads_born.fetch_add(1, Ordering::Relaxed);
                let thread = Thread {
                    soak,
                    random: Random::new(id.wrapping_mul(0x9e37_79b9)),
                    next_number: id << 32,
                    objects: soak.slabs.iter().map(|_| Vec::new()).collect(),
                    boxes: Vec::new(),
                };
                threads.push(scope.spawn(|| thread.run()));
            }
            for soaked in &soak.slabs {
                if random.one_in(3) {
                    soaked.slab.set_packing(!soaked.slab.packing());
                }
                assert!(soaked.budget.used() <= soaked.budget.limit());
            }
            if random.one_in(5) {
                let report = allotment::report();
                assert!(report.allocators.iter().filter(|one| one.kind == "slab").count() >= 7);
            }
            std::thread::sleep(Duration::from_millis(random.below(8) as u64));
        }
        soak.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            failed |= thread.join().is_err();
        }
        assert!(!failed, "a thread failed");
    });
}

#[test]
fn no_objects_overlap_and_every_byte_is_accounted_for_at_the_end() {
    let seconds = std::env::var("ALLOTMENT_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.map_or(3, |given| given.parse().expect("a number of seconds"));
    let server = Budget::new(24 << 20);
    let soak = Soak {
        slabs: (0..7).map(|index| soaked(&server, index)).collect(),
        left: Default::default(),
        passing: Budget::new(usize::MAX),
        stop: AtomicBool::new(false),
        threads_born: AtomicU64::new(0),
        calls: AtomicU64::new(0),
    };
    keep_alive(&soak, Duration::from_secs(seconds));

    let Soak { slabs, left, passing, threads_born, calls, .. } = soak;
    let mut objects: Vec<Vec<Object>> = slabs.iter().map(|_| Vec::new()).collect();
    for one in left.into_iter().flat_map(|shelf| shelf.into_inner().expect("no thread failed")) {
        match one {
            Left::Raw(index, object) => objects[index].push(object),
            Left::Boxed(boxed, number) => assert_eq!(*boxed, [number; 5]),
        }
    }
    println!("{} threads, {} calls", threads_born.into_inner(), calls.into_inner());
    assert_eq!(passing.used(), 0, "every slab that passed through went with its last object");
    let mut all_refused = 0;
    for (soaked, objects) in slabs.into_iter().zip(objects) {
        let Soaked { slab, budget, blocks, ranges, file, refused } = soaked;
        println!("{} refused, at the end {:?}", refused.load(Ordering::Relaxed), slab.statistics());
        slab::assert_apart(&objects);
        slab::assert_exact(&slab, objects.len(), Some(&budget));
        objects.into_iter().for_each(|object| slab::free(&slab, object));
        slab::assert_exact(&slab, 0, Some(&budget));
        let empty = slab::assert_empties(&slab);
        assert_eq!(budget.used() as u64, empty.structure_bytes, "nothing but structures is left");
        all_refused += refused.into_inner();
        drop(slab);
        assert_eq!(budget.used(), 0);
        assert_eq!(blocks.map_or(0, |blocks| blocks.lent_blocks()), 0);
        assert_eq!(ranges.map_or(0, |ranges| ranges.lent_ranges()), 0);
        assert_eq!(file.map_or(0, |file| file.used_bytes()), 0);
    }
    assert_eq!(server.used(), 0);
    assert!(all_refused > 0 || seconds < 3, "budgets and sources refused");
}
