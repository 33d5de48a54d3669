//! The functions that programs call instead of the next ones of the same name: those for [`memory`], for [`locks`], and the few that
//! change what the [`process`] consists of or may do.
//!
//! Those that need their caller's registers are a few instructions that add the stack pointer, the frame pointer and the return address
//! as arguments and go on in Rust. Invariant: what `next` found under a name has that name's type.

use crate::next;
use crate::raw_file;
use crate::thread::enter;
use crate::unwind::Caller;

/// Calls the next function.
macro_rules! call {
    ($address:expr, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        let function: unsafe extern "C" fn($($type),*) -> $result =
            // SAFETY: the function of that name has this type.
            unsafe { core::mem::transmute($address) };
        // SAFETY: the program's own arguments.
        unsafe { function($($argument),*) }
    }};
}

/// The function of a name, which goes on in a hook with three arguments more, behind its own, of which it has one, two or three.
macro_rules! entry {
    ($name:ident, $hook:ident, 1) => { entry!($name, $hook, "rsi", "rdx", "rcx", "x1", "x2", "x3"); };
    ($name:ident, $hook:ident, 2) => { entry!($name, $hook, "rdx", "rcx", "r8", "x2", "x3", "x4"); };
    ($name:ident, $hook:ident, 3) => { entry!($name, $hook, "rcx", "r8", "r9", "x3", "x4", "x5"); };
    ($name:ident, $hook:ident, $a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal) => {
        /// The program's way in.
        ///
        /// # Safety
        ///
        /// As the function of that name says.
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

        /// The program's way in.
        ///
        /// # Safety
        ///
        /// As the function of that name says.
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

// After the macros that they use.
mod locks;
mod memory;
mod process;

fn caller(stack_pointer: u64, frame_pointer: u64, return_address: u64) -> Caller {
    Caller { return_address, stack_pointer, frame_pointer }
}

/// Begins with the program, if it didn't allocate before.
extern "C" fn begin() {
    next::MALLOC.get();
    drop(enter());
}

extern "C" fn end() {
    raw_file::exits();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
