//! The target of a C pointer to an allocator, and the checks before the pointer is followed.
//!
//! # Invariants
//!
//! 1. A C caller's pointer to `Held<T>` came from [`create`], unless the caller is wrong (invariant
//!    1 of lib.rs). `value` is at its start, where inline code finds the frozen fields of the
//!    header.
//! 2. `state` holds the kind, whether the allocator is hardened, and whether it is alive. `value`
//!    may be used while it is alive. It ends once, in [`destroy`]. Then the memory of a plain
//!    handle is freed. The memory of a hardened handle is kept for a while as a tombstone, without
//!    `value`, but with bytes that send inline code to the slow path.
//! 3. For allocators of one thread, `owner` is the number of the thread that may use it. Numbers
//!    are never reused.
//! 4. One thread at a time uses an allocator of one thread. The C caller must ensure that; a
//!    hardened allocator checks it. Other threads then read only `handle`, which is atomic or never
//!    changes.

use core::cell::Cell;
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::alloc::Layout;

use allotment::{AllocError, ErrorKind};

use crate::error::{Noted, Problem, note};
use crate::known;

/// The kind of object that a handle refers to. The number is the one in `known`'s table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `allot_arena`
    Arena = 1,
    /// `allot_free_list`
    FreeList = 2,
    /// `allot_slab`
    Slab = 3,
    /// `allot_slab_handle`
    SlabHandle = 4,
    /// `allot_reap`
    Reap = 5,
    /// `allot_pool`
    Pool = 6,
    /// `allot_sealed`
    Sealed = 7,
    /// `allot_sealer`
    Sealer = 8,
    /// `allot_source`
    Source = 9,
    /// `allot_budget`
    Budget = 10,
    /// Blocks that store their size, of no named allocator.
    Memory = 11,
}

impl Kind {
    /// As in `allot_error.allocator`.
    #[must_use]
    pub const fn word(self) -> &'static CStr {
        match self {
            Self::Arena => c"arena",
            Self::FreeList => c"free list",
            Self::Slab => c"slab",
            Self::SlabHandle => c"slab handle",
            Self::Reap => c"reap",
            Self::Pool => c"pool",
            Self::Sealed => c"sealed",
            Self::Sealer => c"sealer",
            Self::Source => c"source",
            Self::Budget => c"budget",
            Self::Memory => c"memory",
        }
    }
}

/// A type that C callers have handles of.
pub trait Kept {
    /// Its kind.
    const KIND: Kind;
    /// Whether only one thread at a time may use it.
    const ONE_THREAD: bool;

    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;

    /// Makes inline code take the slow path on a destroyed hardened handle. For types whose bytes
    /// do not have that effect after the drop.
    ///
    /// # Safety
    /// `value` was dropped in place, and its memory is still there.
    unsafe fn entomb(value: *mut Self) {
        let _ = value;
    }
}

/// An allocator and its handle.
#[repr(C, align(16))]
pub struct Held<T> {
    value: ManuallyDrop<T>,
    handle: Handle,
}

/// The part that all handles share.
#[repr(C)]
pub struct Handle {
    state: AtomicU32,
    owner: AtomicU64,
    /// Start of the whole allocation, and its layout.
    start: *mut u8,
    layout: Layout,
    in_table: bool,
    /// The name of a hardened allocator, which outlives it.
    name: Option<Box<str>>,
}

/// States: one of the first two with a kind, plus `DEAD` after the destruction.
const PLAIN: u32 = 0x414C_0000;
const HARDENED: u32 = PLAIN | IS_HARDENED;
const IS_HARDENED: u32 = 0x200;
const DEAD: u32 = 0x400;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number. It is not zero, and no other thread ever has it.
#[inline]
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl Handle {
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    /// Frees the memory that a handle is in.
    ///
    /// # Safety
    /// Its value was dropped, and the handle is not used any more.
    pub(crate) unsafe fn free_memory(handle: *mut Self) {
        // SAFETY: passed on to the caller; the memory came from `create` with this layout.
        unsafe {
            let (start, layout) = ((*handle).start, (*handle).layout);
            drop((*handle).name.take());
            std::alloc::dealloc(start, layout);
        }
    }
}

