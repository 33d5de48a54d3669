//! Whether C++'s `operator new` bypasses the hooks.
//!
//! The `operator new` of the C++ library calls malloc through the loader's binding, which is the
//! hook. An allocator that is loaded into the program usually defines both functions, and its own
//! `operator new` allocates directly: no hook sees what it returns.
//!
//! Invariants: `LIBRARY` is null, or the loader's name of an object that was there when the process
//! began, which is never unloaded. Of an object, only its dynamic section and the tables that the
//! section names are read, after a check that they lie in the object.

use crate::dynamic_symbols::{ElfSymbol, for_each_dynamic_entry};
use crate::unwind::loader::{self, LoadedObject};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The name of the library that defines both the next `malloc` and the program's `operator new`.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
/// An address in that library.
static ADDRESS_WITHIN: AtomicU64 = AtomicU64::new(0);
/// Whether another object uses that `operator new`.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Finds the library when a process begins, from the addresses of the next `malloc` and of the
/// program's `operator new`, which may be null.
pub fn find_library(malloc: *mut c_void, operator_new: *mut c_void) {
    if let Some(name) = loader::name_of_common_object(malloc as u64, operator_new as u64) {
        LIBRARY.store(name.cast_mut(), Ordering::Relaxed);
        ADDRESS_WITHIN.store(malloc as u64, Ordering::Relaxed);
        search_for_use();
    }
}

/// The path of the library that defines both functions, whether or not its `operator new` is used;
/// empty if there is none.
pub fn library() -> &'static [u8] {
    let name = LIBRARY.load(Ordering::Relaxed);
    if name.is_null() {
        return b"";
    }
    // SAFETY: the loader's name of an object that is never unloaded.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Whether the program uses an `operator new` that bypasses the hooks.
pub fn bypasses_hooks() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// [`bypasses_hooks`] at the end of the process, when objects that were loaded later are considered
/// too. Takes the loader's lock.
pub fn bypasses_hooks_at_exit() -> bool {
    if !bypasses_hooks() && !LIBRARY.load(Ordering::Relaxed).is_null() {
        search_for_use();
    }
    bypasses_hooks()
}

/// Searches the other objects for a use of `operator new`. A program in C has none, although its
/// allocator may define the function, and may use it itself.
fn search_for_use() {
    let address = ADDRESS_WITHIN.load(Ordering::Relaxed);
    let is_user = |object: &LoadedObject<'_>| {
        // SAFETY: objects are not unloaded during the iteration.
        !object.contains(address, 1) && unsafe { uses_operator_new(object) }
    };
    if loader::any_object(is_user) {
        IS_USED.store(true, Ordering::Relaxed);
    }
}

// Tags of the dynamic section.
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;

#[repr(C)]
#[derive(Clone, Copy)]
struct ElfRelocation {
    offset: u64,
    info: u64,
    addend: u64,
}

/// The beginnings of the names of all kinds of `operator new` and `delete`, and of the C++
/// library's members of classes and functions, which call them.
const NAME_PREFIXES: [&[u8]; 6] = [b"_Znw", b"_Zna", b"_Zdl", b"_Zda", b"_ZNS", b"_ZSt"];

/// Whether an object refers to such a function of another object.
///
/// # Safety
///
/// The object is loaded.
unsafe fn uses_operator_new(object: &LoadedObject<'_>) -> bool {
    let mut values = [0; DT_JMPREL as usize + 1];
    // SAFETY: everything that is read lies in the object, which is loaded.
    unsafe {
        for_each_dynamic_entry(object, |tag, value| {
            if let Some(known) = values.get_mut(tag as usize) {
                *known = value;
            }
        });
        let [strings, symbols] =
            [DT_STRTAB, DT_SYMTAB].map(|tag| object.dynamic_address(values[tag as usize]));
        for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let table = object.dynamic_address(values[table as usize]);
            for i in 0..values[size as usize] / size_of::<ElfRelocation>() as u64 {
                let at = table.wrapping_add(i * size_of::<ElfRelocation>() as u64);
                let Some(relocation) = object.read::<ElfRelocation>(at) else { break };
                let symbol = relocation.info >> 32;
                if symbol == 0 {
                    continue;
                }
                let at = symbols.wrapping_add(symbol * size_of::<ElfSymbol>() as u64);
                let Some(symbol) = object.read::<ElfSymbol>(at) else { break };
                let name = strings.wrapping_add(symbol.name.into());
                // Undefined here, so it is another object's.
                if symbol.section == 0
                    && let Some(name) = object.read::<[u8; 4]>(name)
                    && NAME_PREFIXES.contains(&&name[..])
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
    fn a_program_in_rust_uses_no_operator_new() {
        // SAFETY: objects are not unloaded during the iteration.
        assert!(!loader::any_object(|object| unsafe { uses_operator_new(object) }));
        assert!(loader::any_object(|object| !object.headers().is_empty()));
    }
}
