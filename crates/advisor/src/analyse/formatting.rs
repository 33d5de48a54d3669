//! Figures in sentences.

use super::block_statistics::SIZES;
use super::findings::BlockFigures;

pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.1 {
        "less than 0.1 %".to_owned()
    } else if percent < 9.95 && percent.fract() > 0.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// A share that is an estimate.
pub fn about(share: f64) -> String {
    let percent = percent(share);
    if percent.starts_with("less") { percent } else { format!("about {percent}") }
}

/// A share that nothing is above.
pub fn at_most(share: f64) -> String {
    let percent = percent(share);
    if percent.starts_with("less") { percent } else { format!("at most {percent}") }
}

/// A command line as a shell reads it: words that are empty or have special characters are quoted.
pub fn command(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "@%+=:,./-_".contains(c);
    let quoted = |word: &String| match word {
        word if !word.is_empty() && word.chars().all(is_plain) => word.clone(),
        word => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

pub fn count(count: u64) -> String {
    bench::console::table::grouped(count)
}

/// A count with its noun, whose plural ends in `s`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

pub fn number(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { count(number.round() as u64) }
}

pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 10_000 {
        return format!("{} B", count(bytes));
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if value < 99.95 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// Peak memory compared with glibc's, after "takes": the ratio, or the difference where glibc's
/// peak is too small for a ratio.
pub fn memory(ratio: Option<f64>, more: Option<i64>) -> String {
    match (ratio, more) {
        (Some(ratio), _) => format!("{ratio:.2} × its peak memory"),
        (None, Some(0)) => "as much memory".to_owned(),
        (None, Some(more)) => {
            let than = if more > 0 { "more" } else { "less" };
            format!("{} {than} memory", bytes(more.unsigned_abs()))
        }
        (None, None) => "an unknown amount of memory".to_owned(),
    }
}

/// Nanoseconds.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// The number of a group's sizes, in words.
pub fn sizes(b: &BlockFigures) -> String {
    match b.sizes {
        1 => "one size".to_owned(),
        some if (some as usize) < SIZES => format!("{some} sizes"),
        _ => format!("{SIZES} or more sizes"),
    }
}

/// A number of times, in words.
pub fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{} times", count(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_units() {
        let percents = [0.0, 0.0004, 0.0123, 0.5, 0.999].map(percent);
        assert_eq!(percents, ["0 %", "less than 0.1 %", "1.2 %", "50 %", "100 %"]);
        assert_eq!([0.0004, 0.5].map(about), ["less than 0.1 %", "about 50 %"]);
        assert_eq!([0.0004, 0.5].map(at_most), ["less than 0.1 %", "at most 50 %"]);
        let bytes = [0, 9_999, 10_240, 3 << 20, 200 << 20].map(bytes);
        assert_eq!(bytes, ["0 B", "9,999 B", "10.0 KiB", "3.0 MiB", "200 MiB"]);
        let times = [17, 1_700, 2_500_000, 3_210_000_000].map(time);
        assert_eq!(times, ["17 ns", "1.7 µs", "2.5 ms", "3.21 s"]);
        let counts = [0, 1, 2000].map(|number| counted(number, "block"));
        assert_eq!(counts, ["0 blocks", "1 block", "2,000 blocks"]);
        assert_eq!([1, 2, 3000].map(super::times), ["once", "2 times", "3,000 times"]);
        let sizes =
            [1, 2, 16].map(|sizes| super::sizes(&BlockFigures { sizes, ..Default::default() }));
        assert_eq!(sizes, ["one size", "2 sizes", "16 or more sizes"]);
        assert_eq!([1.5, 12345.6].map(number), ["1.5", "12,346"]);
    }

    #[test]
    fn memory_is_told_as_a_ratio_or_a_difference() {
        assert_eq!(memory(Some(1.5), Some(5 << 20)), "1.50 × its peak memory");
        assert_eq!(memory(None, Some(233_472)), "228 KiB more memory");
        assert_eq!(memory(None, Some(-4_096)), "4,096 B less memory");
        assert_eq!(memory(None, Some(0)), "as much memory");
        assert_eq!(memory(None, None), "an unknown amount of memory");
    }

    #[test]
    fn a_command_line_is_quoted_as_in_a_shell() {
        let words = ["jq", "", ".a | .b", "it's", "-c", "/tmp/a-b_c.json"].map(str::to_owned);
        assert_eq!(command(&words), "jq '' '.a | .b' 'it'\\''s' -c /tmp/a-b_c.json");
    }
}
