//! The eBPF programs that count in the kernel.
//!
//! They use three maps:
//!
//! 1. The threads of the recorded program, by thread id. A thread is added when a thread in the map
//!    starts it; the first one adds itself by a call with a secret number. It is removed when it
//!    ends. The value is the call that the thread is in, and when that call began.
//! 2. The sums of each kind of call, for each processor.
//! 3. The small transfers of each open file.
//!
//! The recorder's own calls have a [mark](MARK) and are not counted.

use super::bpf::BpfInstruction;
use super::bpf_assembler::BpfRegister::{Frame, R0, R1, R2, R3, R4, R6, R7, R8, R9};
use super::bpf_assembler::{BpfAssembler, BpfHelper, JumpCondition, JumpTarget};
use recorder::sys::MARK;
use trace_format::container::SMALL;

/// Calls with a number from this one on are not counted.
pub const CALLS: u32 = 512;
/// Kinds besides the numbers of calls: waits for a futex, anonymous mappings, and page faults.
pub const FUTEX_WAIT: u32 = CALLS;
pub const MMAP_ANONYMOUS: u32 = CALLS + 1;
pub const FAULTS: u32 = CALLS + 2;
/// The number of kinds.
pub const KINDS: u32 = CALLS + 3;

/// The words of a thread's value: its call, when that began, the result that makes it a small
/// transfer, its descriptor, the latest transfer (its descriptor and direction), and 1 if the
/// transfer before it was the same.
pub const THREAD_WORDS: usize = 6;
const CALL: i16 = 0;
const BEGAN: i16 = 8;
const SMALL_RESULT: i16 = 16;
const FILE: i16 = 24;
const LATEST: i16 = 32;
const CONSECUTIVE: i16 = 40;
/// The number of words of a kind's value.
pub const WORDS: usize = 6;
/// The words.
pub const COUNT: usize = 0;
pub const NANOSECONDS: usize = 1;
pub const FAILED: usize = 2;
pub const BYTES: usize = 3;
pub const SMALL_COUNT: usize = 4;
pub const SMALL_BYTES: usize = 5;

/// The words of an open file's value: the number of small transfers, their bytes, and the number of
/// those that came right after another one of the same thread and direction.
pub const FILE_WORDS: usize = 3;
/// A bit in the key of an open file: the transfers are writes. The lower half of the key has the
/// descriptor, the upper half the process.
pub const WRITTEN: u64 = 1 << 31;

