//! Reading and checking `allot_options`.
//!
//! # Invariants
//!
//! 1. The structure is that of the header with the caller's ABI: nothing of it is read before the
//!    ABI was checked.
//! 2. A name ends with a NUL.

use core::ffi::{CStr, c_char};
use core::time::Duration;

use allotment::{AllocError, Budget, ErrorKind, MAX_NAME_LEN, Release, Retain, SharedSource};

use crate::budget::allot_budget;
use crate::error::{Noted, Problem, check_abi, note};
use crate::handle::{self, Kind};
use crate::known;
use crate::source::allot_source;

/// `allot_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allot_release {
    kind: u32,
    amount: u64,
}

crate::numbers::numbers!(RELEASE: allot_release { kind, amount });

/// `allot_retain`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allot_retain {
    kind: u32,
    bytes: usize,
}

crate::numbers::numbers!(RETAIN: allot_retain { kind, bytes });

/// `allot_options`. A C `bool` is a byte here, so that no value of it is undefined behaviour.
#[repr(C)]
#[derive(Debug)]
pub struct allot_options {
    name: *const c_char,
    budget: *const allot_budget,
    source: *const allot_source,
    release: allot_release,
    hardened: u8,
    report_live: u8,
    packing: u8,
    hint: usize,
    retain: allot_retain,
    objects_per_chunk: usize,
    max_page_bytes: usize,
    max_cached_bytes: usize,
    reserved: usize,
    initial: usize,
    increment: usize,
    maximum: usize,
}

crate::numbers::numbers!(OPTIONS: allot_options { name, budget, source, release, hardened, report_live, packing, hint, retain, objects_per_chunk, max_page_bytes, max_cached_bytes, reserved, initial, increment, maximum });

/// The options that an allocator can support besides name and budget, which all support.
pub(crate) mod has {
    pub(crate) const SOURCE: u32 = 1;
    pub(crate) const RELEASE: u32 = 1 << 1;
    pub(crate) const HARDENED: u32 = 1 << 2;
    pub(crate) const REPORT_LIVE: u32 = 1 << 3;
    pub(crate) const PACKING: u32 = 1 << 4;
    pub(crate) const HINT: u32 = 1 << 5;
    pub(crate) const RETAIN: u32 = 1 << 6;
    pub(crate) const OBJECTS_PER_CHUNK: u32 = 1 << 7;
    pub(crate) const MAX_PAGE_BYTES: u32 = 1 << 8;
    pub(crate) const MAX_CACHED_BYTES: u32 = 1 << 9;
    pub(crate) const RESERVED: u32 = 1 << 10;
    pub(crate) const INITIAL: u32 = 1 << 11;
    pub(crate) const INCREMENT: u32 = 1 << 12;
    pub(crate) const MAXIMUM: u32 = 1 << 13;
}

/// The requested options. The header's default, zero, is `None` or the library's default here.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    pub name: Option<&'a str>,
    pub budget: Option<Budget>,
    pub source: Option<SharedSource>,
    pub release: Release,
    /// Requested in the options, or for all allocators.
    pub hardened: bool,
    /// `None` if it was not requested: the library's default, which depends on hardened mode.
    pub report_live: Option<bool>,
    pub packing: bool,
    pub hint: usize,
    pub retain: Retain,
    pub objects_per_chunk: usize,
    pub max_page_bytes: usize,
    pub max_cached_bytes: usize,
    pub reserved: usize,
    pub initial: usize,
    pub increment: usize,
    pub maximum: usize,
    /// Nothing was requested, so a default constructor is enough.
    pub is_default: bool,
}

fn bad(kind: Kind, text: &str) -> Noted {
    note(kind, None, Problem::BadOption(text))
}

