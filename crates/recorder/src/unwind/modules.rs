//! The modules that code was found in.
//!
//! Invariants: entries below `COUNT` are written before it says so and never change, but for their mark that they have gone.
//! `LOCK` is held only for moments, by threads that hold nothing else of ours; nobody who holds it allocates.

use crate::generation;
use crate::raw_file;
use crate::sys;
use crate::thread::Thread;
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use trace_format::raw::{LONGEST_BUILD_ID, MODULE_ROOM, RawModule};

/// Modules that a process can have had; what is in later ones is found without their rules.
pub const MOST_MODULES: usize = 8192;

/// A module.
#[derive(Debug)]
pub struct Module {
    /// Its first address.
    pub start: u64,
    /// The address behind its last one.
    pub end: u64,
    bias: u64,
    /// Its `.eh_frame_hdr`; 0 where it has none.
    pub unwind_header: u64,
    name: *const c_char,
    gone: AtomicBool,
}

impl Module {
    #[inline]
    fn has(&self, address: u64) -> bool {
        address >= self.start && address < self.end && !self.gone.load(Ordering::Relaxed)
    }

    /// Memory of the module from an address to its end.
    ///
    /// # Safety
    ///
    /// The module is loaded while the slice is used, and what is read from it is mapped.
    pub unsafe fn bytes(&self, from: u64) -> &'static [u8] {
        let from = from.clamp(self.start, self.end);
        // SAFETY: as the caller promised.
        unsafe { core::slice::from_raw_parts(from as *const u8, (self.end - from) as usize) }
    }
}

struct Entries(UnsafeCell<MaybeUninit<[Module; MOST_MODULES]>>);

// SAFETY: entries are written under LOCK before COUNT says that they are there, and read afterwards.
unsafe impl Sync for Entries {}

static ENTRIES: Entries = Entries(UnsafeCell::new(MaybeUninit::uninit()));
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);

fn entries() -> &'static [Module] {
    let count = COUNT.load(Ordering::Acquire);
    // SAFETY: so many are written and don't change.
    unsafe { core::slice::from_raw_parts(ENTRIES.0.get().cast::<Module>(), count) }
}

struct Locked;

impl Locked {
    fn take() -> Self {
        while LOCK.swap(1, Ordering::Acquire) != 0 {
            sys::give_way();
        }
        Self
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(0, Ordering::Release);
    }
}

/// The module that has an address, announced by `thread` if nobody knew it yet.
///
/// # Safety
///
/// The thread is the caller's own.
pub unsafe fn find(thread: *mut Thread, tick: u64, address: u64) -> Option<&'static Module> {
    if let Some(known) = entries().iter().rev().find(|module| module.has(address)) {
        return Some(known);
    }
    // SAFETY: as the caller promised.
    unsafe { find_new(thread, tick, address) }
}

#[cold]
unsafe fn find_new(thread: *mut Thread, tick: u64, address: u64) -> Option<&'static Module> {
    let found = ask(address)?;
    // Room first: nobody may wait for us while we wait for a disk.
    // SAFETY: the caller's thread.
    if !unsafe { (*thread).make_room(tick, MODULE_ROOM) } {
        return None;
    }
    let _locked = Locked::take();
    if let Some(known) = entries().iter().rev().find(|module| module.has(address)) {
        return Some(known);
    }
    let count = COUNT.load(Ordering::Relaxed);
    if count == MOST_MODULES {
        return None;
    }
    // What was at its place has gone unseen.
    for old in entries() {
        if !old.gone.load(Ordering::Relaxed) && old.start < found.end && found.start < old.end {
            old.gone.store(true, Ordering::Relaxed);
        }
    }
    // Before anyone can use it, so that its time is before that of what is in it.
    // SAFETY: the caller's thread, which has room.
    unsafe { announce(thread, tick, &found) };
    // SAFETY: the place is below the capacity, and nobody reads it before the count says so.
    unsafe { ENTRIES.0.get().cast::<Module>().add(count).write(found) };
    COUNT.store(count + 1, Ordering::Release);
    entries().last()
}

