//! `--html`: plots and tables in one self-contained file.

use super::columns;
use super::plot_parts::{LINE_COLOUR, OWN_COLOUR, PlotResult, escaped};
use super::size_plot::Sizes;
use crate::console::failure::Failure;
use crate::console::table::figure;
use crate::runner::row::Row;
use crate::workloads::measurement::{NS_PER_OP, NS_PER_OP_MAX, NS_PER_OP_MIN, Scale};
use crate::workloads::{Column, Workload};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// A page whose file is open for writing.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    file: File,
}

impl Page {
    /// Opens the file, so that a path that can't be written is an error before any work is done.
    pub fn create(path: PathBuf) -> Result<Self, Failure> {
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(Failure::Usage(format!("can't write '{}': {error}", path.display()))),
        }
    }

    /// Writes the page.
    pub fn write(mut self, drawn: PlotResult<String>) -> Result<(), Failure> {
        let failed =
            |why: String| Failure::Failed(format!("can't write '{}': {why}", self.path.display()));
        let text = drawn.map_err(|error| failed(error.to_string()))?;
        self.file.write_all(text.as_bytes()).map_err(|error| failed(error.to_string()))
    }
}

/// The page of all rows.
pub fn page(all: &[(&Workload, Vec<Row>)]) -> PlotResult<String> {
    let mut page = String::from(HEAD);
    for (workload, rows) in all {
        if let Some(sizes) = Sizes::beginning_with(workload, all) {
            page += &sizes.section()?;
        }
        page +=
            &format!("<h2>{}</h2>\n<p>{}</p>\n", escaped(workload.name), escaped(workload.meaning));
        for rows in rows.chunk_by(|one, next| one.setting == next.setting) {
            let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
            page += &format!(
                "<section>\n<h3>{}</h3>\n<p>Nanoseconds per {}: median of {rounds} rounds. The thin line \
                 spans minimum to maximum.</p>\n",
                escaped(&rows[0].setting.to_string()),
                escaped(workload.unit),
            );
            page += &plot(rows)?;
            page += &tables(workload, rows);
            page += "</section>\n";
        }
    }
    page += "</main>\n</body>\n</html>\n";
    Ok(page)
}

const BAR_HEIGHT: u32 = 26;
const PEER_COLOUR: RGBColor = RGBColor(0x6b, 0x85, 0xa8);
const SPREAD_COLOUR: RGBColor = RGBColor(0xd0, 0x7a, 0x1f);

