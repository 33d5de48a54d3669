//! What a C pointer to an allocator refers to, and the checks before the pointer is followed.
//!
//! # Invariants
//!
//! 1. A C caller's pointer to `HandleBox<T>` came from [`create`], unless the caller is wrong
//!    (invariant 1 of lib.rs). `value` is at its start, where inline code finds the frozen fields
//!    of the header.
//! 2. `state` holds the kind, whether the allocator is hardened, and whether it is alive. `value`
//!    may be used while it is alive. It ends once, in [`destroy`]. Then the memory of a plain
//!    handle is freed. The memory of a hardened handle is kept for a while as a tombstone, without
//!    `value`, but with bytes that send inline code to the slow path.
//! 3. For allocators of one thread, `owner` is the number of the thread that may use it.
//! 4. One thread at a time uses an allocator of one thread. The C caller must ensure that; a
//!    hardened allocator checks it. Other threads then read only `record`, which is atomic or never
//!    changes.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::alloc::Layout;

use allotment::{AllocError, ErrorKind};

use crate::error::{CallError, FailedCall, fail, try_boxed_str};
use crate::handle_kind::HandleKind;
use crate::handle_record::{HandleRecord, keep_tombstone, this_thread};
use crate::handle_table;

/// A type that C callers have handles of.
pub trait HandleTarget {
    /// Its kind.
    const KIND: HandleKind;
    /// Whether only one thread at a time may use it.
    const ONE_THREAD: bool;

    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;

    /// Records the library's error of a call on it.
    #[cold]
    fn failed(&self, error: AllocError) -> FailedCall {
        fail(Self::KIND, self.name(), error)
    }

    /// Makes inline code take the slow path on a destroyed hardened handle. For types whose bytes
    /// do not have that effect after the drop.
    ///
    /// # Safety
    /// `value` was dropped in place, and its memory is still there.
    unsafe fn disable_fast_paths(value: *mut Self) {
        let _ = value;
    }
}

/// An allocator and its record. C callers have pointers to it.
#[repr(C, align(16))]
pub struct HandleBox<T> {
    value: ManuallyDrop<T>,
    record: HandleRecord,
}

/// A state is `PLAIN` or `HARDENED`, plus the kind, plus `DESTROYED` from the destruction on.
const PLAIN: u32 = 0x414C_0000;
const HARDENED: u32 = PLAIN | IS_HARDENED;
const IS_HARDENED: u32 = 0x200;
const DESTROYED: u32 = 0x400;

/// Creates a handle for an allocator. `hardened`: whether its options, or hardened mode for every
/// allocator, request hardening.
///
/// The value is dropped if there is no memory for the handle.
pub(crate) fn create<T: HandleTarget>(
    value: T,
    hardened: bool,
) -> Result<NonNull<HandleBox<T>>, FailedCall> {
    let name = match value.name() {
        Some(name) if hardened => Some(try_boxed_str(T::KIND, name)?),
        _ => None,
    };
    let layout = Layout::new::<HandleBox<T>>();
    let refused = AllocError::new(ErrorKind::SourceRefused, layout.size());
    // SAFETY: the size is not zero.
    let start = unsafe { std::alloc::alloc(layout) };
    let Some(handle) = NonNull::new(start.cast::<HandleBox<T>>()) else {
        return Err(fail(T::KIND, value.name(), refused));
    };
    let in_table = handle_table::all_hardened();
    if !in_table {
        handle_table::note_unlisted();
    } else if !handle_table::insert(start.addr(), T::KIND) {
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(start, layout) };
        return Err(fail(T::KIND, value.name(), refused));
    }
    let mode = if hardened { HARDENED } else { PLAIN };
    let record = HandleRecord {
        state: AtomicU32::new(mode | T::KIND as u32),
        owner: AtomicU64::new(if T::ONE_THREAD { this_thread() } else { 0 }),
        start,
        layout,
        in_table,
        name,
    };
    // SAFETY: fresh memory of this layout.
    unsafe { handle.write(HandleBox { value: ManuallyDrop::new(value), record }) };
    Ok(handle)
}

/// The record of the handle that a pointer refers to, and its state, if it is alive.
#[inline]
unsafe fn live_record<'a, T: HandleTarget>(
    handle: *const HandleBox<T>,
) -> Result<(&'a HandleRecord, u32), FailedCall> {
    if handle.is_null() {
        return Err(fail(T::KIND, None, CallError::NullHandle));
    }
    if handle_table::all_hardened() {
        check_listed::<T>(handle.addr())?;
    }
    // SAFETY: not null and, as far as can be determined, a handle (invariant 1). The value is not
    // accessed.
    let record = unsafe { &(*handle).record };
    let state = record.state.load(Ordering::Acquire);
    if state == PLAIN | T::KIND as u32 || state == HARDENED | T::KIND as u32 {
        Ok((record, state))
    } else {
        Err(not_alive::<T>(record, state))
    }
}

#[cold]
fn check_listed<T: HandleTarget>(address: usize) -> Result<(), FailedCall> {
    let may_be_unlisted =
        || handle_table::unlisted_exist() && address % align_of::<HandleBox<T>>() == 0;
    match handle_table::kind_at(address) {
        Some(kind) if kind == T::KIND as usize => Ok(()),
        None if may_be_unlisted() => Ok(()),
        _ => Err(fail(T::KIND, None, CallError::Foreign)),
    }
}

#[cold]
fn not_alive<T: HandleTarget>(record: &HandleRecord, state: u32) -> FailedCall {
    let kind = T::KIND as u32;
    if state == DESTROYED | HARDENED | kind {
        fail(T::KIND, record.name.as_deref(), CallError::Destroyed)
    } else if state == DESTROYED | PLAIN | kind {
        fail(T::KIND, None, CallError::Destroyed)
    } else {
        fail(T::KIND, None, CallError::Foreign)
    }
}