/// Creates a handle for an allocator. `hardened` is as in its options
/// ([`Options::hardened`](crate::options::Options)).
///
/// The value is dropped if there is no memory for the handle.
pub(crate) fn create<T: Kept>(value: T, hardened: bool) -> Result<NonNull<Held<T>>, Noted> {
    let layout = Layout::new::<Held<T>>();
    let refused = AllocError::new(ErrorKind::SourceRefused, layout.size());
    // SAFETY: the size is not zero.
    let start = unsafe { std::alloc::alloc(layout) };
    let Some(held) = NonNull::new(start.cast::<Held<T>>()) else {
        return Err(note(T::KIND, value.name(), refused));
    };
    let in_table = known::all_hardened();
    if !in_table {
        known::left_out();
    } else if !known::put(start.addr(), T::KIND) {
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(start, layout) };
        return Err(note(T::KIND, value.name(), refused));
    }
    let name = if hardened { value.name().map(Into::into) } else { None };
    let life = if hardened { HARDENED } else { PLAIN };
    let handle = Handle {
        state: AtomicU32::new(life | T::KIND as u32),
        owner: AtomicU64::new(if T::ONE_THREAD { this_thread() } else { 0 }),
        start,
        layout,
        in_table,
        name,
    };
    // SAFETY: fresh memory of this layout.
    unsafe { held.write(Held { value: ManuallyDrop::new(value), handle }) };
    Ok(held)
}

/// The handle that a pointer refers to, and its state, if it is alive.
#[inline]
unsafe fn find<'a, T: Kept>(held: *const Held<T>) -> Result<(&'a Handle, u32), Noted> {
    if held.is_null() {
        return Err(note(T::KIND, None, Problem::NullHandle));
    }
    if known::all_hardened() {
        look_up::<T>(held.addr())?;
    }
    // SAFETY: not null and, as far as can be determined, a handle (invariant 1). The value is not
    // accessed.
    let handle = unsafe { &(*held).handle };
    let state = handle.state.load(Ordering::Acquire);
    if state == PLAIN | T::KIND as u32 || state == HARDENED | T::KIND as u32 {
        Ok((handle, state))
    } else {
        Err(judge::<T>(handle, state))
    }
}

#[cold]
fn look_up<T: Kept>(address: usize) -> Result<(), Noted> {
    match known::kind_of(address) {
        Some(kind) if kind == T::KIND as usize => Ok(()),
        None if known::some_left_out() && address % align_of::<Held<T>>() == 0 => Ok(()),
        _ => Err(note(T::KIND, None, Problem::Foreign)),
    }
}

#[cold]
fn judge<T: Kept>(handle: &Handle, state: u32) -> Noted {
    let kind = T::KIND as u32;
    if state == DEAD | HARDENED | kind {
        note(T::KIND, handle.name.as_deref(), Problem::Destroyed)
    } else if state == DEAD | PLAIN | kind {
        note(T::KIND, None, Problem::Destroyed)
    } else {
        note(T::KIND, None, Problem::Foreign)
    }
}

/// [`find`], for a thread that is about to use the allocator: also checks the owner.
#[inline]
unsafe fn look<'a, T: Kept>(held: *const Held<T>) -> Result<&'a Handle, Noted> {
    // SAFETY: passed on to the caller.
    let (handle, state) = unsafe { find(held)? };
    if T::ONE_THREAD && state != PLAIN | T::KIND as u32 && !handle.is_mine() {
        return Err(note(T::KIND, handle.name.as_deref(), Problem::WrongThread));
    }
    Ok(handle)
}

/// The allocator that a handle refers to.
///
/// # Safety
/// Invariants 1 and 3 of lib.rs. No reference of [`get_mut`] to it exists.
#[inline]
pub(crate) unsafe fn get<'a, T: Kept>(held: *const Held<T>) -> Result<&'a T, Noted> {
    // SAFETY: passed on to the caller. A handle that passes the check is alive (invariant 2).
    unsafe {
        look(held)?;
        Ok(&*(&raw const (*held).value).cast::<T>())
    }
}

