//! The table of the stacks that allocated, for the whole process.
//!
//! # Invariants
//!
//! 1. An entry of the table is null or points to a stack. It changes once, from null, and stacks
//!    are never freed.
//! 2. A stack lies at the first entry that was null when it was stored, from the entry of its hash
//!    on, and at most [`MAX_PROBES`] entries behind. So a search ends at null.
//!
//! A child made by fork can go on: no thread ever holds a lock here.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The largest number of different stacks.
pub(crate) const MAX_STACKS: usize = 1 << 14;
/// The largest number of return addresses of a stack: the innermost ones.
const MAX_ADDRESSES: usize = 64;
/// The function whose call is the innermost one of each stack, but for calls inside it.
pub(crate) const WALKING_FUNCTION: &str = "record_caller";
const TABLE_LEN: usize = 2 * MAX_STACKS;
/// A table that is half full has hardly ever a longer sequence of entries that are not null.
const MAX_PROBES: usize = 256;

struct Stack {
    addresses: Box<[usize]>,
}

static TABLE: [AtomicPtr<Stack>; TABLE_LEN] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TABLE_LEN];
/// The number of stacks in the table, and of those that are about to be stored.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the stack at an entry that [`record_caller`] has returned.
pub(super) fn stack(index: u32) -> &'static [usize] {
    match load(index as usize) {
        Some(stack) => &stack.addresses,
        None => &[],
    }
}

fn load(index: usize) -> Option<&'static Stack> {
    // SAFETY: null, or a stack that is never freed (1). Acquire pairs with the Release in `store`.
    unsafe { TABLE[index].load(Ordering::Acquire).as_ref() }
}

/// Stores the stack of the calling function, unless the same one is there. Returns its entry, or
/// `None` if the table is full.
#[inline(never)]
pub(super) fn record_caller() -> Option<u32> {
    let (mut addresses, mut len) = ([0; MAX_ADDRESSES], 0);
    let add = |frame: &backtrace::Frame| {
        addresses[len] = frame.ip().addr();
        len += 1;
        len < MAX_ADDRESSES
    };
    // SAFETY: this crate compiles on Linux only, where the call does nothing but run the system's
    // unwinder, which several threads may use at a time. The package's lock, which the safe call
    // takes, keeps apart the use of its symbol caches on other systems. It must not be taken here:
    // the caller may hold a pool's lock, which a thread that looks up symbols may wait for.
    unsafe { backtrace::trace_unsynchronized(add) };
    find_or_store(&addresses[..len])
}

fn hash(addresses: &[usize]) -> usize {
    // Multiplication by the golden ratio mixes the highest bits best.
    let hash = addresses.iter().fold(0, |hash: usize, address| {
        (hash.rotate_left(23) ^ address).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    hash >> (usize::BITS - TABLE_LEN.ilog2())
}

fn find_or_store(addresses: &[usize]) -> Option<u32> {
    let mut index = hash(addresses);
    let mut fresh = None;
    for _ in 0..MAX_PROBES {
        let stack = match load(index) {
            Some(stack) => stack,
            None => {
                let stack = match fresh.take() {
                    Some(stack) => stack,
                    None => new_stack(addresses)?,
                };
                match store(index, stack) {
                    Ok(()) => return Some(index as u32),
                    Err((stack, other)) => {
                        fresh = Some(stack);
                        other
                    }
                }
            }
        };
        if *stack.addresses == *addresses {
            if fresh.is_some() {
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
            return Some(index as u32);
        }
        index = (index + 1) % TABLE_LEN;
    }
    if fresh.is_some() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
    None
}

/// Makes a stack, and counts it. `None` if there are as many as there may be.
fn new_stack(addresses: &[usize]) -> Option<Box<Stack>> {
    // Relaxed: the count is only a number.
    let next = |count: usize| (count < MAX_STACKS).then_some(count + 1);
    COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
    Some(Box::new(Stack { addresses: addresses.into() }))
}

/// Stores a stack at an entry that was null. If another thread was faster, returns the stack, and
/// that of the other thread.
fn store(index: usize, stack: Box<Stack>) -> Result<(), (Box<Stack>, &'static Stack)> {
    let pointer = Box::into_raw(stack);
    // Release pairs with the Acquire in `load`, and Acquire with the Release of the other thread.
    let stored = TABLE[index].compare_exchange(
        ptr::null_mut(),
        pointer,
        Ordering::Release,
        Ordering::Acquire,
    );
    // SAFETY: if the exchange failed, only this call has the pointer, which came from the box. What
    // it found is a stack, because it was not null (1).
    stored.map(|_| ()).map_err(|other| unsafe { (Box::from_raw(pointer), &*other) })
}

/// Calls `visit` with each symbol at a return address, the innermost of inlined ones first.
pub(crate) fn symbols(address: usize, visit: impl FnMut(&backtrace::Symbol)) {
    backtrace::resolve(ptr::without_provenance_mut::<c_void>(address), visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number_and_others_another() {
        let first = find_or_store(&[1, 2, 3]).unwrap();
        assert_eq!(find_or_store(&[1, 2, 3]), Some(first));
        let other = find_or_store(&[1, 2]).unwrap();
        assert_ne!(first, other);
        assert_eq!((stack(first), stack(other)), (&[1, 2, 3][..], &[1, 2][..]));
    }

    #[test]
    fn threads_that_store_the_same_stacks_agree_on_their_numbers() {
        let stacks = if cfg!(miri) { 20 } else { 200 };
        let numbers =
            || (0..stacks).map(|stack| find_or_store(&[1 << 20, stack])).collect::<Vec<_>>();
        let of_threads = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(numbers)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(of_threads.iter().all(|other| *other == of_threads[0]));
        assert!(of_threads[0].iter().all(Option::is_some));
    }
}
