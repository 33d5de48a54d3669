//! The functions that programs call instead of the next ones of the same name.
//!
//! Those that need their caller's registers are a few instructions that add the stack pointer, the frame pointer and the return address
//! as arguments and go on in Rust. Invariant: what `next` found under a name has that name's type.

use crate::clock::{stamp, ticks};
use crate::next::{self, Next};
use crate::raw_file::{self, Took};
use crate::seccomp;
use crate::thread::{Entered, enter, flush_all};
use crate::unwind::{Caller, modules};
use allot_trace::raw::{Flags, Lock, Measured, Origin, TICK_SHIFT};
use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};

/// A block, or what isn't one.
type Block = *mut c_void;

/// Calls the next function.
macro_rules! call {
    ($address:expr, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        let function: unsafe extern "C" fn($($type),*) -> $result =
            // SAFETY: the function of that name has this type.
            unsafe { core::mem::transmute($address) };
        // SAFETY: the program's own arguments.
        unsafe { function($($argument),*) }
    }};
}

/// The function of a name, which goes on in a hook with three arguments more, behind its own, of which it has one, two or three.
macro_rules! entry {
    ($name:ident, $hook:ident, 1) => { entry!($name, $hook, "rsi", "rdx", "rcx", "x1", "x2", "x3"); };
    ($name:ident, $hook:ident, 2) => { entry!($name, $hook, "rdx", "rcx", "r8", "x2", "x3", "x4"); };
    ($name:ident, $hook:ident, 3) => { entry!($name, $hook, "rcx", "r8", "r9", "x3", "x4", "x5"); };
    ($name:ident, $hook:ident, $a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal) => {
        /// The program's way in.
        ///
        /// # Safety
        ///
        /// As the function of that name says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!("lea ", $a, ", [rsp + 8]"),
                concat!("mov ", $b, ", rbp"),
                concat!("mov ", $c, ", qword ptr [rsp]"),
                "jmp {hook}",
                hook = sym $hook,
            )
        }

        /// The program's way in.
        ///
        /// # Safety
        ///
        /// As the function of that name says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!("mov ", $d, ", sp"),
                concat!("mov ", $e, ", x29"),
                concat!("mov ", $f, ", x30"),
                "b {hook}",
                hook = sym $hook,
            )
        }
    };
}

entry!(malloc, on_malloc, 1);
entry!(calloc, on_calloc, 2);
entry!(realloc, on_realloc, 2);
entry!(reallocarray, on_reallocarray, 3);
entry!(memalign, on_memalign, 2);
entry!(aligned_alloc, on_aligned_alloc, 2);
entry!(posix_memalign, on_posix_memalign, 3);
entry!(valloc, on_valloc, 1);
entry!(pvalloc, on_pvalloc, 1);
entry!(pthread_mutex_lock, on_mutex_lock, 1);
entry!(pthread_rwlock_rdlock, on_read_lock, 1);
entry!(pthread_rwlock_wrlock, on_write_lock, 1);
entry!(pthread_mutex_timedlock, on_mutex_timed_lock, 2);
entry!(pthread_mutex_clocklock, on_mutex_clock_lock, 3);
entry!(pthread_rwlock_timedrdlock, on_read_timed_lock, 2);
entry!(pthread_rwlock_clockrdlock, on_read_clock_lock, 3);
entry!(pthread_rwlock_timedwrlock, on_write_timed_lock, 2);
entry!(pthread_rwlock_clockwrlock, on_write_clock_lock, 3);

fn caller(stack_pointer: u64, frame_pointer: u64, return_address: u64) -> Caller {
    Caller { return_address, stack_pointer, frame_pointer }
}

