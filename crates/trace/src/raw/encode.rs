//! Writing events while the recorded program can be killed at any instruction.
//!
//! Invariants: only this encoder writes to `[position, end)`, and that memory is zero. A field is
//! written as eight bytes, of which the unused upper ones are zero, so the memory after an event
//! stays zero. [`MAX_EVENT_SIZE`] includes these bytes.

use super::event::{AllocationFlags, LockWait, MAX_MODULE_SIZE, RawModule, code};
use super::{
    FIRST_NODE, MAX_BUILD_ID_LENGTH, MAX_EVENT_SIZE, MAX_PATH_LENGTH, field_size_log2, rotated,
    zigzag,
};
use core::sync::atomic::{AtomicU8, Ordering};

/// Writes events into a chunk.
#[derive(Debug)]
pub struct Encoder {
    /// The address of the next event.
    position: *mut u8,
    end: *mut u8,
    tick: u64,
    address: u64,
    /// The return address of the newest node in this chunk.
    return_address: u64,
    /// The counts of nodes and kinds of the stream, over all its chunks.
    nodes: u32,
    kinds: u32,
}

impl Encoder {
    /// An encoder without memory, for a stream that has not begun.
    pub const fn closed() -> Self {
        let none = core::ptr::null_mut();
        Self {
            position: none,
            end: none,
            tick: 0,
            address: 0,
            return_address: 0,
            nodes: 0,
            kinds: 0,
        }
    }

    /// Gives up the memory. The stream continues in the next chunk.
    pub fn close(&mut self) {
        (self.position, self.end) = (core::ptr::null_mut(), core::ptr::null_mut());
    }

    /// Continues the stream in the memory of a chunk that begins at `tick`.
    ///
    /// # Safety
    ///
    /// `size` bytes from `start`, at least [`MAX_EVENT_SIZE`], are zero. Nothing else writes there,
    /// and they stay valid as long as events are encoded.
    pub unsafe fn open(&mut self, start: *mut u8, size: usize, tick: u64) {
        debug_assert!(size >= MAX_EVENT_SIZE);
        let (position, end) = (start, start.wrapping_add(size));
        let (nodes, kinds) = (self.nodes, self.kinds);
        *self = Self { position, end, tick, nodes, kinds, ..Self::closed() };
        if nodes > 0 || kinds > 0 {
            // SAFETY: at most 11 bytes.
            unsafe { self.coded(code::NUMBERS, &[u64::from(nodes), u64::from(kinds)]) };
        }
    }

    /// The number of free bytes.
    #[inline(always)]
    pub fn bytes_left(&self) -> usize {
        self.end as usize - self.position as usize
    }

    /// The address of the next event.
    pub fn position(&self) -> *const u8 {
        self.position
    }

    /// Whether any event but a module fits.
    #[inline(always)]
    pub fn has_space(&self) -> bool {
        self.bytes_left() >= MAX_EVENT_SIZE
    }

    /// The time of the last event.
    pub fn last_tick(&self) -> u64 {
        self.tick
    }

    /// # Safety
    ///
    /// At least `offset + 8` bytes are free.
    #[inline(always)]
    unsafe fn put(&mut self, offset: usize, value: u64) {
        // SAFETY: the caller has checked the space.
        unsafe { self.position.add(offset).cast::<u64>().write_unaligned(value.to_le()) }
    }

    /// Completes an event of `length` bytes, whose fields are written, so that readers see it.
    ///
    /// # Safety
    ///
    /// `length` bytes are free.
    #[inline(always)]
    unsafe fn finish(&mut self, first: u8, length: usize) {
        // SAFETY: the caller has checked the space. Nothing else writes there.
        unsafe {
            AtomicU8::from_ptr(self.position).store(first, Ordering::Release);
            self.position = self.position.add(length);
        }
    }

    /// The ticks since the previous event; 0 if `tick` is earlier.
    #[inline(always)]
    fn elapsed(&mut self, tick: u64) -> u64 {
        let delta = (tick.wrapping_sub(self.tick) as i64).max(0) as u64;
        self.tick += delta;
        delta
    }

    /// The encoded difference from the previous address.
    #[inline(always)]
    fn address_difference(&mut self, address: u64) -> u64 {
        let rotated = rotated(address);
        let difference = rotated.wrapping_sub(self.address);
        self.address = rotated;
        zigzag(difference)
    }

