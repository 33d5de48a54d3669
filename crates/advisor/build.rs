//! Builds the library that `allot record` loads into programs. `allot` embeds it.
//!
//! The recorder is compiled a second time, as a `cdylib` with a `cfg` of its own, and always in the
//! same way: a sanitizer, coverage or a debug build of `allot` must not change another program's
//! `malloc`. This script writes the manifest for that build, so that it works without a workspace
//! too, when `allot` is installed from its package.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by the build scripts of both crates.
    let recorder = PathBuf::from(variable("DEP_ALLOTMENT_RECORDER_ROOT"));
    let trace = PathBuf::from(variable("DEP_ALLOTMENT_TRACE_ROOT"));
    for root in [&recorder, &trace] {
        println!("cargo::rerun-if-changed={}", root.join("src").display());
        println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("recorder.so");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || !["x86_64", "aarch64"].contains(&&*architecture)
    {
        // `allot record` reports that there is no recorder.
        write(&library, "");
        return;
    }
    let package = out.join("recorder-package");
    fs::create_dir_all(&package).expect("the build directory can be written to");
    write(&package.join("Cargo.toml"), &manifest(&recorder, &trace));
    if let Some(lock) = lock_file() {
        fs::copy(lock, package.join("Cargo.lock")).expect("the lock file can be copied");
    }
    let target = variable("TARGET");
    let build = out.join("recorder");
    let status = Command::new(variable("CARGO"))
        .args(["rustc", "--lib", "--release", "--offline", "--quiet", "--target", &target])
        .arg("--target-dir")
        .arg(&build)
        .args(["--", "--cfg", "allot_preload"])
        .current_dir(&package)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the recorder's library was not built: {status}");
    let built = build.join(target).join("release/librecorder.so");
    fs::copy(built, library).expect("the recorder's library can be copied");
}

/// The manifest of the recorder's sources as a package of their own. Its only dependency from a
/// registry is that of the recorder's manifest.
fn manifest(recorder: &Path, trace: &Path) -> String {
    format!(
        r#"[package]
name = "allotment-recorder-preload"
version = "0.0.0"
edition = "2024"

[lib]
name = "recorder"
path = "{}/src/lib.rs"
crate-type = ["cdylib"]

[dependencies]
trace-format = {{ package = "allotment-trace", path = "{}", default-features = false }}
gimli = {{ version = "{}", default-features = false, features = ["read-core"] }}

[profile.release]
panic = "abort"
lto = "fat"
codegen-units = 1
strip = "debuginfo"

[workspace]
"#,
        recorder.display(),
        trace.display(),
        variable("DEP_ALLOTMENT_RECORDER_GIMLI"),
    )
}

/// The lock file of the workspace. The package's own lock file does not serve: `cargo install`
/// without `--locked` downloads other versions than those in it, and this build is offline.
fn lock_file() -> Option<PathBuf> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    root.ancestors().skip(1).map(|folder| folder.join("Cargo.lock")).find(|file| file.exists())
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("the build directory can be written to");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
