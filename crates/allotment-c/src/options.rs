//! Reading and checking `allot_options`.
//!
//! # Invariants
//!
//! 1. The structure is that of the header with the caller's ABI: nothing of it is read before the
//!    ABI was checked.
//! 2. A name ends with a NUL.

use core::ffi::{CStr, c_char};
use core::time::Duration;

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{AllocError, Budget, ErrorKind, MAX_NAME_LEN, Release};

use crate::budget::allot_budget;
use crate::error::{CallError, FailedCall, check_abi, fail, try_boxed_str};
use crate::handle;
use crate::handle_kind::HandleKind;
use crate::handle_table;
use crate::source::allot_source;
use crate::struct_numbers::struct_numbers;

/// `allot_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allot_release {
    kind: u32,
    amount: u64,
}

struct_numbers!(RELEASE: allot_release { kind, amount });

/// `allot_retain`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allot_retain {
    kind: u32,
    bytes: usize,
}

struct_numbers!(RETAIN: allot_retain { kind, bytes });

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

struct_numbers!(OPTIONS: allot_options { name, budget, source, release, hardened, report_live, packing, hint, retain, objects_per_chunk, max_page_bytes, max_cached_bytes, reserved, initial, increment, maximum });

/// The options that an allocator can support besides name, budget and maximum, which all support.
pub(crate) mod option_bits {
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
}

/// The requested options, checked. Where the header's default, zero, differs from what a builder
/// takes as the default, the field is `None`.
#[derive(Debug, Default)]
pub(crate) struct CheckedOptions<'a> {
    pub name: Option<&'a str>,
    /// A copy of the name, for a builder.
    pub boxed_name: Option<Box<str>>,
    pub budget: Option<Budget>,
    pub source: Option<SharedSource>,
    pub release: Release,
    /// Requested in the options, or for all allocators.
    pub hardened: bool,
    /// `None` if it was not requested: the library's default depends on hardened mode.
    pub report_live: Option<bool>,
    pub packing: bool,
    pub hint: usize,
    pub retain: Retain,
    pub objects_per_chunk: usize,
    pub max_page_bytes: Option<usize>,
    pub max_cached_bytes: Option<usize>,
    pub reserved: usize,
    pub initial: Option<usize>,
    pub increment: usize,
    pub maximum: Option<usize>,
    /// Nothing was requested, so a default constructor is enough.
    pub is_default: bool,
}

/// Passes the name, the budget, the maximum and the listed `Option` fields to a builder, if they
/// were requested. The listed fields are moved out of the options.
macro_rules! with_requested {
    ($builder:expr, $options:ident: $($option:ident),* $(,)?) => {{
        let mut builder = $builder;
        if let Some(name) = $options.boxed_name {
            builder = builder.name(name);
        }
        if let Some(budget) = &$options.budget {
            builder = builder.budget(budget);
        }
        if let Some(bytes) = $options.maximum {
            builder = builder.maximum(bytes);
        }
        $(if let Some(value) = $options.$option {
            builder = builder.$option(value);
        })*
        builder
    }};
}
pub(crate) use with_requested;

fn bad(kind: HandleKind, text: &str) -> FailedCall {
    fail(kind, None, CallError::BadOption(text))
}

/// Reads the options of an allocator that supports the [`option_bits`] in `supported`, besides
/// name, budget and maximum.
///
/// # Safety
/// `options` is NULL, or points to a structure of the header with this `abi` that outlives `'a`.
/// Its handles are as for [`handle::get`].
pub(crate) unsafe fn read<'a>(
    kind: HandleKind,
    abi: u32,
    options: *const allot_options,
    supported: u32,
) -> Result<CheckedOptions<'a>, FailedCall> {
    check_abi(kind, abi)?;
    let all_hardened = handle_table::all_hardened() && supported & option_bits::HARDENED != 0;
    // SAFETY: our own ABI, so NULL or valid options (invariant 1).
    let Some(options) = (unsafe { options.as_ref() }) else {
        let is_default = !all_hardened;
        return Ok(CheckedOptions {
            hardened: all_hardened,
            is_default,
            ..CheckedOptions::default()
        });
    };
    check_supported(kind, options, supported)?;
    // SAFETY: a name ends with a NUL (2). The caller guarantees the handles.
    unsafe {
        let name = read_name(kind, options.name)?;
        Ok(CheckedOptions {
            name,
            boxed_name: name.map(|name| try_boxed_str(kind, name)).transpose()?,
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
            max_page_bytes: non_zero(options.max_page_bytes),
            max_cached_bytes: non_zero(options.max_cached_bytes),
            reserved: options.reserved,
            initial: non_zero(options.initial),
            increment: options.increment,
            maximum: non_zero(options.maximum),
            is_default: false,
        })
    }
}

