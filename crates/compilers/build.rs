//! Looks for the C++ compiler that the peers need. Cargo runs this script in the first seconds of a
//! build, long before the crates that compile C++, whose errors name no remedy. (A C compiler is
//! always there: rustc links with it.)

use std::env;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    if env::var("HOST").as_ref() != Ok(&target) {
        // A cross compiler's name is for the crate `cc` to guess.
        return;
    }
    let compiler = named(&target).unwrap_or_else(|| "c++".into());
    if !runs(&compiler) {
        println!(
            "cargo::error=no C++ compiler: '{compiler}' can't be run. The peers snmalloc and \
             std::pmr are compiled with it. Install g++, or add --no-default-features: everything \
             works then but the rows of mimalloc, snmalloc, rpmalloc and std::pmr"
        );
    }
}

/// The compiler that the environment names, where the crate `cc` would look for it.
fn named(target: &str) -> Option<String> {
    let underscores = target.replace('-', "_");
    let names = [&format!("CXX_{target}"), &format!("CXX_{underscores}"), "HOST_CXX", "CXX"];
    names.into_iter().find_map(|name| {
        println!("cargo::rerun-if-env-changed={name}");
        env::var(name).ok().filter(|value| !value.trim().is_empty())
    })
}

/// Whether the compiler can be started. The variable may hold a wrapper and flags: `ccache g++`.
fn runs(compiler: &str) -> bool {
    let Some(program) = compiler.split_whitespace().next() else { return false };
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
