//! The version of the library, and of the structures that the header freezes.

use core::ffi::c_char;

/// `ALLOT_ABI`: the version of the frozen structures.
pub(crate) const ABI: u32 = 1;

#[unsafe(no_mangle)]
pub extern "C" fn allot_abi() -> u32 {
    ABI
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