/// Calls what allocates, and writes down what it gave.
#[inline(always)]
fn allocate(size: usize, flags: Flags, caller: Caller, next: impl FnOnce() -> Block) -> Block {
    let Some(entered) = enter() else { return next() };
    let entered = match entered.leaves_to_be_measured() {
        Err(entered) => entered,
        Ok(()) => return allocate_measured(size, flags, caller, next),
    };
    let block = next();
    if !block.is_null() {
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.allocated(ticks(), block as u64, size as u64, flags, caller) };
    }
    block
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn allocate_measured(
    size: usize,
    flags: Flags,
    caller: Caller,
    next: impl FnOnce() -> Block,
) -> Block {
    let zero = stamp();
    let begin = stamp();
    let Some(entered) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    if !block.is_null() {
        let tick = after >> TICK_SHIFT;
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.allocated(tick, block as u64, size as u64, flags, caller) };
        drop(entered);
        // As many stamps as a call has that isn't measured, and one more.
        let recorder = before - begin + (stamp() - after);
        let took = Took { program: after - before, recorder, stamp: begin - zero };
        raw_file::measured(Measured::Allocation, took);
    }
    block
}

extern "C" fn on_malloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let address = next::MALLOC.get();
    if address.is_null() {
        return next::early_block(size, 1).cast();
    }
    allocate(size, const { Flags::new(Origin::Malloc) }, caller(stack, frame, back), || {
        call!(address, fn(usize) -> Block, size)
    })
}

extern "C" fn on_calloc(count: usize, size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let address = next::CALLOC.get();
    let bytes = count.saturating_mul(size);
    if address.is_null() {
        return next::early_block(bytes, 1).cast();
    }
    allocate(bytes, const { Flags::new(Origin::Calloc) }, caller(stack, frame, back), || {
        call!(address, fn(usize, usize) -> Block, count, size)
    })
}

