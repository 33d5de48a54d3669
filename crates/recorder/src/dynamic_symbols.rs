//! Finds functions and variables by their names in the loaded objects, without `dlsym`.
//!
//! `dlsym` allocates where a name is missing. A hook may be the first to need a name, in the middle
//! of an allocator that holds a lock, and would then enter that allocator again. Nothing here
//! allocates or takes a lock but the loader's.
//!
//! Invariant: of an object, only its dynamic section and the tables that the section names are read,
//! after a check that they lie in the object.

use crate::unwind::loader::LoadedObject;
use core::ffi::{CStr, c_void};

/// The kind of the program header of the dynamic section.
const PT_DYNAMIC: u32 = 2;

// Tags of the dynamic section.
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;

#[repr(C)]
#[derive(Clone, Copy)]
struct DynamicEntry {
    tag: u64,
    value: u64,
}

/// A symbol, as it is in an object's table.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ElfSymbol {
    /// The offset of its name.
    pub name: u32,
    info: u8,
    other: u8,
    /// Its section; 0 if it is another object's.
    pub section: u16,
    value: u64,
    size: u64,
}

/// The largest number of symbols with the same hash that are searched: no larger table is sound.
const MAX_CHAIN: u32 = 1 << 16;

/// Calls `visit` with each entry of an object's dynamic section.
///
/// # Safety
///
/// The object is loaded.
pub unsafe fn for_each_dynamic_entry(object: &LoadedObject<'_>, mut visit: impl FnMut(u64, u64)) {
    let Some(section) = object.headers().iter().find(|header| header.kind == PT_DYNAMIC) else {
        return;
    };
    let mut address = object.bias().wrapping_add(section.address);
    // SAFETY: the loader has read the dynamic section up to its last entry, and each entry is
    // checked to lie in the object.
    while let Some(entry) = unsafe { object.read::<DynamicEntry>(address) }
        && entry.tag != 0
    {
        visit(entry.tag, entry.value);
        address += size_of::<DynamicEntry>() as u64;
    }
}

/// Where a name is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// At an address.
    At(*mut c_void),
    /// At an address that a function of the object chooses when the name is bound.
    Chosen,
}

/// The tables of an object's symbols.
#[derive(Debug)]
pub struct ObjectSymbols<'o> {
    object: &'o LoadedObject<'o>,
    strings: u64,
    symbols: u64,
    /// The addresses of the tables; 0 if there is none.
    versions: u64,
    gnu_hash: u64,
    hash: u64,
}

impl<'o> ObjectSymbols<'o> {
    /// The symbols of an object. `None` if it has none.
    ///
    /// # Safety
    ///
    /// The object is loaded as long as the result is used.
    pub unsafe fn of(object: &'o LoadedObject<'o>) -> Option<Self> {
        let mut tables = Self { object, strings: 0, symbols: 0, versions: 0, gnu_hash: 0, hash: 0 };
        // SAFETY: as the caller promised.
        unsafe {
            for_each_dynamic_entry(object, |tag, value| {
                let address = object.dynamic_address(value);
                match tag {
                    DT_STRTAB => tables.strings = address,
                    DT_SYMTAB => tables.symbols = address,
                    DT_VERSYM => tables.versions = address,
                    DT_GNU_HASH => tables.gnu_hash = address,
                    DT_HASH => tables.hash = address,
                    _ => {}
                }
            });
        }
        (tables.strings != 0 && tables.symbols != 0).then_some(tables)
    }

    /// The object's default definition of a name.
    pub fn find(&self, name: &CStr) -> Option<Definition> {
        if self.gnu_hash != 0 { self.find_by_gnu_hash(name) } else { self.find_by_hash(name) }
    }

    fn word(&self, table: u64, index: u64) -> Option<u32> {
        let address = table.checked_add(index.checked_mul(4)?)?;
        // SAFETY: the object is loaded, and the word lies in it.
        unsafe { self.object.read::<u32>(address) }
    }

