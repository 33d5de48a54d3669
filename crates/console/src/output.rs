//! Standard output: plain text, with bold and colour if the terminal supports them.

use crate::failure::Failure;
use clap::builder::styling::{AnsiColor, Style};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Headings.
pub const HEADING: Style = Style::new().bold();
/// The best row, and the answer.
pub const BEST: Style = AnsiColor::Green.on_default().bold();
/// The project's own row.
pub const OWN: Style = Style::new().bold();
/// Explanations.
pub const NOTE: Style = Style::new().dimmed();

/// The most characters of a line.
pub const WIDTH: usize = 100;

/// Writes one line.
pub fn line(text: impl Display) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{text}").map_err(Failure::from)
}

/// Writes one line to standard error. Errors are ignored: standard error may be closed, or on a
/// full disk.
pub fn to_errors(text: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes a whole file. If that fails, or the process is killed, the old file is unchanged.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A symbolic link stays, and its target is written.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = match std::fs::metadata(&target) {
        Ok(metadata) if metadata.is_file() => {
            // Fails if the file is not writable; otherwise the rename below would replace it.
            std::fs::OpenOptions::new().append(true).open(&target)?;
            Some(metadata.permissions())
        }
        // A pipe or a device.
        Ok(_) => return std::fs::write(path, bytes),
        Err(_) => None,
    };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    std::fs::metadata(parent)?;
    let usual = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    let new = tempfile::Builder::new().prefix(".allot-").permissions(usual).tempfile_in(parent);
    let mut new = match new {
        Ok(new) => new,
        // The file is writable, but its directory is not.
        Err(_) if there.is_some() => return std::fs::write(&target, bytes),
        // The error would name the temporary file.
        Err(error) => return Err(error.kind().into()),
    };
    new.write_all(bytes)?;
    if let Some(permissions) = there {
        new.as_file().set_permissions(permissions)?;
    }
    new.persist(&target).map(drop).map_err(|error| error.error)
}

/// `text` in a style. [`line()`] removes the style if there is no terminal or `NO_COLOR` is set.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Breaks `text` at spaces into lines of at most [`WIDTH`] characters.
pub fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > WIDTH {
            lines.push('\n');
            used = 0;
        }
        if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all_and_keeps_its_mode_and_its_links() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        write_file(&file, b"one").unwrap();
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode() & 0o600, 0o600);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let before = std::fs::File::open(&file).unwrap();
        write_file(&link, b"two").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((std::fs::read(&file).unwrap(), mode()), (b"two".to_vec(), 0o640));
        // A reader that had the old file open still reads it whole.
        assert_eq!(io::read_to_string(before).unwrap(), "one");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        write_file(Path::new("/dev/null"), b"three").unwrap();
        let error = write_file(Path::new("/dev/full"), b"three").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        let error = write_file(&directory.path().join("no/such"), b"three").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(2), "{error}");
        assert!(write_file(directory.path(), b"three").is_err());
    }

    #[test]
    fn long_text_is_broken_at_spaces_and_nothing_is_lost() {
        let text = "word ".repeat(60);
        let lines = wrapped(text.trim());
        assert!(lines.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(lines.split_whitespace().count(), 60);
    }
}
