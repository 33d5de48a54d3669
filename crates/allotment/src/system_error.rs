//! What the operating system's error numbers mean.

use core::fmt;

/// Whether the system reports a lack of memory by this number. On Linux, `EAGAIN` does: the memory
/// would have to be locked, and the limit on locked memory is reached. Without the feature `std`
/// nothing is known about the numbers.
#[cfg(system_memory)]
pub(crate) fn is_out_of_memory(code: i32) -> bool {
    use rustix::io::Errno;

    code == Errno::NOMEM.raw_os_error() || code == Errno::AGAIN.raw_os_error()
}

#[cfg(all(feature = "std", not(system_memory)))]
pub(crate) fn is_out_of_memory(code: i32) -> bool {
    std::io::Error::from_raw_os_error(code).kind() == std::io::ErrorKind::OutOfMemory
}

#[cfg(not(feature = "std"))]
pub(crate) fn is_out_of_memory(_: i32) -> bool {
    false
}

/// What can be done about the error, to follow its text.
#[cfg(system_memory)]
pub(crate) fn remedy(code: i32) -> &'static str {
    use std::io::{Error, ErrorKind};

    match Error::from_raw_os_error(code).kind() {
        ErrorKind::OutOfMemory => {
            "; free memory, or raise the process's limits (ulimit -v, vm.max_map_count)"
        }
        ErrorKind::StorageFull => "; free space on the file's disk",
        ErrorKind::QuotaExceeded => "; free space in the disk quota",
        ErrorKind::FileTooLarge => "; raise the process's limit on the length of files (ulimit -f)",
        _ => "",
    }
}

#[cfg(not(system_memory))]
pub(crate) fn remedy(_: i32) -> &'static str {
    ""
}

/// The text of an error number, as [`std::io::Error`] shows it, which allocates a string for it.
#[doc(hidden)]
#[derive(Debug)]
pub struct SystemMessage(pub i32);

#[cfg(system_memory)]
impl fmt::Display for SystemMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use core::ffi::{CStr, c_char, c_int};

        unsafe extern "C" {
            /// The function of POSIX; glibc has another one of that name.
            #[cfg_attr(target_env = "gnu", link_name = "__xpg_strerror_r")]
            fn strerror_r(code: c_int, text: *mut c_char, size: usize) -> c_int;
        }
        let mut text = [0; 128];
        // SAFETY: the buffer has this size.
        let failed = unsafe { strerror_r(self.0, text.as_mut_ptr().cast(), text.len()) } != 0;
        let known = CStr::from_bytes_until_nul(&text).ok().and_then(|text| text.to_str().ok());
        match known.filter(|text| !failed && !text.is_empty()) {
            Some(known) => write!(f, "{known} (os error {})", self.0),
            None => write!(f, "os error {}", self.0),
        }
    }
}

#[cfg(all(feature = "std", not(system_memory)))]
impl fmt::Display for SystemMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

#[cfg(not(feature = "std"))]
impl fmt::Display for SystemMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "os error {}", self.0)
    }
}