/// A reallocation, by whichever function.
#[inline(always)]
fn reallocate(old: Block, size: usize, caller: Caller, next: impl FnOnce() -> Block) -> Block {
    const FLAGS: Flags = Flags::new(Origin::Realloc);
    if old.is_null() {
        return allocate(size, FLAGS, caller, next);
    }
    if let Some(early) = next::early_size(old) {
        return move_early(old, early, size, caller);
    }
    let Some(entered) = enter() else { return next() };
    let entered = match entered.leaves_to_be_measured() {
        Err(entered) => entered,
        Ok(()) => return reallocate_measured(old, size, caller, next),
    };
    let before = ticks();
    let block = next();
    // SAFETY: the thread is in the call that the entry has taken over.
    unsafe { reallocated(&entered, old, before, block, ticks(), size, caller) };
    block
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn reallocate_measured(
    old: Block,
    size: usize,
    caller: Caller,
    next: impl FnOnce() -> Block,
) -> Block {
    let zero = stamp();
    let begin = stamp();
    let Some(entered) = enter() else { return next() };
    let before = stamp();
    let block = next();
    let after = stamp();
    let ticks = (before >> TICK_SHIFT, after >> TICK_SHIFT);
    // SAFETY: the thread is in the call that the entry has taken over.
    unsafe { reallocated(&entered, old, ticks.0, block, ticks.1, size, caller) };
    drop(entered);
    // A call that isn't measured has two stamps, and all say one more.
    let recorder = before - begin + (stamp() - after) + (begin - zero);
    let took = Took { program: after - before, recorder, stamp: begin - zero };
    raw_file::measured(Measured::Reallocation, took);
    block
}

/// # Safety
///
/// The thread is in the call that the entry has taken over.
#[inline(always)]
unsafe fn reallocated(
    entered: &Entered,
    old: Block,
    before: u64,
    block: Block,
    after: u64,
    size: usize,
    caller: Caller,
) {
    if !block.is_null() {
        entered.freed_by_realloc(before, old as u64);
        // SAFETY: as the caller promised.
        unsafe {
            let flags = const { Flags::new(Origin::Realloc) };
            entered.allocated(after, block as u64, size as u64, flags, caller);
        }
    } else if size == 0 {
        entered.freed(before, old as u64);
    }
}

/// A block that was given out while the next functions were looked up becomes a real one.
#[cold]
fn move_early(old: Block, early: usize, size: usize, caller: Caller) -> Block {
    let address = next::MALLOC.get();
    if address.is_null() {
        let block = next::early_block(size, 1).cast::<c_void>();
        if !block.is_null() {
            // SAFETY: both are as long as this, and apart.
            unsafe { block.cast::<u8>().copy_from_nonoverlapping(old.cast(), early.min(size)) };
        }
        return block;
    }
    let block = allocate(size, const { Flags::new(Origin::Realloc) }, caller, || {
        call!(address, fn(usize) -> Block, size)
    });
    if !block.is_null() {
        // SAFETY: both are as long as this, and apart.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(old.cast(), early.min(size)) };
    }
    block
}

extern "C" fn on_realloc(old: Block, size: usize, stack: u64, frame: u64, back: u64) -> Block {
    let caller = caller(stack, frame, back);
    let address = next::REALLOC.get();
    if address.is_null() {
        return move_early(old, next::early_size(old).unwrap_or(0), size, caller);
    }
    reallocate(old, size, caller, || call!(address, fn(Block, usize) -> Block, old, size))
}

extern "C" fn on_reallocarray(
    old: Block,
    count: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    let address = next::REALLOCARRAY.get();
    let caller = caller(stack, frame, back);
    if address.is_null() {
        return match count.checked_mul(size) {
            Some(bytes) => on_realloc(old, bytes, stack, frame, back),
            None => core::ptr::null_mut(),
        };
    }
    reallocate(old, count.saturating_mul(size), caller, || {
        call!(address, fn(Block, usize, usize) -> Block, old, count, size)
    })
}

/// Calls what allocates with an alignment.
#[inline(always)]
fn align(next: &Next, alignment: usize, size: usize, caller: Caller) -> Block {
    let address = next.get();
    if address.is_null() {
        return next::early_block(size, alignment).cast();
    }
    let flags = const { Flags::new(Origin::Aligned) }.aligned(alignment);
    allocate(size, flags, caller, || call!(address, fn(usize, usize) -> Block, alignment, size))
}

extern "C" fn on_memalign(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    align(&next::MEMALIGN, alignment, size, caller(stack, frame, back))
}

extern "C" fn on_aligned_alloc(
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> Block {
    align(&next::ALIGNED_ALLOC, alignment, size, caller(stack, frame, back))
}

extern "C" fn on_posix_memalign(
    into: *mut Block,
    alignment: usize,
    size: usize,
    stack: u64,
    frame: u64,
    back: u64,
) -> c_int {
    const NO_MEMORY: c_int = 12;
    let address = next::POSIX_MEMALIGN.get();
    if address.is_null() {
        let block = next::early_block(size, alignment).cast::<c_void>();
        if block.is_null() {
            return NO_MEMORY;
        }
        // SAFETY: the program's own place for it.
        unsafe { into.write(block) };
        return 0;
    }
    let mut result = 0;
    let flags = const { Flags::new(Origin::Aligned) }.aligned(alignment);
    allocate(size, flags, caller(stack, frame, back), || {
        result = call!(address, fn(*mut Block, usize, usize) -> c_int, into, alignment, size);
        // SAFETY: a success has put a block there.
        if result == 0 { unsafe { into.read() } } else { core::ptr::null_mut() }
    });
    result
}

/// Calls what allocates whole pages.
fn pages(next: &Next, size: usize, caller: Caller) -> Block {
    let address = next.get();
    if address.is_null() {
        return next::early_block(size, 4096).cast();
    }
    let flags = const { Flags::new(Origin::Pages).aligned(4096) };
    allocate(size, flags, caller, || call!(address, fn(usize) -> Block, size))
}

extern "C" fn on_valloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    pages(&next::VALLOC, size, caller(stack, frame, back))
}

extern "C" fn on_pvalloc(size: usize, stack: u64, frame: u64, back: u64) -> Block {
    pages(&next::PVALLOC, size, caller(stack, frame, back))
}

#[inline(always)]
fn release(next: &Next, block: Block) {
    if block.is_null() || next::early_size(block).is_some() {
        return;
    }
    let address = next.get();
    let mut entered = enter();
    if let Some(inside) = entered {
        entered = match inside.leaves_to_be_measured() {
            Err(inside) => Some(inside),
            Ok(()) => return release_measured(address, block),
        };
    }
    if let Some(entered) = &entered {
        entered.freed(ticks(), block as u64);
    }
    if !address.is_null() {
        call!(address, fn(Block) -> (), block);
    }
    drop(entered);
}

/// The same with a look at the clock wherever program and recorder take turns.
#[cold]
#[inline(never)]
fn release_measured(address: *mut c_void, block: Block) {
    let zero = stamp();
    let begin = stamp();
    let entered = enter();
    if let Some(entered) = &entered {
        entered.freed(ticks(), block as u64);
    }
    let before = stamp();
    if !address.is_null() {
        call!(address, fn(Block) -> (), block);
    }
    let after = stamp();
    if entered.is_some() {
        let took = Took { program: after - before, recorder: before - begin, stamp: begin - zero };
        raw_file::measured(Measured::Free, took);
    }
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Block) {
    release(&next::FREE, block);
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: Block) {
    let next = if next::CFREE.get().is_null() { &next::FREE } else { &next::CFREE };
    release(next, block);
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Block) -> usize {
    if let Some(early) = next::early_size(block) {
        return early;
    }
    let address = next::USABLE_SIZE.get();
    if address.is_null() {
        return 0;
    }
    if !block.is_null()
        && let Some(entered) = enter()
    {
        entered.usable_asked(ticks(), block as u64);
    }
    call!(address, fn(Block) -> usize, block)
}

const BUSY: c_int = 16;
const NO_SUCH_FUNCTION: c_int = 38;
const TIMED_OUT: c_int = 110;

/// Takes a lock at once, or waits for it and says how long.
#[inline(always)]
fn lock(
    attempt: &Next,
    lock: *mut c_void,
    kind: Lock,
    caller: Caller,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let attempt = attempt.get();
    if attempt.is_null() {
        return wait();
    }
    // All answers but that another has it are final: that its owner died may be told by giving it.
    let result = call!(attempt, fn(*mut c_void) -> c_int, lock);
    if result != BUSY {
        return result;
    }
    if !raw_file::is_on() {
        return wait();
    }
    let before = ticks();
    let result = wait();
    if matches!(result, 0 | TIMED_OUT)
        && let Some(entered) = enter()
    {
        let now = ticks();
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.waited(now, now.saturating_sub(before), lock as u64, kind, caller) };
    }
    result
}