/// A bar for each row that has a time, with a line from minimum to maximum.
fn plot(rows: &[Row]) -> PlotResult<String> {
    let bars: Vec<(&Row, f64, f64, f64)> = rows
        .iter()
        .filter_map(|row| {
            Some((row, row.get(&NS_PER_OP)?, row.get(&NS_PER_OP_MIN)?, row.get(&NS_PER_OP_MAX)?))
        })
        .collect();
    if bars.is_empty() {
        return Ok("<p>No run succeeded.</p>\n".to_owned());
    }
    let longest = bars.iter().map(|bar| bar.3).fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let height = BAR_HEIGHT * bars.len() as u32 + 44;
        let area = SVGBackend::with_string(&mut svg, (820, height)).into_drawing_area();
        // The first bar is on top. The axis runs upwards, so the bars are numbered from the bottom.
        let from_below = |index: usize| bars.len() - 1 - index;
        let mut chart = ChartBuilder::on(&area)
            .x_label_area_size(28)
            .y_label_area_size(190)
            .margin(4)
            .build_cartesian_2d(0.0..longest * 1.12, (0..bars.len() - 1).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINE_COLOUR.mix(0.35))
            .axis_style(LINE_COLOUR)
            .label_style(("sans-serif", 13))
            .x_labels(8)
            .x_label_formatter(&|ns| figure(Some(*ns)))
            .y_labels(bars.len())
            .y_label_formatter(&|place| match place {
                SegmentValue::CenterOf(index) | SegmentValue::Exact(index) => bars
                    .get(from_below((*index).min(bars.len() - 1)))
                    .map_or_else(String::new, |bar| bar.0.allocator.to_owned()),
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        for (index, (row, median, least, greatest)) in bars.iter().enumerate() {
            let place = from_below(index);
            let above = if place + 1 < bars.len() {
                SegmentValue::Exact(place + 1)
            } else {
                SegmentValue::Last
            };
            let colour = if row.is_own() { OWN_COLOUR } else { PEER_COLOUR };
            let mut bar = Rectangle::new(
                [(0.0, SegmentValue::Exact(place)), (*median, above)],
                colour.filled(),
            );
            bar.set_margin(4, 4, 0, 0);
            chart.draw_series([bar])?;
            let centre = SegmentValue::CenterOf(place);
            let spread = [(*least, centre.clone()), (*greatest, centre.clone())];
            chart.draw_series([PathElement::new(spread, SPREAD_COLOUR.stroke_width(2))])?;
            let at = greatest + longest * 0.012;
            let style = ("sans-serif", 13).into_text_style(&area).pos(
                plotters::style::text_anchor::Pos::new(
                    plotters::style::text_anchor::HPos::Left,
                    plotters::style::text_anchor::VPos::Center,
                ),
            );
            chart.draw_series([Text::new(figure(Some(*median)), (at, centre), style)])?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn tables(workload: &Workload, rows: &[Row]) -> String {
    let first = [columns::times(workload, rows), columns::memory()].concat();
    let mut text = table(columns::names(workload), &first, Some("policy"), rows);
    if let Some(details) = workload.details() {
        text += &table(&details.names, &details.columns, None, rows);
    }
    text
}

/// A table of these columns, and of the release policies if their heading is given.
fn table(names: &str, columns: &[Column], policy: Option<&str>, rows: &[Row]) -> String {
    let mut text = "<table>\n<thead><tr>".to_owned();
    let headings = columns.iter().map(|column| match (column.scale, policy) {
        // Memory beside figures of other kinds.
        (Scale::Bytes, Some(_)) => format!("{} MiB", column.heading),
        _ => column.heading.clone(),
    });
    let policy_heading = policy.map(str::to_owned);
    for heading in std::iter::once(names.to_owned()).chain(headings).chain(policy_heading) {
        text += &format!("<th>{}</th>", escaped(&heading));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in rows {
        let class = match (row.best, row.is_own()) {
            (true, _) => " class=\"best\"",
            (_, true) => " class=\"own\"",
            _ => "",
        };
        text += &format!("<tr{class}><th>{}</th>", escaped(row.allocator));
        let mut cells: Vec<String> = columns::cells(columns, row).collect();
        if let Some(error) = &row.error {
            cells[0].clone_from(error);
        }
        for cell in cells.iter().map(String::as_str).chain(policy.map(|_| row.policy)) {
            text += &format!("<td>{}</td>", escaped(cell));
        }
        text += "</tr>\n";
    }
    text + "</tbody>\n</table>\n"
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>allot bench</title>
<style>
:root { color-scheme: light dark; --line: #8884; --best: #2f8f4e; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; margin: 2.2rem 0 .4rem; }
h1 { margin-top: 0; }
p { margin: .2rem 0 .8rem; max-width: 46rem; }
section { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
svg text { fill: currentColor; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:last-child { text-align: left; }
tbody th { font-weight: normal; }
tr.own th { font-weight: 600; }
tr.best > * { color: var(--best); font-weight: 600; }
</style>
</head>
<body>
<main>
<h1>allot bench</h1>
<p>Every run has a process of its own, and rounds are interleaved. Ratio: time divided by that of Allotment's
own row for this work, the median of all rounds; above 1 is slower. The interval contains that median with
95 % confidence. A row is ahead or behind if its whole interval is below or above 1, and level if the
interval contains 1; fewer than six rounds have no interval. Peak and end: resident memory beyond
the harness's own, at most and at the end. Faults and calls: page faults and memory system calls per query,
reply or request in the steady state, or of the whole measured part for other work. Green: the fastest.</p>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::plan::{Selection, plans};
    use crate::runner::rounds::CaseResults;
    use crate::runner::row;

    #[test]
    fn the_page_needs_no_other_file_and_shows_every_row() {
        let selection = Selection {
            workloads: vec!["grow".to_owned()],
            allocators: vec!["glibc".to_owned(), "bumpalo".to_owned()],
            threads: vec![1, 2],
        };
        let plan = plans(&selection).unwrap().plans.remove(0);
        let found: Vec<CaseResults> = (1..=4)
            .map(|ns| CaseResults {
                reports: vec![Some(row::tests::report(f64::from(ns)))],
                failure: (ns == 4).then(|| "ended by <signal>".to_owned()),
                ..CaseResults::default()
            })
            .collect();
        let rows = row::rows(&plan.cases, &found);
        let text = page(&[(plan.workload, rows)]).unwrap();
        assert_eq!(text.matches("<svg").count(), 2);
        assert_eq!(text.matches("<tr").count(), 2 + 4);
        assert!(text.contains("ended by &lt;signal&gt;"));
        for reference in ["<link", "<script", "src=", "href=", "url("] {
            assert!(!text.contains(reference), "{reference}");
        }
    }

    #[test]
    fn a_second_table_has_a_line_for_each_row() {
        let selection = Selection {
            workloads: vec!["churn".to_owned()],
            allocators: vec!["glibc".to_owned(), "sharded-slab".to_owned()],
            threads: vec![1],
        };
        let plan = plans(&selection).unwrap().plans.remove(0);
        let found = [
            CaseResults { reports: vec![Some(row::tests::report(1.0))], ..CaseResults::default() },
            CaseResults { failure: Some("gone".to_owned()), ..CaseResults::default() },
        ];
        let text = page(&[(plan.workload, row::rows(&plan.cases, &found))]).unwrap();
        assert_eq!(text.matches("<table").count(), 2);
        assert_eq!(text.matches("<tr").count(), 2 * (1 + 2));
        assert!(text.contains("<th>all freed</th>"));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_at_once() {
        let failure = Page::create(PathBuf::from("/no/such/directory/page.html")).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
    }
}
