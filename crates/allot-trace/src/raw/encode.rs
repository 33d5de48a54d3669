//! Writing events where the program that is recorded can be killed at any instruction.
//!
//! Invariants: `[at, end)` is memory that this encoder alone writes to, and it is zero. A field is written as eight bytes whose
//! upper ones are zero, so what lies behind an event stays zero; [`MAX_EVENT_SIZE`] leaves room for that.

use super::{
    FIRST_NODE, Flags, MAX_BUILD_ID_LENGTH, MAX_EVENT_SIZE, MAX_MODULE_SIZE, MAX_PATH_LENGTH,
    RawModule, code, turned, zigzag,
};
use core::sync::atomic::{AtomicU8, Ordering};

/// Writes events into a chunk.
#[derive(Debug)]
pub struct Encoder {
    at: *mut u8,
    end: *mut u8,
    tick: u64,
    address: u64,
    /// The return address of the chunk's last node.
    return_address: u64,
    /// How many nodes and kinds the stream has, over all its chunks.
    nodes: u32,
    kinds: u32,
}

/// The lock that a thread waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// A mutex.
    Mutex,
    /// A lock for readers and writers, waited for by a reader.
    Read,
    /// A lock for readers and writers, waited for by a writer.
    Write,
}

/// A wait for a lock, in a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWait {
    /// The stack that waited.
    pub node: u32,
    /// The lock's address.
    pub address: u64,
    /// What kind of lock.
    pub lock: Lock,
    /// How many ticks it took.
    pub ticks: u64,
}

/// For each number of significant bytes less one, the code of the field's size: two bits each.
const CODES: u32 = 0b11_11_11_11_10_10_01_00;

/// The code for the size of a field with this value.
#[inline(always)]
fn size_code(value: u64) -> u32 {
    let bytes = (63 - (value | 1).leading_zeros()) >> 3;
    (CODES >> (2 * bytes)) & 3
}

impl Encoder {
    /// An encoder without room, for a stream that has not begun.
    pub const fn closed() -> Self {
        let none = core::ptr::null_mut();
        Self { at: none, end: none, tick: 0, address: 0, return_address: 0, nodes: 0, kinds: 0 }
    }

    /// Takes the room away; the stream goes on with the next chunk.
    pub fn close(&mut self) {
        (self.at, self.end) = (core::ptr::null_mut(), core::ptr::null_mut());
    }

    /// Goes on in the room of a chunk whose header says that it begins at `tick`.
    ///
    /// # Safety
    ///
    /// `room` bytes from `at`, at least [`MAX_EVENT_SIZE`], are zero, nobody else writes there, and they stay for as long as
    /// something is encoded.
    pub unsafe fn open(&mut self, at: *mut u8, room: usize, tick: u64) {
        debug_assert!(room >= MAX_EVENT_SIZE);
        let (nodes, kinds) = (self.nodes, self.kinds);
        *self = Self { at, end: at.wrapping_add(room), tick, nodes, kinds, ..Self::closed() };
        if nodes > 0 || kinds > 0 {
            // SAFETY: there is room for 11 bytes.
            unsafe { self.rare(code::NUMBERS, &[u64::from(nodes), u64::from(kinds)]) };
        }
    }

    /// Bytes that are left.
    #[inline(always)]
    pub fn bytes_left(&self) -> usize {
        self.end as usize - self.at as usize
    }

    /// Where the next event will begin.
    pub fn position(&self) -> *const u8 {
        self.at
    }

    /// Whether the next small event fits.
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
    /// The encoder [has space](Self::has_space) `offset + 8` bytes.
    #[inline(always)]
    unsafe fn put(&mut self, offset: usize, value: u64) {
        // SAFETY: the caller left room for it.
        unsafe { self.at.add(offset).cast::<u64>().write_unaligned(value.to_le()) }
    }

    /// Makes the event of `length` bytes whose fields are written one that readers see.
    ///
    /// # Safety
    ///
    /// The encoder has room for it.
    #[inline(always)]
    unsafe fn finish(&mut self, first: u8, length: usize) {
        // SAFETY: the caller left room for it; nobody else writes there.
        unsafe {
            AtomicU8::from_ptr(self.at).store(first, Ordering::Release);
            self.at = self.at.add(length);
        }
    }

    #[inline(always)]
    fn since(&mut self, tick: u64) -> u64 {
        let delta = (tick.wrapping_sub(self.tick) as i64).max(0) as u64;
        self.tick += delta;
        delta
    }

    #[inline(always)]
    fn away(&mut self, address: u64) -> u64 {
        let turned = turned(address);
        let difference = turned.wrapping_sub(self.address);
        self.address = turned;
        zigzag(difference)
    }

