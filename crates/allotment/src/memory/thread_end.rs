//! Functions that run when a thread ends.
//!
//! The standard library registers the destructor of a thread-local at its first access, and glibc
//! ends the process if it has no memory for that. A key of POSIX threads reports it as an error. For
//! the first 32 keys of a process, a thread needs no memory at all. Destructors of keys run after
//! those of the standard library's thread-locals. At the end of the process, none runs on the
//! thread that calls `exit`.
//!
//! # Invariants
//!
//! 1. `key` is [`NONE`], [`UNLOADED`], or one more than a key whose destructor is `run`. Only
//!    `delete_keys` deletes that key, and it stores [`UNLOADED`] first.
//! 2. A thread's [`EndStage`] is `Registered` if and only if the thread has a value for that key.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

unsafe extern "C" {
    /// POSIX; every supported C library has them, with keys of this type.
    fn pthread_key_create(key: *mut u32, end: Option<extern "C" fn(*mut c_void)>) -> c_int;
    safe fn pthread_key_delete(key: u32) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

/// Not created yet.
const NONE: u32 = 0;

/// Deleted, because the library that contains this code is being unloaded.
const UNLOADED: u32 = u32::MAX;

/// A function that runs at the end of each thread that registered it.
pub(crate) struct ThreadEnd {
    key: AtomicU32,
    run: extern "C" fn(*mut c_void),
    /// The `ThreadEnd` whose key was created before, for `delete_keys`.
    previous: AtomicPtr<Self>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unregistered,
    Registered,
    Ended,
}

/// Whether a thread has registered a [`ThreadEnd`]: a thread-local of the code that uses it.
pub(crate) struct EndStage(Cell<Stage>);

impl EndStage {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(Stage::Unregistered))
    }

    /// Notes that the function runs: from now on nothing that it gives back may be kept.
    pub(crate) fn end(&self) {
        self.0.set(Stage::Ended);
    }
}

impl ThreadEnd {
    pub(crate) const fn new(run: extern "C" fn(*mut c_void)) -> Self {
        Self { key: AtomicU32::new(NONE), run, previous: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether the function will run at the end of the calling thread. Registers it if it is not
    /// registered yet. Returns false if the thread is ending and the function has run, or if there
    /// is no memory or no key.
    #[inline]
    pub(crate) fn will_run(&'static self, stage: &EndStage) -> bool {
        stage.0.get() == Stage::Registered || self.register(stage)
    }

    #[cold]
    #[inline(never)]
    fn register(&'static self, stage: &EndStage) -> bool {
        if stage.0.get() == Stage::Ended {
            return false;
        }
        let Some(key) = self.key() else { return false };
        // The value is not used. It only must not be null.
        // SAFETY: the key exists (1). No code follows the value.
        let is_set = unsafe { pthread_setspecific(key, ptr::from_ref(self).cast()) } == 0;
        if is_set {
            stage.0.set(Stage::Registered);
        }
        is_set
    }

    fn key(&'static self) -> Option<u32> {
        // Relaxed: a key is a number that the C library knows already.
        match self.key.load(Ordering::Relaxed) {
            NONE => self.create(),
            UNLOADED => None,
            key => Some(key - 1),
        }
    }

    #[cold]
    fn create(&'static self) -> Option<u32> {
        let mut key = 0;
        // SAFETY: the pointer is valid for the write.
        if unsafe { pthread_key_create(&raw mut key, Some(self.run)) } != 0 {
            return None;
        }
        match self.key.compare_exchange(NONE, key + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.enlist();
                Some(key)
            }
            // Another thread was faster.
            Err(now) => {
                let _ = pthread_key_delete(key);
                (now != UNLOADED).then(|| now - 1)
            }
        }
    }

    fn enlist(&'static self) {
        let this = ptr::from_ref(self).cast_mut();
        let mut head = CREATED.load(Ordering::Relaxed);
        loop {
            self.previous.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire in `delete_keys`.
            match CREATED.compare_exchange(head, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The `ThreadEnd` whose key was created last.
static CREATED: AtomicPtr<ThreadEnd> = AtomicPtr::new(ptr::null_mut());

/// Runs when the library that contains this code is unloaded, or when the process exits. A thread
/// that ended later would jump to code that is not there any more.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DELETE_KEYS: extern "C" fn() = {
    extern "C" fn delete_keys() {
        let mut next = CREATED.load(Ordering::Acquire);
        // SAFETY: null, or a static value.
        while let Some(end) = unsafe { next.as_ref() } {
            let key = end.key.swap(UNLOADED, Ordering::Relaxed);
            if key != UNLOADED {
                let _ = pthread_key_delete(key - 1);
            }
            next = end.previous.load(Ordering::Relaxed);
        }
    }
    delete_keys
};

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;

    use super::*;

    static RUNS: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        static STAGE: EndStage = const { EndStage::new() };
    }

    extern "C" fn run(_: *mut c_void) {
        STAGE.with(EndStage::end);
        assert!(!STAGE.with(|stage| END.will_run(stage)), "not again");
        RUNS.fetch_add(1, Ordering::Relaxed);
    }

    static END: ThreadEnd = ThreadEnd::new(run);

    #[test]
    fn it_runs_once_at_the_end_of_each_thread_that_registered_it() {
        for registers in [true, false, true] {
            let use_it = move || {
                for _ in 0..3 {
                    assert!(!registers || STAGE.with(|stage| END.will_run(stage)));
                }
            };
            std::thread::spawn(use_it).join().unwrap();
        }
        assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    }
}
