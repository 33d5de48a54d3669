//! The programs that count in the kernel.
//!
//! Three maps. One has the threads of the recorded program, by the system's number of each: a thread comes in when one that is in there
//! makes it, or, the first, by a call with a secret number; it goes at its end. Its value is the call that it is in, and
//! since when. The second has the sums of each kind of call, for each processor. The third has the small transfers of each open
//! file. The recorder's own calls have a [mark](MARK) and are left out.

use super::assemble::Register::{Frame, R0, R1, R2, R3, R4, R6, R7, R8, R9};
use super::assemble::{Assembler, Function, Label, When};
use super::kernel::Instruction;
use recorder::sys::MARK;
use trace_format::container::SMALL;

/// Numbers of calls that are told apart; what is beyond isn't counted.
pub const CALLS: u32 = 512;
/// Behind them, calls that are told apart from others with their number, and page faults.
pub const FUTEX_WAIT: u32 = CALLS;
pub const MMAP_ANONYMOUS: u32 = CALLS + 1;
pub const FAULTS: u32 = CALLS + 2;
/// All of them.
pub const KINDS: u32 = CALLS + 3;

/// Words of a thread's value: its call, when that began, the result that makes it a small transfer, and its file.
pub const THREAD_WORDS: usize = 4;
const CALL: i16 = 0;
const BEGAN: i16 = 8;
const WANTED: i16 = 16;
const FILE: i16 = 24;
/// Words of a kind's value.
pub const WORDS: usize = 6;
/// Each of them.
pub const COUNT: usize = 0;
pub const NANOSECONDS: usize = 1;
pub const FAILED: usize = 2;
pub const BYTES: usize = 3;
pub const SMALL_COUNT: usize = 4;
pub const SMALL_BYTES: usize = 5;

/// Words of an open file's value: small transfers, and their bytes.
pub const FILE_WORDS: usize = 2;
/// In the key of an open file, which has its number below and the process's above: writes.
pub const WRITTEN: u64 = 1 << 31;

/// A thread is in no call that is counted.
const NO_CALL: i32 = -1;
/// What is wanted of calls that write: any result will do. Of those that read it's what they asked for: if there was less, a larger
/// buffer would not have had more. Others want nothing.
const ANY: i32 = -1;
const READING: [i64; 3] = [libc::SYS_read, libc::SYS_pread64, libc::SYS_recvfrom];
const WRITING: [i64; 6] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];
/// Operations on a futex that wait, without their options.
const WAITS: [i32; 5] = [
    libc::FUTEX_WAIT,
    libc::FUTEX_LOCK_PI,
    libc::FUTEX_WAIT_BITSET,
    libc::FUTEX_WAIT_REQUEUE_PI,
    13,
];
const OPERATION: i32 = 127;

/// Where the trace points of calls have their fields: the call's number, its arguments, its result.
const NUMBER: i16 = 8;
const ARGUMENTS: i16 = 16;
const RESULT: i16 = 16;
/// Where programs keep a key and a thread's value in their frame.
const KEY: i16 = -4;
const LONG_KEY: i16 = -16;
const VALUE: i16 = -48;

/// The maps' files, and the namespace of processes that open files are named in.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    pub threads: i32,
    pub kinds: i32,
    pub files: i32,
    /// Its device and its number; `None`: files are not told apart.
    pub namespace: Option<(u64, u64)>,
}

/// Begins a program: R7 is this thread's value, or it goes on at the end of what `otherwise` writes.
fn find_thread(program: &mut Assembler, maps: Maps, otherwise: impl FnOnce(&mut Assembler)) {
    let found = program.label();
    program.copy(R6, R1);
    program.call(Function::Thread);
    program.store_32(Frame, KEY, R0);
    look_up(program, maps.threads);
    program.copy(R7, R0);
    program.jump_when(R0, When::NotEqual, 0, found);
    otherwise(program);
    leave(program);
    program.here(found);
}

/// Looks the key in the frame up.
fn look_up(program: &mut Assembler, map: i32) {
    program.set_map(R1, map);
    program.copy(R2, Frame);
    program.add(R2, i32::from(KEY));
    program.call(Function::Lookup);
}

fn leave(program: &mut Assembler) {
    program.set(R0, 0);
    program.exit();
}

