//! `Published`: a value that many threads read, and that is rarely replaced.
//!
//! # Invariants
//!
//! 1. Every generation is one value in a block of [`SystemArray`]. [`new_generation`] makes it, and
//!    [`drop_generation`] drops and frees it once. From its publication until it is part of an
//!    [`UnreadChain`], the generation belongs to the publication, whose protocol (`generations.rs`)
//!    says when no thread reads it any more.
//! 2. While a `PublishedGuard` lives, its slot announces its generation.

use core::fmt;
use core::mem::{self, MaybeUninit};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::generations::{Generation, HazardSlot, Publication, unlink};
use super::hazard_records;
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always};
use crate::memory::fences;
use crate::memory::system_array::SystemArray;

/// A value that many threads read, and that is replaced as a whole: a configuration, a table of
/// routes.
///
/// [`read`](Self::read) returns the current generation and keeps it. It takes no lock, executes no
/// locked instruction and never waits, even while other threads publish. [`publish`](Self::publish)
/// puts a new generation in the place of the current one. Threads that read the old generation
/// continue to read it.
///
/// An old generation is never dropped while a thread reads it. It is dropped as soon as its last
/// reading ends, by the thread that ends that reading, or by a thread that publishes or reads at
/// that moment. There is no background thread.
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
/// In a `Published<Sealed<T>>`, every generation is in read-only memory as well; see
/// [`Sealed`](crate::Sealed).
///
/// # What it costs
///
/// A thread announces its readings in records of 128 bytes, each with room for eight readings at a
/// time. Only a read that needs another record can allocate: a thread's first read, and a read that
/// finds all slots of the thread's record taken. A record is never freed, but later threads reuse
/// it.
///
/// A publication allocates the new generation. Then it has the kernel run a memory fence on every
/// processor that runs a thread of the process (`membarrier`; some microseconds), and looks through
/// the slots of all threads. So a `Published` is for a value that is read far more often than it is
/// replaced.
///
/// If the kernel has no such call, or a sandbox forbids it, every reading takes two full memory
/// fences instead. If a sandbox forbids the call only after the first `Published` was made, old
/// generations are kept until the `Published` is dropped.
///
/// # Destructors
///
/// The destructor of a generation runs on a thread that uses the `Published`, usually the last
/// reader: in [`publish`](Self::publish), in the drop of a [`PublishedGuard`], or in a
/// [`read`](Self::read) that coincides with a publication. It may itself read and publish here. If
/// it panics, the panic comes out of that call. The new generation is then in place, and all other
/// generations that were to be dropped are dropped. If one of those panics too, the process aborts,
/// as when a vector drops its values.
///
/// A leaked [`PublishedGuard`] keeps its generation until the `Published` is dropped. In a child
/// made by fork, the guards of threads that exist only in the parent do the same, and a
/// generation that such a thread was about to drop is leaked. The child itself can read and publish
/// as usual.
// Threads share the values, and any of them may drop one: hence the bounds.
#[repr(align(128))]
pub struct Published<T: Send + Sync> {
    publication: Publication<T>,
    retired: AtomicUsize,
}