/// Refuses options that the allocator does not support.
fn check_supported(
    kind: HandleKind,
    options: &allot_options,
    supported: u32,
) -> Result<(), FailedCall> {
    let requested = [
        (!options.source.is_null(), option_bits::SOURCE, "source"),
        (options.release.kind != 0, option_bits::RELEASE, "release"),
        (options.hardened != 0, option_bits::HARDENED, "hardened"),
        (options.report_live != 0, option_bits::REPORT_LIVE, "report_live"),
        (options.packing != 0, option_bits::PACKING, "packing"),
        (options.hint != 0, option_bits::HINT, "hint"),
        (options.retain.kind != 0, option_bits::RETAIN, "retain"),
        (options.objects_per_chunk != 0, option_bits::OBJECTS_PER_CHUNK, "objects_per_chunk"),
        (options.max_page_bytes != 0, option_bits::MAX_PAGE_BYTES, "max_page_bytes"),
        (options.max_cached_bytes != 0, option_bits::MAX_CACHED_BYTES, "max_cached_bytes"),
        (options.reserved != 0, option_bits::RESERVED, "reserved"),
        (options.initial != 0, option_bits::INITIAL, "initial"),
        (options.increment != 0, option_bits::INCREMENT, "increment"),
    ];
    match requested.iter().find(|(is_requested, bit, _)| *is_requested && supported & bit == 0) {
        Some((_, _, option)) => Err(fail(kind, None, CallError::UnsupportedOption(kind, option))),
        None => Ok(()),
    }
}

fn non_zero(number: usize) -> Option<usize> {
    (number != 0).then_some(number)
}

/// # Safety
/// `name` is NULL, or a string that ends with a NUL and outlives `'a`.
unsafe fn read_name<'a>(
    kind: HandleKind,
    name: *const c_char,
) -> Result<Option<&'a str>, FailedCall> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on to the caller.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.len() > MAX_NAME_LEN {
        return Err(fail(kind, None, AllocError::new(ErrorKind::NameTooLong, bytes.len())));
    }
    match core::str::from_utf8(bytes) {
        Ok(name) => Ok((!name.is_empty()).then_some(name)),
        Err(_) => Err(fail(kind, None, CallError::BadName)),
    }
}

/// A release policy.
pub(crate) fn release(kind: HandleKind, release: allot_release) -> Result<Release, FailedCall> {
    match (release.kind, release.amount) {
        (0, 0) => Ok(Release::Adaptive),
        (1, 0) => Ok(Release::AtOnce),
        (0 | 1, _) => Err(bad(kind, "this release takes no amount; use ALLOT_KEEP or ALLOT_DECAY")),
        (2, bytes) => Ok(Release::Keep(bytes as usize)),
        (3, milliseconds) => Ok(Release::Decay(Duration::from_millis(milliseconds))),
        _ => Err(bad(kind, "no such release kind; use ALLOT_ADAPTIVE to ALLOT_DECAY")),
    }
}

fn retain(kind: HandleKind, retain: allot_retain) -> Result<Retain, FailedCall> {
    match (retain.kind, retain.bytes) {
        (0, 0) => Ok(Retain::Newest),
        (1, 0) => Ok(Retain::Nothing),
        (0 | 1, _) => Err(bad(kind, "this retain takes no bytes; use ALLOT_RETAIN_UP_TO")),
        (2, bytes) => Ok(Retain::UpTo(bytes)),
        _ => Err(bad(kind, "no such retain kind; use ALLOT_RETAIN_NEWEST to ALLOT_RETAIN_UP_TO")),
    }
}
