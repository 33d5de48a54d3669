//! Which shared objects the calling thread has locked.
//!
//! A thread-local without initialisation or destructor: it can be asked at any time of a thread's life, and takes no memory.

use core::cell::Cell;

/// How many shared objects one thread may have locked at once.
pub(super) const MOST: usize = 32;

thread_local! {
    static HELD: Held = const { Held { count: Cell::new(0), numbers: [const { Cell::new(0) }; MOST] } };
}

/// The numbers of locked objects, in no order.
struct Held {
    count: Cell<usize>,
    numbers: [Cell<u64>; MOST],
}

impl Held {
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().take(self.count.get()).map(Cell::get)
    }
}

/// What stands against locking one more.
pub(super) enum Against {
    /// This thread has it already.
    Same,
    /// It has this one, which comes later in the order.
    Later(u64),
    /// It has as many as it may.
    Full,
}

/// Whether the thread may wait for this object's lock: it has only such that come before it.
pub(super) fn may_wait(number: u64) -> Result<(), Against> {
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

/// Whether the thread may try this object's lock: it has it not.
pub(super) fn may_try(number: u64) -> Result<(), Against> {
    HELD.with(|held| match held.numbers().any(|other| other == number) {
        true => Err(Against::Same),
        false => room(held),
    })
}

fn room(held: &Held) -> Result<(), Against> {
    if held.count.get() < MOST { Ok(()) } else { Err(Against::Full) }
}

/// How many the thread has.
pub(super) fn count() -> usize {
    HELD.with(|held| held.count.get())
}

/// The thread has locked this one. There is room: `may_wait` or `may_try` said so.
pub(super) fn add(number: u64) {
    HELD.with(|held| {
        let count = held.count.get();
        held.numbers[count].set(number);
        held.count.set(count + 1);
    });
}

/// The thread unlocks this one.
pub(super) fn remove(number: u64) {
    HELD.with(|held| {
        let last = held.count.get() - 1;
        if let Some(at) = held.numbers().position(|other| other == number) {
            held.numbers[at].set(held.numbers[last].get());
            held.count.set(last);
        }
    });
}
