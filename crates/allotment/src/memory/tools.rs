//! Reports to AddressSanitizer and Valgrind which memory is free.
//!
//! A memory tool sees one chunk where the library sees many objects and free bytes. If a tool is
//! present, allocators are checked (see `checked/`) and report here which bytes may be accessed.
//! The tools are detected at run time: `cfg(sanitize)` is not stable, and Valgrind has no build
//! flag.
//!
//! # Invariants
//!
//! 1. The functions change only the tool's own shadow state, never the program's memory. So they
//!    are safe to call for any range. A wrong range can only cause a wrong report.
//! 2. The two assembly statements preserve every register that they do not declare, and access no
//!    memory except the request block that is passed to them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

/// The tool that the process runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tool {
    /// No memory tool.
    None = 1,
    /// AddressSanitizer is linked into the process.
    AddressSanitizer = 2,
    /// The process runs under Valgrind's Memcheck.
    Valgrind = 3,
}

/// The tool, or 0 if it was not looked for yet.
static FOUND: AtomicU8 = AtomicU8::new(0);

/// The tool that is present, which is detected once. Relaxed: every thread finds the same.
#[inline]
pub fn tool() -> Tool {
    // Miri checks every access itself, and runs no assembly.
    if cfg!(miri) {
        return Tool::None;
    }
    match FOUND.load(Ordering::Relaxed) {
        1 => Tool::None,
        2 => Tool::AddressSanitizer,
        3 => Tool::Valgrind,
        _ => find(),
    }
}

#[cold]
fn find() -> Tool {
    let found = if sanitizers::poison().is_some() {
        Tool::AddressSanitizer
    } else if valgrind::memcheck() {
        Tool::Valgrind
    } else {
        Tool::None
    };
    FOUND.store(found as u8, Ordering::Relaxed);
    found
}

/// Whether ThreadSanitizer is linked into the process. It does not know the kernel's fences on other
/// threads, and would report what they order.
pub fn has_thread_sanitizer() -> bool {
    !cfg!(miri) && sanitizers::thread_sanitizer()
}

/// Whether `ALLOTMENT_PASSTHROUGH` is set to a value that is neither empty nor 0. Read once.
pub fn passthrough() -> bool {
    static READ: AtomicU8 = AtomicU8::new(0);
    match READ.load(Ordering::Relaxed) {
        0 => {
            let set = std::env::var_os("ALLOTMENT_PASSTHROUGH")
                .is_some_and(|value| !value.is_empty() && value != "0");
            READ.store(if set { 2 } else { 1 }, Ordering::Relaxed);
            set
        }
        read => read == 2,
    }
}

/// Declares these bytes free: an access is an error.
pub fn forbid(start: NonNull<u8>, len: usize) {
    match tool() {
        Tool::None => {}
        Tool::AddressSanitizer => sanitizers::call(sanitizers::poison(), start, len),
        Tool::Valgrind => valgrind::request(valgrind::MAKE_MEM_NOACCESS, start.addr().get(), len),
    }
}

/// Declares these bytes part of an object, not yet written.
pub fn allow(start: NonNull<u8>, len: usize) {
    match tool() {
        Tool::None => {}
        Tool::AddressSanitizer => {
            sanitizers::call(sanitizers::unpoison(), start, len);
        }
        Tool::Valgrind => valgrind::request(valgrind::MAKE_MEM_UNDEFINED, start.addr().get(), len),
    }
}

/// Declares these bytes accessible and written.
pub fn allow_defined(start: NonNull<u8>, len: usize) {
    match tool() {
        Tool::Valgrind => valgrind::request(valgrind::MAKE_MEM_DEFINED, start.addr().get(), len),
        Tool::None | Tool::AddressSanitizer => allow(start, len),
    }
}

/// Adds a mapping to AddressSanitizer's search for leaks: what it refers to is no leak. By itself
/// the search covers blocks of malloc, and no mappings. It skips bytes that can't be read.
pub fn add_leak_root(start: NonNull<u8>, len: usize) {
    if tool() == Tool::AddressSanitizer {
        sanitizers::call(sanitizers::register_root(), start, len);
    }
}

/// Undoes [`add_leak_root`] for a mapping that is about to end.
pub fn remove_leak_root(start: NonNull<u8>, len: usize) {
    if tool() == Tool::AddressSanitizer {
        sanitizers::call(sanitizers::unregister_root(), start, len);
    }
}

mod sanitizers {
    use core::ptr::NonNull;

    pub type RangeCall = unsafe extern "C" fn(*const u8, usize);

