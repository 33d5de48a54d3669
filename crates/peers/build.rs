//! Compiles the C++ side of the two `std::pmr` rows, and finds out how the other C++ peers are
//! being compiled, so that a row that is not at its best can say so.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(cxx_assertions)");
    #[cfg(feature = "c-peers")]
    c_peers::build();
}

#[cfg(feature = "c-peers")]
mod c_peers {
    pub fn build() {
        println!("cargo::rerun-if-changed=src/arena/pmr.cpp");
        // The flags are pinned: whatever profile our own crates are built with, the resources are
        // inlined into the calls.
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .opt_level(3)
            .debug(false)
            .define("NDEBUG", None)
            .warnings_into_errors(std::env::var_os("CI").is_some())
            .file("src/arena/pmr.cpp")
            .compile("peers_pmr");

        if !without_assertions(&cc::Build::new().cpp(true).get_compiler()) {
            println!("cargo::rustc-cfg=cxx_assertions");
            println!(
                "cargo::warning=snmalloc is built with its assertions, at half its speed: CXXFLAGS \
                 lacks -DNDEBUG. The workspace's .cargo/config.toml sets it; if you set CXXFLAGS \
                 yourself, add -DNDEBUG to it"
            );
        }
    }

    /// Whether the flags that every C++ peer is compiled with switch assertions off. The crate
    /// that builds snmalloc does not do it by itself, not even for a release.
    fn without_assertions(compiler: &cc::Tool) -> bool {
        let mut off = false;
        for flag in compiler.args() {
            match flag.to_str() {
                Some("-DNDEBUG" | "-DNDEBUG=1") => off = true,
                Some("-UNDEBUG") => off = false,
                _ => {}
            }
        }
        off
    }
}
