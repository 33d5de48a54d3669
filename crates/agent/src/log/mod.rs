//! The agent's log: buffered, and yet complete after a crash.
//!
//! A program that buffers its log in its own memory loses the end of it in a crash, which is the
//! part that would show the cause. A program that writes each line makes a system call for each.
//! Here lines are copied into a file mapping that is shared with the kernel: there is one system
//! call for each [`STEP`], and every copied line is in the file even if the process is killed. (A
//! crash of the whole machine may lose what the kernel has not written yet.)
//!
//! A file of [`LIMIT`] bytes is renamed to end with `.1`, which replaces the file of that name, and
//! a new one is begun. Other programs may rename the file, and then request a new one
//! ([`Log::reopen`]), but they must not shorten it while the agent runs: access to a page that is
//! no longer in the file would kill the agent.

mod log_mapping;

pub use log_mapping::{LIMIT, STEP};

use log_mapping::LogMapping;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The longest line, in bytes. Longer lines are cut.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// After a failure the disk is not used for this time.
const PAUSE: Duration = Duration::from_secs(1);

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// An event.
    Info,
    /// Something that should be looked at.
    Warning,
    /// A failure.
    Error,
}

/// The log can't be opened.
#[derive(Debug)]
pub struct LogError {
    path: PathBuf,
    cause: io::Error,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.cause.kind() == io::ErrorKind::WouldBlock {
            return write!(
                f,
                "the log {path} is another agent's; end that one, or give --log another file"
            );
        }
        write!(f, "the log {path} can't be opened: {}; name a file that can be written", self.cause)
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The agent's log.
pub struct Log {
    output: Mutex<LogOutput>,
}

enum LogOutput {
    Stderr,
    File(LogFile),
}

struct LogFile {
    path: PathBuf,
    /// `None` while no file can be opened.
    file: Option<LogMapping>,
    lost: u64,
    /// Lost lines that no line has reported yet.
    unreported: u64,
    pause_until: Option<Instant>,
}

impl Log {
    /// Creates a log on standard error.
    #[must_use]
    pub fn stderr() -> Self {
        Self { output: Mutex::new(LogOutput::Stderr) }
    }

    /// Creates a log that appends to this file, which is created if it does not exist. Removes what
    /// a killed agent left after its last whole line.
    ///
    /// # Errors
    /// When the file can't be opened, is not a regular file, or is another agent's.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LogError> {
        let path = path.into();
        match open_with_space(&path) {
            Ok(file) => {
                let lines =
                    LogFile { path, file: Some(file), lost: 0, unreported: 0, pause_until: None };
                Ok(Self { output: Mutex::new(LogOutput::File(lines)) })
            }
            Err(cause) => Err(LogError { path, cause }),
        }
    }

    /// Appends a line. Returns whether the line is in the file; if so, it stays there even if the
    /// process is killed at once.
    pub fn line(&self, level: LogLevel, message: fmt::Arguments<'_>) -> bool {
        let line = line(SystemTime::now(), level, message);
        match &mut *self.lock() {
            // There is nowhere to report a standard error that is closed.
            LogOutput::Stderr => io::stderr().write_all(line.as_bytes()).is_ok(),
            LogOutput::File(lines) => lines.append(line.as_bytes()),
        }
    }

    /// Appends a line of [`LogLevel::Info`].
    pub fn info(&self, message: fmt::Arguments<'_>) -> bool {
        self.line(LogLevel::Info, message)
    }

    /// Appends a line of [`LogLevel::Warning`].
    pub fn warning(&self, message: fmt::Arguments<'_>) -> bool {
        self.line(LogLevel::Warning, message)
    }

    /// Appends a line of [`LogLevel::Error`].
    pub fn error(&self, message: fmt::Arguments<'_>) -> bool {
        self.line(LogLevel::Error, message)
    }

