//! Statistics of netdata's allocators cover the whole program, in whichever language its units are.

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
