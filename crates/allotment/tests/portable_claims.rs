//! What a build without the standard library promises, on the host. `tests/wasm/` runs the same in
//! WebAssembly.

extern crate alloc;

#[path = "support/portable_claims.rs"]
mod portable_claims;

#[test]
fn what_needs_no_standard_library_holds() {
    for (claim, check) in portable_claims::CLAIMS {
        println!("{claim}");
        check();
    }
}