    /// Returns how many lines were lost because the disk was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match &*self.lock() {
            LogOutput::Stderr => 0,
            LogOutput::File(lines) => lines.lost,
        }
    }

    /// Closes the file, and opens the one that has its name: after the file was renamed.
    ///
    /// # Errors
    /// As for [`open`](Self::open). The log then continues with the file that it has.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut output = self.lock();
        let LogOutput::File(lines) = &mut *output else { return Ok(()) };
        match lines.is_the_named_file() {
            true => Ok(()),
            false => match open_with_space(&lines.path) {
                Ok(file) => {
                    lines.file = Some(file);
                    Ok(())
                }
                Err(cause) => Err(LogError { path: lines.path.clone(), cause }),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.lock() {
            LogOutput::Stderr => f.write_str("Log(standard error)"),
            LogOutput::File(lines) => {
                f.debug_struct("Log").field("path", &lines.path).field("lost", &lines.lost).finish()
            }
        }
    }
}

impl LogFile {
    fn append(&mut self, line: &[u8]) -> bool {
        let appended = self.pause_until.is_none_or(|until| Instant::now() >= until)
            && match self.try_append(line) {
                Ok(()) => true,
                Err(_) => {
                    self.pause_until = Some(Instant::now() + PAUSE);
                    false
                }
            };
        if !appended {
            self.lost += 1;
            self.unreported += 1;
        }
        appended
    }

    fn try_append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.unreported > 0 {
            let lost = self.unreported;
            let told =
                format_args!("{lost} lines before this one are lost, because the disk was full");
            let told = self::line(SystemTime::now(), LogLevel::Error, told);
            self.put(told.as_bytes())?;
            self.unreported = 0;
            self.pause_until = None;
        }
        self.put(line)
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) if file.has_space_for(line.len()) => file,
            full_or_none => {
                if let Some(mut full) = full_or_none.take() {
                    full.trim()?;
                    set_aside(full, &self.path)?;
                }
                full_or_none.insert(open_with_space(&self.path)?)
            }
        };
        file.append(line)
    }

    fn is_the_named_file(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_at(&self.path))
    }
}

/// Opens the file. A full file is renamed first.
fn open_with_space(path: &Path) -> io::Result<LogMapping> {
    match LogMapping::open(path)? {
        Some(file) if file.has_space_for(2 * MAX_LINE_BYTES) => return Ok(file),
        Some(full) => set_aside(full, path)?,
        None => rename(path)?,
    }
    LogMapping::open(path)?.ok_or_else(|| io::Error::other("the disk has no room for the new file"))
}

/// Renames a full file, if it still has its name, before its lock is released: a second agent that
/// starts at this moment must not get it.
fn set_aside(full: LogMapping, path: &Path) -> io::Result<()> {
    let renamed = if full.is_at(path) { rename(path) } else { Ok(()) };
    drop(full);
    renamed
}

fn rename(path: &Path) -> io::Result<()> {
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    std::fs::rename(path, old)
}

/// Formats one line: the time, the level, the message without control characters.
fn line(now: SystemTime, level: LogLevel, message: fmt::Arguments<'_>) -> String {
    use fmt::Write;
    let level = match level {
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
    };
    let mut line = LineBuilder(format!("{} {level} ", humantime::format_rfc3339_millis(now)));
    // An error comes from the message itself. What was written before is kept.
    let _ = write!(line, "{message}");
    let mut line = line.0;
    if line.len() >= MAX_LINE_BYTES {
        const CUT: &str = "…";
        let mut end = MAX_LINE_BYTES - CUT.len() - 1;
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push_str(CUT);
    }
    line.push('\n');
    line
}

/// Escapes control characters, and stops at the longest line.
struct LineBuilder(String);

impl fmt::Write for LineBuilder {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() >= MAX_LINE_BYTES {
                return Err(fmt::Error);
            }
            if character.is_control() {
                self.0.extend(character.escape_default());
            } else {
                self.0.push(character);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_the_message_has() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_769_939_970_007);
        assert_eq!(
            line(time, LogLevel::Warning, format_args!("a\nb\0{}", "é")),
            "2026-02-01T09:59:30.007Z warning a\\nb\\u{0}é\n"
        );
        let long = line(time, LogLevel::Info, format_args!("{}", "é".repeat(MAX_LINE_BYTES)));
        assert!(long.len() <= MAX_LINE_BYTES && long.ends_with("…\n"));
        assert_eq!(long.matches('\n').count(), 1);
    }
}
