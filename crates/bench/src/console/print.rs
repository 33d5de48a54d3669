//! Standard output: plain text, with bold and colour if the terminal supports them.

use crate::console::failure::Failure;
use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

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

/// Writes one JSON value in one line.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?)
}

/// `1, 2 and 16`.
pub fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Writes one line to standard error. Errors are ignored: standard error may be closed, or on a
/// full disk.
pub fn to_errors(text: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints on standard error why `program` failed, if there is something to say. Returns its exit code.
pub fn exit_code(program: &str, result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let why = failure.to_string();
    if !why.is_empty() {
        to_errors(format!("{program}: {why}"));
    }
    ExitCode::from(failure.exit_code())
}

/// `text` in a style. [`line()`] removes the style if there is no terminal or `NO_COLOR` is set.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Breaks `text` at spaces into lines of at most [`WIDTH`] characters.
pub fn wrapped(text: &str) -> String {
    wrapped_to(WIDTH, text)
}

/// Breaks `text` at spaces into lines of at most `width` characters.
pub fn wrapped_to(width: usize, text: &str) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
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
    fn long_text_is_broken_at_spaces_and_nothing_is_lost() {
        let text = "word ".repeat(60);
        let lines = wrapped(text.trim());
        assert!(lines.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(lines.split_whitespace().count(), 60);
    }

    #[test]
    fn a_list_has_commas_and_an_and() {
        let lists = [&[][..], &[1], &[1, 2], &[1, 2, 16]].map(listed);
        assert_eq!(lists, ["", "1", "1 and 2", "1, 2 and 16"]);
    }
}
