//! Says into the wait for a release build what is being built and what is left out.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let with = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if !with("ANNOUNCE") || env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let text = if with("ALL_PEERS") {
        "building the tour with all peers: jemalloc and tcmalloc take minutes"
    } else {
        "building the tour (about a minute on two cores); peers that take minutes are left out, \
         --features all-peers has them"
    };
    println!("cargo::warning={text}");
}