/// Waits for a lock as long as it takes.
#[inline(always)]
fn wait(next: &Next, lock: *mut c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        // The loader itself, while it looks for what comes next; there is no second thread yet.
        return 0;
    }
    call!(address, fn(*mut c_void) -> c_int, lock)
}

/// Waits for a lock until a time of the wall clock.
#[inline(always)]
fn wait_until(next: &Next, lock: *mut c_void, time: *const c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        return NO_SUCH_FUNCTION;
    }
    call!(address, fn(*mut c_void, *const c_void) -> c_int, lock, time)
}

/// Waits for a lock until a time of a clock.
#[inline(always)]
fn wait_by(next: &Next, lock: *mut c_void, clock: c_int, time: *const c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        return NO_SUCH_FUNCTION;
    }
    call!(address, fn(*mut c_void, c_int, *const c_void) -> c_int, lock, clock, time)
}

/// The three ways to take one kind of lock.
macro_rules! locks {
    ($kind:expr, $attempt:ident, $($hook:ident = $wait:ident($next:ident $(, $more:ident: $type:ty)*);)*) => {
        $(extern "C" fn $hook(
            address: *mut c_void,
            $($more: $type,)*
            stack: u64,
            frame: u64,
            back: u64,
        ) -> c_int {
            lock(&next::$attempt, address, $kind, caller(stack, frame, back), || {
                $wait(&next::$next, address $(, $more)*)
            })
        })*
    };
}