    /// An allocation of a kind that was announced.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn allocated(&mut self, tick: u64, address: u64, kind: u32) {
        let time = self.since(tick);
        let address = self.away(address);
        let (t, a, k) = (size_code(time), size_code(address), size_code(u64::from(kind)));
        // SAFETY: 1 + 8 + 8 + 8 bytes at most.
        unsafe {
            self.put(1, time);
            self.put(1 + (1 << t), address);
            self.put(1 + (1 << t) + (1 << a), u64::from(kind));
            let length = 1 + (1 << t) + (1 << a) + (1 << k);
            self.finish((0b1100_0000 | t << 4 | a << 2 | k) as u8, length);
        }
    }

    /// An allocation of the kind that was announced last.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space), and a kind was announced since all were forgotten.
    pub unsafe fn allocated_of_newest_kind(&mut self, tick: u64, address: u64) {
        debug_assert!(self.kinds > 0);
        let time = self.since(tick);
        let address = self.away(address);
        let (t, a) = (size_code(time), size_code(address));
        // SAFETY: 1 + 8 + 8 bytes at most.
        unsafe {
            self.put(1, time);
            self.put(1 + (1 << t), address);
            self.finish((0b1100_0011 | t << 4 | a << 2) as u8, 1 + (1 << t) + (1 << a));
        }
    }

    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    unsafe fn of_a_block(&mut self, tick: u64, address: u64, which: u32) {
        let time = self.since(tick);
        let address = self.away(address);
        let (t, a) = (size_code(time), size_code(address));
        // SAFETY: 1 + 8 + 8 bytes at most.
        unsafe {
            self.put(1, time);
            self.put(1 + (1 << t), address);
            self.finish((0b1000_0000 | t << 4 | a << 2 | which) as u8, 1 + (1 << t) + (1 << a));
        }
    }

    /// A free.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn freed(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.of_a_block(tick, address, 0) }
    }

    /// The free that a reallocation begins with.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    #[inline(always)]
    pub unsafe fn freed_by_realloc(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.of_a_block(tick, address, 1) }
    }

    /// A question for the usable size of a block.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn usable_size_queried(&mut self, tick: u64, address: u64) {
        // SAFETY: as the caller promised.
        unsafe { self.of_a_block(tick, address, 2) }
    }

    /// Writes the fields of one of the rarer events.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space), and so do nine bytes for each field.
    unsafe fn rare(&mut self, code: u8, fields: &[u64]) {
        let mut length = 1;
        for &field in fields {
            // SAFETY: the caller left room for it.
            length += unsafe { varint(self.at.add(length), field) };
        }
        // SAFETY: the same.
        unsafe { self.finish(code, length) }
    }

    /// How far a node lies behind the newest, with those that are no frames as they are.
    fn behind(&self, node: u32) -> u64 {
        if node < FIRST_NODE {
            return u64::from(node);
        }
        // A node that was not announced is damage, which the reader notices.
        u64::from((FIRST_NODE + self.nodes).wrapping_sub(node)) + u64::from(FIRST_NODE) - 1
    }

    /// A node of the tree of stacks; it gets the stream's next number, the first one [`FIRST_NODE`].
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn node(&mut self, parent: u32, return_address: u64) {
        let away = zigzag(return_address.wrapping_sub(self.return_address));
        // SAFETY: 21 bytes at most.
        unsafe { self.rare(code::NODE, &[self.behind(parent), away]) }
        self.return_address = return_address;
        self.nodes += 1;
    }

    /// A kind of allocation; it gets the stream's next number, the first one 0.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn kind(&mut self, node: u32, size: u64, flags: Flags) {
        // SAFETY: 31 bytes at most.
        unsafe { self.rare(code::KIND, &[self.behind(node), size, u64::from(flags.0)]) }
        self.kinds += 1;
    }

    /// From here on the stream is a thread's.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn thread(&mut self, tick: u64, thread: u32, system_id: u32) {
        let time = self.since(tick);
        // SAFETY: 31 bytes at most.
        unsafe { self.rare(code::THREAD, &[time, u64::from(thread), u64::from(system_id)]) }
    }

    /// The thread has ended; some of its events may still follow, after a new [`thread`](Self::thread).
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn thread_end(&mut self, tick: u64) {
        let time = self.since(tick);
        // SAFETY: 11 bytes at most.
        unsafe { self.rare(code::THREAD_END, &[time]) }
    }

    /// The thread waited for a lock, until `tick`.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn waited(&mut self, tick: u64, wait: LockWait) {
        let time = self.since(tick);
        let lock = wait.lock as u64;
        // SAFETY: 47 bytes at most.
        unsafe {
            self.rare(code::WAIT, &[time, wait.ticks, u64::from(wait.node), wait.address, lock]);
        }
    }

    /// A module was found.
    ///
    /// # Safety
    ///
    /// The encoder has [`MAX_MODULE_SIZE`] bytes of room.
    pub unsafe fn module(&mut self, tick: u64, module: &RawModule<'_>) {
        let time = self.since(tick);
        let path = &module.path[..module.path.len().min(MAX_PATH_LENGTH)];
        let build_id = &module.build_id[..module.build_id.len().min(MAX_BUILD_ID_LENGTH)];
        debug_assert!(self.bytes_left() >= MAX_MODULE_SIZE);
        let mut length = 1;
        // SAFETY: four numbers of ten bytes, two lengths of two, and the two strings fit in MAX_MODULE_SIZE.
        unsafe {
            for field in [time, module.bias, module.start, module.end] {
                length += varint(self.at.add(length), field);
            }
            for string in [build_id, path] {
                length += varint(self.at.add(length), string.len() as u64);
                self.at.add(length).copy_from_nonoverlapping(string.as_ptr(), string.len());
                length += string.len();
            }
            self.finish(code::MODULE, length);
        }
    }

    /// The module that began at `start` has gone.
    ///
    /// # Safety
    ///
    /// The encoder [has space](Self::has_space).
    pub unsafe fn module_unloaded(&mut self, tick: u64, start: u64) {
        let time = self.since(tick);
        // SAFETY: 21 bytes at most.
        unsafe { self.rare(code::MODULE_GONE, &[time, start]) }
    }

    /// Nodes and kinds are numbered anew.
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

/// Writes seven bits a byte, the lowest first, and says how many bytes it took.
///
/// # Safety
///
/// There is room for ten bytes.
unsafe fn varint(at: *mut u8, mut value: u64) -> usize {
    let mut length = 0;
    loop {
        let more = value >= 0x80;
        // SAFETY: 64 bits take ten bytes at most.
        unsafe { at.add(length).write(value as u8 & 0x7f | u8::from(more) << 7) };
        length += 1;
        if !more {
            return length;
        }
        value >>= 7;
    }
}
