//! `--svg`: all workloads in one plot. It shows each allocator's time divided by that of the
//! project's own row, so one axis serves nanoseconds and microseconds. A line through a mark is the
//! 95 % interval.

use super::plot_parts::{LINE_COLOUR, Mark, OWN_COLOUR, PlotResult};
use crate::console::statistics::Ratio;
use crate::console::table::counted;
use crate::runner::row::Row;
use crate::workloads::Workload;
use crate::workloads::measurement::RATIO_TO_OWN;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

/// One line of dots: a workload with a number of threads.
struct DotRow {
    name: String,
    own: &'static str,
    /// The allocators of other projects, with the ratio of their time to the own row's.
    peers: Vec<(&'static str, Ratio)>,
}

/// The plot of all rows that have a ratio to one of the project's rows, as SVG.
pub fn overview(all: &[(&Workload, Vec<Row>)]) -> PlotResult<String> {
    let groups = groups(all);
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in groups.iter().flat_map(|group| &group.peers) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let all_ends =
        groups.iter().flat_map(|group| group.peers.iter().flat_map(|peer| ends(&peer.1)));
    let least = all_ends.clone().fold(0.8, f64::min) / 1.1;
    let greatest = all_ends.fold(2.0, f64::max) * 1.1;
    let mut svg = String::new();
    if groups.is_empty() {
        return Ok(svg);
    }
    {
        let height = 26 * groups.len() as u32 + 110;
        let area = SVGBackend::with_string(&mut svg, (900, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let from_below = |index: usize| groups.len() - 1 - index;
        let mut chart = ChartBuilder::on(&area)
            .caption(
                "time divided by Allotment's, with 95 % intervals: right of 1 is slower",
                ("sans-serif", 15),
            )
            .x_label_area_size(30)
            .y_label_area_size(300)
            .right_y_label_area_size(0)
            .margin(8)
            .build_cartesian_2d(
                (least..greatest).log_scale(),
                (0..groups.len() - 1).into_segmented(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINE_COLOUR.mix(0.3))
            .axis_style(LINE_COLOUR)
            .label_style(("sans-serif", 13))
            .x_labels(8)
            .x_label_formatter(&|ratio| format!("{ratio:.1}"))
            .y_labels(groups.len())
            .y_label_formatter(&|place| match place {
                SegmentValue::CenterOf(index) | SegmentValue::Exact(index) => groups
                    .get(from_below((*index).min(groups.len() - 1)))
                    .map_or_else(String::new, |group| format!("{} ({})", group.name, group.own)),
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        let one = [(1.0, SegmentValue::Exact(0)), (1.0, SegmentValue::Last)];
        chart.draw_series([PathElement::new(one, OWN_COLOUR.stroke_width(3))])?;
        for (index, name) in names.iter().enumerate() {
            let mark = Mark::of(index);
            let ratios = groups.iter().enumerate().flat_map(|(place, group)| {
                let of_name = group.peers.iter().filter(|peer| peer.0 == *name);
                of_name.map(move |peer| (SegmentValue::CenterOf(from_below(place)), peer.1))
            });
            let lines = ratios.clone().map(|(place, ratio)| {
                let line = ends(&ratio).map(|end| (end, place.clone()));
                PathElement::new(line, mark.colour.mix(0.6).stroke_width(2))
            });
            chart.draw_series(lines)?;
            chart
                .draw_series(ratios.map(|(place, ratio)| mark.at((ratio.median, place), 5)))?
                .label(*name)
                .legend(move |(x, y)| mark.at((x + 10, y), 5));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(LINE_COLOUR)
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

/// The ends of a ratio's interval; without an interval, the median twice.
fn ends(ratio: &Ratio) -> [f64; 2] {
    ratio.interval.map_or([ratio.median; 2], |interval| [interval.low, interval.high])
}

fn groups(all: &[(&Workload, Vec<Row>)]) -> Vec<DotRow> {
    let mut groups = Vec::new();
    for (workload, rows) in all {
        for rows in rows.chunk_by(|one, next| one.setting == next.setting) {
            let is_ours = |row: &&Row| row.is_own() || row.allocator.starts_with("allotment-");
            let peers = rows.iter().filter(|row| !is_ours(row));
            let peers: Vec<_> = peers
                .filter_map(|row| Some((row.allocator, row.measurement.ratio(&RATIO_TO_OWN)?)))
                .collect();
            if let (Some(first), false) = (rows.first(), peers.is_empty()) {
                let threads = counted(first.setting.threads, "thread");
                let name = format!("{}, {threads}", workload.name);
                groups.push(DotRow { name, own: first.own, peers });
            }
        }
    }
    groups
}
