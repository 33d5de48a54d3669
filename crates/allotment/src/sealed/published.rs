//! `Published`: a value that is read by many threads and replaced now and then.
//!
//! # Invariants
//!
//! 1. Every generation is one value in a block of [`Structures`], made by `make` and ended by [`Ended`] once. Between the two it belongs
//!    to the publication, whose protocol (`publication.rs`) says when nobody reads it any more.
//! 2. While a `Reading` lives its slot announces its generation.

use core::fmt;
use core::mem::{self, MaybeUninit};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::publication::{Generation, Publication, Slot, unlink};
use super::{fences, readers};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::structures::Structures;

/// A value that many threads read, and that is replaced as a whole: a configuration, a table of routes.
///
/// [`read`](Self::read) gives the current generation and keeps it: no lock, no locked instruction, no waiting, whoever publishes
/// meanwhile. [`publish`](Self::publish) puts another in its place; those who read the old one read on. The old one is dropped with its last
/// reader, by the thread that ends that reading or by the one that published, at once, and never while it is read. There is
/// no thread in the background.
///
/// ```
/// use allotment::Published;
///
/// let limits = Published::new(vec![10, 20]);
/// let before = limits.read();
/// assert_eq!(limits.publish(vec![30]), 2);
/// assert_eq!((&before[..], &limits.read()[..]), (&[10, 20][..], &[30][..]));
/// assert_eq!(limits.retired(), 1); // kept for `before`
/// drop(before);
/// assert_eq!(limits.retired(), 0);
/// ```
///
/// With a [`Sealed`](crate::Sealed) inside, a generation is read-only memory as well.
///
/// # What it costs
///
/// A thread's first read takes 128 bytes that are kept for the threads after it, and so does every ninth reading that a thread
/// holds at a time; no other read allocates. A publication allocates the new generation, has the kernel run a memory fence on every
/// processor that runs a thread of the process (`membarrier`; some microseconds), and looks through the slots of all threads.
/// So it is for what is read far more often than it is replaced. Where the kernel has no such call, or a sandbox forbids it, reads take two
/// fences instead; a sandbox that forbids it only after the first `Published` was made keeps old generations until the `Published` is dropped.
///
/// # Destructors
///
/// A value's destructor runs on whichever thread was its last reader: in [`publish`](Self::publish), at the end of a [`Reading`], or in a
/// [`read`](Self::read) that met a publication. It may itself read and publish here. If it panics the panic comes out of that call, the new generation
/// is in place, and whatever else was to be dropped is; if one of those panics too the process aborts, as it does with a vector's values.
///
/// A [`Reading`] that is leaked keeps its generation until the `Published` is dropped. In a child made by fork the readings of threads that
/// are not there do the same, and what one of them was about to drop is lost; the child's own reads and publications are as any.
// Threads share the values, and any of them may drop one: hence the bounds.
#[repr(align(128))]
pub struct Published<T: Send + Sync> {
    publication: Publication<T>,
    retired: AtomicUsize,
}