/// Puts the thread whose number is the key in.
fn put_thread_in(program: &mut Assembler, maps: Maps) {
    program.set(R1, NO_CALL);
    for word in 0..THREAD_WORDS as i16 {
        program.store(Frame, VALUE + 8 * word, R1);
    }
    program.set_map(R1, maps.threads);
    program.copy(R2, Frame);
    program.add(R2, i32::from(KEY));
    program.copy(R3, Frame);
    program.add(R3, i32::from(VALUE));
    program.set(R4, 0);
    program.call(Function::Update);
}

fn take_thread_out(program: &mut Assembler, maps: Maps) {
    program.set_map(R1, maps.threads);
    program.copy(R2, Frame);
    program.add(R2, i32::from(KEY));
    program.call(Function::Delete);
}

/// At the beginning of a call.
pub fn enter(maps: Maps, secret: u64) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    find_thread(p, maps, |p| {
        let other = p.label();
        p.load(R1, R6, NUMBER);
        p.jump_when(R1, When::NotEqual, libc::SYS_prctl as i32, other);
        p.load(R1, R6, ARGUMENTS);
        p.set_wide(R2, secret);
        p.jump_when_register(R1, When::NotEqual, R2, other);
        put_thread_in(p, maps);
        p.here(other);
    });
    let (store, wait, not_futex, none) = (p.label(), p.label(), p.label(), p.label());
    p.load(R8, R6, NUMBER);
    p.load(R1, R6, ARGUMENTS + 4 * 8);
    p.shift_right(R1, 32);
    p.jump_when(R1, When::Equal, MARK as i32, none);
    p.jump_when(R8, When::NotLess, CALLS as i32, none);
    p.jump_when(R8, When::NotEqual, libc::SYS_futex as i32, not_futex);
    p.load(R1, R6, ARGUMENTS + 8);
    p.and(R1, OPERATION);
    for operation in WAITS {
        p.jump_when(R1, When::Equal, operation, wait);
    }
    p.jump(store);
    p.here(wait);
    p.set(R8, FUTEX_WAIT as i32);
    p.jump(store);
    p.here(not_futex);
    p.jump_when(R8, When::NotEqual, libc::SYS_mmap as i32, store);
    p.load(R1, R6, ARGUMENTS + 3 * 8);
    p.and(R1, libc::MAP_ANONYMOUS);
    p.jump_when(R1, When::Equal, 0, store);
    p.set(R8, MMAP_ANONYMOUS as i32);
    p.here(store);
    p.store(R7, CALL, R8);
    let (read, write, wanted) = (p.label(), p.label(), p.label());
    for (calls, label) in [(&READING[..], read), (&WRITING[..], write)] {
        for &call in calls {
            p.jump_when(R8, When::Equal, call as i32, label);
        }
    }
    p.set(R1, 0);
    p.jump(wanted);
    p.here(read);
    p.load(R1, R6, ARGUMENTS + 2 * 8);
    p.jump(wanted);
    p.here(write);
    p.set(R1, ANY);
    p.here(wanted);
    p.store(R7, WANTED, R1);
    p.load(R1, R6, ARGUMENTS);
    p.store(R7, FILE, R1);
    p.call(Function::Nanoseconds);
    p.store(R7, BEGAN, R0);
    leave(p);
    p.here(none);
    p.set(R1, NO_CALL);
    p.store(R7, CALL, R1);
    leave(p);
    program.finish()
}

/// Adds 1 to a word of the kind in R7.
fn add(program: &mut Assembler, word: usize) {
    program.set(R1, 1);
    program.add_to(R7, 8 * word as i16, R1);
}

