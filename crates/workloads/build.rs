//! Compiles the rows that are written in C and C++: loops over `allotment.h`, containers over `allotment.hpp`, and the
//! examples of `allotment-c` that are programs which others wrote, where their libraries are found.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for library in ["sqlite", "lua", "expat"] {
        println!("cargo::rustc-check-cfg=cfg(client_{library})");
    }
    #[cfg(feature = "c-peers")]
    c::build();
}

#[cfg(feature = "c-peers")]
mod c {
    use std::env;
    use std::path::{Path, PathBuf};

    /// Loops over the header.
    const HEADER: [&str; 1] = ["src/c/inline.c"];

    pub fn build() {
        // Of `allotment-c`, whose build script says where it is.
        let include = env::var_os("DEP_ALLOTMENT_INCLUDE").map(PathBuf::from);
        let include = include.expect("allotment-c tells where its headers are");
        println!("cargo::rerun-if-changed={}", include.display());

        let mut c = compiler(&include);
        c.std("c11").files(HEADER).compile("workloads_c");
        for file in HEADER {
            println!("cargo::rerun-if-changed={file}");
        }
    }

    /// The flags are pinned: whatever profile our own crates are built with, the header is inlined into the loops.
    fn compiler(include: &Path) -> cc::Build {
        let mut build = cc::Build::new();
        build
            .include(include)
            .opt_level(3)
            .debug(false)
            .define("NDEBUG", None)
            .extra_warnings(true)
            .warnings_into_errors(env::var_os("CI").is_some());
        build
    }
}
