//! What the loader says about the objects that it has loaded.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};
use trace_format::raw::MAX_BUILD_ID_LENGTH;

/// A loaded object that contains code.
#[derive(Debug)]
pub struct LoadedModule {
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// The difference between its addresses in memory and those in its file.
    pub bias: u64,
    /// The address of its `.eh_frame_hdr`; 0 if it has none.
    pub unwind_header: u64,
    name: *const c_char,
}

impl LoadedModule {
    /// Whether an address lies in the module.
    #[inline]
    pub fn contains(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    /// The loader's name of the module: its path, or empty for the executable.
    ///
    /// # Safety
    ///
    /// The module is loaded while the name is used.
    pub unsafe fn name(&self) -> &'static [u8] {
        if self.name.is_null() {
            return b"";
        }
        // SAFETY: as the caller promised.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }

    /// The memory of the module from an address to its end.
    ///
    /// # Safety
    ///
    /// The module is loaded while the slice is used, and the bytes that are read from it are
    /// mapped.
    pub unsafe fn bytes(&self, from: u64) -> &'static [u8] {
        let from = from.clamp(self.start, self.end);
        // SAFETY: as the caller promised.
        unsafe { core::slice::from_raw_parts(from as *const u8, (self.end - from) as usize) }
    }

    /// The build id in the module's notes; empty if there is none.
    ///
    /// # Safety
    ///
    /// The module is loaded.
    pub unsafe fn build_id(&self) -> &'static [u8] {
        // SAFETY: a module begins with the header of its file, which is checked. Everything else
        // that is read is mapped with it.
        unsafe {
            let start = self.bytes(self.start);
            let Some(header) = start.get(..64) else { return b"" };
            if &header[..4] != b"\x7fELF" {
                return b"";
            }
            let offset = u64::from_le_bytes(header[32..40].try_into().unwrap_or_default()) as usize;
            let count = usize::from(u16::from_le_bytes([header[56], header[57]]));
            if count > 64 || offset > 4096 - 64 * size_of::<ProgramHeader>() {
                return b"";
            }
            for i in 0..count {
                let address = start.as_ptr().add(offset + i * size_of::<ProgramHeader>());
                let header = address.cast::<ProgramHeader>().read_unaligned();
                let from = self.bias.wrapping_add(header.address);
                if header.kind != NOTE
                    || from < self.start
                    || header.memory_size > self.end.wrapping_sub(from)
                {
                    continue;
                }
                let mut notes = &self.bytes(from)[..header.memory_size as usize];
                while let Some(note) = notes.get(..12) {
                    let word = |offset: usize| {
                        u32::from_le_bytes([
                            note[offset],
                            note[offset + 1],
                            note[offset + 2],
                            note[offset + 3],
                        ])
                    };
                    let padded = |length: u32| length.next_multiple_of(4) as usize;
                    if word(0) > 4096 || word(4) > 1 << 20 {
                        break;
                    }
                    let (name, text, kind) = (padded(word(0)), padded(word(4)), word(8));
                    let Some(rest) = notes.get(12 + name..) else { break };
                    if kind == 3 && notes[12..].starts_with(b"GNU\0") {
                        let length = (word(4) as usize).min(MAX_BUILD_ID_LENGTH);
                        return rest.get(..length).unwrap_or(b"");
                    }
                    let Some(next) = rest.get(text..) else { break };
                    notes = next;
                }
            }
            b""
        }
    }
}

/// The answer of `_dl_find_object`, which glibc has had since 2.35.
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    link_map: *const LinkMap,
    unwind_header: *mut c_void,
    reserved: [u64; 12],
}

/// The public part of the loader's own record.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

#[repr(C)]
struct ProgramHeaders {
    bias: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

/// A program header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProgramHeader {
    /// Which part of the object it describes.
    pub kind: u32,
    flags: u32,
    offset: u64,
    /// The address of that part, without the bias.
    pub address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    alignment: u64,
}

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const UNWIND: u32 = 0x6474_e550;

