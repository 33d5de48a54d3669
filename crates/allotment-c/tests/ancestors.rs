//! What the ancestors' names count is a whole program's, whatever it is made of.

mod support;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use support::{installation, limited, package, scratch, text};

fn run(command: &str, arguments: &[&OsStr], flags: &[String]) {
    let output = Command::new(command)
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-fvisibility=hidden", "-pthread"])
        .args(installation().cflags())
        .args(arguments)
        .args(flags)
        .output()
        .expect("there is a compiler");
    assert!(output.status.success(), "{command}: {}", text(&output));
}

#[test]
fn parts_in_c_in_cpp_and_in_a_shared_library_count_together() {
    let sources = package().join("tests/units");
    let made = |name: &str| scratch().join(name);
    let from = |name: &str| sources.join(name);
    let (library, part, program) = (made("libunits.so"), made("part.o"), made("units"));
    let is = |text: &'static str| OsStr::new(text);
    let path = Path::as_os_str;
    run(
        "gcc",
        &[is("-shared"), is("-fPIC"), path(&from("library.c")), is("-o"), path(&library)],
        &installation().shared_flags(),
    );
    run("g++", &[is("-c"), path(&from("part.cpp")), is("-o"), path(&part)], &[]);
    let mut flags = vec![library.display().to_string()];
    flags.push(format!("-Wl,-rpath,{}", scratch().display()));
    flags.extend(installation().shared_flags());
    run("gcc", &[path(&from("main.c")), path(&part), is("-o"), path(&program)], &flags);
    let output = limited(&program).output().expect("there is a shell");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_aral_of_a_library_that_shares_nothing_is_destroyed_by_another_one() {
    let sources = package().join("tests/units");
    let is = |text: &'static str| OsStr::new(text);
    let plugins = ["libone.so", "libother.so"].map(|name| scratch().join(name));
    for plugin in &plugins {
        let source = sources.join("plugin.c");
        let arguments =
            [is("-shared"), is("-fPIC"), source.as_os_str(), is("-o"), plugin.as_os_str()];
        run("gcc", &arguments, &installation().shared_flags());
    }
    let program = scratch().join("loader");
    let source = sources.join("loader.c");
    run("gcc", &[source.as_os_str(), is("-o"), program.as_os_str()], &["-ldl".to_owned()]);
    let output = limited(&program).args(&plugins).output().expect("there is a shell");
    assert!(output.status.success(), "{}", text(&output));
}
