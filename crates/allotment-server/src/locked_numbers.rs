//! The shared objects that the calling thread has locked.
//!
//! A thread-local without initialisation or destructor: it can be read at any time in a thread's
//! life, and takes no heap memory.

use core::cell::Cell;

/// How many shared objects one thread may have locked at a time.
pub(crate) const MOST: usize = 32;

thread_local! {
    static HELD: Held = const { Held { count: Cell::new(0), numbers: [const { Cell::new(0) }; MOST] } };
}

/// The numbers of the locked objects, in no order.
struct Held {
    count: Cell<usize>,
    numbers: [Cell<u64>; MOST],
}

impl Held {
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().take(self.count.get()).map(Cell::get)
    }
}

/// Why the thread must not lock one more object.
pub(crate) enum Against {
    /// This thread has already locked this object.
    Same,
    /// This thread has locked this object, which has a higher number.
    Later(u64),
    /// This thread has the maximum number of objects locked.
    Full,
}

/// Whether the thread may wait for this object's lock: all objects that it has locked have lower
/// numbers.
pub(crate) fn may_wait(number: u64) -> Result<(), Against> {
    HELD.with(|held| {
        if held.numbers().any(|other| other == number) {
            return Err(Against::Same);
        }
        match held.numbers().max() {
            Some(later) if later > number => Err(Against::Later(later)),
            _ => room(held),
        }
    })
}

/// Whether the thread may try this object's lock: it has not locked this object yet.
pub(crate) fn may_try(number: u64) -> Result<(), Against> {
    HELD.with(|held| match held.numbers().any(|other| other == number) {
        true => Err(Against::Same),
        false => room(held),
    })
}

fn room(held: &Held) -> Result<(), Against> {
    if held.count.get() < MOST { Ok(()) } else { Err(Against::Full) }
}

/// Returns how many objects the thread has locked.
pub(crate) fn count() -> usize {
    HELD.with(|held| held.count.get())
}

/// Notes that the thread has locked this object. There is room, because `may_wait` or `may_try`
/// succeeded.
pub(crate) fn add(number: u64) {
    HELD.with(|held| {
        let count = held.count.get();
        held.numbers[count].set(number);
        held.count.set(count + 1);
    });
}

/// Notes that the thread unlocks this object.
pub(crate) fn remove(number: u64) {
    HELD.with(|held| {
        let last = held.count.get() - 1;
        if let Some(at) = held.numbers().position(|other| other == number) {
            held.numbers[at].set(held.numbers[last].get());
            held.count.set(last);
        }
    });
}
