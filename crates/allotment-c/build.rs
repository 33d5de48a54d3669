//! Tells dependent build scripts where the headers are.

fn main() {
    let include =
        std::path::Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
            .join("include");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rerun-if-changed=include");
}