unsafe extern "C" {
    fn dl_iterate_phdr(
        visit: extern "C" fn(*const ProgramHeaders, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// A loaded object, as `dl_iterate_phdr` describes it.
#[derive(Debug)]
pub struct LoadedObject<'l> {
    bias: u64,
    headers: &'l [ProgramHeader],
}

impl LoadedObject<'_> {
    /// Its program headers.
    pub fn headers(&self) -> &[ProgramHeader] {
        self.headers
    }

    /// The difference between its addresses in memory and those in its file.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// The address that an entry of the dynamic section holds. The loader usually adds the bias in
    /// place, but not always.
    pub fn dynamic_address(&self, value: u64) -> u64 {
        if self.contains(value, 1) { value } else { self.bias.wrapping_add(value) }
    }

    /// Whether `length` bytes at an address lie in one of its segments.
    pub fn contains(&self, from: u64, length: u64) -> bool {
        self.headers.iter().filter(|header| header.kind == LOAD).any(|load| {
            let offset = from.wrapping_sub(self.bias.wrapping_add(load.address));
            offset < load.memory_size && load.memory_size - offset >= length
        })
    }

    /// The value at an address. `None` if it does not lie in one of the object's segments.
    ///
    /// # Safety
    ///
    /// The object is loaded, that segment is readable, and any bytes are a valid `T`.
    pub unsafe fn read<T: Copy>(&self, address: u64) -> Option<T> {
        // SAFETY: as the caller promised; the bytes are mapped.
        self.contains(address, size_of::<T>() as u64)
            .then(|| unsafe { (address as *const T).read_unaligned() })
    }
}

/// Whether `matches` holds for any loaded object. Takes the loader's lock.
pub fn any_object<F: Fn(&LoadedObject<'_>) -> bool>(matches: F) -> bool {
    extern "C" fn visit<F: Fn(&LoadedObject<'_>) -> bool>(
        info: *const ProgramHeaders,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description, and the pointer that was passed to it.
        let (info, matches) = unsafe { (&*info, &*data.cast_const().cast::<F>()) };
        // SAFETY: the loader's own array.
        let headers = unsafe { core::slice::from_raw_parts(info.headers, info.count.into()) };
        matches(&LoadedObject { bias: info.bias as u64, headers }).into()
    }
    // SAFETY: the callback has the type that the pointer was made from.
    unsafe { dl_iterate_phdr(visit::<F>, (&raw const matches).cast_mut().cast()) != 0 }
}

/// The loader's name of the object that contains both addresses. `None` if there is no such object.
pub fn name_of_common_object(one: u64, other: u64) -> Option<*const c_char> {
    let module = module_at(one)?;
    (module.contains(other) && !module.name.is_null()).then_some(module.name)
}

type FindObject = extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// `_dl_find_object`, which takes no lock; null if the C library has none.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the address of `_dl_find_object`.
pub fn set_find_object(function: *mut c_void) {
    FIND_OBJECT.store(function, Ordering::Relaxed);
}

/// The module that contains an address. Takes the loader's lock if there is no `_dl_find_object`.
pub fn module_at(address: u64) -> Option<LoadedModule> {
    let function = FIND_OBJECT.load(Ordering::Relaxed);
    if function.is_null() {
        let mut search = ModuleSearch { address, found: None };
        // SAFETY: the callback gets the search.
        unsafe { dl_iterate_phdr(visit_module, (&raw mut search).cast()) };
        return search.found;
    }
    // SAFETY: the function of that name has this type.
    let function: FindObject = unsafe { core::mem::transmute(function) };
    let mut found = MaybeUninit::<FoundObject>::zeroed();
    if function(address as *mut c_void, found.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: zeroed memory is valid, and the function has filled it in.
    let found = unsafe { found.assume_init() };
    // SAFETY: the loader's own record of a loaded module.
    let map = unsafe { found.link_map.as_ref()? };
    Some(LoadedModule {
        start: found.start as u64,
        end: found.end as u64,
        bias: map.bias as u64,
        unwind_header: found.unwind_header as u64,
        name: map.name,
    })
}

struct ModuleSearch {
    address: u64,
    found: Option<LoadedModule>,
}

extern "C" fn visit_module(info: *const ProgramHeaders, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's description, and the pointer that `module_at` passed.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<ModuleSearch>()) };
    // SAFETY: the loader's own array.
    let headers = unsafe { core::slice::from_raw_parts(info.headers, info.count.into()) };
    let bias = info.bias as u64;
    let loads = headers.iter().filter(|header| header.kind == LOAD);
    let start = loads.clone().map(|load| bias.wrapping_add(load.address)).min().unwrap_or(0);
    let end_of =
        |load: &ProgramHeader| bias.wrapping_add(load.address).wrapping_add(load.memory_size);
    let end = loads.map(end_of).max().unwrap_or(0);
    if !(start & !4095..end).contains(&search.address) {
        return 0;
    }
    let header = headers.iter().find(|header| header.kind == UNWIND);
    search.found = Some(LoadedModule {
        start: start & !4095,
        end,
        bias,
        unwind_header: header.map_or(0, |header| bias.wrapping_add(header.address)),
        name: info.name,
    });
    1
}