locks! { Lock::Mutex, MUTEX_TRYLOCK,
    on_mutex_lock = wait(MUTEX_LOCK);
    on_mutex_timed_lock = wait_until(MUTEX_TIMEDLOCK, time: *const c_void);
    on_mutex_clock_lock = wait_by(MUTEX_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { Lock::Read, READ_TRYLOCK,
    on_read_lock = wait(READ_LOCK);
    on_read_timed_lock = wait_until(READ_TIMEDLOCK, time: *const c_void);
    on_read_clock_lock = wait_by(READ_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { Lock::Write, WRITE_TRYLOCK,
    on_write_lock = wait(WRITE_LOCK);
    on_write_timed_lock = wait_until(WRITE_TIMEDLOCK, time: *const c_void);
    on_write_clock_lock = wait_by(WRITE_CLOCKLOCK, clock: c_int, time: *const c_void);
}

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let result = call!(next::DLCLOSE.get(), fn(*mut c_void) -> c_int, handle);
    if let Some(entered) = enter() {
        // SAFETY: the state is this thread's while it is entered.
        unsafe { modules::look_for_gone(entered.thread(), ticks()) };
    }
    result
}

const NO_SUCH_CALL: c_int = -1;
const PRCTL_SECCOMP: c_int = 22;
/// Asks for a signal at a look at the processor's clock; so does the strict way of forbidding calls.
const PRCTL_CLOCK: c_int = 26;
const CLOCK_FORBIDDEN: usize = 2;
/// What both calls call their ways: nothing but reading and writing, or a filter.
const STRICT: usize = 1;
const FILTER: usize = 2;
#[cfg(target_arch = "x86_64")]
const CALL_SECCOMP: c_long = 317;
#[cfg(target_arch = "x86_64")]
const CALL_PRCTL: c_long = 157;
#[cfg(target_arch = "aarch64")]
const CALL_SECCOMP: c_long = 277;
#[cfg(target_arch = "aarch64")]
const CALL_PRCTL: c_long = 167;

/// Before the program forbids itself something.
#[cold]
fn forbids_itself(option: c_int, how: usize, filter: usize) {
    let forbidden = match option {
        PRCTL_SECCOMP if how == FILTER => {
            seccomp::forbids(core::ptr::with_exposed_provenance(filter))
        }
        PRCTL_SECCOMP => how == STRICT,
        _ => how == CLOCK_FORBIDDEN,
    };
    if forbidden {
        raw_file::forbidden();
        // So that no thread makes a call for the chunk that it has.
        flush_all();
    }
}

/// The program's way in. Arguments that the program doesn't give are what happens to be in their registers, for the kernel too.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if matches!(option, PRCTL_SECCOMP | PRCTL_CLOCK) {
        forbids_itself(option, a, b);
    }
    let address = next::PRCTL.get();
    if address.is_null() {
        return NO_SUCH_CALL;
    }
    call!(address, fn(c_int, usize, usize, usize, usize) -> c_int, option, a, b, c, d)
}

/// The program's way in, as for [`prctl`].
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match number {
        // Its first argument says which way, from 0 on; the filter is the third.
        CALL_SECCOMP if a < FILTER => forbids_itself(PRCTL_SECCOMP, a + STRICT, c),
        CALL_PRCTL if matches!(a as c_int, PRCTL_SECCOMP | PRCTL_CLOCK) => {
            forbids_itself(a as c_int, b, c);
        }
        _ => {}
    }
    let address = next::SYSCALL.get();
    if address.is_null() {
        return NO_SUCH_CALL.into();
    }
    call!(
        address,
        fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long,
        number,
        a,
        b,
        c,
        d,
        e,
        f
    )
}

/// Begins with the program, if it didn't allocate before.
extern "C" fn begin() {
    next::MALLOC.get();
    drop(enter());
}

extern "C" fn end() {
    raw_file::exits();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