/// A generation and the slot that announces it.
type AnnouncedGeneration<T> = (NonNull<Generation<T>>, &'static HazardSlot);

impl<T: Send + Sync> Published<T> {
    /// Publishes the first generation, whose number is 1.
    #[must_use]
    pub fn new(value: T) -> Self {
        always(Self::make::<PanicOrAbort>(value))
    }

    /// Like [`new`](Self::new), but returns an error instead of ending the process.
    ///
    /// # Errors
    /// If there is no memory. The value is then dropped.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::make::<ReturnError>(value)
    }

    fn make<F: OnFailure>(value: T) -> Result<Self, F::Error> {
        /// The number of publications made so far, and the next one's tag.
        static TAGS: AtomicUsize = AtomicUsize::new(0);
        fences::decide();
        let first = new_generation::<T, F>(1, value)?;
        // The tag is in bits 48 to 63, above the addresses. It repeats after 65,536 publications.
        let tag = TAGS.fetch_add(1, Ordering::Relaxed) << 48;
        Ok(Self { publication: Publication::new(first, tag), retired: AtomicUsize::new(0) })
    }

    /// Returns the current generation, and keeps it until the [`PublishedGuard`] is dropped.
    ///
    /// A thread may hold any number of guards at a time, of this and of other `Published` values.
    #[inline]
    pub fn read(&self) -> PublishedGuard<'_, T> {
        always(self.read_or::<PanicOrAbort>())
    }

    /// Like [`read`](Self::read), but returns an error instead of ending the process.
    ///
    /// # Errors
    /// If there is no memory for another record of 128 bytes. A thread needs one for its first
    /// read, and when all eight slots of its record are taken.
    #[inline]
    pub fn try_read(&self) -> Result<PublishedGuard<'_, T>, AllocError> {
        self.read_or::<ReturnError>()
    }

    #[inline(always)]
    fn read_or<F: OnFailure>(&self) -> Result<PublishedGuard<'_, T>, F::Error> {
        let (generation, slot) = match hazard_records::first_slot() {
            Some(slot) => match self.publication.announce(slot) {
                Some(generation) => (generation, slot),
                None => self.announce_again::<F>()?,
            },
            None => self.announce_elsewhere::<F>()?,
        };
        Ok(PublishedGuard { published: self, generation, slot })
    }

    /// Announces in another slot than the thread's first one, or in a first record. Marked cold
    /// only for the layout of the code.
    #[cold]
    #[inline(never)]
    fn announce_elsewhere<F: OnFailure>(&self) -> Result<AnnouncedGeneration<T>, F::Error> {
        let slot = hazard_records::free_slot().map_err(F::fail)?;
        match self.publication.announce(slot) {
            Some(generation) => Ok((generation, slot)),
            None => self.announce_again::<F>(),
        }
    }

    /// Tries again after another thread replaced the generation during
    /// [`announce`](Publication::announce).
    #[cold]
    #[inline(never)]
    fn announce_again<F: OnFailure>(&self) -> Result<AnnouncedGeneration<T>, F::Error> {
        loop {
            self.scan();
            let slot = hazard_records::free_slot().map_err(F::fail)?;
            if let Some(generation) = self.publication.announce(slot) {
                return Ok((generation, slot));
            }
        }
    }

    /// Puts a new generation in the place of the current one, and returns its number: the number of
    /// the replaced generation plus one. Waits neither for readers nor for other writers. If two
    /// threads publish at the same time, both values are published, one after the other.
    pub fn publish(&self, value: T) -> u64 {
        always(self.publish_or::<PanicOrAbort>(value))
    }

    /// Like [`publish`](Self::publish), but returns an error instead of ending the process.
    ///
    /// # Errors
    /// If there is no memory. Nothing is published then, and the value is dropped.
    pub fn try_publish(&self, value: T) -> Result<u64, AllocError> {
        self.publish_or::<ReturnError>(value)
    }

    fn publish_or<F: OnFailure>(&self, value: T) -> Result<u64, F::Error> {
        let mut new = Unpublished(new_generation::<T, F>(0, value)?);
        loop {
            match self.replace(self.read_or::<F>()?, new) {
                Ok(number) => return Ok(number),
                Err(unpublished) => new = unpublished,
            }
        }
    }

    /// Publishes the value that `change` returns for the current generation, and returns its
    /// number. If another thread publishes in the meantime, the result is dropped and `change` is
    /// called again with the generation that is then current. So no publication is lost.
    ///
    /// ```
    /// let allowed = allotment::Published::new(vec!["a"]);
    /// allowed.update(|names| names.iter().copied().chain(["b"]).collect());
    /// assert_eq!(*allowed.read(), ["a", "b"]);
    /// ```
    pub fn update(&self, change: impl FnMut(&T) -> T) -> u64 {
        always(self.update_or::<PanicOrAbort>(change))
    }

    /// Like [`update`](Self::update), but returns an error instead of ending the process.
    ///
    /// # Errors
    /// If there is no memory. Nothing is published then, and the result of `change` is dropped.
    pub fn try_update(&self, change: impl FnMut(&T) -> T) -> Result<u64, AllocError> {
        self.update_or::<ReturnError>(change)
    }

    fn update_or<F: OnFailure>(&self, mut change: impl FnMut(&T) -> T) -> Result<u64, F::Error> {
        loop {
            let current = self.read_or::<F>()?;
            let new = Unpublished(new_generation::<T, F>(0, change(&current))?);
            if let Ok(number) = self.replace(current, new) {
                return Ok(number);
            }
        }
    }

    /// Puts a new generation in the place of `current`, if that is still the current one.
    fn replace(
        &self,
        current: PublishedGuard<'_, T>,
        new: Unpublished<T>,
    ) -> Result<u64, Unpublished<T>> {
        let number = PublishedGuard::generation(&current) + 1;
        // SAFETY: `current` announces the old generation. No other thread has the new one yet. If
        // it is published, `new` is forgotten below; otherwise it stays an `Unpublished`.
        unsafe {
            (*new.0.as_ptr()).number = number;
            let count = || _ = self.retired.fetch_add(1, Ordering::Relaxed);
            if !self.publication.replace(current.generation, new.0, count) {
                return Err(new);
            }
        }
        mem::forget(new);
        // This leaves a generation that was replaced, so the drop scans the retired list.
        drop(current);
        Ok(number)
    }

    /// The number of the current generation. The first generation has number 1, and each
    /// publication adds one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        PublishedGuard::generation(&self.read())
    }

    /// The number of generations that were replaced but are not dropped yet, because a reading
    /// keeps them.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }

    /// Scans the retired list, and drops the generations that no thread reads.
    #[cold]
    #[inline(never)]
    fn scan(&self) {
        let first = self.publication.scan(hazard_records::announced);
        drop(UnreadChain { first, retired: &self.retired });
    }
}

impl<T: Send + Sync> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `self` is borrowed exclusively, so every reading was dropped or leaked. The
        // publication is not used again.
        let first = unsafe { self.publication.take_all() };
        drop(UnreadChain { first, retired: &AtomicUsize::new(usize::MAX) });
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.read();
        f.debug_struct("Published")
            .field("generation", &PublishedGuard::generation(&current))
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