/// The thread is in no counted call.
const NO_CALL: i32 = -1;
/// The result that makes a call a small transfer: for writes, any small one. For reads, the
/// requested size, because a read that got less would not get more with a larger buffer. 0 for
/// other calls.
const ANY_RESULT: i32 = -1;
const READING: [i64; 3] = [libc::SYS_read, libc::SYS_pread64, libc::SYS_recvfrom];
const WRITING: [i64; 6] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];
/// Calls after which a transfer is not consecutive: they wait for data, or read some.
const TURNS: [i64; 10] = [
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];
/// The same, which only this processor's kernel has.
#[cfg(target_arch = "x86_64")]
const MORE_TURNS: [i64; 3] = [libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const MORE_TURNS: [i64; 0] = [];
/// Operations on a futex that wait, without their options.
const WAITS: [i32; 5] = [
    libc::FUTEX_WAIT,
    libc::FUTEX_LOCK_PI,
    libc::FUTEX_WAIT_BITSET,
    libc::FUTEX_WAIT_REQUEUE_PI,
    13,
];
const OPERATION: i32 = 127;

/// The offsets of the fields of the calls' trace points: the call's number, its arguments, its
/// result.
const NUMBER: i16 = 8;
const ARGUMENTS: i16 = 16;
const RESULT: i16 = 16;
/// The offsets in the stack frame of a key and of a thread's value.
const KEY: i16 = -4;
const LONG_KEY: i16 = -16;
const VALUE: i16 = -64;

/// The descriptors of the maps, and the PID namespace in which files are looked up.
#[derive(Debug, Clone, Copy)]
pub struct BpfMaps {
    pub threads: i32,
    pub kinds: i32,
    pub files: i32,
    /// The device and inode of the namespace. `None`: files are not counted separately.
    pub namespace: Option<(u64, u64)>,
}

/// Begins a program. Afterwards R7 is this thread's value. For a thread that is not in the map, the
/// program runs what `otherwise` writes, and ends.
fn find_thread(
    program: &mut BpfAssembler,
    maps: BpfMaps,
    otherwise: impl FnOnce(&mut BpfAssembler),
) {
    let found = program.label();
    program.copy(R6, R1);
    program.call(BpfHelper::Thread);
    program.store_32(Frame, KEY, R0);
    look_up(program, maps.threads);
    program.copy(R7, R0);
    program.jump_when(R0, JumpCondition::NotEqual, 0, found);
    otherwise(program);
    return_zero(program);
    program.here(found);
}

/// Looks up the key in the frame.
fn look_up(program: &mut BpfAssembler, map: i32) {
    program.set_map(R1, map);
    program.copy(R2, Frame);
    program.add(R2, i32::from(KEY));
    program.call(BpfHelper::Lookup);
}

fn return_zero(program: &mut BpfAssembler) {
    program.set(R0, 0);
    program.exit();
}

/// Adds the thread whose id is the key.
fn add_thread(program: &mut BpfAssembler, maps: BpfMaps) {
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
    program.call(BpfHelper::Update);
}

fn remove_thread(program: &mut BpfAssembler, maps: BpfMaps) {
    program.set_map(R1, maps.threads);
    program.copy(R2, Frame);
    program.add(R2, i32::from(KEY));
    program.call(BpfHelper::Delete);
}

/// At the beginning of a call.
pub fn enter(maps: BpfMaps, secret: u64) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    find_thread(p, maps, |p| {
        let other = p.label();
        p.load(R1, R6, NUMBER);
        p.jump_when(R1, JumpCondition::NotEqual, libc::SYS_prctl as i32, other);
        p.load(R1, R6, ARGUMENTS);
        p.set_wide(R2, secret);
        p.jump_when_register(R1, JumpCondition::NotEqual, R2, other);
        add_thread(p, maps);
        p.here(other);
    });
    let (store, wait, not_futex, none) = (p.label(), p.label(), p.label(), p.label());
    p.load(R8, R6, NUMBER);
    p.load(R1, R6, ARGUMENTS + 4 * 8);
    p.shift_right(R1, 32);
    p.jump_when(R1, JumpCondition::Equal, MARK as i32, none);
    p.jump_when(R8, JumpCondition::NotLess, CALLS as i32, none);
    p.jump_when(R8, JumpCondition::NotEqual, libc::SYS_futex as i32, not_futex);
    p.load(R1, R6, ARGUMENTS + 8);
    p.and(R1, OPERATION);
    for operation in WAITS {
        p.jump_when(R1, JumpCondition::Equal, operation, wait);
    }
    p.jump(store);
    p.here(wait);
    p.set(R8, FUTEX_WAIT as i32);
    p.jump(store);
    p.here(not_futex);
    p.jump_when(R8, JumpCondition::NotEqual, libc::SYS_mmap as i32, store);
    p.load(R1, R6, ARGUMENTS + 3 * 8);
    p.and(R1, libc::MAP_ANONYMOUS);
    p.jump_when(R1, JumpCondition::Equal, 0, store);
    p.set(R8, MMAP_ANONYMOUS as i32);
    p.here(store);
    p.store(R7, CALL, R8);
    let (read, write, turn, small_result) = (p.label(), p.label(), p.label(), p.label());
    let (transfer, other, new) = (p.label(), p.label(), p.label());
    for (calls, label) in
        [(&READING[..], read), (&WRITING[..], write), (&TURNS[..], turn), (&MORE_TURNS[..], turn)]
    {
        for &call in calls {
            p.jump_when(R8, JumpCondition::Equal, call as i32, label);
        }
    }
    p.jump(other);
    p.here(turn);
    p.set(R1, NO_CALL);
    p.store(R7, LATEST, R1);
    p.here(other);
    p.set(R1, 0);
    p.jump(small_result);
    // R2 is the direction, and then the whole transfer.
    p.here(read);
    p.load(R1, R6, ARGUMENTS + 2 * 8);
    p.set(R2, 0);
    p.jump(transfer);
    p.here(write);
    p.set(R1, ANY_RESULT);
    p.set_wide(R2, WRITTEN);
    p.here(transfer);
    p.load(R3, R6, ARGUMENTS);
    p.and(R3, i32::MAX);
    p.or(R2, R3);
    p.load(R3, R7, LATEST);
    p.store(R7, LATEST, R2);
    p.set(R4, 0);
    p.jump_when_register(R2, JumpCondition::NotEqual, R3, new);
    p.set(R4, 1);
    p.here(new);
    p.store(R7, CONSECUTIVE, R4);
    p.here(small_result);
    p.store(R7, SMALL_RESULT, R1);
    p.load(R1, R6, ARGUMENTS);
    p.store(R7, FILE, R1);
    p.call(BpfHelper::Nanoseconds);
    p.store(R7, BEGAN, R0);
    return_zero(p);
    p.here(none);
    p.set(R1, NO_CALL);
    p.store(R7, CALL, R1);
    return_zero(p);
    program.finish()
}

/// Adds 1 to a word of the kind in R7.
fn add(program: &mut BpfAssembler, word: usize) {
    program.set(R1, 1);
    program.add_to(R7, 8 * word as i16, R1);
}