/// Reads the options of an allocator that supports those in `having` (the bits of [`has`]), besides
/// name and budget.
///
/// # Safety
/// `options` is NULL, or points to a structure of the header with this `abi` that outlives `'a`.
/// Its handles are as for [`handle::get`].
pub(crate) unsafe fn read<'a>(
    kind: Kind,
    abi: u32,
    options: *const allot_options,
    having: u32,
) -> Result<Options<'a>, Noted> {
    check_abi(kind, abi)?;
    let all_hardened = known::all_hardened() && having & has::HARDENED != 0;
    // SAFETY: our own ABI, so NULL or valid options (invariant 1).
    let Some(options) = (unsafe { options.as_ref() }) else {
        let is_default = !all_hardened;
        return Ok(Options { hardened: all_hardened, is_default, ..Options::default() });
    };
    check_known(kind, options, having)?;
    // SAFETY: a name ends with a NUL (2). The caller guarantees the handles.
    unsafe {
        Ok(Options {
            name: read_name(kind, options.name)?,
            budget: match options.budget.is_null() {
                true => None,
                false => Some(handle::get(options.budget)?.clone()),
            },
            source: match options.source.is_null() {
                true => None,
                false => Some(handle::get(options.source)?.shared()),
            },
            release: release(kind, options.release)?,
            hardened: options.hardened != 0 || all_hardened,
            report_live: (options.report_live != 0).then_some(true),
            packing: options.packing != 0,
            hint: options.hint,
            retain: retain(kind, options.retain)?,
            objects_per_chunk: options.objects_per_chunk,
            max_page_bytes: options.max_page_bytes,
            max_cached_bytes: options.max_cached_bytes,
            reserved: options.reserved,
            initial: options.initial,
            increment: options.increment,
            maximum: options.maximum,
            is_default: false,
        })
    }
}

/// Refuses options that the allocator does not support.
fn check_known(kind: Kind, options: &allot_options, having: u32) -> Result<(), Noted> {
    let asked = [
        (!options.source.is_null(), has::SOURCE, "source"),
        (options.release.kind != 0, has::RELEASE, "release"),
        (options.hardened != 0, has::HARDENED, "hardened"),
        (options.report_live != 0, has::REPORT_LIVE, "report_live"),
        (options.packing != 0, has::PACKING, "packing"),
        (options.hint != 0, has::HINT, "hint"),
        (options.retain.kind != 0, has::RETAIN, "retain"),
        (options.objects_per_chunk != 0, has::OBJECTS_PER_CHUNK, "objects_per_chunk"),
        (options.max_page_bytes != 0, has::MAX_PAGE_BYTES, "max_page_bytes"),
        (options.max_cached_bytes != 0, has::MAX_CACHED_BYTES, "max_cached_bytes"),
        (options.reserved != 0, has::RESERVED, "reserved"),
        (options.initial != 0, has::INITIAL, "initial"),
        (options.increment != 0, has::INCREMENT, "increment"),
        (options.maximum != 0, has::MAXIMUM, "maximum"),
    ];
    match asked.iter().find(|(asked, option, _)| *asked && having & option == 0) {
        Some((_, _, option)) => {
            let word = kind.word().to_string_lossy();
            Err(bad(kind, &format!("this {word} has no option '{option}'; leave it at zero")))
        }
        None => Ok(()),
    }
}

/// # Safety
/// `name` is NULL, or a string that ends with a NUL and outlives `'a`.
unsafe fn read_name<'a>(kind: Kind, name: *const c_char) -> Result<Option<&'a str>, Noted> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on to the caller.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.len() > MAX_NAME_LEN {
        return Err(note(kind, None, AllocError::new(ErrorKind::NameTooLong, bytes.len())));
    }
    match core::str::from_utf8(bytes) {
        Ok(name) => Ok((!name.is_empty()).then_some(name)),
        Err(_) => Err(note(kind, None, Problem::BadName)),
    }
}

/// A release policy.
pub(crate) fn release(kind: Kind, release: allot_release) -> Result<Release, Noted> {
    match (release.kind, release.amount) {
        (0, 0) => Ok(Release::Adaptive),
        (1, 0) => Ok(Release::AtOnce),
        (0 | 1, _) => Err(bad(kind, "this release takes no amount; use ALLOT_KEEP or ALLOT_DECAY")),
        (2, bytes) => Ok(Release::Keep(bytes as usize)),
        (3, milliseconds) => Ok(Release::Decay(Duration::from_millis(milliseconds))),
        _ => Err(bad(kind, "no such release kind; use ALLOT_ADAPTIVE to ALLOT_DECAY")),
    }
}

fn retain(kind: Kind, retain: allot_retain) -> Result<Retain, Noted> {
    match (retain.kind, retain.bytes) {
        (0, 0) => Ok(Retain::Newest),
        (1, 0) => Ok(Retain::Nothing),
        (0 | 1, _) => Err(bad(kind, "this retain takes no bytes; use ALLOT_RETAIN_UP_TO")),
        (2, bytes) => Ok(Retain::UpTo(bytes)),
        _ => Err(bad(kind, "no such retain kind; use ALLOT_RETAIN_NEWEST to ALLOT_RETAIN_UP_TO")),
    }
}