    // Weak references, which are null if AddressSanitizer is not linked in. Rust has no stable way
    // to declare them. Our own names are weak too, because a program may link two versions of this
    // library.
    #[cfg(not(miri))]
    core::arch::global_asm!(
        ".weak __asan_poison_memory_region",
        ".weak __asan_unpoison_memory_region",
        ".pushsection .data.rel.ro.allotment_asan, \"aw\"",
        ".balign 8",
        ".hidden allotment_asan_poison",
        ".weak allotment_asan_poison",
        "allotment_asan_poison: .quad __asan_poison_memory_region",
        ".hidden allotment_asan_unpoison",
        ".weak allotment_asan_unpoison",
        "allotment_asan_unpoison: .quad __asan_unpoison_memory_region",
        ".weak __lsan_register_root_region",
        ".weak __lsan_unregister_root_region",
        ".hidden allotment_lsan_register",
        ".weak allotment_lsan_register",
        "allotment_lsan_register: .quad __lsan_register_root_region",
        ".hidden allotment_lsan_unregister",
        ".weak allotment_lsan_unregister",
        "allotment_lsan_unregister: .quad __lsan_unregister_root_region",
        ".weak __tsan_init",
        ".hidden allotment_tsan_init",
        ".weak allotment_tsan_init",
        "allotment_tsan_init: .quad __tsan_init",
        ".popsection",
    );

    unsafe extern "C" {
        safe static allotment_asan_poison: Option<RangeCall>;
        safe static allotment_asan_unpoison: Option<RangeCall>;
        safe static allotment_lsan_register: Option<RangeCall>;
        safe static allotment_lsan_unregister: Option<RangeCall>;
        safe static allotment_tsan_init: Option<unsafe extern "C" fn()>;
    }

    pub fn thread_sanitizer() -> bool {
        allotment_tsan_init.is_some()
    }

    pub fn poison() -> Option<RangeCall> {
        allotment_asan_poison
    }

    pub fn unpoison() -> Option<RangeCall> {
        allotment_asan_unpoison
    }

    pub fn register_root() -> Option<RangeCall> {
        allotment_lsan_register
    }

    pub fn unregister_root() -> Option<RangeCall> {
        allotment_lsan_unregister
    }

    pub fn call(function: Option<RangeCall>, start: NonNull<u8>, len: usize) {
        if let Some(function) = function {
            // SAFETY: the function is AddressSanitizer's, and changes only the tool's own state
            // (invariant 1).
            unsafe { function(start.as_ptr(), len) }
        }
    }
}

mod valgrind {
    // Valgrind's client requests, as its manual and public header describe them: a register
    // rotation that has no effect on a processor and that Valgrind recognises, and a request block.
    const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;
    pub const MAKE_MEM_NOACCESS: usize = MEMCHECK;
    pub const MAKE_MEM_UNDEFINED: usize = MEMCHECK + 1;
    pub const MAKE_MEM_DEFINED: usize = MEMCHECK + 2;

    /// Whether Memcheck answers. Valgrind's other tools, such as its profilers, should see the
    /// program unchecked.
    pub fn memcheck() -> bool {
        let defined = 0usize;
        let block = [MAKE_MEM_DEFINED, (&raw const defined).addr(), size_of::<usize>(), 0, 0, 0];
        client_request(&block) != 0
    }

    pub fn request(code: usize, start: usize, len: usize) {
        client_request(&[code, start, len, 0, 0, 0]);
    }

    #[cfg(target_arch = "x86_64")]
    fn client_request(block: &[usize; 6]) -> usize {
        let mut answer = 0usize;
        // SAFETY: the rotations add up to 128 bits, which leaves `rdi` as it was. The exchange of
        // `rbx` with itself has no effect. Valgrind reads the block and writes `rdx` (invariant 2).
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                inout("rdx") answer,
                in("rax") block.as_ptr(),
                inout("rdi") 0usize => _,
                options(nostack),
            );
        }
        answer
    }

    #[cfg(target_arch = "aarch64")]
    fn client_request(block: &[usize; 6]) -> usize {
        let mut answer = 0usize;
        // SAFETY: the rotations add up to 128 bits, which leaves `x12` as it was. The instruction
        // `orr x10, x10, x10` has no effect. Valgrind reads the block and writes `x3` (invariant
        // 2).
        unsafe {
            core::arch::asm!(
                "ror x12, x12, #3",
                "ror x12, x12, #13",
                "ror x12, x12, #51",
                "ror x12, x12, #61",
                "orr x10, x10, x10",
                inout("x3") answer,
                in("x4") block.as_ptr(),
                inout("x12") 0usize => _,
                options(nostack),
            );
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_tool_stays_the_same() {
        assert_eq!(tool(), tool());
        if std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_some_and(|name| name == "valgrind") {
            assert_eq!(tool(), Tool::Valgrind);
        }
        if std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_some_and(|name| name == "asan") {
            assert_eq!(tool(), Tool::AddressSanitizer);
        }
    }

    #[test]
    fn reporting_to_a_tool_changes_no_byte() {
        let mut bytes = [7u8; 64];
        let start = NonNull::from(&mut bytes).cast::<u8>();
        forbid(start, 64);
        allow_defined(start, 64);
        assert_eq!(bytes, [7u8; 64]);
    }
}
