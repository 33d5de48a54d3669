//! The library that `allot record` loads into a program.
//!
//! It defines malloc and its family in front of the next definitions. It records each call with its
//! time and its stack, and calls the next definition, in whichever library it is.
//!
//! The files, lowest first; each uses only files above it in this table:
//!
//! | file | what it holds |
//! |---|---|
//! | [`sys`] | system calls, made without the C library |
//! | [`spin_lock`] | a lock for a few instructions |
//! | [`tls`] | one word for each thread |
//! | [`clock`] | time stamps |
//! | [`generation`] | a number whose change makes all threads check their state |
//! | [`seccomp`] | whether a program's filter of system calls would harm the recorder |
//! | [`number_table`], [`stream_keys`] | a hash table that numbers its keys, and the keys |
//! | [`trial`] | a run of the program in which the blocks of some stacks get other memory |
//! | [`unwind`] | the parts of finding a stack that do not depend on a thread's state |
//! | [`dynamic_symbols`] | finds names in the loaded objects |
//! | [`operator_new`] | whether C++'s `operator new` bypasses the hooks |
//! | [`raw_file`] | the file of this process, and its chunks |
//! | [`thread_state`] | what a thread needs for recording |
//! | [`modules`] | the modules in which code was found |
//! | [`call_stack`] | walks the stack of a call |
//! | [`threads`] | how a thread enters and leaves a hook, and which state it has |
//! | [`events`] | writes the events of a thread |
//! | [`trial_calls`] | what the hooks do in a trial |
//! | [`next_functions`] | the next definitions of the hooked functions |
//! | `hooks` | the functions that the program calls |
//!
//! Rules for all of it, because it runs inside of malloc, at any point of a program's life:
//!
//! - Nothing allocates, panics, or takes a lock that a program could hold. Memory comes from
//!   [`sys`], which makes system calls itself and leaves `errno` unchanged.
//! - A hook may be interrupted by a signal and entered again. The thread's `in_hook` mark lets the
//!   inner call through without recording it.
//! - A failure ends the recording of the process or of one thread, and is noted in the file's
//!   header. The program continues.

#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

pub mod call_stack;
pub mod clock;
pub mod dynamic_symbols;
pub mod events;
pub mod generation;
#[cfg(allot_preload)]
mod hooks;
pub mod modules;
pub mod next_functions;
pub mod number_table;
pub mod operator_new;
pub mod raw_file;
pub mod seccomp;
pub mod spin_lock;
pub mod stream_keys;
pub mod sys;
pub mod thread_state;
pub mod threads;
pub mod tls;
pub mod trial;
pub mod trial_calls;
pub mod unwind;

// Without the standard library, Rust passes no part of the C library to the linker.
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
