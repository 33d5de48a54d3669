//! One installation for a test program, the compilers that are there, and running what they made.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Seconds after which a program counts as hung.
const TIME_LIMIT: &str = "300";

/// Whether tests that take a minute are left out, and says so: they run if `ALLOTMENT_LONG_TESTS` is set.
pub fn too_long(what: &str) -> bool {
    let left_out = std::env::var_os("ALLOTMENT_LONG_TESTS").is_none();
    if left_out {
        skip(what, "ALLOTMENT_LONG_TESTS is not set");
    }
    left_out
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

/// What `install.sh` put under a prefix.
pub struct Installation {
    /// The prefix.
    pub prefix: PathBuf,
}

impl Installation {
    /// The directory of the libraries.
    pub fn libraries(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The shared library itself, behind its links.
    pub fn shared(&self) -> PathBuf {
        self.libraries().join(concat!("liballotment.so.", env!("CARGO_PKG_VERSION")))
    }

    /// The static library.
    pub fn archive(&self) -> PathBuf {
        self.libraries().join("liballotment.a")
    }

    /// What `pkg-config` says for these arguments; without pkg-config, what it would say.
    fn asked(&self, arguments: &[&str]) -> Vec<String> {
        let output = Command::new("pkg-config")
            .args(arguments)
            .arg("allotment")
            .env("PKG_CONFIG_PATH", self.libraries().join("pkgconfig"))
            .output()
            .expect("pkg-config was found");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// The compiler's options.
    pub fn cflags(&self) -> Vec<String> {
        if has("pkg-config") {
            return self.asked(&["--cflags"]);
        }
        vec![format!("-I{}", self.prefix.join("include").display())]
    }

    /// The linker's options for the shared library, found again when the program runs.
    pub fn shared_flags(&self) -> Vec<String> {
        let mut flags = if has("pkg-config") {
            self.asked(&["--libs"])
        } else {
            vec![format!("-L{}", self.libraries().display()), "-lallotment".to_owned()]
        };
        flags.push(format!("-Wl,-rpath,{}", self.libraries().display()));
        flags
    }

    /// The linker's options for the static library.
    pub fn static_flags(&self) -> Vec<String> {
        let mut flags = vec![self.archive().display().to_string()];
        if has("pkg-config") {
            assert_eq!(self.asked(&["--variable=static_library"]), flags);
            flags.extend(
                self.asked(&["--static", "--libs-only-l"])
                    .into_iter()
                    .filter(|flag| flag != "-lallotment"),
            );
        } else {
            flags.extend(["-lpthread", "-ldl", "-lm"].map(str::to_owned));
        }
        flags
    }
}

/// The libraries, headers, `allotment.pc` and CMake package, made once for a test program.
pub fn installation() -> &'static Installation {
    static MADE: OnceLock<Result<Installation, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let prefix = scratch().join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let output = install(&["--prefix".as_ref(), prefix.as_os_str()]);
        if output.status.success() { Ok(Installation { prefix }) } else { Err(text(&output)) }
    });
    match made {
        Ok(installation) => installation,
        Err(error) => panic!("install.sh: {error}"),
    }
}

/// Runs `install.sh` with these arguments.
pub fn install(arguments: &[&OsStr]) -> Output {
    Command::new(package().join("install.sh"))
        .args(arguments)
        .env("CARGO", env!("CARGO"))
        // The one that these tests were built in.
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory in it"),
        )
        // What cargo set for the tests would have the library built again.
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
                let path = path.strip_prefix(directory).expect("it lies below");
                found.insert(path.display().to_string());
            }
        }
    }
    found
}

/// Whether a tool is installed. Asked once for each.
pub fn has(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Says what a test does not do, and why.
pub fn skip(what: &str, why: &str) {
    // Not by `eprintln!`, which is shown for failing tests alone.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// Everything that a program said.
pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A command that ends after the time limit and leaves no core file.
pub fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 0; exec timeout -k 10 \"$@\"", "sh", TIME_LIMIT])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// A C11 or C++17 compiler, by the source's name.
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

    /// Whether it is there for C and C++.
    pub fn is_there(self) -> bool {
        has(self.command(Path::new("a.c"))) && has(self.command(Path::new("a.cpp")))
    }

    /// Compiles and links one source file; says what went wrong.
    pub fn build(self, source: &Path, program: &Path, flags: &[String]) -> Result<(), String> {
        let standard = if is_cpp(source) { "-std=c++17" } else { "-std=c11" };
        let output = Command::new(self.command(source))
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-g"])
            // C11 alone hides POSIX's functions; a program may define the same. C++ compilers do it by themselves.
            .args((!is_cpp(source)).then_some("-D_GNU_SOURCE="))
            .args(["-pthread", "-o"])
            .args([program, source])
            .args(flags)
            .output()
            .map_err(|error| format!("{}: {error}", self.command(source)))?;
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    }
}

/// Whether a source is C++, by its name.
pub fn is_cpp(source: &Path) -> bool {
    source.extension() == Some("cpp".as_ref())
}
