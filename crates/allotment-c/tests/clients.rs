//! Builds the programs of `examples/clients` against an installation, and runs them with little
//! work. Each does the same work on malloc and on Allotment, and reports both. What is not
//! installed is skipped and named.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use support::{
    Compiler, installation, is_installed, package, report_of, scratch, skip, with_limits,
};

struct Client {
    name: &'static str,
    /// The library's names for pkg-config, in one distribution and another.
    libraries: &'static [&'static str],
    remedy: &'static str,
}

const CLIENTS: [Client; 3] = [
    Client {
        name: "sqlite",
        libraries: &["sqlite3"],
        remedy: "SQLite 3 is not installed (libsqlite3-dev, sqlite-devel)",
    },
    Client {
        name: "lua",
        libraries: &["lua5.4", "lua-5.4", "lua54"],
        remedy: "Lua 5.4 is not installed (liblua5.4-dev, lua-devel)",
    },
    Client {
        name: "expat",
        libraries: &["expat"],
        remedy: "expat is not installed (libexpat1-dev, expat-devel)",
    },
];

/// Arguments for little work, once.
const SMALL: [&str; 6] = ["--rounds", "1", "--times", "2", "--size", "400"];

impl Client {
    /// The options that compile and link its library, if it is installed.
    fn flags(&self) -> Option<Vec<String>> {
        let flags = |library: &&str| {
            let mut pkg_config = Command::new("pkg-config");
            let output = pkg_config.args(["--cflags", "--libs", library]).output().ok()?;
            let flags = String::from_utf8_lossy(&output.stdout);
            output.status.success().then(|| flags.split_whitespace().map(str::to_owned).collect())
        };
        self.libraries.iter().find_map(flags)
    }

    /// The program, built with this compiler and additional options.
    fn built(&self, compiler: Compiler, variant: &str, more: &[&str]) -> Option<PathBuf> {
        let what = format!("the client {} ({variant})", self.name);
        if !is_installed("pkg-config") {
            skip(&what, "pkg-config is not installed");
            return None;
        }
        if !compiler.is_installed() {
            skip(&what, "the compiler is not installed");
            return None;
        }
        let Some(library) = self.flags() else {
            skip(&what, self.remedy);
            return None;
        };
        let directory = scratch().join(variant);
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let source = package().join("examples/clients").join(format!("{}.c", self.name));
        let program = directory.join(self.name);
        let installed = installation();
        let mut flags = installed.cflags();
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        flags.extend(installed.shared_flags());
        flags.extend(library);
        compiler.build(&source, &program, &flags).unwrap_or_else(|error| panic!("{what}: {error}"));
        Some(program)
    }
}

fn run(program: &PathBuf, arguments: &[&str]) -> Output {
    with_limits(program).args(arguments).output().expect("the program can be run")
}

/// The value of a field in one line of JSON, without quotes.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let start = line.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name}: {line}"));
    let value = &line[start + name.len() + 3..];
    value[..value.find([',', '}']).expect("a value ends")].trim_matches('"')
}

#[test]
fn both_allocators_do_the_same_work_and_report_its_cost() {
    for client in &CLIENTS {
        for compiler in [Compiler::Gcc, Compiler::Clang] {
            let variant = format!("{compiler:?}").to_lowercase();
            let Some(program) = client.built(compiler, &variant, &[]) else { continue };
            let output = run(&program, &[&SMALL[..], &["--json"]].concat());
            assert!(output.status.success(), "{}: {}", client.name, report_of(&output));
            let printed = String::from_utf8_lossy(&output.stdout);
            let rows: Vec<&str> = printed.lines().collect();
            let names = rows.iter().map(|row| field(row, "allocator"));
            assert!(names.eq(["malloc", "allotment"]), "{printed}");
            for row in &rows {
                assert_eq!(field(row, "client"), client.name);
                for figure in ["operations", "wall_seconds", "peak_bytes"] {
                    assert!(field(row, figure).parse::<f64>().is_ok_and(|it| it > 0.0), "{row}");
                }
                assert!(field(row, "user_seconds").parse::<f64>().is_ok_and(|it| it >= 0.0));
            }
            let results: BTreeSet<_> =
                rows.iter().map(|row| (field(row, "operations"), field(row, "checksum"))).collect();
            assert_eq!(results.len(), 1, "{printed}");

            let output = run(&program, &SMALL);
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}", report_of(&output));
            for words in
                ["user time", "peak memory", "\nmalloc ", "\nallotment ", "x the user time"]
            {
                assert!(printed.contains(words), "{printed}");
            }
        }
    }
}

#[test]
fn a_client_prints_help_and_reports_wrong_arguments() {
    for client in &CLIENTS {
        let Some(program) = client.built(Compiler::Gcc, "asked", &[]) else { continue };
        let help = run(&program, &["--help"]);
        assert!(help.status.success());
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(help.contains("--allocator") && help.contains("--json"), "{help}");
        for wrong in [
            &["--alocator", "malloc"][..],
            &["--allocator", "mine"],
            &["--allocator"],
            &["--rounds", "0"],
            &["--rounds", "102"],
            &["--times", "many"],
            &["--size", "-1"],
            &["--size"],
        ] {
            let output = run(&program, wrong);
            assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", report_of(&output));
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(errors.contains("--help") && errors.lines().count() == 1, "{errors}");
            assert!(output.stdout.is_empty());
        }
        let one = run(&program, &[&SMALL[..], &["--json", "--allocator", "allotment"]].concat());
        let printed = String::from_utf8_lossy(&one.stdout).into_owned();
        assert_eq!(printed.lines().count(), 1, "{}", report_of(&one));
        assert_eq!(field(&printed, "allocator"), "allotment");
    }
}

#[test]
fn a_closed_standard_output_is_no_error() {
    for client in &CLIENTS {
        let Some(program) = client.built(Compiler::Gcc, "closed", &[]) else { continue };
        let mut child = with_limits(&program)
            .args(SMALL)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.stderr.is_empty(), "{}", report_of(&output));
    }
}

#[test]
fn clients_pass_under_address_sanitizer_and_valgrind() {
    let small = [&SMALL[..], &["--allocator", "allotment"]].concat();
    for client in &CLIENTS {
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        if let Some(program) = client.built(Compiler::Gcc, "sanitized", &sanitizers) {
            let output = run(&program, &small);
            assert!(output.status.success(), "{}: {}", client.name, report_of(&output));
        }
        if !is_installed("valgrind") {
            skip(&format!("the client {} (valgrind)", client.name), "valgrind is not installed");
            continue;
        }
        if let Some(program) = client.built(Compiler::Gcc, "valgrind", &[]) {
            let output = with_limits("valgrind")
                .args(["--quiet", "--error-exitcode=9", "--trace-children=yes"])
                .arg(&program)
                .args(&small)
                .output()
                .expect("valgrind can be run");
            assert!(output.status.success(), "{}: {}", client.name, report_of(&output));
        }
    }
}

#[test]
fn hardened_allocators_find_nothing_wrong_with_a_client() {
    for client in &CLIENTS {
        let Some(program) = client.built(Compiler::Gcc, "hardened", &[]) else { continue };
        let output = with_limits(&program)
            .args(SMALL)
            .env("ALLOTMENT_HARDENED", "1")
            .output()
            .expect("the program can be run");
        assert!(output.status.success(), "{}: {}", client.name, report_of(&output));
    }
}
