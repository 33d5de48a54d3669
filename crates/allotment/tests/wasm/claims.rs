//! The claims of `support/portable_claims.rs` as a WebAssembly module without the standard library.
//! `.ci/platforms` compiles it, and `run.mjs` calls it.
#![no_std]

extern crate alloc;

#[path = "../support/portable_claims.rs"]
mod portable_claims;

use alloc::format;
use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use portable_claims::CLAIMS;

/// Takes memory from the end of the module's, and never frees it.
struct Growing {
    next: AtomicUsize,
}

const PAGE: usize = 64 << 10;

// SAFETY: blocks are separate parts of memory that was grown for them. The module has one thread.
unsafe impl GlobalAlloc for Growing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let next = match self.next.load(Ordering::Relaxed) {
            0 => memory_size(0) * PAGE,
            next => next,
        };
        let place = || {
            let start = next.checked_next_multiple_of(layout.align())?;
            let end = start.checked_add(layout.size())?;
            let pages = end.div_ceil(PAGE).saturating_sub(memory_size(0));
            (memory_grow(0, pages) != usize::MAX).then_some((start, end))
        };
        let Some((start, end)) = place() else { return null_mut() };
        self.next.store(end, Ordering::Relaxed);
        start as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Growing = Growing { next: AtomicUsize::new(0) };

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    /// Prints a text.
    safe fn print(start: *const u8, len: usize);
}

#[panic_handler]
fn panicked(panic: &core::panic::PanicInfo<'_>) -> ! {
    let text = format!("{panic}");
    print(text.as_ptr(), text.len());
    core::arch::wasm32::unreachable()
}

/// Checks all claims. A claim that does not hold is printed, and the call traps.
#[unsafe(no_mangle)]
pub extern "C" fn check_all() {
    for (claim, check) in CLAIMS {
        print(claim.as_ptr(), claim.len());
        check();
    }
}
