//! The modules in which code was found.
//!
//! Invariants: entries below `COUNT` are written before it is raised, and never change, except that
//! they are marked as unloaded. `LOCK` is held for a short time only, by threads that hold no other
//! lock of this library and do not allocate.

use crate::generation;
use crate::raw_file;
use crate::spin_lock::SpinLock;
use crate::thread_state::ThreadState;
use crate::unwind::loader::{LoadedModule, module_at};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use trace_format::raw::{MAX_MODULE_SIZE, RawModule, module_identity};

/// Modules that a process can load during its life. Code of later ones is unwound without rules.
pub const MAX_MODULES: usize = 8192;

/// A module that was announced.
#[derive(Debug)]
struct KnownModule {
    module: LoadedModule,
    unloaded: AtomicBool,
}

impl KnownModule {
    fn is_loaded(&self) -> bool {
        !self.unloaded.load(Ordering::Relaxed)
    }

    #[inline]
    fn contains(&self, address: u64) -> bool {
        self.module.contains(address) && self.is_loaded()
    }
}

struct KnownModules(UnsafeCell<MaybeUninit<[KnownModule; MAX_MODULES]>>);

// SAFETY: entries are written under LOCK before COUNT is raised, and only read afterwards.
unsafe impl Sync for KnownModules {}

static KNOWN: KnownModules = KnownModules(UnsafeCell::new(MaybeUninit::uninit()));
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LOCK: SpinLock = SpinLock::new();

fn known_modules() -> &'static [KnownModule] {
    let count = COUNT.load(Ordering::Acquire);
    // SAFETY: this many entries are written and do not change.
    unsafe { core::slice::from_raw_parts(KNOWN.0.get().cast::<KnownModule>(), count) }
}

fn find_known(address: u64) -> Option<&'static LoadedModule> {
    let known = known_modules().iter().rev().find(|known| known.contains(address))?;
    Some(&known.module)
}

/// The module that contains an address. It is announced in the stream of `state` if it is new.
///
/// # Safety
///
/// The state is the calling thread's.
pub unsafe fn find(
    state: *mut ThreadState,
    tick: u64,
    address: u64,
) -> Option<&'static LoadedModule> {
    if let Some(known) = find_known(address) {
        return Some(known);
    }
    // SAFETY: as the caller promised.
    unsafe { find_new(state, tick, address) }
}

#[cold]
unsafe fn find_new(
    state: *mut ThreadState,
    tick: u64,
    address: u64,
) -> Option<&'static LoadedModule> {
    let module = module_at(address)?;
    // Before the lock is taken: no thread may wait for this one while it waits for a disk.
    // SAFETY: the calling thread's state.
    if !unsafe { (*state).make_space(tick, MAX_MODULE_SIZE) } {
        return None;
    }
    let _lock = LOCK.take();
    if let Some(known) = find_known(address) {
        return Some(known);
    }
    let count = COUNT.load(Ordering::Relaxed);
    if count == MAX_MODULES {
        return None;
    }
    // Modules that were at these addresses before have been unloaded unnoticed.
    for old in known_modules() {
        if old.is_loaded() && old.module.start < module.end && module.start < old.module.end {
            old.unloaded.store(true, Ordering::Relaxed);
        }
    }
    // Before any thread can use the module, so that its time is before that of every event in it.
    // SAFETY: the calling thread's state, which has space.
    unsafe { announce(state, tick, &module) };
    let entry = KnownModule { module, unloaded: AtomicBool::new(false) };
    // SAFETY: the index is below the capacity, and no thread reads the entry before the count is
    // raised.
    unsafe { KNOWN.0.get().cast::<KnownModule>().add(count).write(entry) };
    COUNT.store(count + 1, Ordering::Release);
    known_modules().last().map(|known| &known.module)
}

/// Announces all known modules, for a new file.
///
/// # Safety
///
/// The state is the calling thread's, and there is no other thread.
pub unsafe fn announce_all(state: *mut ThreadState, tick: u64) {
    LOCK.free_in_child();
    for known in known_modules().iter().filter(|known| known.is_loaded()) {
        // SAFETY: the calling thread's state, which has space.
        unsafe {
            if (*state).make_space(tick, MAX_MODULE_SIZE) {
                announce(state, tick, &known.module);
            }
        }
    }
}

/// The path and the build id of a module.
///
/// # Safety
///
/// It is loaded.
unsafe fn names(module: &LoadedModule) -> (&'static [u8], &'static [u8]) {
    // SAFETY: as the caller promised.
    let (path, build_id) = unsafe { (module.name(), module.build_id()) };
    if path.is_empty() {
        (raw_file::executable(), build_id)
    } else if path.starts_with(b"linux-vdso") || path.starts_with(b"linux-gate") {
        (b"[vdso]", build_id)
    } else {
        (path, build_id)
    }
}

/// What a trial knows a module by.
///
/// # Safety
///
/// It is loaded.
pub unsafe fn identity(module: &LoadedModule) -> u64 {
    // SAFETY: as the caller promised.
    let (path, build_id) = unsafe { names(module) };
    module_identity(build_id, path)
}

/// # Safety
///
/// The state is the calling thread's, and has space.
unsafe fn announce(state: *mut ThreadState, tick: u64, module: &LoadedModule) {
    // SAFETY: the module is loaded.
    let (path, build_id) = unsafe { names(module) };
    let LoadedModule { bias, start, end, .. } = *module;
    let raw = RawModule { bias, start, end, build_id, path };
    // SAFETY: the calling thread's state, which has space.
    unsafe { (*state).encoder.module(tick, &raw) };
}

/// After a module was unloaded: marks the modules that are not loaded any more, and makes all
/// threads forget what they know.
///
/// # Safety
///
/// The state is the calling thread's.
pub unsafe fn mark_unloaded(state: *mut ThreadState, tick: u64) {
    let mut any = false;
    for known in known_modules().iter().filter(|known| known.is_loaded()) {
        let module = &known.module;
        let is_same = module_at(module.start.max(1)).is_some_and(|now| {
            (now.start, now.end, now.unwind_header)
                == (module.start, module.end, module.unwind_header)
        });
        if !is_same && !known.unloaded.swap(true, Ordering::Relaxed) {
            any = true;
            // SAFETY: the calling thread's state.
            unsafe {
                if (*state).make_space(tick, 0) {
                    (*state).encoder.module_unloaded(tick, module.start);
                }
            }
        }
    }
    if any {
        generation::advance();
    }
}
