//! Compiles the rows that are written in C and C++: loops over `allotment.h`, containers over
//! `allotment.hpp`, and the examples of `allotment-c` that use libraries of other projects, if
//! these libraries are found.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loops over the header.
const HEADER: [&str; 2] = ["src/workloads/c/inline.c", "src/workloads/c/stress.c"];

/// Containers over the C++ headers.
const CONTAINERS: &str = "src/workloads/c/containers.cpp";

pub fn build() {
    // The include directory of `allotment-c`, which its build script reports.
    let include = env::var_os("DEP_ALLOTMENT_INCLUDE").map(PathBuf::from);
    let include = include.expect("allotment-c tells where its headers are");
    println!("cargo::rerun-if-changed={}", include.display());

    let mut c = compiler(&include);
    c.std("c11").files(HEADER).compile("workloads_c");
    let mut cpp = compiler(&include);
    cpp.cpp(true).std("c++17").file(CONTAINERS).compile("workloads_containers");
    for file in HEADER.iter().chain([&CONTAINERS]) {
        println!("cargo::rerun-if-changed={file}");
    }
    rerun_when_packages_change();
    for one in &CLIENTS {
        client(one, &include);
    }
}

/// A library of another project, and the example of `allotment-c` that uses it.
struct Client {
    name: &'static str,
    /// The package's names in different distributions.
    packages: &'static [&'static str],
    versions: std::ops::Range<&'static str>,
}

const CLIENTS: [Client; 3] = [
    Client { name: "sqlite", packages: &["sqlite3"], versions: "3.24".."4" },
    Client {
        name: "lua",
        packages: &["lua5.4", "lua-5.4", "lua54", "lua"],
        versions: "5.4".."5.5",
    },
    Client { name: "expat", packages: &["expat"], versions: "2.1".."3" },
];

/// Makes Cargo run this script again if a folder that pkg-config searches changes, as it does when a
/// library is installed or removed.
fn rerun_when_packages_change() {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let asked = Command::new(program).args(["--variable", "pc_path", "pkg-config"]).output();
    let folders = asked.map(|output| output.stdout).unwrap_or_default();
    for folder in String::from_utf8_lossy(&folders).trim().split(':') {
        // Cargo would run the script each time for a folder that is not there.
        if Path::new(folder).is_dir() {
            println!("cargo::rerun-if-changed={folder}");
        }
    }
}

/// Compiles it and links the library, if that is found.
fn client(client: &Client, include: &Path) {
    let find = |package: &&str| {
        pkg_config::Config::new()
            .range_version(client.versions.clone())
            .cargo_metadata(false)
            .probe(package)
            .ok()
    };
    let Some(library) = client.packages.iter().find_map(find) else { return };
    let examples = include.join("../examples/clients");
    println!("cargo::rerun-if-changed={}", examples.display());
    compiler(include)
        .std("c11")
        .includes(&library.include_paths)
        .define("CLIENT_WITHOUT_MAIN", None)
        .file(examples.join(format!("{}.c", client.name)))
        .compile(&format!("workloads_client_{}", client.name));
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in &library.libs {
        // Static if there is a static library, so that no call goes through a table.
        let archive = format!("lib{name}.a");
        let is_static = library.link_paths.iter().any(|path| path.join(&archive).exists());
        let kind = if is_static { "static:-bundle" } else { "dylib" };
        println!("cargo::rustc-link-lib={kind}={name}");
    }
    println!("cargo::rustc-cfg=client_{}", client.name);
}

/// The flags are fixed: the header is inlined into the loops for every profile of our own
/// crates.
fn compiler(include: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include(include)
        .opt_level(3)
        .debug(false)
        .define("NDEBUG", None)
        .extra_warnings(true)
        .warnings_into_errors(env::var_os("CI").is_some());
    build
}