/// A generation, and the slot that announces it.
type Announced<T> = (NonNull<Generation<T>>, &'static Slot);

impl<T: Send + Sync> Published<T> {
    /// Publishes the first generation, which has the number 1.
    #[must_use]
    pub fn new(value: T) -> Self {
        always(Self::make::<Abort>(value))
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// When there is no memory; the value is dropped.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::make::<Report>(value)
    }

    fn make<F: OnFailure>(value: T) -> Result<Self, F::Error> {
        /// Marks of publications, one after the other.
        static MARKS: AtomicUsize = AtomicUsize::new(0);
        fences::decide();
        let first = generation::<T, F>(1, value)?;
        // In the bits that addresses leave free. Two publications with the same mark are 65,536 apart.
        let mark = MARKS.fetch_add(1, Ordering::Relaxed) << 48;
        Ok(Self { publication: Publication::new(first, mark), retired: AtomicUsize::new(0) })
    }

    /// The current generation, which stays until the [`Reading`] is dropped.
    ///
    /// A thread may read as often at a time as it likes, here and elsewhere.
    #[inline]
    pub fn read(&self) -> Reading<'_, T> {
        always(self.read_or::<Abort>())
    }

    /// As [`read`](Self::read).
    ///
    /// # Errors
    /// When the thread needs its first 128 bytes for readings, or the next for eight more at a time, and there is no memory.
    #[inline]
    pub fn try_read(&self) -> Result<Reading<'_, T>, AllocError> {
        self.read_or::<Report>()
    }

    #[inline(always)]
    fn read_or<F: OnFailure>(&self) -> Result<Reading<'_, T>, F::Error> {
        let (generation, slot) = match readers::first_slot() {
            Some(slot) => match self.publication.enter(slot) {
                Some(generation) => (generation, slot),
                None => self.announce_again::<F>()?,
            },
            None => self.announce_elsewhere::<F>()?,
        };
        Ok(Reading { published: self, generation, slot })
    }

    /// The thread reads something else too, or has no slots. Cold for the code's layout alone.
    #[cold]
    #[inline(never)]
    fn announce_elsewhere<F: OnFailure>(&self) -> Result<Announced<T>, F::Error> {
        let slot = readers::slot().map_err(F::fail)?;
        match self.publication.enter(slot) {
            Some(generation) => Ok((generation, slot)),
            None => self.announce_again::<F>(),
        }
    }

    /// A publication came in between.
    #[cold]
    #[inline(never)]
    fn announce_again<F: OnFailure>(&self) -> Result<Announced<T>, F::Error> {
        loop {
            self.look();
            let slot = readers::slot().map_err(F::fail)?;
            if let Some(generation) = self.publication.enter(slot) {
                return Ok((generation, slot));
            }
        }
    }

    /// Puts another generation in the place of the current one, and gives its number: one more than that one's. Waits neither
    /// for readers nor for other writers; of two at a time both are published, one after the other.
    pub fn publish(&self, value: T) -> u64 {
        always(self.publish_or::<Abort>(value))
    }

    /// As [`publish`](Self::publish).
    ///
    /// # Errors
    /// When there is no memory; nothing is published, and the value is dropped.
    pub fn try_publish(&self, value: T) -> Result<u64, AllocError> {
        self.publish_or::<Report>(value)
    }

    fn publish_or<F: OnFailure>(&self, value: T) -> Result<u64, F::Error> {
        let mut new = Fresh(generation::<T, F>(0, value)?);
        loop {
            match self.replace(self.read_or::<F>()?, new) {
                Ok(number) => return Ok(number),
                Err(rest) => new = rest,
            }
        }
    }

    /// Publishes what `change` makes of the current generation, and gives the number. If another generation was published
    /// meanwhile the result is dropped, and `change` is called again with that one: so no publication is lost.
    ///
    /// ```
    /// let allowed = allotment::Published::new(vec!["a"]);
    /// allowed.update(|names| names.iter().copied().chain(["b"]).collect());
    /// assert_eq!(*allowed.read(), ["a", "b"]);
    /// ```
    pub fn update(&self, change: impl FnMut(&T) -> T) -> u64 {
        always(self.update_or::<Abort>(change))
    }

    /// As [`update`](Self::update).
    ///
    /// # Errors
    /// When there is no memory; nothing is published, and what `change` made is dropped.
    pub fn try_update(&self, change: impl FnMut(&T) -> T) -> Result<u64, AllocError> {
        self.update_or::<Report>(change)
    }

    fn update_or<F: OnFailure>(&self, mut change: impl FnMut(&T) -> T) -> Result<u64, F::Error> {
        loop {
            let current = self.read_or::<F>()?;
            let new = Fresh(generation::<T, F>(0, change(&current))?);
            if let Ok(number) = self.replace(current, new) {
                return Ok(number);
            }
        }
    }

    /// Puts a generation in the place of one that is read, if that is still the current one.
    fn replace(&self, current: Reading<'_, T>, new: Fresh<T>) -> Result<u64, Fresh<T>> {
        let number = Reading::generation(&current) + 1;
        // SAFETY: nobody else has the new generation yet. It is published as one that is no longer `Fresh`, and is else.
        unsafe {
            (*new.0.as_ptr()).number = number;
            let count = || _ = self.retired.fetch_add(1, Ordering::Relaxed);
            if !self.publication.replace(current.generation, new.0, count) {
                return Err(new);
            }
        }
        mem::forget(new);
        // Its end looks for generations that nobody reads, if only this one.
        drop(current);
        Ok(number)
    }

    /// The current generation's number. The first is 1, and each one that is published has the next.
    #[must_use]
    pub fn generation(&self) -> u64 {
        Reading::generation(&self.read())
    }

    /// How many generations have been replaced and not been dropped, because somebody reads them.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }

    /// Drops the replaced generations that nobody reads.
    #[cold]
    #[inline(never)]
    fn look(&self) {
        let first = self.publication.look(readers::announced);
        drop(Ended { first, retired: &self.retired });
    }
}

