//! Compiles the functions of netdata's names, and tells dependent build scripts where the headers
//! are.

use std::path::Path;

/// The files of `netdata`.
const FILES: [&str; 11] = [
    "failures",
    "locks",
    "symbols",
    "list",
    "onewayalloc",
    "pages",
    "statistics",
    "threads",
    "aral",
    "by_size",
    "tests",
];

fn main() {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo");
    let package = Path::new(&package);
    println!("cargo::metadata=include={}", package.join("include").display());
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed=netdata");
    let mut build = cc::Build::new();
    build
        .files(FILES.map(|file| package.join("netdata").join(file).with_extension("c")))
        .std("gnu11")
        // In every profile: the inline functions of the headers are inlined here, too.
        .opt_level(2)
        .debug(false)
        .flag("-fvisibility=hidden")
        .flag("-ffunction-sections")
        .flag("-fdata-sections")
        .extra_warnings(true)
        .warnings_into_errors(std::env::var_os("CI").is_some())
        .compile("allotment_netdata");
}
