//! Tables in plain text: no vertical lines, figures aligned to the right, the best row marked.

use crate::console::print::{BEST, HEADING, OWN, styled};
use comfy_table::{CellAlignment, Table, TableStyle};

/// How a row stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emphasis {
    /// It does not stand out.
    Plain,
    /// It is the project's own row.
    Own,
    /// It is the best row.
    Best,
}

/// One row: how it stands out, and its cells.
pub type Line = (Emphasis, Vec<String>);

/// The mark before the best row, which shows without colour too.
const MARK: &str = "»";

/// Renders a table. The first column is text, and the others are figures.
pub fn render(head: &[&str], lines: &[Line]) -> String {
    let mut table = Table::new();
    let rule = comfy_table::LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_header(std::iter::once("").chain(head.iter().copied()));
    for (emphasis, cells) in lines {
        let mark = if *emphasis == Emphasis::Best { MARK } else { "" };
        table.add_row(std::iter::once(mark).chain(cells.iter().map(String::as_str)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        // Two spaces between columns: one of padding, and one that the table adds.
        column.set_padding((u16::from(index > 1), u16::from(index == 0)));
        if index > 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_end();
        let emphasis = index.checked_sub(2).and_then(|index| lines.get(index)).map(|line| line.0);
        text += &match (index, emphasis) {
            (0, _) => styled(HEADING, line),
            (_, Some(Emphasis::Best)) => styled(BEST, line),
            (_, Some(Emphasis::Own)) => styled(OWN, line),
            _ => line.to_owned(),
        };
        text.push('\n');
    }
    text.pop();
    text
}

/// A figure with three digits, or a dash if there is none.
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value < 0.001 => "<0.001".to_owned(),
        Some(value) if value < 0.1 => format!("{value:.3}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => grouped(value.round() as u64),
    }
}

/// A ratio. Near 1 it has enough digits to show on which side of 1 it is.
pub fn ratio(value: f64) -> String {
    if (0.1..10.0).contains(&value) { format!("{value:.3}") } else { figure(Some(value)) }
}

/// A whole number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 thread`, `2,000 threads`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

/// Bytes as MiB.
pub fn mebibytes(bytes: Option<u64>) -> String {
    bytes
        .map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

/// A time in milliseconds, printed in µs, ms or s.
pub fn time(ms: Option<f64>) -> String {
    match ms {
        None => "-".to_owned(),
        Some(ms) if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        Some(ms) if ms < 10.0 => format!("{ms:.2} ms"),
        Some(ms) if ms < 1000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.2} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_what_is_missing_is_a_dash() {
        let texts =
            [None, Some(0.0), Some(0.0004), Some(0.0123), Some(1.234), Some(98.76), Some(12345.6)];
        let texts: Vec<_> = texts.into_iter().map(figure).collect();
        assert_eq!(texts, ["-", "0", "<0.001", "0.012", "1.23", "98.8", "12,346"]);
        assert_eq!((mebibytes(None), mebibytes(Some(3 << 19))), ("-".to_owned(), "1.5".to_owned()));
        let counts = [1, 2, 1234].map(|count| counted(count, "thread"));
        assert_eq!(counts, ["1 thread", "2 threads", "1,234 threads"]);
        assert_eq!([0.05, 0.996, 1.5, 23.4].map(ratio), ["0.050", "0.996", "1.500", "23.4"]);
        assert_eq!(
            (time(Some(0.25)), time(Some(1500.0))),
            ("250 µs".to_owned(), "1.50 s".to_owned())
        );
    }

    #[test]
    fn the_best_row_is_marked_and_figures_stand_to_the_right() {
        let row = |emphasis, name: &str, figure: &str| {
            (emphasis, vec![name.to_owned(), figure.to_owned()])
        };
        let lines = [row(Emphasis::Own, "ours", "10"), row(Emphasis::Best, "theirs", "9")];
        let text = anstream::adapter::strip_str(&render(&["allocator", "ns"], &lines)).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "   allocator  ns");
        assert_eq!(lines[2], "   ours       10");
        assert_eq!(lines[3], "»  theirs      9");
        assert!(lines[1].chars().all(|c| c == '─'));
    }
}
