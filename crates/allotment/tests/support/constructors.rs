//! The steps that make objects: every kind of allocating call, with constructors that panic and
//! fail.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

use allotment::{AllocError, Arena};

use super::{Run, caught, throw};

/// Throws when its clone is due.
struct Fuse<'c> {
    left: &'c Cell<usize>,
    bytes: [u8; 12],
}

impl Clone for Fuse<'_> {
    fn clone(&self) -> Self {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => throw(),
        }
        Self { left: self.left, bytes: self.bytes }
    }
}

/// Counts its drops, and has bytes of its own.
struct Counted<'c>(&'c Cell<usize>, #[allow(dead_code, reason = "it is there")] [u64; 3]);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// An iterator that says what it likes of its length, and throws at the end if it is told to.
struct Liar {
    left: usize,
    said: usize,
    throws: bool,
}

impl Iterator for Liar {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            if self.throws {
                throw();
            }
            return None;
        }
        self.left -= 1;
        Some(self.left as u32)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.said, None)
    }
}

fn of<T: ?Sized>(value: &mut T) -> (NonNull<u8>, Layout) {
    let layout = Layout::for_value(value);
    (NonNull::from(value).cast(), layout)
}

impl Run<'_> {
    /// One allocating call.
    pub(super) fn construct<const M: usize>(&mut self, op: u8, arena: &Arena<M>) {
        let before = arena.statistics();
        let made = match op {
            0..=4 => self.layout(op, arena),
            5 => arena.try_alloc([self.input.byte(); 24]).map(of),
            6 => {
                let text = "abcdefghijklmnopqrstuvwxyz".repeat(1 + self.input.below(8));
                let text = &text[..self.input.below(text.len() + 1)];
                arena.try_alloc_str(text).map(|copy| {
                    assert_eq!(copy, text);
                    of(copy)
                })
            }
            7 => {
                let values = vec![self.input.word(); self.input.below(300)];
                arena.try_alloc_slice_copy(&values).map(|copy| {
                    assert_eq!(copy, values);
                    of(copy)
                })
            }
            8 => {
                let (count, size) = (self.input.below(200), self.input.below(300));
                arena.try_calloc(count, size).map(|zeros| {
                    assert_eq!(zeros.len(), count * size);
                    assert!(zeros.iter().step_by(1 + zeros.len() / 64).all(|&byte| byte == 0));
                    let bytes = zeros.len();
                    (
                        NonNull::from(zeros).cast(),
                        Layout::from_size_align(bytes, 16).expect("valid"),
                    )
                })
            }
            9 => arena.try_alloc_uninit::<(u64, u8)>().map(of),
            10 => arena.try_alloc_slice_uninit::<u64>(self.input.below(100)).map(of),
            11 => return self.boxed(arena),
            12..=14 => return self.throwing(op, arena),
            15 => return self.failing(arena),
            _ => return self.collect(arena),
        };
        match made {
            Ok((start, layout)) => self.adopt::<M>(start, layout),
            Err(error) => self.unchanged(arena, &before, error),
        }
    }

    fn layout<const M: usize>(
        &mut self,
        op: u8,
        arena: &Arena<M>,
    ) -> Result<(NonNull<u8>, Layout), AllocError> {
        let layout = Layout::from_size_align(self.input.size(), self.input.align());
        let layout = layout.expect("small enough");
        if op == 4 {
            let start = arena.try_alloc_layout_zeroed(layout)?;
            // SAFETY: memory of this layout, just made.
            let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), layout.size()) };
            assert!(bytes.iter().step_by(1 + bytes.len() / 64).all(|&byte| byte == 0));
            return Ok((start, layout));
        }
        arena.try_alloc_layout(layout).map(|start| (start, layout))
    }

    /// A value that is dropped once, with its box; its memory stays.
    fn boxed<const M: usize>(&mut self, arena: &Arena<M>) {
        let drops = Cell::new(0);
        let before = arena.statistics();
        match arena.try_alloc_boxed(Counted(&drops, [7; 3])) {
            Ok(mut boxed) => {
                let (start, layout) = of(&mut *boxed);
                drop(boxed);
                self.adopt::<M>(start, layout);
            }
            Err(error) => self.unchanged(arena, &before, error),
        }
        assert_eq!(drops.get(), 1, "dropped exactly once");
    }

    /// Constructors that may panic: nothing half-made is left.
    fn throwing<const M: usize>(&mut self, op: u8, arena: &Arena<M>) {
        let len = self.input.below(40);
        let throw_at = self.input.below(80);
        let before = arena.statistics();
        let made = match op {
            12 => caught(|| {
                arena.try_alloc_with(|| if throw_at < 40 { throw() } else { [throw_at; 5] }).map(of)
            }),
            13 => caught(|| {
                let make = |index| if index == throw_at { throw() } else { index as u16 };
                arena.try_alloc_slice_with(len, make).map(of)
            }),
            _ => {
                let left = Cell::new(throw_at);
                let fuses: Vec<_> =
                    (0..len).map(|_| Fuse { left: &left, bytes: [1; 12] }).collect();
                caught(|| arena.try_alloc_slice_clone(&fuses).map(of))
            }
        };
        match made {
            Some(Ok((start, layout))) => self.adopt::<M>(start, layout),
            Some(Err(error)) => self.unchanged(arena, &before, error),
            // Chunks may have come, objects not.
            None => self.check(arena),
        }
    }

    /// Constructors that may fail, one of them in an arena that its constructor uses too.
    fn failing<const M: usize>(&mut self, arena: &Arena<M>) {
        let fails = self.input.one_in(2);
        let inner = self.input.one_in(2);
        let before = arena.statistics();
        let mut side = None;
        let made = arena.try_alloc_try_with(|| {
            if inner {
                side = arena.try_alloc([3u64; 4]).ok().map(of);
            }
            if fails { Err("no") } else { Ok([5u32; 9]) }
        });
        match made.map(|made| made.map(of)) {
            Ok(Ok((start, layout))) => {
                assert!(!fails);
                self.adopt::<M>(start, layout);
            }
            Ok(Err(error)) => assert_eq!((error, fails), ("no", true)),
            Err(error) => self.unchanged(arena, &before, error),
        }
        if let Some((start, layout)) = side {
            self.adopt::<M>(start, layout);
        }
        let len = self.input.below(20);
        let fail_at = self.input.below(40);
        let before = arena.statistics();
        let fail = |index| if index == fail_at { Err(index) } else { Ok(index as u64) };
        match arena.try_alloc_slice_try_with(len, fail).map(|made| made.map(of)) {
            Ok(Ok((start, layout))) => self.adopt::<M>(start, layout),
            Ok(Err(index)) => assert!(index == fail_at && index < len),
            Err(error) => self.unchanged(arena, &before, error),
        }
    }

    /// A slice from an iterator that may be wrong about its length and may throw at its end.
    fn collect<const M: usize>(&mut self, arena: &Arena<M>) {
        let left = self.input.below(120);
        let said = self.input.below(200);
        let values = Liar { left, said, throws: self.input.one_in(3) };
        let before = arena.statistics().live_bytes;
        let made = caught(|| arena.try_alloc_slice_from_iter(values).map(of));
        // Where it failed half way, what it had is gone, though chunks may have come.
        if let Some(Ok((start, layout))) = made {
            assert_eq!(layout.size(), left * 4);
            assert_eq!((arena.statistics().live_bytes - before) as usize, layout.size());
            self.adopt::<M>(start, layout);
        }
    }
}