/// The allocator, if it needs no further check: it is plain and alive, and handles are not looked
/// up in the table. For fast paths; the caller's slow path handles everything else.
///
/// # Safety
/// As for [`get`].
#[inline(always)]
pub(crate) unsafe fn at_once<'a, T: Kept>(held: *const Held<T>) -> Option<&'a T> {
    if held.is_null() || !known::none_looked_up() {
        return None;
    }
    // SAFETY: passed on to the caller. It is plain and alive (invariant 2).
    unsafe {
        let state = (*held).handle.state.load(Ordering::Relaxed);
        (state == PLAIN | T::KIND as u32).then(|| &*(&raw const (*held).value).cast::<T>())
    }
}

/// [`get`], for calls that need exclusive access.
///
/// # Safety
/// As for [`get`], for an allocator of one thread. No other reference to it exists.
#[inline]
pub(crate) unsafe fn get_mut<'a, T: Kept>(held: *mut Held<T>) -> Result<&'a mut T, Noted> {
    // SAFETY: passed on to the caller. A handle that passes the check is alive (invariant 2).
    unsafe {
        look(held)?;
        Ok(&mut *(&raw mut (*held).value).cast::<T>())
    }
}

/// [`get`], which refuses any thread but the owner in every mode.
///
/// # Safety
/// As for [`get`].
#[inline]
pub(crate) unsafe fn get_by_owner<'a, T: Kept>(held: *const Held<T>) -> Result<&'a T, Noted> {
    // SAFETY: passed on to the caller. Only fields that never change are read before the owner is
    // known.
    unsafe {
        if !look(held)?.is_mine() {
            return Err(note(T::KIND, None, Problem::WrongThread));
        }
        Ok(&*(&raw const (*held).value).cast::<T>())
    }
}

/// Whether the allocator was created hardened.
///
/// # Safety
/// The handle passed [`get`] and has not been destroyed.
pub(crate) unsafe fn is_hardened<T: Kept>(held: *const Held<T>) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { (*held).handle.state.load(Ordering::Relaxed) & IS_HARDENED != 0 }
}

/// Makes the calling thread the owner of an allocator of one thread.
///
/// # Safety
/// As for [`get`].
pub(crate) unsafe fn adopt<T: Kept>(held: *const Held<T>) -> Result<(), Noted> {
    // SAFETY: passed on to the caller.
    let (handle, _) = unsafe { find(held)? };
    handle.owner.store(this_thread(), Ordering::Relaxed);
    Ok(())
}

/// Destroys an allocator, if `may` allows it. NULL is ignored. The tombstone of a hardened handle
/// is recognised until [`known::TOMBSTONES`] more hardened handles have been destroyed.
///
/// # Safety
/// As for [`get_mut`]. Without hardened mode, the caller does not use the handle any more.
pub(crate) unsafe fn destroy<T: Kept>(
    held: *mut Held<T>,
    may: impl FnOnce(&T) -> Result<(), Noted>,
) -> Result<(), Noted> {
    if held.is_null() {
        return Ok(());
    }
    // SAFETY: passed on to the caller. The value is alive until the state changes, and the thread
    // that changed the state drops it (invariant 2).
    unsafe {
        may(get(held)?)?;
        let handle = &raw mut (*held).handle;
        let value = &raw mut (*held).value;
        let state = (*handle).state.fetch_or(DEAD, Ordering::AcqRel);
        if state & DEAD != 0 {
            return Err(note(T::KIND, None, Problem::Destroyed));
        }
        ManuallyDrop::drop(&mut *value);
        if state & IS_HARDENED == 0 {
            if (*handle).in_table {
                known::take_out(held.addr());
            }
            Handle::free_memory(handle);
        } else {
            T::entomb(value.cast());
            known::bury(handle);
        }
    }
    Ok(())
}