/// Announces all that are known, for a file that is new.
///
/// # Safety
///
/// The thread is the caller's own, and no other thread is there.
pub unsafe fn announce_all(thread: *mut Thread, tick: u64) {
    LOCK.store(0, Ordering::Relaxed);
    for module in entries().iter().filter(|module| !module.gone.load(Ordering::Relaxed)) {
        // SAFETY: the caller's thread, which has room.
        unsafe {
            if (*thread).make_room(tick, MODULE_ROOM) {
                announce(thread, tick, module);
            }
        }
    }
}

/// # Safety
///
/// The thread is the caller's own, and has room.
unsafe fn announce(thread: *mut Thread, tick: u64, module: &Module) {
    let mut path: &[u8] = if module.name.is_null() {
        b""
    } else {
        // SAFETY: the loader's name of a module that is loaded.
        unsafe { core::ffi::CStr::from_ptr(module.name) }.to_bytes()
    };
    if path.is_empty() {
        path = raw_file::executable();
    } else if path.starts_with(b"linux-vdso") || path.starts_with(b"linux-gate") {
        path = b"[vdso]";
    }
    // SAFETY: the module is loaded.
    let build_id = unsafe { build_id(module) };
    let raw = RawModule { bias: module.bias, start: module.start, end: module.end, build_id, path };
    // SAFETY: the caller's thread, which has room.
    unsafe { (*thread).encoder.module(tick, &raw) };
}

/// After something was unloaded: marks what has gone, and makes all threads forget what they knew.
///
/// # Safety
///
/// The thread is the caller's own.
pub unsafe fn look_for_gone(thread: *mut Thread, tick: u64) {
    let mut any = false;
    for module in entries().iter().filter(|module| !module.gone.load(Ordering::Relaxed)) {
        let still = ask(module.start.max(1)).is_some_and(|now| {
            (now.start, now.end, now.unwind_header)
                == (module.start, module.end, module.unwind_header)
        });
        if !still && !module.gone.swap(true, Ordering::Relaxed) {
            any = true;
            // SAFETY: the caller's thread.
            unsafe {
                if (*thread).make_room(tick, 0) {
                    (*thread).encoder.module_gone(tick, module.start);
                }
            }
        }
    }
    if any {
        generation::next();
    }
}

/// The loader's answer, as glibc has given it since 2.35.
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
    /// What it tells of.
    pub kind: u32,
    flags: u32,
    offset: u64,
    /// Where that is, without the bias.
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

/// An object that is loaded.
#[derive(Debug)]
pub struct Object<'l> {
    bias: u64,
    headers: &'l [ProgramHeader],
}

impl Object<'_> {
    /// Its program headers.
    pub fn headers(&self) -> &[ProgramHeader] {
        self.headers
    }

    /// What its addresses were moved by.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// An address of its dynamic section, which the loader mostly moves in place.
    pub fn address(&self, value: u64) -> u64 {
        if self.has(value, 1) { value } else { self.bias.wrapping_add(value) }
    }

    /// Whether so many bytes lie in one of its segments.
    pub fn has(&self, from: u64, length: u64) -> bool {
        self.headers.iter().filter(|header| header.kind == LOAD).any(|load| {
            let offset = from.wrapping_sub(self.bias.wrapping_add(load.address));
            offset < load.memory_size && load.memory_size - offset >= length
        })
    }

    /// What lies at an address; `None` where that isn't all in one of its segments.
    ///
    /// # Safety
    ///
    /// The object is loaded, that segment may be read, and any bytes are a `T`.
    pub unsafe fn read<T: Copy>(&self, at: u64) -> Option<T> {
        // SAFETY: as the caller promised; it is mapped.
        self.has(at, size_of::<T>() as u64).then(|| unsafe { (at as *const T).read_unaligned() })
    }
}

/// Whether any object that is loaded is such. It takes the loader's lock.
pub fn any_object<F: Fn(&Object<'_>) -> bool>(is_such: F) -> bool {
    extern "C" fn visit<F: Fn(&Object<'_>) -> bool>(
        info: *const ProgramHeaders,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: what the loader gave, and what was given to it.
        let (info, is_such) = unsafe { (&*info, &*data.cast_const().cast::<F>()) };
        // SAFETY: the loader's own list.
        let headers = unsafe { core::slice::from_raw_parts(info.headers, info.count.into()) };
        is_such(&Object { bias: info.bias as u64, headers }).into()
    }
    // SAFETY: the callback gets what it was given.
    unsafe { dl_iterate_phdr(visit::<F>, (&raw const is_such).cast_mut().cast()) != 0 }
}

