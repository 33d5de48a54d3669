//! Builds the library that `allot record` loads into programs, to be part of the executable.
//!
//! It is another kind of library than what the workspace builds of it, with its own `cfg`, and must not depend on how `allot` itself is
//! built: no sanitizer, no coverage, no debug build in somebody's `malloc`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for path in [
        "allot-recorder/src",
        "allot-recorder/Cargo.toml",
        "allot-trace/src",
        "allot-trace/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed=../{path}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("recorder.so");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || !["x86_64", "aarch64"].contains(&&*architecture)
    {
        // `allot record` says so.
        std::fs::write(&library, []).expect("the build directory can be written to");
        return;
    }
    let target = variable("TARGET");
    let build = out.join("recorder");
    let status = Command::new(variable("CARGO"))
        .args(["rustc", "--package", "allot-recorder", "--lib", "--crate-type", "cdylib"])
        .args(["--release", "--locked", "--quiet", "--target", &target, "--target-dir"])
        .arg(&build)
        .args(["--", "--cfg", "allot_preload"])
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the recorder's library was not built: {status}");
    let built = build.join(target).join("release/liballot_recorder.so");
    std::fs::copy(built, library).expect("the recorder's library can be copied");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
