//! A program of units that were compiled with different options.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Compiler, installation, limited, package, scratch, skip, text};

fn compile(compiler: Compiler, arguments: &[&str], inputs: &[&Path], output: &Path) {
    let command = compiler.command(Path::new("a.cpp"));
    // Unoptimised, so that inline functions are functions, of which the linker keeps one copy.
    let done = Command::new(command)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0", "-fPIC", "-pthread"])
        // Clang warns of libraries where nothing is linked.
        .arg("-Wno-unused-command-line-argument")
        .args(installation().cflags())
        .args(arguments)
        .args(inputs)
        .arg("-o")
        .arg(output)
        .args(installation().shared_flags())
        .output()
        .expect("there is a compiler");
    assert!(done.status.success(), "{command}: {}", text(&done));
}

#[test]
fn units_without_exceptions_and_type_information_and_with_hidden_symbols_work_together() {
    let source = |name: &str| package().join("tests/units").join(name);
    for compiler in [Compiler::Gcc, Compiler::Clang] {
        if !compiler.is_there() {
            skip(&format!("{compiler:?}"), "it is not installed");
            continue;
        }
        let made = |name: &str| scratch().join(format!("{compiler:?}-{name}"));
        let (hidden, bare) = (made("libhidden.so"), made("bare.o"));
        compile(compiler, &["-shared", "-fvisibility=hidden"], &[&source("hidden.cpp")], &hidden);
        compile(compiler, &["-c", "-fno-exceptions", "-fno-rtti"], &[&source("bare.cpp")], &bare);
        let mixed = made("mixed.o");
        compile(compiler, &["-c", "-fvisibility=hidden"], &[&source("mixed.cpp")], &mixed);
        // The bare unit first, and last: whose functions are kept depends on that.
        for units in [[&bare, &mixed], [&mixed, &bare]] {
            let program = made("mixed");
            let path = format!("-Wl,-rpath,{}", scratch().display());
            compile(compiler, &[&path], &[units[0], units[1], &hidden], &program);
            let output = limited(&program).output().expect("there is a shell");
            assert!(output.status.success(), "{}", text(&output));
        }
    }
}