/// At the end of a call.
pub fn leave_call(maps: Maps) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    let (end, worked, small) = (p.label(), p.label(), p.label());
    p.load(R8, R7, CALL);
    p.jump_when(R8, When::Equal, NO_CALL, end);
    p.set(R1, NO_CALL);
    p.store(R7, CALL, R1);
    p.store_32(Frame, KEY, R8);
    p.copy(R9, R7);
    look_up(p, maps.kinds);
    p.jump_when(R0, When::Equal, 0, end);
    // From here on R7 is the kind's value, and R9 the thread's.
    p.copy(R7, R0);
    add(p, COUNT);
    p.call(Function::Nanoseconds);
    p.load(R1, R9, BEGAN);
    p.subtract(R0, R1);
    p.add_to(R7, 8 * NANOSECONDS as i16, R0);
    p.load(R8, R6, RESULT);
    p.jump_when(R8, When::SignedNotLess, 0, worked);
    add(p, FAILED);
    p.jump(end);
    p.here(worked);
    p.jump_when(R8, When::Equal, 0, end);
    p.add_to(R7, 8 * BYTES as i16, R8);
    p.jump_when(R8, When::SignedNotLess, SMALL as i32, end);
    p.load(R1, R9, WANTED);
    p.jump_when(R1, When::Equal, ANY, small);
    p.jump_when_register(R1, When::NotEqual, R8, end);
    p.here(small);
    add(p, SMALL_COUNT);
    p.add_to(R7, 8 * SMALL_BYTES as i16, R8);
    of_file(p, maps, end);
    p.here(end);
    leave(p);
    program.finish()
}

/// Adds a small transfer of R8 bytes, by the thread with the value in R9, to those of its file.
fn of_file(p: &mut Assembler, maps: Maps, end: Label) {
    let Some((device, number)) = maps.namespace else { return };
    let (known, reads) = (p.label(), p.label());
    p.set_wide(R1, device);
    p.set_wide(R2, number);
    p.copy(R3, Frame);
    p.add(R3, i32::from(VALUE));
    p.set(R4, 8);
    p.call(Function::ThreadInNamespace);
    p.jump_when(R0, When::NotEqual, 0, end);
    // The process is the second of the two.
    p.load_32(R6, Frame, VALUE + 4);
    p.shift_left(R6, 32);
    p.load(R1, R9, FILE);
    p.and(R1, i32::MAX);
    p.or(R6, R1);
    p.load(R1, R9, WANTED);
    p.jump_when(R1, When::NotEqual, ANY, reads);
    p.set_wide(R1, WRITTEN);
    p.or(R6, R1);
    p.here(reads);
    p.store(Frame, LONG_KEY, R6);
    p.set_map(R1, maps.files);
    p.copy(R2, Frame);
    p.add(R2, i32::from(LONG_KEY));
    p.call(Function::Lookup);
    p.jump_when(R0, When::NotEqual, 0, known);
    p.set(R1, 1);
    p.store(Frame, VALUE, R1);
    p.store(Frame, VALUE + 8, R8);
    p.set_map(R1, maps.files);
    p.copy(R2, Frame);
    p.add(R2, i32::from(LONG_KEY));
    p.copy(R3, Frame);
    p.add(R3, i32::from(VALUE));
    p.set(R4, 0);
    p.call(Function::Update);
    p.jump(end);
    p.here(known);
    p.set(R1, 1);
    p.add_to(R0, 0, R1);
    p.add_to(R0, 8, R8);
}

/// When a thread or a process is made.
pub fn fork(maps: Maps, child: i16) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    p.load_32(R1, R6, child);
    p.store_32(Frame, KEY, R1);
    put_thread_in(p, maps);
    leave(p);
    program.finish()
}

/// When a process becomes another program: if another thread than the first asked for it, its number changes.
pub fn exec(maps: Maps, old: i16, new: i16) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    let end = p.label();
    p.copy(R6, R1);
    p.load_32(R7, R6, old);
    p.load_32(R8, R6, new);
    p.jump_when_register(R7, When::Equal, R8, end);
    p.store_32(Frame, KEY, R7);
    look_up(p, maps.threads);
    p.jump_when(R0, When::Equal, 0, end);
    take_thread_out(p, maps);
    p.store_32(Frame, KEY, R8);
    put_thread_in(p, maps);
    p.here(end);
    leave(p);
    program.finish()
}

/// When a thread ends.
pub fn exit(maps: Maps) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    p.call(Function::Thread);
    p.store_32(Frame, KEY, R0);
    take_thread_out(p, maps);
    leave(p);
    program.finish()
}

/// At a page fault.
pub fn fault(maps: Maps) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    let end = p.label();
    p.set(R1, FAULTS as i32);
    p.store_32(Frame, KEY, R1);
    look_up(p, maps.kinds);
    p.jump_when(R0, When::Equal, 0, end);
    p.copy(R7, R0);
    add(p, COUNT);
    p.here(end);
    leave(p);
    program.finish()
}
