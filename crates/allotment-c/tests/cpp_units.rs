//! A program whose units were compiled with different options.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Compiler, installation, package, report_of, scratch, skip, with_limits};

fn compile(compiler: Compiler, arguments: &[&str], inputs: &[&Path], output: &Path) {
    let command = compiler.command(Path::new("a.cpp"));
    // Without optimisation, inline functions are real functions, of which the linker keeps one
    // copy.
    let done = Command::new(command)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0", "-fPIC", "-pthread"])
        // Clang warns about libraries if nothing is linked.
        .arg("-Wno-unused-command-line-argument")
        .args(installation().cflags())
        .args(arguments)
        .args(inputs)
        .arg("-o")
        .arg(output)
        .args(installation().shared_flags())
        .output()
        .expect("there is a compiler");
    assert!(done.status.success(), "{command}: {}", report_of(&done));
}

#[test]
fn units_without_exceptions_and_type_information_and_with_hidden_symbols_work_together() {
    let source = |name: &str| package().join("tests/units").join(name);
    for compiler in [Compiler::Gcc, Compiler::Clang] {
        if !compiler.is_installed() {
            skip(&format!("{compiler:?}"), "it is not installed");
            continue;
        }
        let built = |name: &str| scratch().join(format!("{compiler:?}-{name}"));
        let (hidden, bare) = (built("libhidden.so"), built("bare.o"));
        compile(compiler, &["-shared", "-fvisibility=hidden"], &[&source("hidden.cpp")], &hidden);
        compile(compiler, &["-c", "-fno-exceptions", "-fno-rtti"], &[&source("bare.cpp")], &bare);
        let mixed = built("mixed.o");
        compile(compiler, &["-c", "-fvisibility=hidden"], &[&source("mixed.cpp")], &mixed);
        // The bare unit first, and last: the order decides which copies of functions are kept.
        for units in [[&bare, &mixed], [&mixed, &bare]] {
            let program = built("mixed");
            let path = format!("-Wl,-rpath,{}", scratch().display());
            compile(compiler, &[&path], &[units[0], units[1], &hidden], &program);
            let output = with_limits(&program).output().expect("there is a shell");
            assert!(output.status.success(), "{}", report_of(&output));
        }
    }
}
