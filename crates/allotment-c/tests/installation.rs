//! The result of `install.sh`: how the libraries are linked, and programs that find them with
//! pkg-config, CMake and dlopen().

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use support::{
    Compiler, files, install, installation, is_installed, package, report_of, scratch, skip,
    with_limits,
};

/// The output of a tool, which must succeed.
fn output_of(tool: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(file).output().expect("the tool was found");
    assert!(output.status.success(), "{tool}: {}", report_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", report_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(program: &Path) -> String {
    succeeds(with_limits(program))
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{}", report_of(output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_shared_library_has_a_name_and_a_version_and_needs_only_system_libraries() {
    let library = installation().shared();
    if !is_installed("readelf") {
        return skip("how the shared library is linked", "readelf (binutils) is not installed");
    }
    let dynamic = output_of("readelf", &["-dW"], &library);
    assert!(dynamic.contains("Library soname: [liballotment.so.0]"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "threads run its destructors: {dynamic}");
    let needed: BTreeSet<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    let system =
        ["ld-linux-", "libc.", "libgcc_s.", "libm.", "libpthread.", "libdl.", "librt.", "libutil."];
    for name in &needed {
        assert!(system.iter().any(|known| name.starts_with(known)), "needs {name}: {needed:?}");
    }
    for name in ["liballotment.so", "liballotment.so.0"] {
        let link = installation().libraries().join(name);
        assert_eq!(link.canonicalize().ok(), library.canonicalize().ok(), "{name}");
    }
    let segments = output_of("readelf", &["-lW"], &library);
    // glibc has 1664 bytes for all libraries that a program loads with dlopen().
    let locals = segments.lines().find(|line| line.trim_start().starts_with("TLS"));
    let bytes = locals
        .and_then(|line| line.split_whitespace().nth(5))
        .and_then(|size| usize::from_str_radix(size.trim_start_matches("0x"), 16).ok())
        .expect("it has thread-locals");
    assert!(bytes < 1100, "{bytes} bytes of thread-locals");
    let stack = segments
        .lines()
        .find(|line| line.contains("GNU_STACK"))
        .expect("it says what the stack needs");
    assert!(!stack.contains("RWE"), "the stack is not executable: {stack}");
    let symbols = output_of("nm", &["-D", "--defined-only"], &library);
    for line in symbols.lines().filter(|line| line.contains(" T ")) {
        assert!(line.ends_with("@@ALLOTMENT_0"), "{line}");
    }
}

/// The dynamic relocations of thread-locals whose accesses make a call.
fn called_thread_locals(relocations: &str) -> Vec<&str> {
    relocations
        .lines()
        .filter(|line| {
            ["TLSDESC", "DTPMOD", "__tls_get_addr"].iter().any(|called| line.contains(called))
        })
        .collect()
}

#[test]
fn no_access_to_a_thread_local_of_the_shared_library_makes_a_call() {
    if !is_installed("readelf") {
        return skip("how thread-locals are reached", "binutils are not installed");
    }
    let library = installation().shared();
    let flags = output_of("readelf", &["-dW"], &library);
    assert!(flags.contains("STATIC_TLS"), "its thread-locals are initial-exec: {flags}");
    let relocations = output_of("readelf", &["-rW"], &library);
    assert!(relocations.contains("TPOFF64") || relocations.contains("TPREL"), "{relocations}");
    let called = called_thread_locals(&relocations);
    assert!(called.is_empty(), "{called:#?}");
}

#[test]
fn thread_locals_whose_accesses_make_a_call_are_found() {
    let relocations = "
00000000000d3e20  0000000000000012 R_X86_64_TPOFF64                          3a8
00000000000d3e28  0000000000000010 R_X86_64_DTPMOD64                         0
00000000000d3e10  0000000000000024 R_X86_64_TLSDESC                          0
00000000000d2d60  0000000300000007 R_X86_64_JUMP_SLOT     0000000000000000 __tls_get_addr@GLIBC_2.3 + 0
";
    assert_eq!(called_thread_locals(relocations).len(), 3);
}

#[test]
fn a_model_of_thread_locals_that_is_not_possible_is_refused_with_the_reason() {
    let other_rustc = scratch().join("rustc-without-descriptors");
    std::fs::write(
        &other_rustc,
        "#!/bin/sh\ncase \" $* \" in *llvm-args*) exit 1 ;; esac\nexec rustc \"$@\"\n",
    )
    .expect("the target directory can be written");
    std::fs::set_permissions(&other_rustc, std::fs::Permissions::from_mode(0o755))
        .expect("it was written");
    let requested = ["--prefix=/nowhere", "--tls=initial-exec", "--destdir=/nowhere", "--target"]
        .map(OsStr::new);
    for (target, rustc, reason) in [
        ("x86_64-unknown-linux-musl", None, "musl cannot load such libraries with dlopen()"),
        ("riscv64gc-unknown-linux-gnu", None, "install.sh supports it on x86-64 and aarch64 only"),
        ("", Some(&other_rustc), "cannot write TLS descriptors"),
    ] {
        let mut command = Command::new(package().join("install.sh"));
        command.args(requested).arg(target);
        if let Some(rustc) = rustc {
            command.env("RUSTC", rustc);
        }
        let error = refusal(&command.output().expect("there is a POSIX shell"));
        assert!(error.contains("--tls initial-exec is not possible: "), "{target}: {error}");
        assert!(error.contains(reason), "{target}: {error}");
    }
}

#[test]
fn threads_use_a_library_that_is_loaded_after_they_were_made() {
    let source = package().join("tests/linking/dlopen.c");
    let program = scratch().join("dlopen");
    let include = installation().cflags();
    for (compiler, flags) in [
        (Compiler::Gcc, include.clone()),
        (Compiler::Gcc, [&include[..], &["-fsanitize=undefined".to_owned()]].concat()),
    ] {
        compiler
            .build(&source, &program, &[&flags[..], &["-ldl".to_owned()]].concat())
            .unwrap_or_else(|error| panic!("{error}"));
        let mut command = with_limits(&program);
        command.arg(installation().shared());
        assert_eq!(succeeds(command), "loaded and used\n");
    }
}

#[test]
fn a_program_may_have_another_static_library_made_by_rust() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let other = scratch().join("libother.a");
    let mut command = Command::new(rustc);
    command
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "staticlib",
            "--crate-name",
            "other",
            "-O",
            "-o",
        ])
        .args([&other, &package().join("tests/linking/other.rs")]);
    succeeds(command);
    let program = scratch().join("two_libraries");
    for order in [false, true] {
        let mut flags = installation().cflags();
        let ours = installation().static_flags();
        let theirs = [other.display().to_string(), "-lm".to_owned()];
        if order {
            flags.extend(theirs);
            flags.extend(ours);
        } else {
            flags.extend(ours);
            flags.extend(theirs);
        }
        Compiler::Gcc
            .build(&package().join("tests/linking/two_libraries.c"), &program, &flags)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(run(&program), "both work\n");
    }
}

