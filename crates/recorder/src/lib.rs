//! The library that `allot record` loads into a program.
//!
//! It stands before malloc and its family, writes down each call with its time and its stack, and calls the next
//! definition, whosever it is. The hooks take the calls; [`record`] writes their events to chunks of a [`raw_file`]; [`unwind`]
//! finds the stack, mostly from a cache whose answers are verified by reading again what they depend on; [`thread`] is
//! what each thread has for that.
//!
//! Rules that hold everywhere in it, since it runs inside of malloc, at any point of a program's life:
//!
//! - Nothing allocates, takes a lock that a program could hold, or panics. Memory comes from [`sys`], which calls the kernel itself
//!   and leaves `errno` alone.
//! - A hook may be interrupted and entered again: the thread's `busy` mark lets the inner call through unrecorded.
//! - What goes wrong ends the recording, or that of one thread, and says so in the file's header; the program goes on.

#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

pub mod clock;
pub mod generation;
#[cfg(allot_preload)]
mod hooks;
pub mod next;
pub mod operator_new;
pub mod raw_file;
pub mod record;
pub mod seccomp;
pub mod sys;
pub mod table;
pub mod thread;
pub mod tls;
pub mod unwind;

// Without its standard library Rust names none of the C library's parts to the linker.
#[cfg(allot_preload)]
#[link(name = "c")]
#[link(name = "dl")]
#[link(name = "pthread")]
unsafe extern "C" {}

#[cfg(allot_preload)]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}
