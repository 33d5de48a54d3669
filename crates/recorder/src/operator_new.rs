//! Whether C++'s `operator new` passes the hooks by.
//!
//! The C++ library's calls malloc, as the loader binds that name, which is the hook. An allocator that is loaded beside it
//! mostly defines both, and its own `operator new` needs no loader to find its own memory: nobody sees what that gives.
//!
//! Invariant: `LIBRARY` is null, or the loader's name of an object that was there when the process began, which is never unloaded.
//! What is read of an object is its dynamic section and the tables that it names, each checked to lie in the object.

use crate::unwind::modules::{self, Object};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The library that defines the next `malloc` and the program's `operator new`.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
/// An address in it.
static WITHIN: AtomicU64 = AtomicU64::new(0);
/// Somebody needs that `operator new`.
static NEEDED: AtomicBool = AtomicBool::new(false);

/// Finds out for a process that begins, from the next `malloc` and the `operator new` that it gets, where it gets one.
pub fn begin(malloc: *mut c_void, operator_new: *mut c_void) {
    if let Some(name) = modules::name_of_both(malloc as u64, operator_new as u64) {
        LIBRARY.store(name.cast_mut(), Ordering::Relaxed);
        WITHIN.store(malloc as u64, Ordering::Relaxed);
        look_for_need();
    }
}

/// The path of the library that has both, whether or not somebody needs it; empty where there is none.
pub fn library() -> &'static [u8] {
    let name = LIBRARY.load(Ordering::Relaxed);
    if name.is_null() {
        return b"";
    }
    // SAFETY: the loader's name of an object that stays.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Whether what `operator new` gives isn't seen.
pub fn is_unseen() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// The same at the end, when what was loaded later is there too. It takes the loader's lock.
pub fn is_unseen_after_all() -> bool {
    if !is_unseen() && !LIBRARY.load(Ordering::Relaxed).is_null() {
        look_for_need();
    }
    is_unseen()
}

/// A program in C has no need of an `operator new` that comes with its malloc, which itself may be written in C++.
fn look_for_need() {
    let within = WITHIN.load(Ordering::Relaxed);
    // SAFETY: they are loaded while they are looked at.
    if modules::any_object(|object| !object.has(within, 1) && unsafe { needs(object) }) {
        NEEDED.store(true, Ordering::Relaxed);
    }
}

const DYNAMIC: u32 = 2;

const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const RELOCATIONS: u64 = 7;
const RELOCATIONS_SIZE: u64 = 8;
const CALLS_SIZE: u64 = 2;
const CALLS: u64 = 23;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    place: u64,
    info: u64,
    addend: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// What the names begin with of all kinds of `operator new` and `delete`, and of what the C++ library has, which calls them for others:
/// members of its classes, and functions.
const NAMES: [&[u8]; 6] = [b"_Znw", b"_Zna", b"_Zdl", b"_Zda", b"_ZNS", b"_ZSt"];

/// Whether an object calls such a function that isn't its own.
///
/// # Safety
///
/// The object is loaded.
unsafe fn needs(object: &Object<'_>) -> bool {
    let mut found = [0; CALLS as usize + 1];
    let Some(section) = object.headers().iter().find(|header| header.kind == DYNAMIC) else {
        return false;
    };
    let mut at = object.bias().wrapping_add(section.address);
    // SAFETY: what is read lies in the object; of the dynamic section the loader has read all up to its last entry.
    unsafe {
        while let Some(entry) = object.read::<Entry>(at)
            && entry.tag != 0
        {
            if let Some(place) = found.get_mut(entry.tag as usize) {
                *place = entry.value;
            }
            at += size_of::<Entry>() as u64;
        }
        let [strings, symbols] = [STRINGS, SYMBOLS].map(|tag| object.address(found[tag as usize]));
        for (table, size) in [(CALLS, CALLS_SIZE), (RELOCATIONS, RELOCATIONS_SIZE)] {
            let table = object.address(found[table as usize]);
            for i in 0..found[size as usize] / size_of::<Relocation>() as u64 {
                let at = table.wrapping_add(i * size_of::<Relocation>() as u64);
                let Some(relocation) = object.read::<Relocation>(at) else { break };
                let symbol = relocation.info >> 32;
                if symbol == 0 {
                    continue;
                }
                let at = symbols.wrapping_add(symbol * size_of::<Symbol>() as u64);
                let Some(symbol) = object.read::<Symbol>(at) else { break };
                let name = strings.wrapping_add(symbol.name.into());
                // Undefined, so another's.
                if symbol.section == 0
                    && let Some(name) = object.read::<[u8; 4]>(name)
                    && NAMES.contains(&&name[..])
                {
                    return true;
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_rust_needs_no_operator_new() {
        // SAFETY: they are loaded while they are looked at.
        assert!(!modules::any_object(|object| unsafe { needs(object) }));
        assert!(modules::any_object(|object| !object.headers().is_empty()));
    }
}
