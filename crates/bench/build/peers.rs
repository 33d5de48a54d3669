//! Compiles the C++ side of the two `std::pmr` rows and, if the headers of Boost are found, of
//! `boost-pool`. It also checks how the other C++ peers are compiled, so that a row that does not
//! run at its best can say so.

pub fn build() {
    compile("src/peers/arena/pmr.cpp", "peers_pmr");
    if has_boost_pool() {
        println!("cargo::rustc-cfg=boost_pool");
        compile("src/peers/fixed_size/boost_pool.cpp", "peers_boost_pool");
    }

    if !without_assertions(&cc::Build::new().cpp(true).get_compiler()) {
        println!("cargo::rustc-cfg=cxx_assertions");
        println!(
            "cargo::warning=snmalloc is built with its assertions, at half its speed: CXXFLAGS \
             lacks -DNDEBUG. The workspace's .cargo/config.toml sets it; if you set CXXFLAGS \
             yourself, add -DNDEBUG to it"
        );
    }
}

/// The flags are fixed: headers are inlined into the calls for every profile of our own crates.
fn compile(file: &str, library: &str) {
    println!("cargo::rerun-if-changed={file}");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .debug(false)
        .define("NDEBUG", None)
        .warnings_into_errors(std::env::var_os("CI").is_some())
        .file(file)
        .compile(library);
}

/// Whether the compiler finds the headers of Boost.Pool. Cargo does not notice if they are
/// installed later: this package must then be compiled again.
fn has_boost_pool() -> bool {
    println!("cargo::rerun-if-env-changed=CPLUS_INCLUDE_PATH");
    let file = "src/peers/fixed_size/boost_pool_found.cpp";
    println!("cargo::rerun-if-changed={file}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").cargo_warnings(false).file(file);
    build
        .try_expand()
        .is_ok_and(|text| String::from_utf8_lossy(&text).contains("boost_pool_found;"))
}

/// Whether the flags of every C++ peer turn assertions off. The crate that builds snmalloc does
/// not do so itself, not even for a release.
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