/// The output of `examples/first.c`.
const FIRST_OUTPUT: &str =
    "a thousand points: 1001 objects of 24018 bytes in all, the last at (999, 998001)\n";

#[test]
fn the_first_program_of_the_documentation_runs_linked_in_each_way() {
    let source = package().join("examples/first.c");
    let installed = installation();
    let program = scratch().join("first");
    for flags in [
        installed.shared_flags(),
        installed.static_flags(),
        [&["-static".to_owned()], &installed.static_flags()[..]].concat(),
        [&["-Wl,--gc-sections".to_owned()], &installed.static_flags()[..]].concat(),
    ] {
        Compiler::Gcc
            .build(&source, &program, &[&installed.cflags()[..], &flags[..]].concat())
            .unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        let printed = run(&program);
        assert_eq!(printed, FIRST_OUTPUT, "{flags:?}");
    }
}

#[test]
fn the_documentation_shows_the_first_program_unchanged() {
    let example = std::fs::read_to_string(package().join("examples/first.c")).expect("it is there");
    let (_, shown) = example.split_once("*/\n").expect("a comment says how to compile it");
    let page = std::fs::read_to_string(package().join("../../docs/src/c.md")).expect("it is there");
    assert!(page.contains(shown), "docs/src/c.md has another first program than examples/first.c");
    assert!(page.contains(FIRST_OUTPUT), "docs/src/c.md has another output of it");
}