/// At the end of a call.
pub fn leave_call(maps: BpfMaps) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    let (end, worked, small) = (p.label(), p.label(), p.label());
    p.load(R8, R7, CALL);
    p.jump_when(R8, JumpCondition::Equal, NO_CALL, end);
    p.set(R1, NO_CALL);
    p.store(R7, CALL, R1);
    p.store_32(Frame, KEY, R8);
    p.copy(R9, R7);
    look_up(p, maps.kinds);
    p.jump_when(R0, JumpCondition::Equal, 0, end);
    // From here on R7 is the kind's value, and R9 the thread's.
    p.copy(R7, R0);
    add(p, COUNT);
    p.call(BpfHelper::Nanoseconds);
    p.load(R1, R9, BEGAN);
    p.subtract(R0, R1);
    p.add_to(R7, 8 * NANOSECONDS as i16, R0);
    p.load(R8, R6, RESULT);
    p.jump_when(R8, JumpCondition::SignedNotLess, 0, worked);
    add(p, FAILED);
    p.jump(end);
    p.here(worked);
    p.jump_when(R8, JumpCondition::Equal, 0, end);
    p.add_to(R7, 8 * BYTES as i16, R8);
    p.jump_when(R8, JumpCondition::SignedNotLess, SMALL as i32, end);
    p.load(R1, R9, SMALL_RESULT);
    p.jump_when(R1, JumpCondition::Equal, ANY_RESULT, small);
    p.jump_when_register(R1, JumpCondition::NotEqual, R8, end);
    p.here(small);
    add(p, SMALL_COUNT);
    p.add_to(R7, 8 * SMALL_BYTES as i16, R8);
    add_to_file(p, maps, end);
    p.here(end);
    return_zero(p);
    program.finish()
}

/// Adds a small transfer of R8 bytes, by the thread with the value in R9, to those of its file.
fn add_to_file(p: &mut BpfAssembler, maps: BpfMaps, end: JumpTarget) {
    let Some((device, number)) = maps.namespace else { return };
    let (known, reads) = (p.label(), p.label());
    p.set_wide(R1, device);
    p.set_wide(R2, number);
    p.copy(R3, Frame);
    p.add(R3, i32::from(VALUE));
    p.set(R4, 8);
    p.call(BpfHelper::ThreadInNamespace);
    p.jump_when(R0, JumpCondition::NotEqual, 0, end);
    // The process is the second of the two.
    p.load_32(R6, Frame, VALUE + 4);
    p.shift_left(R6, 32);
    p.load(R1, R9, FILE);
    p.and(R1, i32::MAX);
    p.or(R6, R1);
    p.load(R1, R9, SMALL_RESULT);
    p.jump_when(R1, JumpCondition::NotEqual, ANY_RESULT, reads);
    p.set_wide(R1, WRITTEN);
    p.or(R6, R1);
    p.here(reads);
    p.store(Frame, LONG_KEY, R6);
    p.set_map(R1, maps.files);
    p.copy(R2, Frame);
    p.add(R2, i32::from(LONG_KEY));
    p.call(BpfHelper::Lookup);
    p.jump_when(R0, JumpCondition::NotEqual, 0, known);
    p.set(R1, 1);
    p.store(Frame, VALUE, R1);
    p.store(Frame, VALUE + 8, R8);
    p.load(R1, R9, CONSECUTIVE);
    p.store(Frame, VALUE + 16, R1);
    p.set_map(R1, maps.files);
    p.copy(R2, Frame);
    p.add(R2, i32::from(LONG_KEY));
    p.copy(R3, Frame);
    p.add(R3, i32::from(VALUE));
    p.set(R4, 0);
    p.call(BpfHelper::Update);
    p.jump(end);
    p.here(known);
    p.set(R1, 1);
    p.add_to(R0, 0, R1);
    p.add_to(R0, 8, R8);
    p.load(R1, R9, CONSECUTIVE);
    p.add_to(R0, 16, R1);
}

/// When a thread or a process starts.
pub fn fork(maps: BpfMaps, child: i16) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    p.load_32(R1, R6, child);
    p.store_32(Frame, KEY, R1);
    add_thread(p, maps);
    return_zero(p);
    program.finish()
}

/// When a process executes a program. If a thread other than the first one does that, its id
/// changes.
pub fn exec(maps: BpfMaps, old: i16, new: i16) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    let end = p.label();
    p.copy(R6, R1);
    p.load_32(R7, R6, old);
    p.load_32(R8, R6, new);
    p.jump_when_register(R7, JumpCondition::Equal, R8, end);
    p.store_32(Frame, KEY, R7);
    look_up(p, maps.threads);
    p.jump_when(R0, JumpCondition::Equal, 0, end);
    remove_thread(p, maps);
    p.store_32(Frame, KEY, R8);
    add_thread(p, maps);
    p.here(end);
    return_zero(p);
    program.finish()
}

/// When a thread ends.
pub fn exit(maps: BpfMaps) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    p.call(BpfHelper::Thread);
    p.store_32(Frame, KEY, R0);
    remove_thread(p, maps);
    return_zero(p);
    program.finish()
}

/// At a page fault.
pub fn fault(maps: BpfMaps) -> Vec<BpfInstruction> {
    let mut program = BpfAssembler::default();
    let p = &mut program;
    find_thread(p, maps, |_| {});
    let end = p.label();
    p.set(R1, FAULTS as i32);
    p.store_32(Frame, KEY, R1);
    look_up(p, maps.kinds);
    p.jump_when(R0, JumpCondition::Equal, 0, end);
    p.copy(R7, R0);
    add(p, COUNT);
    p.here(end);
    return_zero(p);
    program.finish()
}
