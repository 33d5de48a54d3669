//! Messages on standard error. On Linux they are written without the lock of [`std::io::Stderr`]: a
//! thread that holds that lock may wait for the caller, or a child made by fork may lack the thread.
//! Other platforms' messages take the lock. A message takes no memory of the heap.
//!
//! Without the feature `std` there is no standard error. Messages before an abort then go to the
//! program's panic handler.

use core::fmt;
#[cfg(feature = "std")]
use core::fmt::Write;

/// Longer messages are written in parts, which those of other threads may separate.
#[cfg(feature = "std")]
const BUFFER_BYTES: usize = 1024;

#[cfg(feature = "std")]
struct Message {
    bytes: [u8; BUFFER_BYTES],
    len: usize,
}

#[cfg(feature = "std")]
impl Message {
    fn flush(&mut self) {
        write_all(&self.bytes[..self.len]);
        self.len = 0;
    }
}

#[cfg(feature = "std")]
impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            if self.len == BUFFER_BYTES {
                self.flush();
            }
            let (now, later) = left.split_at(left.len().min(BUFFER_BYTES - self.len));
            self.bytes[self.len..][..now.len()].copy_from_slice(now);
            self.len += now.len();
            left = later;
        }
        Ok(())
    }
}

/// Prints a message, with one system call if it has at most 1 KiB. What can't be written is lost.
#[cfg(feature = "std")]
pub(crate) fn print(message: fmt::Arguments<'_>) {
    let mut buffer = Message { bytes: [0; BUFFER_BYTES], len: 0 };
    let _ = buffer.write_fmt(message);
    buffer.flush();
}

#[cfg(all(system_memory, not(miri)))]
fn write_all(mut bytes: &[u8]) {
    use rustix::io::Errno;
    while !bytes.is_empty() {
        match rustix::io::write(std::io::stderr(), bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// As above; Miri makes no such system call, and other platforms have another one.
#[cfg(all(feature = "std", any(not(system_memory), miri)))]
fn write_all(bytes: &[u8]) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), bytes);
}

/// Prints a message and aborts the process.
#[cfg(feature = "std")]
#[cold]
pub(crate) fn abort_with(message: fmt::Arguments<'_>) -> ! {
    print(message);
    std::process::abort()
}

/// Panics with the message, and never returns: this function can't unwind.
#[cfg(not(feature = "std"))]
#[cold]
pub(crate) fn abort_with(message: fmt::Arguments<'_>) -> ! {
    extern "C" fn panic_without_unwinding(message: &fmt::Arguments<'_>) -> ! {
        panic!("{message}")
    }
    panic_without_unwinding(&message)
}
