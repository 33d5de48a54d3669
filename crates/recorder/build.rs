//! Tells the build script of `allotment-advisor`, which compiles these sources a second time, where
//! they are and which gimli they need.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("cargo has read it");
    // `gimli = { version = "…"`, or `[dependencies.gimli]` and `version = "…"` in a package.
    let after = manifest.split("gimli").nth(1).expect("gimli is a dependency");
    let version = after.split("version = \"").nth(1).and_then(|rest| rest.split('"').next());
    println!("cargo::metadata=gimli={}", version.expect("gimli's version"));
    println!("cargo::metadata=root={}", root.display());
}
