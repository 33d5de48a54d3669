//! Runs one role of a test in its own process: the test binary again, with a variable that names
//! the role.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};

const ROLE: &str = "ALLOTMENT_TEST_CHILD";

/// A child process of a test.
pub struct Child {
    command: Command,
}

/// Whether this process is the child with this role.
pub fn is(role: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|given| given == role)
}

/// Whether this process is the child of any test.
pub fn is_any() -> bool {
    std::env::var_os(ROLE).is_some()
}

impl Child {
    /// The test `test` of this binary, run again alone with this role.
    pub fn new(test: &str, role: &str) -> Self {
        let binary = std::env::current_exe().expect("a test binary has a path");
        // Under an emulator the kernel can't start the binary without the emulator.
        let runner = std::env::var("ALLOTMENT_TEST_RUNNER").unwrap_or_default();
        let mut words = runner.split_whitespace();
        let mut command = match words.next() {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(words).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("RUST_BACKTRACE", "0");
        Self { command }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Limits the child's address space before it starts: `ulimit -v`.
    pub fn limit_addresses(self, bytes: u64) -> Self {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: sets a limit, from a copy.
        self.before_start(move || unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) })
    }

    /// Limits the memory that the child may lock: `ulimit -l`. Takes the capability that exceeds
    /// the limit, if it can.
    pub fn limit_locked(self, bytes: u64) -> Self {
        const CAP_IPC_LOCK: libc::c_ulong = 14;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: sets a limit, from a copy, and changes what the program that is executed next may
        // do.
        self.before_start(move || unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK);
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit)
        })
    }

    /// Limits the length of the files that the child writes: `ulimit -f`.
    pub fn limit_files(self, bytes: u64) -> Self {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: sets a limit, from a copy.
        self.before_start(move || unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) })
    }

    /// Gives the child its own view of the mounts, if that is permitted.
    pub fn own_mounts(self) -> Self {
        self.before_start(|| {
            // SAFETY: changes the child's own view of the mounts, and nothing else.
            unsafe {
                let private = libc::MS_REC | libc::MS_PRIVATE;
                let (none, root) = (core::ptr::null(), c"/".as_ptr());
                if libc::unshare(libc::CLONE_NEWNS) == 0 {
                    libc::mount(none, root, none, private, core::ptr::null());
                }
            }
            0
        })
    }

    fn before_start(mut self, call: impl Fn() -> libc::c_int + Send + Sync + 'static) -> Self {
        // SAFETY: between fork and exec only the system calls above are made; nothing allocates.
        unsafe {
            self.command.pre_exec(move || match call() {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        self
    }

    fn output(mut self) -> Output {
        self.command.output().expect("the test binary starts")
    }

    /// The child must succeed. Returns what it printed.
    pub fn succeeds(self) -> String {
        let output = self.output();
        let text = text(&output);
        assert!(output.status.success(), "{}:\n{text}", output.status);
        assert!(text.contains("1 passed"), "the child ran its test:\n{text}");
        text
    }

    /// Returns the child's exit code and what it printed.
    pub fn exits(self) -> (Option<i32>, String) {
        let output = self.output();
        (output.status.code(), text(&output))
    }

    /// The child must abort. Returns what it printed on standard error.
    pub fn aborts(self) -> String {
        let output = self.output();
        let text = text(&output);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}:\n{text}", output.status);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// A directory for one test, which is removed with its contents.
pub struct Directory(pub std::path::PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let unique = format!("allotment-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).expect("a directory for temporary files");
        Self(path)
    }

    pub fn text(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