impl<T: Send + Sync> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: borrowed alone, so that no reading lives that was not leaked.
        let first = unsafe { self.publication.take_all() };
        drop(Ended { first, retired: &AtomicUsize::new(usize::MAX) });
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.read();
        f.debug_struct("Published")
            .field("generation", &Reading::generation(&current))
            .field("value", &*current)
            .field("retired", &self.retired())
            .finish()
    }
}

impl<T: Send + Sync + Default> Default for Published<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + Sync> From<T> for Published<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// One generation of a [`Published`], which stays while this lives.
///
/// It is its thread's, who announced it; what it refers to may be shared.
///
/// ```compile_fail,E0277
/// let published = allotment::Published::new(7);
/// let reading = published.read();
/// std::thread::scope(|scope| drop(scope.spawn(move || drop(reading))));
/// ```
///
/// The `Published` can't go before it:
///
/// ```compile_fail,E0505
/// let published = allotment::Published::new(7);
/// let reading = published.read();
/// drop(published);
/// assert_eq!(*reading, 7);
/// ```
#[must_use = "what is read may be gone once the reading is dropped"]
pub struct Reading<'p, T: Send + Sync> {
    published: &'p Published<T>,
    generation: NonNull<Generation<T>>,
    slot: &'static Slot,
}

// SAFETY: it gives out `&T` and no more; dropping it takes the reading itself, which is not `Send`.
unsafe impl<T: Send + Sync> Sync for Reading<'_, T> {}

impl<T: Send + Sync> Reading<'_, T> {
    /// The generation's number. Not a method, as `T` may have one of the name.
    #[must_use]
    pub fn generation(reading: &Self) -> u64 {
        // SAFETY: announced (2), so it lives; the number is not written any more.
        unsafe { (*reading.generation.as_ptr()).number }
    }
}

impl<T: Send + Sync> Deref for Reading<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: announced (2), so it lives as long as this; nobody has leave to write to it.
        unsafe { &(*self.generation.as_ptr()).value }
    }
}

impl<T: Send + Sync> Drop for Reading<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.published.publication.leave(self.slot, self.generation) {
            self.published.look();
        }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Send + Sync + fmt::Display> fmt::Display for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// Makes a generation. If that fails the value is dropped.
fn generation<T, F: OnFailure>(number: u64, value: T) -> Result<NonNull<Generation<T>>, F::Error> {
    let mut value = Some(value);
    let mut make = |_| Generation::new(number, value.take().expect("called once"));
    let block = Structures::new(1, &mut make).map_err(F::fail)?;
    let generation = block.as_ptr();
    mem::forget(block);
    Ok(generation)
}

/// Ends a generation.
///
/// # Safety
/// It was made by [`generation`], nobody uses it any more, and it is ended once.
unsafe fn end<T>(generation: NonNull<Generation<T>>) {
    // SAFETY: the block of one value, passed on to the caller. It goes also where the destructor panics.
    let block = unsafe { Structures::adopt(generation.cast::<MaybeUninit<Generation<T>>>(), 1) };
    // SAFETY: passed on to the caller; the block does not drop it again.
    unsafe { ptr::drop_in_place(generation.as_ptr()) };
    drop(block);
}

/// A generation that has not been published.
struct Fresh<T>(NonNull<Generation<T>>);

impl<T> Drop for Fresh<T> {
    fn drop(&mut self) {
        // SAFETY: made and not published; ended here.
        unsafe { end(self.0) };
    }
}

/// A chain of generations that nobody reads, which end with this.
struct Ended<'p, T> {
    first: *mut Generation<T>,
    retired: &'p AtomicUsize,
}

impl<T> Ended<'_, T> {
    fn end_next(&mut self) -> bool {
        // SAFETY: the chain is ours.
        let Some(generation) = (unsafe { unlink(&mut self.first) }) else { return false };
        self.retired.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: ours, taken off the chain just now; nobody reads it (1).
        unsafe { end(generation) };
        true
    }
}

impl<T> Drop for Ended<'_, T> {
    fn drop(&mut self) {
        /// Ends those that are left where a destructor panics.
        struct Rest<'e, 'p, T>(&'e mut Ended<'p, T>);
        impl<T> Drop for Rest<'_, '_, T> {
            fn drop(&mut self) {
                while self.0.end_next() {}
            }
        }
        let rest = Rest(self);
        while rest.0.end_next() {}
        mem::forget(rest);
    }
}
