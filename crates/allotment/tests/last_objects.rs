//! The end of the last object moves: small objects that share 16 bytes are shrunk, grown and freed,
//! mostly in reverse order. Now and then an object is larger than a window.

#[cfg(not(system_memory))]
#[path = "support/absent_options.rs"]
mod absent_options;

use std::alloc::Layout;
use std::ptr::NonNull;

#[cfg(not(system_memory))]
use absent_options::*;
use allotment::Arena;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn size(&mut self) -> usize {
        match self.below(20) {
            0..=15 => 1 + self.below(33),
            16..=18 => 1 + self.below(300),
            _ => 1_048_500 + self.below(200),
        }
    }
}

/// An object and the byte that it is filled with (a large one at both ends).
#[derive(Clone, Copy)]
struct Object {
    start: NonNull<u8>,
    layout: Layout,
    byte: u8,
}

impl Object {
    fn fill(&self) {
        let size = self.layout.size();
        let edge = if size <= 4096 { size } else { 64 };
        // SAFETY: the object is live and of this size.
        unsafe {
            self.start.write_bytes(self.byte, edge);
            self.start.add(size - edge).write_bytes(self.byte, edge);
        }
    }

    /// The first `size` bytes are as they were filled.
    fn check(&self, size: usize) {
        let edge = if size <= 4096 { size } else { 64 };
        // SAFETY: the object is live and has at least `size` bytes, written by `fill`.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), edge) };
        assert!(bytes.iter().all(|&byte| byte == self.byte), "{size} bytes were overwritten");
    }
}

fn check_all<const MIN_ALIGN: usize>(arena: &Arena<MIN_ALIGN>, objects: &[Object]) {
    let mut bytes = 0;
    for object in objects {
        object.check(object.layout.size());
        bytes += object.layout.size() as u64;
    }
    let statistics = arena.statistics();
    assert_eq!((statistics.live_objects, statistics.live_bytes), (objects.len() as u64, bytes));
}

/// `count` steps that leave the first `outer` objects alone.
fn steps<const MIN_ALIGN: usize>(
    random: &mut Random,
    arena: &Arena<MIN_ALIGN>,
    objects: &mut Vec<Object>,
    count: usize,
    outer: usize,
) {
    for _ in 0..count {
        let operation = random.below(10);
        let inner = objects.len() - outer;
        if operation <= 3 || inner == 0 {
            let layout = Layout::from_size_align(random.size(), 1 << random.below(6)).unwrap();
            let start = arena.alloc_layout(layout);
            assert_eq!(start.addr().get() % layout.align(), 0);
            let object = Object { start, layout, byte: random.below(256) as u8 };
            object.fill();
            objects.push(object);
        } else {
            let latest = random.below(3) > 0;
            let from_end = random.below(if latest { inner.min(3) } else { inner });
            let index = objects.len() - 1 - from_end;
            let Object { start, layout, byte } = objects[index];
            let size = layout.size();
            let align = 1 << random.below(5);
            let new_size = match operation {
                4..=6 => 0,
                7 => size - random.below(8.min(size)),
                8 => 1 + random.below(size.min(40)),
                _ => size + random.below(40),
            };
            let new = Layout::from_size_align(new_size, align).unwrap();
            objects[index].check(size);
            // SAFETY: the object is the arena's, live, of this layout, and of the open scope.
            let moved = unsafe {
                if new_size == 0 {
                    arena.free_layout(start, layout);
                    objects.remove(index);
                    continue;
                }
                arena.resize(start, layout, new)
            };
            let object = Object { start: moved, layout: new, byte };
            if size <= 4096 {
                object.check(size.min(new_size));
            }
            object.fill();
            objects[index] = object;
        }
        if random.below(8) == 0 {
            check_all(arena, objects);
        }
    }
    check_all(arena, objects);
}

fn program<const MIN_ALIGN: usize>(seed: u64, hardened: bool) {
    let mut random = Random::new(seed);
    let hint = [0, 5000, 3 << 20, 8 << 20][(seed % 4) as usize];
    let builder = Arena::<MIN_ALIGN>::builder_with_min_align();
    let mut arena = builder.hint(hint).hardened(hardened).build();
    for _ in 0..3 {
        let mut objects = Vec::new();
        steps(&mut random, &arena, &mut objects, 60, 0);
        let mut mark = arena.mark();
        for _ in 0..2 {
            let mut inside = objects.clone();
            steps(&mut random, &mark, &mut inside, 30, objects.len());
            mark.rewind();
            check_all(&mark, &objects);
        }
        drop(mark);
        steps(&mut random, &arena, &mut objects, 60, 0);
        arena.reset();
        check_all(&arena, &[]);
    }
}

fn programs<const MIN_ALIGN: usize>(count: u64) {
    for seed in 0..count {
        program::<MIN_ALIGN>(seed, false);
    }
}

#[test]
fn at_byte_positions_no_object_is_overwritten_and_all_are_counted() {
    programs::<1>(300);
}

#[test]
fn at_positions_of_eight_no_object_is_overwritten_and_all_are_counted() {
    programs::<8>(300);
}

#[test]
fn at_positions_of_sixteen_no_object_is_overwritten_and_all_are_counted() {
    programs::<16>(300);
}

#[test]
fn in_hardened_mode_no_object_is_overwritten_and_all_are_counted() {
    for seed in 0..12 {
        program::<8>(seed, true);
    }
}