/// The loader's name of the object that has two addresses; `None` where they aren't of one.
pub fn name_of_both(one: u64, other: u64) -> Option<*const c_char> {
    let found = ask(one)?;
    (found.has(other) && !found.name.is_null()).then_some(found.name)
}

type FindObject = extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// `_dl_find_object`, where there is one: it takes no lock.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Says where `_dl_find_object` is.
pub fn set_find_object(function: *mut c_void) {
    FIND_OBJECT.store(function, Ordering::Relaxed);
}

/// Asks the loader what is at an address.
fn ask(address: u64) -> Option<Module> {
    let function = FIND_OBJECT.load(Ordering::Relaxed);
    if function.is_null() {
        let mut wanted = Wanted { address, found: None };
        // SAFETY: the callback gets what it was given.
        unsafe { dl_iterate_phdr(visit, (&raw mut wanted).cast()) };
        return wanted.found;
    }
    // SAFETY: it is the function of that name, which has this type.
    let function: FindObject = unsafe { core::mem::transmute(function) };
    let mut found = MaybeUninit::<FoundObject>::zeroed();
    if function(address as *mut c_void, found.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: it was zero, which is valid, and is filled in now.
    let found = unsafe { found.assume_init() };
    // SAFETY: the loader's own record of a module that is loaded.
    let map = unsafe { found.link_map.as_ref()? };
    Some(Module {
        start: found.start as u64,
        end: found.end as u64,
        bias: map.bias as u64,
        unwind_header: found.unwind_header as u64,
        name: map.name,
        gone: AtomicBool::new(false),
    })
}

struct Wanted {
    address: u64,
    found: Option<Module>,
}

extern "C" fn visit(info: *const ProgramHeaders, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: what the loader and `ask` gave.
    let (info, wanted) = unsafe { (&*info, &mut *data.cast::<Wanted>()) };
    // SAFETY: the loader's own list.
    let headers = unsafe { core::slice::from_raw_parts(info.headers, info.count.into()) };
    let bias = info.bias as u64;
    let loads = headers.iter().filter(|header| header.kind == LOAD);
    let start = loads.clone().map(|load| bias.wrapping_add(load.address)).min().unwrap_or(0);
    let behind =
        |load: &ProgramHeader| bias.wrapping_add(load.address).wrapping_add(load.memory_size);
    let end = loads.map(behind).max().unwrap_or(0);
    if !(start & !4095..end).contains(&wanted.address) {
        return 0;
    }
    let header = headers.iter().find(|header| header.kind == UNWIND);
    wanted.found = Some(Module {
        start: start & !4095,
        end,
        bias,
        unwind_header: header.map_or(0, |header| bias.wrapping_add(header.address)),
        name: info.name,
        gone: AtomicBool::new(false),
    });
    1
}

/// The build id in a module's notes; empty where there is none.
///
/// # Safety
///
/// The module is loaded.
unsafe fn build_id(module: &Module) -> &'static [u8] {
    // SAFETY: a module begins with its file's header, which is checked; what else is looked at is mapped with it.
    unsafe {
        let start = module.bytes(module.start);
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
            let at = start.as_ptr().add(offset + i * size_of::<ProgramHeader>());
            let header = at.cast::<ProgramHeader>().read_unaligned();
            let from = module.bias.wrapping_add(header.address);
            if header.kind != NOTE
                || from < module.start
                || header.memory_size > module.end.wrapping_sub(from)
            {
                continue;
            }
            let mut notes = &module.bytes(from)[..header.memory_size as usize];
            while let Some(note) = notes.get(..12) {
                let word = |at: usize| {
                    u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]])
                };
                let padded = |length: u32| length.next_multiple_of(4) as usize;
                if word(0) > 4096 || word(4) > 1 << 20 {
                    break;
                }
                let (name, text, kind) = (padded(word(0)), padded(word(4)), word(8));
                let Some(rest) = notes.get(12 + name..) else { break };
                if kind == 3 && notes[12..].starts_with(b"GNU\0") {
                    let length = (word(4) as usize).min(LONGEST_BUILD_ID);
                    return rest.get(..length).unwrap_or(b"");
                }
                let Some(next) = rest.get(text..) else { break };
                notes = next;
            }
        }
        b""
    }
}
