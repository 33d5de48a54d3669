//! Programs on a file as a source: bytes decoded into blocks and ranges of pages that are taken and
//! given back, each checked against a model.
//!
//! Every byte string is a program, as for arenas.

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::source::PagedSource;
use allotment::{File, Source};

use super::input::Input;
use super::setup::file_directory;

/// A block.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    pattern: u8,
}

/// A range of pages, with the pattern of each page that is committed.
struct Range {
    start: NonNull<u8>,
    layout: Layout,
    pages: Vec<Option<u8>>,
}

/// # Safety
/// `len` bytes that the caller alone uses.
unsafe fn fill_zeroed(start: NonNull<u8>, len: usize, pattern: u8) {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) };
    assert!(bytes.iter().all(|&byte| byte == 0), "fresh memory is not zero");
    bytes.fill(pattern);
}

/// # Safety
/// As for [`fill_zeroed`].
unsafe fn check(start: NonNull<u8>, len: usize, pattern: u8) {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
    assert!(bytes.iter().all(|&byte| byte == pattern), "two blocks share memory");
}

struct Program {
    file: File,
    page: usize,
    blocks: Vec<Block>,
    ranges: Vec<Range>,
}

impl Program {
    fn acquire(&mut self, input: &mut Input<'_>) {
        let size = 1 + input.below(5) * self.page + input.below(self.page);
        let align = 1 << input.below(22);
        let layout = Layout::from_size_align(size, align).expect("a few pages");
        let pattern = input.byte().max(1);
        // A full disk may refuse.
        let Ok(start) = self.file.acquire(layout) else { return };
        assert_eq!(start.addr().get() % align, 0);
        // SAFETY: a new block.
        unsafe { fill_zeroed(start, size, pattern) };
        self.blocks.push(Block { start, layout, pattern });
    }

    fn release(&mut self, block: Block) {
        // SAFETY: a block of the file with this layout, released once.
        unsafe {
            check(block.start, block.layout.size(), block.pattern);
            self.file.release(block.start, block.layout);
        }
    }

    fn reserve(&mut self, input: &mut Input<'_>) {
        let pages = 1 + input.below(8);
        let align = self.page << input.below(6);
        let layout = Layout::from_size_align(pages * self.page, align).expect("a few pages");
        let Ok(start) = self.file.reserve(layout) else { return };
        assert_eq!(start.addr().get() % align, 0);
        self.ranges.push(Range { start, layout, pages: vec![None; pages] });
    }

    /// Commits a page, or decommits it if it is committed.
    fn switch(&mut self, range: usize, index: usize, pattern: u8) {
        let (file, page) = (&self.file, self.page);
        let range = &mut self.ranges[range];
        let index = index % range.pages.len();
        // SAFETY: a page of the range, and committed exactly if the model says so.
        unsafe {
            let start = range.start.add(index * page);
            match range.pages[index] {
                Some(pattern) => {
                    check(start, page, pattern);
                    file.decommit(start, page);
                    range.pages[index] = None;
                }
                None if file.commit(start, page).is_ok() => {
                    fill_zeroed(start, page, pattern);
                    range.pages[index] = Some(pattern);
                }
                None => {}
            }
        }
    }

    fn unreserve(&mut self, range: usize) {
        for index in 0..self.ranges[range].pages.len() {
            if self.ranges[range].pages[index].is_some() {
                self.switch(range, index, 0);
            }
        }
        let Range { start, layout, .. } = self.ranges.swap_remove(range);
        // SAFETY: reserved with this layout, and none of it is committed.
        unsafe { self.file.unreserve(start, layout) };
    }

    /// What is in use has its own part of the file.
    fn check_offsets(&self) {
        let blocks = self.blocks.iter().map(|block| (block.start, block.layout.size()));
        let ranges = self.ranges.iter().map(|range| (range.start, range.layout.size()));
        let mut used: Vec<(u64, u64)> = blocks
            .chain(ranges)
            .map(|(start, size)| {
                let offset = self.file.offset_of(start.as_ptr()).expect("in use");
                (offset, size.next_multiple_of(self.page) as u64)
            })
            .collect();
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{used:?}");
        assert_eq!(self.file.used_bytes(), used.iter().map(|(_, len)| len).sum::<u64>());
    }
}

/// Runs the program that these bytes are.
pub fn run(bytes: &[u8]) {
    let input = &mut Input::new(bytes);
    let Ok(file) = File::in_directory(&file_directory()) else { return };
    let byte = Layout::new::<u8>();
    let Ok(first) = file.acquire(byte) else { return };
    let page = file.used_bytes() as usize;
    // SAFETY: acquired above.
    unsafe { file.release(first, byte) };
    let mut program = Program { file, page, blocks: Vec::new(), ranges: Vec::new() };
    while !input.is_empty() {
        let (blocks, ranges) = (program.blocks.len(), program.ranges.len());
        match input.below(10) {
            0..=2 => program.acquire(input),
            3 | 4 if blocks > 0 => {
                let block = program.blocks.swap_remove(input.below(blocks));
                program.release(block);
            }
            5 => program.reserve(input),
            6..=8 if ranges > 0 => {
                program.switch(input.below(ranges), input.below(8), input.byte().max(1));
            }
            9 if ranges > 0 => program.unreserve(input.below(ranges)),
            _ => {}
        }
        program.check_offsets();
    }
    while let Some(block) = program.blocks.pop() {
        program.release(block);
    }
    while !program.ranges.is_empty() {
        program.unreserve(0);
    }
    assert_eq!(program.file.used_bytes(), 0);
}
