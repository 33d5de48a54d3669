//! The functions that programs call instead of the next ones of the same name: those for
//! [`malloc`], those for [`locks`], and a few that change the [`process`].
//!
//! A hook that needs its caller's registers begins with a few instructions, which add the stack
//! pointer, the frame pointer and the return address as arguments, and continue in Rust. Invariant:
//! the function that `next_functions` found under a name has the type of that name.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`malloc`] | hooks for malloc and its family |
//! | [`locks`] | hooks for locks |
//! | [`process`] | hooks for calls that change the process |

use crate::next_functions as next;
use crate::raw_file;
use crate::threads::enter;
use crate::trial_calls;
use crate::unwind::CallSite;
use core::ffi::c_void;

/// Calls a next function.
macro_rules! call {
    ($address:expr, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        let function: unsafe extern "C" fn($($type),*) -> $result =
            // SAFETY: the function of that name has this type.
            unsafe { core::mem::transmute($address) };
        // SAFETY: the program's arguments.
        unsafe { function($($argument),*) }
    }};
}

/// Defines the function of a name. It continues in a hook, which gets three arguments after the
/// one, two or three of the function.
macro_rules! entry {
    ($name:ident, $hook:ident, 1) => { entry!($name, $hook, "rsi", "rdx", "rcx", "x1", "x2", "x3"); };
    ($name:ident, $hook:ident, 2) => { entry!($name, $hook, "rdx", "rcx", "r8", "x2", "x3", "x4"); };
    ($name:ident, $hook:ident, 3) => { entry!($name, $hook, "rcx", "r8", "r9", "x3", "x4", "x5"); };
    ($name:ident, $hook:ident, $a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal) => {
        /// The function that the program calls.
        ///
        /// # Safety
        ///
        /// As for the next function of that name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                concat!("lea ", $a, ", [rsp + 8]"),
                concat!("mov ", $b, ", rbp"),
                concat!("mov ", $c, ", qword ptr [rsp]"),
                "jmp {hook}",
                hook = sym $hook,
            )
        }

        /// The function that the program calls.
        ///
        /// # Safety
        ///
        /// As for the next function of that name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                concat!("mov ", $d, ", sp"),
                concat!("mov ", $e, ", x29"),
                concat!("mov ", $f, ", x30"),
                "b {hook}",
                hook = sym $hook,
            )
        }
    };
}

// After the macros, which these files use.
mod locks;
mod malloc;
mod process;

fn call_site(stack_pointer: u64, frame_pointer: u64, return_address: u64) -> CallSite {
    CallSite { return_address, stack_pointer, frame_pointer }
}

/// Begins the recording with the program, unless it has allocated before.
extern "C" fn begin() {
    next::MALLOC.get();
    if next::hooks_are_bypassed() {
        // SAFETY: the lookup has switched the recording off, and a process runs this once.
        unsafe { raw_file::announce_own_malloc() };
    } else {
        drop(enter());
        if trial_calls::times_frees() {
            measure_empty_walks();
        }
    }
}

/// Measures the time between consecutive frees with no program code in between: the exit from one hook
/// and the entry into the next.
fn measure_empty_walks() {
    let Some(blocks) = enter().map(|entry| trial_calls::blocks_to_free(&entry)) else { return };
    let free = core::hint::black_box(malloc::free as unsafe extern "C" fn(*mut c_void));
    for block in blocks {
        if !block.is_null() {
            // SAFETY: a block of the trial's memory, which nothing else uses.
            unsafe { free(block.cast()) };
        }
    }
    if let Some(entry) = enter() {
        trial_calls::empty_walks_measured(&entry);
    }
}

extern "C" fn end() {
    // Entering a hook would begin the recording of a child that has not allocated.
    if trial_calls::times_frees()
        && let Some(entry) = enter()
    {
        trial_calls::end(&entry);
    }
    raw_file::note_exit();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
