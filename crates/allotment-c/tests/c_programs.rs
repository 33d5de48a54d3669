//! Builds each program of `tests/c` (C11) and `tests/cpp` (C++17) against an installation, and runs
//! it in several configurations: with GCC and Clang, the shared and the static library,
//! AddressSanitizer with UndefinedBehaviorSanitizer, Valgrind, and every allocator hardened.
//!
//! A program passes if it exits with 0. With the argument `--cases`, it may print lines
//! `case<TAB>text`. It is then run once for each, with the case as its argument, and must end by
//! SIGABRT with that text on standard error.
//!
//! A comment `skip: address-sanitizer: reason` in a program (or `valgrind`, `hardened`, `gcc`,
//! `clang`) skips that configuration, and the reason is printed. With `ALLOT_C_PROGRAMS=text` in
//! the environment, only programs with that text in their names are run.

mod support;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use support::{
    Compiler, installation, is_installed, package, report_of, scratch, skip, skip_long, with_limits,
};

/// SIGABRT's number on Linux.
const ABORTED: i32 = 6;

struct Program {
    source: PathBuf,
    name: String,
    text: String,
}

impl Program {
    /// Whether the program is skipped in this configuration.
    fn skips(&self, configuration: &str) -> bool {
        let marker = format!("skip: {configuration}: ");
        let reason = self.text.lines().find_map(|line| line.split_once(&marker));
        if let Some((_, reason)) = reason {
            skip(&format!("{} ({configuration})", self.name), reason.trim_end_matches("*/").trim());
        }
        reason.is_some()
    }
}

/// The programs of `tests/c` and `tests/cpp`, in order.
fn programs() -> Vec<Program> {
    let wanted = std::env::var("ALLOT_C_PROGRAMS").unwrap_or_default();
    let mut found = Vec::new();
    for (directory, extension) in [("tests/c", "c"), ("tests/cpp", "cpp")] {
        let Ok(entries) = std::fs::read_dir(package().join(directory)) else { continue };
        for entry in entries {
            let source = entry.expect("the directory can be read").path();
            let name =
                source.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            if source.extension() == Some(extension.as_ref()) && name.contains(&wanted) {
                let text = std::fs::read_to_string(&source).expect("a source is text");
                found.push(Program { source, name, text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!found.is_empty() || !wanted.is_empty(), "there are programs");
    found
}

/// Builds a program, once for each directory.
fn build(
    program: &Program,
    directory: &str,
    compiler: Compiler,
    flags: &[String],
) -> Result<PathBuf, String> {
    type Built = Arc<OnceLock<Result<(), String>>>;
    static BUILT: Mutex<BTreeMap<PathBuf, Built>> = Mutex::new(BTreeMap::new());
    let directory = scratch().join(directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let binary = directory.join(program.name.replace('.', "-"));
    let built =
        BUILT.lock().expect("no thread panics here").entry(binary.clone()).or_default().clone();
    built.get_or_init(|| compiler.build(&program.source, &binary, flags)).clone()?;
    Ok(binary)
}

/// Builds every program into a directory, unless another configuration has, and passes it to `run`.
/// Panics with all failures.
fn for_each_program(
    configuration: &str,
    directory: &str,
    compiler: Compiler,
    flags: &[String],
    run: impl Fn(&Path) -> Result<(), String>,
) {
    let mut failures = Vec::new();
    for program in programs() {
        if program.skips(configuration) {
            continue;
        }
        let result = build(&program, directory, compiler, flags).and_then(|binary| run(&binary));
        if let Err(error) = result {
            failures.push(format!("{} ({configuration}): {error}", program.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs the program, which must exit with 0.
fn passes(binary: &Path) -> Result<(), String> {
    let output = with_limits(binary).output().expect("there is a shell");
    if output.status.success() { Ok(()) } else { Err(report_of(&output)) }
}

/// Runs each case of misuse of a program, which must be named and stopped.
fn cases_are_stopped(binary: &Path) -> Result<(), String> {
    let listed = with_limits(binary).arg("--cases").output().expect("there is a shell");
    if !listed.status.success() {
        return Err(format!("--cases: {}", report_of(&listed)));
    }
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let Some((case, expected)) = line.split_once('\t') else {
            return Err(format!("--cases: no tab in {line:?}"));
        };
        let output = with_limits(binary).arg(case).output().expect("there is a shell");
        // `timeout` ends with the signal that ended its command. A shell adds 128.
        let aborted =
            output.status.signal() == Some(ABORTED) || output.status.code() == Some(128 + ABORTED);
        if !aborted || !String::from_utf8_lossy(&output.stderr).contains(expected) {
            return Err(format!(
                "case {case}: expected an abort with {expected:?}: {}",
                report_of(&output)
            ));
        }
    }
    Ok(())
}

#[test]
fn programs_pass_with_gcc_and_the_shared_library_and_misuse_is_stopped() {
    let mut flags = installation().cflags();
    flags.extend(installation().shared_flags());
    for_each_program("gcc", "shared", Compiler::Gcc, &flags, |binary| {
        passes(binary)?;
        cases_are_stopped(binary)
    });
}

#[test]
fn programs_pass_with_clang_and_the_static_library_and_misuse_is_stopped() {
    if skip_long("C and C++ programs by Clang") {
        return;
    }
    if !Compiler::Clang.is_installed() {
        return skip("C and C++ programs by Clang", "it is not installed");
    }
    let mut flags = installation().cflags();
    flags.extend(installation().static_flags());
    for_each_program("clang", "static", Compiler::Clang, &flags, |binary| {
        passes(binary)?;
        cases_are_stopped(binary)
    });
}

#[test]
fn programs_pass_under_the_sanitizers_for_addresses_and_undefined_behaviour() {
    if skip_long("C and C++ programs under sanitizers") {
        return;
    }
    let mut flags = installation().cflags();
    flags.extend(installation().shared_flags());
    flags.extend(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"].map(str::to_owned));
    for_each_program("address-sanitizer", "sanitized", Compiler::Gcc, &flags, passes);
}

#[test]
fn programs_pass_under_valgrind() {
    if skip_long("C and C++ programs under Valgrind") {
        return;
    }
    if !is_installed("valgrind") {
        return skip("C and C++ programs under Valgrind", "it is not installed");
    }
    let mut flags = installation().cflags();
    flags.extend(installation().shared_flags());
    for_each_program("valgrind", "shared", Compiler::Gcc, &flags, |binary| {
        let output = with_limits("valgrind")
            .args(["--quiet", "--error-exitcode=99", "--leak-check=no"])
            .arg(binary)
            .output()
            .expect("there is a shell");
        if output.status.success() { Ok(()) } else { Err(report_of(&output)) }
    });
}

#[test]
fn programs_pass_with_every_allocator_hardened() {
    if skip_long("C and C++ programs with every allocator hardened") {
        return;
    }
    let mut flags = installation().cflags();
    flags.extend(installation().shared_flags());
    for_each_program("hardened", "shared", Compiler::Gcc, &flags, |binary| {
        let output =
            with_limits(binary).env("ALLOTMENT_HARDENED", "1").output().expect("there is a shell");
        if output.status.success() { Ok(()) } else { Err(report_of(&output)) }
    });
}
