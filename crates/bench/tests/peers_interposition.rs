//! No peer takes the place of the C library's malloc or of C++'s `operator new`, although this
//! program links all of them.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::alloc::Layout;
use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

use bench::peers::{
    About, Allocator, FixedSize, FixedSizeLocal, FixedSizeVisitor, OBJECT, Service, Task,
    TaskVisitor, global_calls, known,
};

/// The object file that holds an address, as the dynamic linker knows it.
fn home(address: *const c_void) -> String {
    // SAFETY: all zeros is a value of this structure of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is ours.
    assert_ne!(unsafe { libc::dladdr(address, &mut info) }, 0, "{address:?} is in no object file");
    // SAFETY: after success, the name is a string that lives as long as the object file.
    unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
}

/// What a name stands for to every object file of this process.
fn resolve(name: &str) -> *const c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: a terminated string, and the handle that means the default search order.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!address.is_null(), "nothing defines {name:?}");
    address
}

/// Makes sure that all peers are linked, and have been used, before anything is looked up.
fn use_all_peers() {
    for about in known() {
        if about.serves(Service::Tasks) {
            Allocate { objects: 10 }.with(about.name).unwrap();
        }
        if about.serves(Service::FixedSize) {
            AllocateFixedSize { objects: 10 }.with(about.name).unwrap();
        }
        if let Some((_, calls)) = global_calls(about.name.as_bytes()) {
            let layout = Layout::new::<u64>();
            // SAFETY: the size is not zero; the block is freed once, with its layout.
            unsafe { (calls.dealloc)((calls.alloc_zeroed)(layout), layout) };
        }
    }
}

#[test]
fn malloc_is_the_c_librarys() {
    use_all_peers();
    // What Rust code calls in this program.
    let called: [(&str, *const c_void); 8] = [
        ("malloc", libc::malloc as *const c_void),
        ("free", libc::free as *const c_void),
        ("calloc", libc::calloc as *const c_void),
        ("realloc", libc::realloc as *const c_void),
        ("posix_memalign", libc::posix_memalign as *const c_void),
        ("aligned_alloc", libc::aligned_alloc as *const c_void),
        ("memalign", libc::memalign as *const c_void),
        ("malloc_usable_size", libc::malloc_usable_size as *const c_void),
    ];
    for (name, address) in called {
        assert!(home(address).contains("libc.so"), "{name} is called in {}", home(address));
        let resolved = resolve(name);
        assert!(home(resolved).contains("libc.so"), "{name} resolves to {}", home(resolved));
        assert_eq!(address, resolved, "{name}");
    }
}

#[cfg(feature = "fast-peers")]
#[test]
fn operator_new_is_the_cpp_librarys() {
    unsafe extern "C" {
        fn peers_operator_new() -> *const c_void;
        fn peers_operator_delete() -> *const c_void;
    }

    use_all_peers();
    // SAFETY: they return the addresses that C++ code of this program calls.
    let called = unsafe { [peers_operator_new(), peers_operator_delete()] };
    for address in called {
        assert!(home(address).contains("libstdc++.so"), "C++ code calls {}", home(address));
    }
    // new, delete, sized delete, and the aligned ones; then those of arrays.
    for name in [
        "_Znwm",
        "_ZdlPv",
        "_ZdlPvm",
        "_ZnwmSt11align_val_t",
        "_ZdlPvSt11align_val_t",
        "_ZdlPvmSt11align_val_t",
        "_Znam",
        "_ZdaPv",
    ] {
        let resolved = resolve(name);
        assert!(home(resolved).contains("libstdc++.so"), "{name} resolves to {}", home(resolved));
    }
    assert_eq!(called, [resolve("_Znwm"), resolve("_ZdlPv")]);
}

/// By how much the C library's malloc says to have more in use while a task holds `objects` of 64
/// bytes.
struct Allocate {
    objects: usize,
}

impl TaskVisitor for Allocate {
    type Output = usize;

    fn visit<A: Allocator>(self, _: &'static About) -> usize {
        let layout = Layout::new::<[u64; 8]>();
        let mut blocks: Vec<NonNull<u8>> = Vec::with_capacity(self.objects);
        let mut allocator = A::start();
        let before = in_use();
        let task = allocator.begin();
        for _ in 0..self.objects {
            let block = task.alloc(layout);
            // SAFETY: the block is as long as its layout.
            unsafe { block.write_bytes(1, layout.size()) };
            blocks.push(block);
        }
        let after = in_use();
        if !<A::Task<'_> as Task>::FREED_TOGETHER {
            for block in blocks {
                // SAFETY: each block is live, with this layout, and freed once.
                unsafe { task.free(block, layout) };
            }
        }
        after.saturating_sub(before)
    }
}

/// The same for objects of one size that belong to no task.
struct AllocateFixedSize {
    objects: usize,
}

impl FixedSizeVisitor for AllocateFixedSize {
    type Output = usize;

    fn visit<A: FixedSize>(self, _: &'static About) -> usize {
        let mut objects = Vec::with_capacity(self.objects);
        let before = in_use();
        let allocator = A::new(OBJECT);
        let local = allocator.local();
        objects.extend((0..self.objects).map(|word| local.alloc(word as u64)));
        let after = in_use();
        for object in objects {
            // SAFETY: each object is live, and freed once.
            unsafe { local.free(object) };
        }
        after.saturating_sub(before)
    }
}

/// Bytes that the C library's malloc has given out, in all its arenas and mapped by themselves.
fn in_use() -> usize {
    // SAFETY: may be called at any time.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

#[test]
fn what_a_peer_gives_out_does_not_come_from_the_c_library_unless_the_row_is_built_on_it() {
    const OBJECTS: usize = 100_000;
    const BYTES: usize = OBJECTS * 64;

    for about in known() {
        let on_the_c_library = matches!(
            about.name,
            "glibc"
                | "bumpalo"
                | "bumpalo-reset"
                | "bump-scope"
                | "multitude"
                | "multitude-reset"
                | "typed-arena"
                | "pmr-monotonic"
                | "pmr-pool"
                | "slab"
                | "sharded-slab"
                | "boost-pool"
        );
        let tasks = about
            .serves(Service::Tasks)
            .then(|| Allocate { objects: OBJECTS }.with(about.name).unwrap());
        let fixed_size = about
            .serves(Service::FixedSize)
            .then(|| AllocateFixedSize { objects: OBJECTS }.with(about.name).unwrap());
        for more in [tasks, fixed_size].into_iter().flatten() {
            // Other tests of this file run at the same time and allocate little.
            if on_the_c_library {
                assert!(more >= BYTES * 9 / 10, "{}: only {more} bytes of {BYTES}", about.name);
            } else {
                assert!(more < BYTES / 10, "{}: {more} bytes of {BYTES}", about.name);
            }
        }
    }
}