    /// Writes an allocation of a kind that was announced.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn allocated(&mut self, tick: u64, address: u64, kind: u32) {
        let time = self.elapsed(tick);
        let address = self.address_difference(address);
        let (t, a, k) =
            (field_size_log2(time), field_size_log2(address), field_size_log2(u64::from(kind)));
        // SAFETY: at most 1 + 8 + 8 + 8 bytes.
        unsafe {
            self.put(1, time);
            self.put(1 + (1 << t), address);
            self.put(1 + (1 << t) + (1 << a), u64::from(kind));
            let length = 1 + (1 << t) + (1 << a) + (1 << k);
            self.finish((0b1100_0000 | t << 4 | a << 2 | k) as u8, length);
        }
    }

    /// Writes an allocation of the kind that was announced last.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space), and a kind was announced after the last
    /// [`forget`](Self::forget).
    pub unsafe fn allocated_of_newest_kind(&mut self, tick: u64, address: u64) {
        debug_assert!(self.kinds > 0);
        // SAFETY: as the caller promised.
        unsafe { self.block_event(tick, address, 0b0100_0011) }
    }

    /// Writes an event with an address and no kind. `code` has the bits of the first byte besides
    /// the highest one and the sizes of the fields.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    unsafe fn block_event(&mut self, tick: u64, address: u64, code: u32) {
        let time = self.elapsed(tick);
        let address = self.address_difference(address);
        let (t, a) = (field_size_log2(time), field_size_log2(address));
        // SAFETY: at most 1 + 8 + 8 bytes.
        unsafe {
            self.put(1, time);
            self.put(1 + (1 << t), address);
            self.finish((0b1000_0000 | t << 4 | a << 2 | code) as u8, 1 + (1 << t) + (1 << a));
        }
    }

    /// Writes a free.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn freed(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.block_event(tick, address, 0) }
    }

    /// Writes the free at the start of a reallocation.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn freed_by_realloc(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.block_event(tick, address, 1) }
    }

    /// Writes a query for the usable size of a block.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn usable_size_queried(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.block_event(tick, address, 2) }
    }

    /// Writes an event with a [`code`].
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space), and one byte and ten for each field are free.
    unsafe fn coded(&mut self, code: u8, fields: &[u64]) {
        let mut length = 1;
        for &field in fields {
            // SAFETY: the caller has checked the space.
            length += unsafe { varint(self.position.add(length), field) };
        }
        // SAFETY: the same.
        unsafe { self.finish(code, length) }
    }

    /// The encoded distance of a node from the newest one. Nodes that are no frames are stored as
    /// they are.
    fn node_distance(&self, node: u32) -> u64 {
        if node < FIRST_NODE {
            return u64::from(node);
        }
        // If the node was not announced, the reader reports damage.
        u64::from((FIRST_NODE + self.nodes).wrapping_sub(node)) + u64::from(FIRST_NODE) - 1
    }

    /// Writes a node of the tree of stacks. It gets the stream's next number; the first is
    /// [`FIRST_NODE`].
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn node(&mut self, parent: u32, return_address: u64) {
        let difference = zigzag(return_address.wrapping_sub(self.return_address));
        // SAFETY: at most 21 bytes.
        unsafe { self.coded(code::NODE, &[self.node_distance(parent), difference]) }
        self.return_address = return_address;
        self.nodes += 1;
    }

    /// Writes a kind of allocation. It gets the stream's next number; the first is 0.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn kind(&mut self, node: u32, size: u64, flags: AllocationFlags) {
        // SAFETY: at most 31 bytes.
        unsafe { self.coded(code::KIND, &[self.node_distance(node), size, u64::from(flags.0)]) }
        self.kinds += 1;
    }

    /// Writes that from here on the stream is this thread's.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn thread(&mut self, tick: u64, thread: u32, system_id: u32) {
        let time = self.elapsed(tick);
        // SAFETY: at most 31 bytes.
        unsafe { self.coded(code::THREAD, &[time, u64::from(thread), u64::from(system_id)]) }
    }

    /// Writes that the thread has ended. More of its events may follow after a new
    /// [`thread`](Self::thread).
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn thread_end(&mut self, tick: u64) {
        let time = self.elapsed(tick);
        // SAFETY: at most 11 bytes.
        unsafe { self.coded(code::THREAD_END, &[time]) }
    }

    /// Writes a wait for a lock that ended at `tick`.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn waited(&mut self, tick: u64, wait: LockWait) {
        let time = self.elapsed(tick);
        let lock = wait.lock as u64;
        // SAFETY: at most 47 bytes.
        unsafe {
            self.coded(code::WAIT, &[time, wait.ticks, u64::from(wait.node), wait.address, lock]);
        }
    }

    /// Writes that a module was found.
    ///
    /// # Safety
    ///
    /// [`MAX_MODULE_SIZE`] bytes are free.
    pub unsafe fn module(&mut self, tick: u64, module: &RawModule<'_>) {
        let time = self.elapsed(tick);
        let path = &module.path[..module.path.len().min(MAX_PATH_LENGTH)];
        let build_id = &module.build_id[..module.build_id.len().min(MAX_BUILD_ID_LENGTH)];
        debug_assert!(self.bytes_left() >= MAX_MODULE_SIZE);
        let mut length = 1;
        // SAFETY: four numbers of at most ten bytes, two lengths of at most two, and the two
        // strings fit into MAX_MODULE_SIZE.
        unsafe {
            for field in [time, module.bias, module.start, module.end] {
                length += varint(self.position.add(length), field);
            }
            for string in [build_id, path] {
                length += varint(self.position.add(length), string.len() as u64);
                self.position.add(length).copy_from_nonoverlapping(string.as_ptr(), string.len());
                length += string.len();
            }
            self.finish(code::MODULE, length);
        }
    }

    /// Writes that the module that began at `start` was unloaded.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn module_unloaded(&mut self, tick: u64, start: u64) {
        let time = self.elapsed(tick);
        // SAFETY: at most 21 bytes.
        unsafe { self.coded(code::MODULE_UNLOADED, &[time, start]) }
    }

    /// Writes that nodes and kinds are numbered anew.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn forget(&mut self) {
        // SAFETY: one byte.
        unsafe { self.finish(code::FORGET, 1) }
        (self.nodes, self.kinds) = (0, 0);
    }
}

/// Writes a number in groups of seven bits, the lowest first. Returns its length in bytes.
///
/// # Safety
///
/// Ten bytes are free.
unsafe fn varint(start: *mut u8, mut value: u64) -> usize {
    let mut length = 0;
    loop {
        let more = value >= 0x80;
        // SAFETY: 64 bits take at most ten bytes.
        unsafe { start.add(length).write(value as u8 & 0x7f | u8::from(more) << 7) };
        length += 1;
        if !more {
            return length;
        }
        value >>= 7;
    }
}
