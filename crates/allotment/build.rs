//! Sets `cfg(system_memory)` where the library takes memory from the system's own calls.
//!
//! Everything that maps pages, runs code at a thread's end or a fork, or waits for other threads
//! needs this cfg. Without it the library is `Arena`, `FreeList`, their collections, budgets and
//! sources (docs/src/platforms.md).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(system_memory)");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_supported = target("OS") == "linux"
        && target("POINTER_WIDTH") == "64"
        && ["x86_64", "aarch64"].contains(&target("ARCH").as_str());
    if is_supported && std::env::var_os("CARGO_FEATURE_STD").is_some() {
        println!("cargo::rustc-cfg=system_memory");
    }
}
