//! What a C pointer to an allocator leads to, and the checks before it is followed.
//!
//! # Invariants
//!
//! 1. A pointer to `Held<T>` that a C caller has came from [`create`], unless the caller is wrong (invariant 1 of lib.rs).
//!    `value` is at its start, where inline code finds the fields that the header has frozen.
//! 2. `state` says the kind, whether it is hardened, and whether it lives; `value` may be used while it lives. It ends once,
//!    in [`destroy`]: then a plain handle's memory is freed, and a hardened one's kept as a tombstone for a while,
//!    without `value`, but with bytes that send inline code to the slow path.
//! 3. `owner` is the number of the thread that may use it, for allocators of one thread. Numbers are never used again.
//! 4. One thread at a time uses an allocator of one thread: the C caller's duty, which is checked when it is hardened.
//!    Other threads read nothing then but `handle`, which is atomic or never changes.

use core::cell::Cell;
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::alloc::Layout;

use allotment::{AllocError, ErrorKind};

use crate::error::{Noted, Problem, note};
use crate::known;

/// What sort of thing a handle leads to. The number is the one in `known`'s table.
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
    /// Blocks that know their size, of no named allocator.
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

/// What C callers have handles of.
pub trait Kept {
    /// What it is.
    const KIND: Kind;
    /// Whether one thread at a time uses it.
    const ONE_THREAD: bool;

    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;

    /// Sees to it that inline code on a destroyed hardened handle takes the slow path. For those whose bytes don't do so
    /// by themselves after the drop.
    ///
    /// # Safety
    /// `value` was dropped in place, and its memory is still there.
    unsafe fn entomb(value: *mut Self) {
        let _ = value;
    }
}

/// An allocator, and what is known of its handle.
#[repr(C, align(16))]
pub struct Held<T> {
    value: ManuallyDrop<T>,
    handle: Handle,
}

/// What every handle has.
#[repr(C)]
pub struct Handle {
    state: AtomicU32,
    owner: AtomicU64,
    /// Where the whole allocation begins, and its layout.
    start: *mut u8,
    layout: Layout,
    in_table: bool,
    /// A hardened one's name, which outlives the allocator.
    name: Option<Box<str>>,
}

/// States: one of the first two with a kind, and `DEAD` besides when it was destroyed.
const PLAIN: u32 = 0x414C_0000;
const HARDENED: u32 = PLAIN | IS_HARDENED;
const IS_HARDENED: u32 = 0x200;
const DEAD: u32 = 0x400;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number: not zero, and no other thread's, now or later.
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
    /// Its value was dropped, and nobody uses the handle any more.
    pub(crate) unsafe fn free_memory(handle: *mut Self) {
        // SAFETY: passed on to the caller; the memory came from `create` with this layout.
        unsafe {
            let (start, layout) = ((*handle).start, (*handle).layout);
            drop((*handle).name.take());
            std::alloc::dealloc(start, layout);
        }
    }
}

/// Makes a handle of an allocator. `hardened` as in its options ([`Options::hardened`](crate::options::Options)).
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
    // SAFETY: memory of this layout, nobody else's.
    unsafe { held.write(Held { value: ManuallyDrop::new(value), handle }) };
    Ok(held)
}

/// The handle that a pointer leads to, and its state, if it lives.
#[inline]
unsafe fn find<'a, T: Kept>(held: *const Held<T>) -> Result<(&'a Handle, u32), Noted> {
    if held.is_null() {
        return Err(note(T::KIND, None, Problem::NullHandle));
    }
    if known::all_hardened() {
        look_up::<T>(held.addr())?;
    }
    // SAFETY: not null and, as far as it can be told, a handle (invariant 1). The value is not touched.
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

/// As [`find`], for a thread that is about to use the allocator.
#[inline]
unsafe fn look<'a, T: Kept>(held: *const Held<T>) -> Result<&'a Handle, Noted> {
    // SAFETY: passed on to the caller.
    let (handle, state) = unsafe { find(held)? };
    if T::ONE_THREAD && state != PLAIN | T::KIND as u32 && !handle.is_mine() {
        return Err(note(T::KIND, handle.name.as_deref(), Problem::WrongThread));
    }
    Ok(handle)
}

/// The allocator that a handle leads to.
///
/// # Safety
/// Invariants 1 and 3 of lib.rs; nobody has [`get_mut`]'s reference to it.
#[inline]
pub(crate) unsafe fn get<'a, T: Kept>(held: *const Held<T>) -> Result<&'a T, Noted> {
    // SAFETY: passed on to the caller; a handle that passes lives (invariant 2).
    unsafe {
        look(held)?;
        Ok(&*(&raw const (*held).value).cast::<T>())
    }
}

/// An allocator of which nothing else is to be looked at: plain, alive, and no table to look it up in. For fast paths, which
/// leave everything else to others.
///
/// # Safety
/// As for [`get`].
#[inline(always)]
pub(crate) unsafe fn at_once<'a, T: Kept>(held: *const Held<T>) -> Option<&'a T> {
    if held.is_null() || !known::none_looked_up() {
        return None;
    }
    // SAFETY: passed on to the caller; a plain one that lives (invariant 2).
    unsafe {
        let state = (*held).handle.state.load(Ordering::Relaxed);
        (state == PLAIN | T::KIND as u32).then(|| &*(&raw const (*held).value).cast::<T>())
    }
}

/// [`get`], for calls that must change it as a whole.
///
/// # Safety
/// As for [`get`], of an allocator of one thread; nobody has a reference to it.
#[inline]
pub(crate) unsafe fn get_mut<'a, T: Kept>(held: *mut Held<T>) -> Result<&'a mut T, Noted> {
    // SAFETY: passed on to the caller; a handle that passes lives (invariant 2).
    unsafe {
        look(held)?;
        Ok(&mut *(&raw mut (*held).value).cast::<T>())
    }
}

/// [`get`], which refuses another thread than the owner also where the allocator is not hardened.
///
/// # Safety
/// As for [`get`].
#[inline]
pub(crate) unsafe fn get_by_owner<'a, T: Kept>(held: *const Held<T>) -> Result<&'a T, Noted> {
    // SAFETY: passed on to the caller. Only what never changes is read before the owner is known.
    unsafe {
        if !look(held)?.is_mine() {
            return Err(note(T::KIND, None, Problem::WrongThread));
        }
        Ok(&*(&raw const (*held).value).cast::<T>())
    }
}

/// Whether it was made hardened.
///
/// # Safety
/// The handle passed [`get`], and was not destroyed since.
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

/// Destroys an allocator, if `may` says so; NULL is none, and nothing is done. What a hardened one's handle leads to then
/// is told from a living one for as long as [`known::TOMBSTONES`] others have not been destroyed after it.
///
/// # Safety
/// As for [`get_mut`]. Without the hardened mode, the caller gives the handle up.
pub(crate) unsafe fn destroy<T: Kept>(
    held: *mut Held<T>,
    may: impl FnOnce(&T) -> Result<(), Noted>,
) -> Result<(), Noted> {
    if held.is_null() {
        return Ok(());
    }
    // SAFETY: passed on to the caller; the value lives until the state says otherwise, and is dropped by whoever changed
    // it (invariant 2).
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