#[test]
fn the_line_in_the_first_program_compiles_and_runs_it() {
    if !is_installed("pkg-config") {
        return skip("the line in the first program", "pkg-config is not installed");
    }
    let example = std::fs::read_to_string(package().join("examples/first.c")).expect("it is there");
    let (_, line) = example.split_once(" *   cc ").expect("a comment says how to compile it");
    let (line, _) = line.split_once("\n */").expect("the comment ends");
    let directory = scratch().join("by its line");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    std::fs::copy(package().join("examples/first.c"), directory.join("first.c")).expect("a copy");
    let mut command = Command::new("sh");
    command
        .args(["-ec", &format!("cc {}", line.replace("\n *", "\n"))])
        .current_dir(&directory)
        .env("PKG_CONFIG_PATH", installation().libraries().join("pkgconfig"))
        .env_remove("LD_LIBRARY_PATH");
    assert_eq!(succeeds(command), FIRST_OUTPUT);
}

#[test]
fn pkg_config_knows_the_version_and_a_prefix_with_a_space() {
    if !is_installed("pkg-config") {
        return skip("pkg-config", "it is not installed");
    }
    let prefix = scratch().join("a prefix");
    let _ = std::fs::remove_dir_all(&prefix);
    let output = install(&[
        "--prefix".as_ref(),
        prefix.as_os_str(),
        "--libdir".as_ref(),
        prefix.join("lib/here").as_os_str(),
    ]);
    assert!(output.status.success(), "{}", report_of(&output));
    let directory = prefix.join("lib/here/pkgconfig");
    let pkg_config = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(arguments).env("PKG_CONFIG_PATH", &directory);
        command
    };
    assert_eq!(
        succeeds(pkg_config(&["--modversion", "allotment"])).trim(),
        env!("CARGO_PKG_VERSION")
    );
    succeeds(pkg_config(&["--exists", "allotment >= 0.1"]));
    refusal(
        &pkg_config(&["--exists", "--print-errors", "allotment >= 99"])
            .output()
            .expect("pkg-config was found"),
    );
    let mut command = Command::new("sh");
    command
        .args(["-ec", "eval \"cc $(pkg-config --cflags allotment) '$1' -o '$2' $(pkg-config --libs allotment)\"", "sh"])
        .args([package().join("examples/first.c"), scratch().join("spaced")])
        .env("PKG_CONFIG_PATH", &directory);
    succeeds(command);
    let mut program = with_limits(scratch().join("spaced"));
    program.env("LD_LIBRARY_PATH", prefix.join("lib/here"));
    assert!(succeeds(program).starts_with("a thousand points"));
}