    /// The table: the number of buckets, the first symbol in it, the number of words of a filter and
    /// its shift; the filter, with words of 64 bits; for each bucket its first symbol; for each
    /// symbol its hash, whose lowest bit marks the last one of a bucket.
    fn find_by_gnu_hash(&self, name: &CStr) -> Option<Definition> {
        let table = self.gnu_hash;
        let header = |index| self.word(table, index);
        let (buckets, first, filter) = (header(0)?, header(1)?, header(2)?);
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let bucket = 4 + 2 * u64::from(filter) + u64::from(hash.checked_rem(buckets)?);
        let mut symbol = self.word(table, bucket)?;
        let hashes = 4 + 2 * u64::from(filter) + u64::from(buckets);
        if symbol < first {
            return None;
        }
        for _ in 0..MAX_CHAIN {
            let known = self.word(table, hashes + u64::from(symbol - first))?;
            if known | 1 == hash | 1
                && let Some(found) = self.definition(symbol, name)
            {
                return Some(found);
            }
            if known & 1 != 0 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
        None
    }

    /// The table: the numbers of buckets and of symbols; for each bucket its first symbol; for each
    /// symbol the next one of its bucket.
    fn find_by_hash(&self, name: &CStr) -> Option<Definition> {
        if self.hash == 0 {
            return None;
        }
        let buckets = self.word(self.hash, 0)?;
        let mut hash = 0_u32;
        for &byte in name.to_bytes() {
            hash = (hash << 4).wrapping_add(byte.into());
            hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff;
        }
        let mut symbol = self.word(self.hash, 2 + u64::from(hash.checked_rem(buckets)?))?;
        for _ in 0..MAX_CHAIN {
            if symbol == 0 {
                return None;
            }
            if let Some(found) = self.definition(symbol, name) {
                return Some(found);
            }
            symbol = self.word(self.hash, 2 + u64::from(buckets) + u64::from(symbol))?;
        }
        None
    }

    /// The definition by a symbol, if it has the name and other objects are bound to it by default.
    fn definition(&self, index: u32, name: &CStr) -> Option<Definition> {
        const LOCAL: u8 = 0;
        const THREAD_LOCAL: u8 = 6;
        const CHOSEN: u8 = 10;
        const NOT_DEFAULT: u16 = 0x8000;
        let at = self.symbols.checked_add(u64::from(index) * size_of::<ElfSymbol>() as u64)?;
        // SAFETY: the object is loaded, and the symbol lies in it.
        let symbol = unsafe { self.object.read::<ElfSymbol>(at) }?;
        let kind = symbol.info & 15;
        if symbol.section == 0 || symbol.info >> 4 == LOCAL || kind == THREAD_LOCAL {
            return None;
        }
        let from = self.strings.checked_add(symbol.name.into())?;
        for (offset, &byte) in (0..).zip(name.to_bytes_with_nul()) {
            // SAFETY: the object is loaded, and the byte lies in it.
            if unsafe { self.object.read::<u8>(from.checked_add(offset)?) } != Some(byte) {
                return None;
            }
        }
        if self.versions != 0 {
            let at = self.versions.checked_add(u64::from(index) * 2)?;
            // SAFETY: the object is loaded, and the number lies in it.
            if unsafe { self.object.read::<u16>(at) }? & NOT_DEFAULT != 0 {
                return None;
            }
        }
        if kind == CHOSEN {
            return Some(Definition::Chosen);
        }
        let address = self.object.bias().wrapping_add(symbol.value);
        Some(Definition::At(core::ptr::with_exposed_provenance_mut(address as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::loader::any_object;
    use core::cell::Cell;

    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void;
    }

    /// The first definition in the loaded objects.
    fn found(name: &CStr) -> Option<Definition> {
        let found = Cell::new(None);
        any_object(|object| {
            // SAFETY: objects are not unloaded during the iteration.
            let symbols = unsafe { ObjectSymbols::of(object) };
            found.set(symbols.and_then(|symbols| symbols.find(name)));
            found.get().is_some()
        });
        found.get()
    }

    #[test]
    fn a_name_is_found_where_the_loader_finds_it() {
        let names = [
            c"malloc",
            c"free",
            c"realloc",
            c"posix_memalign",
            c"malloc_usable_size",
            c"pthread_mutex_lock",
            c"pthread_rwlock_clockrdlock",
            c"dlclose",
            c"prctl",
            c"syscall",
            c"dl_iterate_phdr",
        ];
        for name in names {
            // SAFETY: the name ends with a zero.
            let address = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
            assert!(!address.is_null(), "{name:?}");
            assert_eq!(found(name), Some(Definition::At(address)), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_is_nowhere_is_not_found() {
        for name in [c"", c"mallo", c"malloc_", c"no_such_function_of_any_library"] {
            assert_eq!(found(name), None, "{name:?}");
        }
        // The C library chooses between several of these.
        assert_eq!(found(c"memcpy"), Some(Definition::Chosen));
    }
}
