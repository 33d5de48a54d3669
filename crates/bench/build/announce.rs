//! What the build of the tour contains, for the user who waits for it.

use std::env;

pub fn announce() {
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