/// One generation of a [`Published`], which is kept while this lives.
///
/// A `PublishedGuard` stays on the thread that made it, because that thread announced the
/// generation. References to the value may go to other threads.
///
/// ```compile_fail,E0277
/// let published = allotment::Published::new(7);
/// let reading = published.read();
/// std::thread::scope(|scope| drop(scope.spawn(move || drop(reading))));
/// ```
///
/// The `Published` can't be dropped before its guards:
///
/// ```compile_fail,E0505
/// let published = allotment::Published::new(7);
/// let reading = published.read();
/// drop(published);
/// assert_eq!(*reading, 7);
/// ```
#[must_use = "what is read may be gone once the reading is dropped"]
pub struct PublishedGuard<'p, T: Send + Sync> {
    published: &'p Published<T>,
    generation: NonNull<Generation<T>>,
    slot: &'static HazardSlot,
}

// SAFETY: a shared reference gives out only `&T` and the number. Dropping needs the reading itself,
// which is not `Send`.
unsafe impl<T: Send + Sync> Sync for PublishedGuard<'_, T> {}

impl<T: Send + Sync> PublishedGuard<'_, T> {
    /// The number of the generation. Not a method, because `T` may have a method of this name.
    #[must_use]
    pub fn generation(reading: &Self) -> u64 {
        // SAFETY: announced, so it is live (invariant 2). The number was written before the
        // generation was published, and is not written again.
        unsafe { (*reading.generation.as_ptr()).number }
    }
}

impl<T: Send + Sync> Deref for PublishedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: announced, so it lives as long as this reading (invariant 2). No thread writes to
        // the value of a published generation.
        unsafe { &(*self.generation.as_ptr()).value }
    }
}

impl<T: Send + Sync> Drop for PublishedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.published.publication.withdraw(self.slot, self.generation) {
            self.published.scan();
        }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for PublishedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Send + Sync + fmt::Display> fmt::Display for PublishedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// Makes a generation. If that fails, the value is dropped.
fn new_generation<T, F: OnFailure>(
    number: u64,
    value: T,
) -> Result<NonNull<Generation<T>>, F::Error> {
    let mut value = Some(value);
    let mut make = |_| Generation::new(number, value.take().expect("called once"));
    let block = SystemArray::new(1, &mut make).map_err(F::fail)?;
    Ok(block.leak())
}

/// Drops a generation and frees its block.
///
/// # Safety
/// It was made by [`new_generation`], no thread uses it any more, and this is called once for it.
unsafe fn drop_generation<T>(generation: NonNull<Generation<T>>) {
    // SAFETY: the block of one value, and adopted once, as the caller guarantees. The block is
    // freed even if the destructor panics.
    let block = unsafe { SystemArray::adopt(generation.cast::<MaybeUninit<Generation<T>>>(), 1) };
    // SAFETY: guaranteed by the caller. The block does not drop the value again, because its type
    // is `MaybeUninit`.
    unsafe { ptr::drop_in_place(generation.as_ptr()) };
    drop(block);
}

/// A generation that is not published yet. The drop drops it.
struct Unpublished<T>(NonNull<Generation<T>>);

impl<T> Drop for Unpublished<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new_generation` and not published, so no other thread has it. It is
        // dropped only here.
        unsafe { drop_generation(self.0) };
    }
}

/// A chain of generations that no thread reads. Dropping it drops them.
struct UnreadChain<'p, T> {
    first: *mut Generation<T>,
    retired: &'p AtomicUsize,
}

impl<T> UnreadChain<'_, T> {
    fn drop_next(&mut self) -> bool {
        // SAFETY: the chain belongs to `self`.
        let Some(generation) = (unsafe { unlink(&mut self.first) }) else { return false };
        self.retired.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it belonged to this chain and was taken off just above, so it is dropped once.
        // No thread reads it (invariant 1).
        unsafe { drop_generation(generation) };
        true
    }
}

impl<T> Drop for UnreadChain<'_, T> {
    fn drop(&mut self) {
        /// Drops the remaining generations if a destructor panics.
        struct DropRemaining<'c, 'p, T>(&'c mut UnreadChain<'p, T>);
        impl<T> Drop for DropRemaining<'_, '_, T> {
            fn drop(&mut self) {
                while self.0.drop_next() {}
            }
        }
        let remaining = DropRemaining(self);
        while remaining.0.drop_next() {}
        mem::forget(remaining);
    }
}

#[cfg(test)]
mod tests {
    use super::{Published, hazard_records};

    #[test]
    fn threads_one_after_the_other_share_their_records() {
        let published = Published::new(7);
        let before = hazard_records::record_count();
        for _ in 0..300 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let readings: Vec<_> = (0..20).map(|_| published.read()).collect();
                    assert!(readings.iter().all(|reading| **reading == 7));
                });
            });
        }
        // A thread may end after its scope, and other threads of this process read too.
        let more = hazard_records::record_count() - before;
        assert!(more < 100, "{more} records for 300 threads that have three each");
    }
}
