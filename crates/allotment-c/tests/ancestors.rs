//! The functions of netdata's names are symbols, and their statistics cover the whole program, in
//! whichever language its units are.

mod support;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use support::{installation, package, report_of, scratch, with_limits};

fn run(command: &str, arguments: &[&OsStr], flags: &[String]) {
    let output = Command::new(command)
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-fvisibility=hidden", "-pthread"])
        .args(installation().cflags())
        .args(arguments)
        .args(flags)
        .output()
        .expect("there is a compiler");
    assert!(output.status.success(), "{command}: {}", report_of(&output));
}

#[test]
fn units_in_c_in_cpp_and_in_a_shared_library_are_counted_together() {
    let sources = package().join("tests/units");
    let built = |name: &str| scratch().join(name);
    let from = |name: &str| sources.join(name);
    let (library, part, program) = (built("libunits.so"), built("part.o"), built("units"));
    let word = |text: &'static str| OsStr::new(text);
    let path = Path::as_os_str;
    run(
        "gcc",
        &[word("-shared"), word("-fPIC"), path(&from("library.c")), word("-o"), path(&library)],
        &installation().shared_flags(),
    );
    run("g++", &[word("-c"), path(&from("part.cpp")), word("-o"), path(&part)], &[]);
    let mut flags = vec![library.display().to_string()];
    flags.push(format!("-Wl,-rpath,{}", scratch().display()));
    flags.extend(installation().shared_flags());
    run("gcc", &[path(&from("main.c")), path(&part), word("-o"), path(&program)], &flags);
    let output = with_limits(&program).output().expect("there is a shell");
    assert!(output.status.success(), "{}", report_of(&output));
}

#[test]
fn an_aral_of_a_library_that_shares_nothing_can_be_destroyed_by_another() {
    let sources = package().join("tests/units");
    let word = |text: &'static str| OsStr::new(text);
    let plugins = ["libone.so", "libother.so"].map(|name| scratch().join(name));
    for plugin in &plugins {
        let source = sources.join("plugin.c");
        let arguments =
            [word("-shared"), word("-fPIC"), source.as_os_str(), word("-o"), plugin.as_os_str()];
        run("gcc", &arguments, &installation().shared_flags());
    }
    let program = scratch().join("loader");
    let source = sources.join("loader.c");
    run("gcc", &[source.as_os_str(), word("-o"), program.as_os_str()], &["-ldl".to_owned()]);
    let output = with_limits(&program).args(&plugins).output().expect("there is a shell");
    assert!(output.status.success(), "{}", report_of(&output));
}

/// Compiles, links and runs a program with the functions' declarations before or after the header.
fn check_declared(compiler: &str, standard: &str, before: bool, optimise: &str, link: &[String]) {
    let sources = package().join("tests/units");
    let (declares, symbols) = (sources.join("declares.cc"), sources.join("symbols.c"));
    let (object, program) = (scratch().join("declares.o"), scratch().join("symbols"));
    let word = |text: &'static str| OsStr::new(text);
    let arguments = [word("-c"), declares.as_os_str(), word("-o"), object.as_os_str()];
    run("g++", &arguments, &[]);
    let language = if compiler == "g++" { "c++" } else { "c" };
    let mut flags = vec!["-x".to_owned(), language.to_owned(), symbols.display().to_string()];
    flags.extend(["-x", "none"].map(str::to_owned));
    flags.extend([object.display().to_string(), "-o".to_owned(), program.display().to_string()]);
    flags.extend([standard, optimise].map(str::to_owned));
    if before {
        flags.push("-DDECLARED_BEFORE".to_owned());
    }
    flags.extend(link.iter().cloned());
    run(compiler, &[], &flags);
    let output = with_limits(&program).output().expect("there is a shell");
    assert!(output.status.success(), "{compiler} {flags:?}: {}", report_of(&output));
}

#[test]
fn code_that_only_declares_the_functions_links_and_no_declaration_clashes() {
    let libraries = [installation().shared_flags(), installation().static_flags()];
    for (compiler, standard) in [("gcc", "-std=gnu11"), ("g++", "-std=c++17")] {
        for before in [false, true] {
            // Without optimisation, each call needs the symbol.
            for optimise in ["-O0", "-O2"] {
                for library in &libraries {
                    check_declared(compiler, standard, before, optimise, library);
                }
            }
        }
    }
}

#[test]
fn a_program_may_have_its_own_functions_of_these_names() {
    let source = package().join("tests/units/own_list.c");
    let program = scratch().join("own_list");
    for library in [installation().shared_flags(), installation().static_flags()] {
        run("gcc", &[source.as_os_str(), OsStr::new("-o"), program.as_os_str()], &library);
        let output = with_limits(&program).output().expect("there is a shell");
        assert!(output.status.success(), "{library:?}: {}", report_of(&output));
    }
}
