//! What the program itself took with other mallocs and with changes tried, with `--repeat`.

use super::{WIDTH, paragraph};
use crate::advise::terminal_text::one_line;
use crate::analyse::findings::{Findings, MeasuredFindings, MeasuredRatio, MeasuredRow};
use crate::analyse::formatting;
use bench::console::print::{NOTE, styled, wrapped};
use bench::console::statistics::FEWEST_ROUNDS;
use bench::console::table::{Emphasis, Line, counted, figure, ratio, render};

/// The most characters of a name in the table.
const NAME: usize = 28;
/// The most characters of a name in a command.
const COMMAND: usize = 36;

/// The table of all mallocs, and what could not be measured.
pub fn table(measured: &MeasuredFindings) -> String {
    let best = measured.best().map(|(row, _)| row.name.as_str());
    let line = |row: &MeasuredRow| -> Line {
        let emphasis = match best {
            Some(best) if best == row.name => Emphasis::Best,
            _ => Emphasis::Plain,
        };
        let cells = vec![
            one_line(&row.name, NAME),
            row.cpu_ns.map_or_else(|| "-".to_owned(), formatting::time),
            compared(row.cpu),
            compared(row.wall),
            row.peak_bytes.map_or_else(|| "-".to_owned(), formatting::bytes),
            figure(row.peak.map(|peak| peak.median)),
        ];
        (emphasis, cells)
    };
    let measurable: Vec<Line> =
        measured.rows.iter().filter(|row| row.cpu_ns.is_some()).map(line).collect();
    let mut text = String::new();
    if measurable.len() > 1 {
        let runs = counted(measured.runs as usize, "run");
        let tried = measured.rows.iter().any(|row| !row.groups.is_empty());
        let with =
            if tried { "with each malloc and each change tried" } else { "with each malloc" };
        let head = format!(
            "Measured on the program itself: {runs} {with}, interleaved; ratios to `as it is`, with 95 % intervals:"
        );
        text += &wrapped(&head);
        let heads = ["with", "CPU time", "CPU ratio", "wall ratio", "peak memory", "memory ratio"];
        text += &format!("\n{}", render(&heads, &measurable));
    }
    let failures = measured
        .rows
        .iter()
        .skip(1)
        .filter_map(|row| Some(format!("With {}, {}.", row.name, row.failure.as_deref()?)));
    let notes = measured.notes.iter().cloned();
    for text_of in failures.chain(notes) {
        text += if text.is_empty() { "" } else { "\n" };
        text += &styled(NOTE, wrapped(&text_of));
    }
    text
}

/// A ratio with its interval; `no difference` if that contains 1.
fn compared(of: Option<MeasuredRatio>) -> String {
    match of {
        None => "-".to_owned(),
        Some(of) if of.shows_no_difference() => "no difference".to_owned(),
        Some(MeasuredRatio { median, low: Some(low), high: Some(high) }) => {
            format!("{} ({} to {})", ratio(median), ratio(low), ratio(high))
        }
        Some(of) => format!("{} (too few runs)", ratio(of.median)),
    }
}

/// What the best malloc saves, and how to use it.
pub fn advice(measured: &MeasuredFindings, findings: &Findings) -> String {
    const HEAD: &str = "Without changing the code";
    let Some((row, cpu)) = measured.best() else {
        let others = measured.mallocs().filter(|row| row.cpu.is_some()).count();
        let text = match others {
            0 => return String::new(),
            _ if (measured.runs as usize) < FEWEST_ROUNDS => format!(
                "too few runs ({} of each) to tell a difference from chance; at least {FEWEST_ROUNDS} are needed.",
                measured.runs
            ),
            1 => "the other malloc that is installed is not faster: measured.".to_owned(),
            count => {
                format!("none of the {count} other mallocs that are installed is faster: measured.")
            }
        };
        return paragraph(HEAD, &text);
    };
    let memory = row.peak.map_or_else(String::new, |peak| {
        format!(", and takes {} × the memory", figure(Some(peak.median)))
    });
    let program = findings.program.command.first().map_or("PROGRAM", |program| program);
    let library = row.library.as_deref().unwrap_or_default();
    paragraph(
        HEAD,
        &format!(
            "{} saves {} of the program's CPU time{memory}. Use it: LD_PRELOAD={} {} …",
            row.name,
            saving(cpu),
            one_line(library, WIDTH),
            one_line(program, COMMAND),
        ),
    )
}

/// `7.9 % (7.0 to 8.8 %)`.
pub fn saving(cpu: MeasuredRatio) -> String {
    let percent = |ratio: f64| formatting::percent((1.0 - ratio).max(0.0));
    match (cpu.low, cpu.high) {
        (Some(low), Some(high)) => {
            let least = percent(high);
            let least = least.strip_suffix(" %").unwrap_or(&least);
            format!("{} ({least} to {})", percent(cpu.median), percent(low))
        }
        _ => percent(cpu.median),
    }
}
