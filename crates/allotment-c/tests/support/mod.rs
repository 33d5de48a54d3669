//! One installation for each test program, the compilers that are installed, and running their
//! programs.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Seconds after which a program counts as hung.
const TIME_LIMIT: &str = "300";

/// Whether to skip a test that takes about a minute, which is then reported. Such tests run if
/// `ALLOTMENT_LONG_TESTS` is set.
pub fn skip_long(what: &str) -> bool {
    let skipped = std::env::var_os("ALLOTMENT_LONG_TESTS").is_none();
    if skipped {
        skip(what, "ALLOTMENT_LONG_TESTS is not set");
    }
    skipped
}

/// The crate's own directory.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory for this test program alone.
pub fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// The files that `install.sh` installed.
pub struct Installation {
    /// The prefix.
    pub prefix: PathBuf,
}

impl Installation {
    /// The directory of the libraries.
    pub fn libraries(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The shared library, which the links lead to.
    pub fn shared(&self) -> PathBuf {
        self.libraries().join(concat!("liballotment.so.", env!("CARGO_PKG_VERSION")))
    }

    /// The static library.
    pub fn archive(&self) -> PathBuf {
        self.libraries().join("liballotment.a")
    }

    /// The output of `pkg-config` for these arguments.
    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let output = Command::new("pkg-config")
            .args(arguments)
            .arg("allotment")
            .env("PKG_CONFIG_PATH", self.libraries().join("pkgconfig"))
            .output()
            .expect("pkg-config was found");
        assert!(output.status.success(), "{}", report_of(&output));
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// The compiler's options.
    pub fn cflags(&self) -> Vec<String> {
        if is_installed("pkg-config") {
            return self.pkg_config(&["--cflags"]);
        }
        vec![format!("-I{}", self.prefix.join("include").display())]
    }

    /// The linker's options for the shared library, which the program also finds when it runs.
    pub fn shared_flags(&self) -> Vec<String> {
        let mut flags = if is_installed("pkg-config") {
            self.pkg_config(&["--libs"])
        } else {
            vec![format!("-L{}", self.libraries().display()), "-lallotment".to_owned()]
        };
        flags.push(format!("-Wl,-rpath,{}", self.libraries().display()));
        flags
    }

    /// The linker's options for the static library.
    pub fn static_flags(&self) -> Vec<String> {
        let mut flags = vec![self.archive().display().to_string()];
        if is_installed("pkg-config") {
            assert_eq!(self.pkg_config(&["--variable=static_library"]), flags);
            flags.extend(
                self.pkg_config(&["--static", "--libs-only-l"])
                    .into_iter()
                    .filter(|flag| flag != "-lallotment"),
            );
        } else {
            flags.extend(["-lpthread", "-ldl", "-lm"].map(str::to_owned));
        }
        flags
    }
}

/// The installation, which is made once for each test program.
pub fn installation() -> &'static Installation {
    static INSTALLATION: OnceLock<Result<Installation, String>> = OnceLock::new();
    let installation = INSTALLATION.get_or_init(|| {
        let prefix = scratch().join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let output = install(&["--prefix".as_ref(), prefix.as_os_str()]);
        if output.status.success() { Ok(Installation { prefix }) } else { Err(report_of(&output)) }
    });
    match installation {
        Ok(installation) => installation,
        Err(error) => panic!("install.sh: {error}"),
    }
}

/// Runs `install.sh` with these arguments.
pub fn install(arguments: &[&OsStr]) -> Output {
    Command::new(package().join("install.sh"))
        .args(arguments)
        .env("CARGO", env!("CARGO"))
        // The directory in which these tests were built.
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory in it"),
        )
        // With the flags that cargo set for the tests, the library would be built again.
        .env_remove("RUSTFLAGS")
        .output()
        .expect("there is a POSIX shell")
}

/// Every file and link below a directory.
pub fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).expect("the directory can be read") {
            let path = entry.expect("the directory can be read").path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else {
                let path = path.strip_prefix(directory).expect("it is below the directory");
                found.insert(path.display().to_string());
            }
        }
    }
    found
}

/// Whether a tool is installed.
pub fn is_installed(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Reports what a test skips, and why.
pub fn skip(what: &str, why: &str) {
    // Not with `eprintln!`, whose output is shown for failing tests only.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// The status and all output of a program.
pub fn report_of(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A command with a time limit, which writes no core file.
pub fn with_limits(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 0; exec timeout -k 10 \"$@\"", "sh", TIME_LIMIT])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// A compiler for C11 and C++17. The name of the source decides the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// GNU's.
    Gcc,
    /// LLVM's.
    Clang,
}

impl Compiler {
    /// Its command for a source.
    pub fn command(self, source: &Path) -> &'static str {
        match (self, is_cpp(source)) {
            (Self::Gcc, false) => "gcc",
            (Self::Gcc, true) => "g++",
            (Self::Clang, false) => "clang",
            (Self::Clang, true) => "clang++",
        }
    }

    /// Whether it is installed for C and C++.
    pub fn is_installed(self) -> bool {
        is_installed(self.command(Path::new("a.c")))
            && is_installed(self.command(Path::new("a.cpp")))
    }

    /// Compiles and links one source file. An error contains the output.
    pub fn build(self, source: &Path, program: &Path, flags: &[String]) -> Result<(), String> {
        let standard = if is_cpp(source) { "-std=c++17" } else { "-std=c11" };
        let output = Command::new(self.command(source))
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-g"])
            // C11 hides the functions of POSIX, unless a program defines this itself. C++ compilers
            // define it.
            .args((!is_cpp(source)).then_some("-D_GNU_SOURCE="))
            .args(["-pthread", "-o"])
            .args([program, source])
            .args(flags)
            .output()
            .map_err(|error| format!("{}: {error}", self.command(source)))?;
        if output.status.success() { Ok(()) } else { Err(report_of(&output)) }
    }
}

/// Whether a source is C++, by its name.
pub fn is_cpp(source: &Path) -> bool {
    source.extension() == Some("cpp".as_ref())
}