/// Configures the CMake project for a prefix and a wanted version.
fn configure(prefix: &Path, build: &Path, wanted: &str) -> Output {
    let _ = std::fs::remove_dir_all(build);
    Command::new("cmake")
        .arg("-S")
        .arg(package().join("tests/cmake"))
        .arg("-B")
        .arg(build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .arg(format!("-DALLOTMENT_WANTED={wanted}"))
        .output()
        .expect("cmake was found")
}

#[test]
fn cmake_finds_a_package_that_was_moved_and_links_both_libraries() {
    if !is_installed("cmake") {
        return skip("the CMake package", "CMake is not installed");
    }
    // Not the directory that it was installed for.
    let moved = scratch().join("moved");
    let _ = std::fs::remove_dir_all(&moved);
    let mut copy = Command::new("cp");
    copy.arg("-a").args([&installation().prefix, &moved]);
    succeeds(copy);
    let build = scratch().join("cmake-build");
    let configured = configure(&moved, &build, "0.1");
    assert!(configured.status.success(), "{}", report_of(&configured));
    let mut command = Command::new("cmake");
    command.arg("--build").arg(&build);
    succeeds(command);
    for program in ["c_allotment", "c_static", "cpp_allotment", "cpp_static"] {
        run(&build.join(program));
    }
    if is_installed("readelf") {
        assert!(
            output_of("readelf", &["-dW"], &build.join("c_allotment"))
                .contains("[liballotment.so.0]")
        );
        assert!(!output_of("readelf", &["-dW"], &build.join("c_static")).contains("liballotment"));
    }
}

#[test]
fn cmake_builds_the_libraries_as_a_part_of_another_project() {
    if !is_installed("cmake") {
        return skip("Allotment as a part of a CMake project", "CMake is not installed");
    }
    let build = scratch().join("cmake-part");
    let _ = std::fs::remove_dir_all(&build);
    let configured = Command::new("cmake")
        .arg("-S")
        .arg(package().join("tests/cmake_part"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DALLOTMENT_PACKAGE={}", package().display()))
        .output()
        .expect("cmake was found");
    assert!(configured.status.success(), "{}", report_of(&configured));
    // Twice: the second time nothing is to be done.
    for _ in 0..2 {
        let mut command = Command::new("cmake");
        command.arg("--build").arg(&build);
        succeeds(command);
    }
    for program in ["c_allotment", "c_static", "cpp_allotment", "cpp_static"] {
        run(&build.join(program));
    }
}

#[test]
fn cmake_refuses_another_series_and_a_later_version() {
    if !is_installed("cmake") {
        return skip("the CMake package's version", "CMake is not installed");
    }
    let build = scratch().join("cmake-refused");
    for wanted in ["0.2", "1.0", "0.1.9"] {
        let error = refusal(&configure(&installation().prefix, &build, wanted));
        assert!(error.contains(&format!("requested version \"{wanted}\"")), "{error}");
    }
    for wanted in ["", "0.1.0"] {
        let configured = configure(&installation().prefix, &build, wanted);
        assert!(configured.status.success(), "{wanted}: {}", report_of(&configured));
    }
}

#[test]
fn an_installation_is_staged_for_another_root_and_removed_again() {
    let root = scratch().join("root");
    let _ = std::fs::remove_dir_all(&root);
    let arguments = [
        "--prefix=/usr".into(),
        "--libdir=/usr/lib/here".into(),
        "--destdir".into(),
        root.clone().into_os_string(),
    ];
    let arguments: Vec<_> = arguments.iter().map(std::ffi::OsString::as_os_str).collect();
    let output = install(&arguments);
    assert!(output.status.success(), "{}", report_of(&output));
    let staged = files(&root);
    for name in [
        "usr/include/allotment.h",
        "usr/lib/here/liballotment.a",
        "usr/lib/here/liballotment.so",
        "usr/lib/here/liballotment.so.0",
        "usr/lib/here/pkgconfig/allotment.pc",
        "usr/lib/here/cmake/allotment/allotment-config.cmake",
    ] {
        assert!(staged.contains(name), "{name} in {staged:#?}");
    }
    let root_name = root.display().to_string();
    for name in ["pkgconfig/allotment.pc", "cmake/allotment/allotment-config.cmake"] {
        let text = std::fs::read_to_string(root.join("usr/lib/here").join(name))
            .expect("it was installed");
        assert!(!text.contains(&root_name) && !text.contains('@'), "{name}: {text}");
    }
    let mut listed = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(path) = line.strip_prefix("installed ") {
            listed.insert(
                path.strip_prefix(&format!("{root_name}/")).expect("it is staged").to_owned(),
            );
        }
    }
    assert_eq!(listed, staged);

    std::fs::write(root.join("usr/include/others.h"), "").expect("the directory can be written");
    let output = install(&[&arguments[..], &["--uninstall".as_ref()]].concat());
    assert!(output.status.success(), "{}", report_of(&output));
    assert_eq!(files(&root), BTreeSet::from(["usr/include/others.h".to_owned()]));
    assert!(!root.join("usr/lib").exists() && !root.join("usr/include/allotment").exists());

    std::fs::remove_file(root.join("usr/include/others.h")).expect("it was written");
    let output = install(&[&arguments[..], &["--uninstall".as_ref()]].concat());
    assert!(output.status.success(), "{}", report_of(&output));
    assert!(!root.exists(), "the directories are empty, so they are removed");
}

#[test]
fn wrong_arguments_of_the_installer_are_named() {
    for (arguments, reason) in [
        (&["--prefix", "here"][..], "'here' is not an absolute path"),
        (&["--prefix"][..], "--prefix needs a value"),
        (&["--colour=red"][..], "unknown option '--colour'"),
        (&["now"][..], "unknown argument 'now'"),
        (
            &["--prefix", "/nowhere", "--tls", "fast"][..],
            "--tls takes initial-exec or default, not 'fast'",
        ),
    ] {
        let arguments: Vec<_> = arguments.iter().map(|argument| OsStr::new(*argument)).collect();
        let error = refusal(&install(&arguments));
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    let help = install(&["--help".as_ref()]);
    assert!(
        help.status.success() && report_of(&help).contains("pkg-config --cflags --libs allotment"),
        "{}",
        report_of(&help)
    );
}