/// [`live_record`], for a thread that is about to use the allocator: also checks the owner.
#[inline]
unsafe fn usable_record<'a, T: HandleTarget>(
    handle: *const HandleBox<T>,
) -> Result<&'a HandleRecord, FailedCall> {
    // SAFETY: passed on to the caller.
    let (record, state) = unsafe { live_record(handle)? };
    if T::ONE_THREAD && state != PLAIN | T::KIND as u32 && !record.is_owned_by_this_thread() {
        return Err(fail(T::KIND, record.name.as_deref(), CallError::WrongThread));
    }
    Ok(record)
}

/// The allocator that a handle refers to.
///
/// # Safety
/// Invariants 1 and 3 of lib.rs. No reference of [`get_mut`] to it exists.
#[inline]
pub(crate) unsafe fn get<'a, T: HandleTarget>(
    handle: *const HandleBox<T>,
) -> Result<&'a T, FailedCall> {
    // SAFETY: passed on to the caller. A handle that passes the check is alive (invariant 2).
    unsafe {
        usable_record(handle)?;
        Ok(&*(&raw const (*handle).value).cast::<T>())
    }
}

/// The allocator, if it needs no further check: it is plain and alive, and handles are not looked
/// up in the table. For fast paths; the caller's slow path handles everything else.
///
/// # Safety
/// As for [`get`].
#[inline(always)]
pub(crate) unsafe fn get_fast<'a, T: HandleTarget>(handle: *const HandleBox<T>) -> Option<&'a T> {
    if handle.is_null() || !handle_table::lookup_is_off() {
        return None;
    }
    // SAFETY: passed on to the caller. It is plain and alive (invariant 2).
    unsafe {
        let state = (*handle).record.state.load(Ordering::Relaxed);
        (state == PLAIN | T::KIND as u32).then(|| &*(&raw const (*handle).value).cast::<T>())
    }
}

/// [`get`], for calls that need exclusive access.
///
/// # Safety
/// As for [`get`], for an allocator of one thread. No other reference to it exists.
#[inline]
pub(crate) unsafe fn get_mut<'a, T: HandleTarget>(
    handle: *mut HandleBox<T>,
) -> Result<&'a mut T, FailedCall> {
    // SAFETY: passed on to the caller. A handle that passes the check is alive (invariant 2).
    unsafe {
        usable_record(handle)?;
        Ok(&mut *(&raw mut (*handle).value).cast::<T>())
    }
}

/// [`get`], which refuses any thread but the owner in every mode.
///
/// # Safety
/// As for [`get`].
#[inline]
pub(crate) unsafe fn get_by_owner<'a, T: HandleTarget>(
    handle: *const HandleBox<T>,
) -> Result<&'a T, FailedCall> {
    // SAFETY: passed on to the caller. Only fields that never change are read before the owner is
    // known.
    unsafe {
        if !usable_record(handle)?.is_owned_by_this_thread() {
            return Err(fail(T::KIND, None, CallError::WrongThread));
        }
        Ok(&*(&raw const (*handle).value).cast::<T>())
    }
}

/// Whether the allocator was created hardened.
///
/// # Safety
/// The handle passed [`get`] and has not been destroyed.
pub(crate) unsafe fn is_hardened<T: HandleTarget>(handle: *const HandleBox<T>) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { (*handle).record.state.load(Ordering::Relaxed) & IS_HARDENED != 0 }
}

/// Makes the calling thread the owner of an allocator of one thread.
///
/// # Safety
/// As for [`get`].
pub(crate) unsafe fn adopt<T: HandleTarget>(handle: *const HandleBox<T>) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    let (record, _) = unsafe { live_record(handle)? };
    record.owner.store(this_thread(), Ordering::Relaxed);
    Ok(())
}

/// Destroys an allocator. NULL is ignored. The tombstone of a hardened handle is recognised until
/// [`MAX_TOMBSTONES`](crate::handle_record::MAX_TOMBSTONES) more hardened handles have been
/// destroyed.
///
/// # Safety
/// As for [`get_mut`]. Without hardened mode, the caller does not use the handle any more.
pub(crate) unsafe fn destroy<T: HandleTarget>(handle: *mut HandleBox<T>) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe { destroy_if(handle, |_| Ok(())) }
}

/// [`destroy`], unless `check` fails. `check` is not called for NULL.
///
/// # Safety
/// As for [`destroy`].
pub(crate) unsafe fn destroy_if<T: HandleTarget>(
    handle: *mut HandleBox<T>,
    check: impl FnOnce(&T) -> Result<(), FailedCall>,
) -> Result<(), FailedCall> {
    if handle.is_null() {
        return Ok(());
    }
    // SAFETY: passed on to the caller. The value is alive until the state changes, and the thread
    // that changed the state drops it (invariant 2).
    unsafe {
        check(get(handle)?)?;
        let record = &raw mut (*handle).record;
        let value = &raw mut (*handle).value;
        let state = (*record).state.fetch_or(DESTROYED, Ordering::AcqRel);
        if state & DESTROYED != 0 {
            return Err(fail(T::KIND, None, CallError::Destroyed));
        }
        ManuallyDrop::drop(&mut *value);
        if state & IS_HARDENED == 0 {
            if (*record).in_table {
                handle_table::remove(handle.addr());
            }
            HandleRecord::free_memory(record);
        } else {
            T::disable_fast_paths(value.cast());
            keep_tombstone(record);
        }
    }
    Ok(())
}
