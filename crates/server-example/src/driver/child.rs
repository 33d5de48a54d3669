//! The service as a child process, its processor time and its memory as the kernel counts them.

use super::variant::{Programs, Variant};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Why a child did not start.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service did not start: {}", self.0)
    }
}

impl std::error::Error for StartError {}

/// A running service. It ends when this value is dropped, and also when this process ends: the
/// kernel then closes its standard input.
#[derive(Debug)]
pub struct ServiceProcess {
    child: Child,
    address: SocketAddr,
    process: Process,
    processor_clock: ClockId,
    _stdin: Option<ChildStdin>,
    errors: Option<JoinHandle<String>>,
}

impl ServiceProcess {
    /// Starts a variant with a cache of this many orders.
    ///
    /// # Errors
    /// When the program can't be run, or ends before it listens.
    pub fn start(programs: &Programs, variant: Variant, cache: usize) -> Result<Self, StartError> {
        let program = variant.program(programs);
        let program = program.ok_or_else(|| StartError("its program was not built".to_owned()))?;
        let options = variant.options().into_iter().chain(["--cache".into(), cache.to_string()]);
        Self::start_with(Command::new(program).args(options))
    }

    /// Starts a program of the service with the options that the command has already.
    ///
    /// # Errors
    /// When the program can't be run, or ends before it listens.
    pub fn start_with(command: &mut Command) -> Result<Self, StartError> {
        let io = |error: io::Error| StartError(error.to_string());
        command.args(["--listen", "127.0.0.1:0", "--log", "/dev/null", "--until-stdin-closes"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Read while the service runs, so that it never waits for a full pipe.
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut line = String::new();
        let said = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.and_then(|address| address.parse().ok());
        let (Some(Ok(_)), Some(address)) = (said, address) else {
            let _ = child.kill();
            let _ = child.wait();
            let errors = errors.join().unwrap_or_default();
            return Err(StartError(errors.lines().last().unwrap_or("it said nothing").to_owned()));
        };
        let system = |error: &dyn fmt::Display| StartError(error.to_string());
        let id = i32::try_from(child.id()).map_err(|error| system(&error))?;
        let mut service = Self {
            process: Process::new(id).map_err(|error| system(&error))?,
            processor_clock: clock_getcpuclockid(Pid::from_raw(id))
                .map_err(|error| system(&error))?,
            child,
            address,
            _stdin: stdin,
            errors: None,
        };
        service.errors = Some(errors);
        Ok(service)
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the processor time of all of its threads since it began, inside and outside of the
    /// kernel, with a resolution of nanoseconds.
    pub fn processor_time(&self) -> Option<Duration> {
        clock_gettime(self.processor_clock).ok().map(Duration::from)
    }

    /// Returns the part of its processor time that was spent outside of the kernel, in ticks of 10 ms.
    pub fn user_time(&self) -> Option<Duration> {
        let ticks = self.process.stat().ok()?.utime;
        Some(Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64))
    }

    /// Returns its resident bytes now.
    pub fn resident_bytes(&self) -> Option<u64> {
        // Counted page by page. The running count of `status` may be wrong by some pages for each
        // core.
        let rollup = self.process.smaps_rollup().ok()?;
        rollup.memory_map_rollup.iter().find_map(|map| map.extension.map.get("Rss").copied())
    }

    /// Returns the peak of its resident bytes since [`forget_peak`](Self::forget_peak).
    pub fn peak_resident_bytes(&self) -> Option<u64> {
        self.process.status().ok()?.vmhwm.map(|kib| kib * 1024)
    }

    /// Resets the peak. If that is not permitted, the peak counts from the start.
    pub fn forget_peak(&self) {
        let _ = std::fs::write(format!("/proc/{}/clear_refs", self.process.pid()), "5");
    }

    /// Returns the number of its minor page faults.
    pub fn minor_faults(&self) -> Option<u64> {
        self.process.stat().ok().map(|stat| stat.minflt)
    }

    /// Ends it, and returns what it has written to standard error: the message of a panic, for
    /// example.
    pub fn end(mut self) -> String {
        self.kill();
        self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default()
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
