//! Tells the build script of `allotment-advisor` where these sources are.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::metadata=root={root}");
}
