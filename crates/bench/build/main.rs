//! Compiles the parts in C and C++: of the peers ([`peers`]), and of the workloads ([`workloads`]).
//! Says during a release build of the tour which peers are left out ([`announce`]).

mod announce;
#[cfg(feature = "fast-peers")]
mod peers;
#[cfg(all(feature = "catalogue", feature = "fast-peers"))]
mod workloads;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-check-cfg=cfg(cxx_assertions)");
    println!("cargo::rustc-check-cfg=cfg(boost_pool)");
    for library in ["sqlite", "lua", "expat"] {
        println!("cargo::rustc-check-cfg=cfg(client_{library})");
    }
    announce::announce();
    #[cfg(feature = "fast-peers")]
    peers::build();
    #[cfg(all(feature = "catalogue", feature = "fast-peers"))]
    workloads::build();
}
