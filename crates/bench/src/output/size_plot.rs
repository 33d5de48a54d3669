//! The plot of a workload that exists in several sizes: a line for each allocator, over the sizes.

use super::plot_parts::{LINE_COLOUR, Mark, OWN_COLOUR, PlotResult, escaped};
use crate::console::table::figure;
use crate::runner::row::Row;
use crate::workloads::Workload;
use crate::workloads::measurement::NS_PER_OP;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The rows of all sizes of one kind of workload.
pub struct Sizes<'r> {
    family: &'static str,
    unit: &'static str,
    /// The size, as an exponent of two, and the rows of that size.
    rows: Vec<(u32, &'r [Row])>,
}

impl<'r> Sizes<'r> {
    /// All sizes of the kind of `workload`, if it is the first of them in `all` and there are
    /// others.
    pub fn beginning_with(workload: &Workload, all: &'r [(&Workload, Vec<Row>)]) -> Option<Self> {
        let (family, _) = workload.family().zip(workload.exponent())?;
        let mut rows: Vec<(u32, &[Row])> = all
            .iter()
            .filter(|(other, _)| other.family() == Some(family))
            .filter_map(|(other, rows)| Some((other.exponent()?, rows.as_slice())))
            .collect();
        let first = rows.first()?.0;
        rows.sort_by_key(|(exponent, _)| *exponent);
        let begins = Some(first) == workload.exponent() && rows.len() > 1;
        begins.then_some(Self { family, unit: workload.unit, rows })
    }

    /// A heading, and the plot.
    pub fn section(&self) -> PlotResult<String> {
        Ok(format!(
            "<h2>{}, by size</h2>\n<section>\n<p>Nanoseconds per {}, medians, over the number of nodes in a \
             tree. Both axes are logarithmic.</p>\n{}</section>\n",
            escaped(self.family),
            escaped(self.unit),
            self.plot()?
        ))
    }

    fn lines(&self) -> Vec<Curve> {
        let mut lines: Vec<Curve> = Vec::new();
        for (exponent, rows) in &self.rows {
            for row in *rows {
                let Some(ns) = row.get(&NS_PER_OP) else { continue };
                let point = (f64::from(*exponent), ns);
                match lines.iter_mut().find(|line| line.name == row.allocator) {
                    Some(line) => line.points.push(point),
                    None => {
                        let own = row.is_own();
                        lines.push(Curve { name: row.allocator, own, points: vec![point] });
                    }
                }
            }
        }
        lines
    }

    /// The number of labels on the axis of sizes. Their distance is the smallest distance of two
    /// sizes.
    fn steps(&self) -> usize {
        let (first, last) = (self.rows[0].0, self.rows[self.rows.len() - 1].0);
        let nearest = self.rows.windows(2).map(|pair| pair[1].0 - pair[0].0).min();
        ((last - first) / nearest.unwrap_or(1).max(1)) as usize + 1
    }

    fn plot(&self) -> PlotResult<String> {
        let lines = self.lines();
        let times = || lines.iter().flat_map(|line| &line.points).map(|(_, ns)| *ns);
        if times().next().is_none() {
            return Ok("<p>No run succeeded.</p>\n".to_owned());
        }
        let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
        let exponents = || self.rows.iter().map(|(exponent, _)| f64::from(*exponent));
        let (first, last) =
            (exponents().fold(f64::INFINITY, f64::min), exponents().fold(0.0, f64::max));
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .margin(8)
                .margin_right(RIGHT)
                .build_cartesian_2d(
                    first - 0.3..last + 0.3,
                    (least / 1.2..most * 1.2).log_scale().base(2.0),
                )?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(LINE_COLOUR.mix(0.35))
                .axis_style(LINE_COLOUR)
                .label_style(("sans-serif", 13))
                .x_labels(self.steps())
                .x_label_formatter(&|exponent| match exponents().any(|size| size == *exponent) {
                    true => power_of_two(*exponent),
                    false => String::new(),
                })
                .x_desc("nodes")
                .y_labels(12)
                .y_label_formatter(&|ns| figure(Some(*ns)))
                .y_desc(format!("ns/{}", self.unit))
                .draw()?;
            let mut ends = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                let (mark, width) =
                    if line.own { (Mark::disc(OWN_COLOUR), 3) } else { (Mark::of(index), 2) };
                chart.draw_series([PathElement::new(
                    line.points.clone(),
                    mark.colour.stroke_width(width),
                )])?;
                chart.draw_series(line.points.iter().map(|point| mark.at(*point, 4)))?;
                if let Some(end) = line.points.last() {
                    ends.push((chart.backend_coord(end), mark.colour, line.name));
                }
            }
            let label =
                ("sans-serif", 13).into_text_style(&area).pos(Pos::new(HPos::Left, VPos::Center));
            let column = (WIDTH - RIGHT + 14) as i32;
            for ((end, colour, name), height) in spread(ends, HEIGHT as i32) {
                let to_label = [end, (column - 4, height)];
                area.draw(&PathElement::new(to_label, colour.mix(0.5).stroke_width(1)))?;
                area.draw(&Text::new(name, (column, height), label.clone()))?;
            }
            area.present()?;
        }
        Ok(svg)
    }
}

const WIDTH: u32 = 820;
const HEIGHT: u32 = 480;
/// The width of the right margin, which has the names of the lines.
const RIGHT: u32 = 190;
/// The height of a name.
const LABEL: i32 = 16;

struct Curve {
    name: &'static str,
    own: bool,
    points: Vec<(f64, f64)>,
}

type CurveEnd = ((i32, i32), RGBColor, &'static str);

/// The ends of the lines, each with the vertical position of its name. Names that would overlap are
/// stacked around the mean of the ends of their lines.
fn spread(mut ends: Vec<CurveEnd>, bottom: i32) -> Vec<(CurveEnd, i32)> {
    ends.sort_by_key(|((_, height), ..)| *height);
    // Groups of stacked names: their number, the sum of the first name's positions that would suit
    // each of them, and the position of the first name.
    let mut groups: Vec<(i32, i32, i32)> = Vec::new();
    for ((_, height), ..) in &ends {
        let mut group = (1, *height, *height);
        let place = |(count, sum, _): (i32, i32, i32)| {
            (count, sum, (sum / count).min(bottom - count * LABEL).max(LABEL))
        };
        group = place(group);
        while let Some((above, sum, _)) =
            groups.pop_if(|(above, _, first)| *first + *above * LABEL > group.2)
        {
            group = place((above + group.0, sum + group.1 - group.0 * above * LABEL, 0));
        }
        groups.push(group);
    }
    let heights = groups
        .iter()
        .flat_map(|(count, _, first)| (0..*count).map(move |index| first + index * LABEL));
    ends.iter().copied().zip(heights).collect()
}

/// The label of a position on the axis: `2¹⁴`, or nothing between two sizes.
fn power_of_two(exponent: f64) -> String {
    if exponent.fract() != 0.0 {
        return String::new();
    }
    let raised = |digit: char| match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        other => char::from_u32('⁰' as u32 + other.to_digit(10).unwrap_or(0)).unwrap_or(other),
    };
    std::iter::once('2').chain((exponent as u32).to_string().chars().map(raised)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::plan::{Selection, plans};
    use crate::runner::rounds::CaseResults;
    use crate::runner::row;

    fn measured(workloads: &[&str], allocators: &[&str]) -> Vec<(&'static Workload, Vec<Row>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection {
            workloads: owned(workloads),
            allocators: owned(allocators),
            threads: vec![1],
        };
        let plans = plans(&selection).unwrap().plans;
        let found = |index| CaseResults {
            reports: vec![Some(row::tests::report(f64::from(10 + index)))],
            ..CaseResults::default()
        };
        plans
            .iter()
            .map(|plan| {
                let found: Vec<_> = (0..plan.cases.len() as u32).map(found).collect();
                (plan.workload, row::rows(&plan.cases, &found))
            })
            .collect()
    }

    #[test]
    fn a_line_goes_through_all_sizes_and_is_named() {
        let all =
            measured(&["tree-20", "tree-8", "pair", "tree-10"], &["glibc", "allotment-free-list"]);
        let sizes = Sizes::beginning_with(all[0].0, &all).unwrap();
        let lines = sizes.lines();
        assert_eq!(lines.len(), 2);
        for line in &lines {
            let exponents: Vec<f64> = line.points.iter().map(|point| point.0).collect();
            assert_eq!(exponents, [8.0, 10.0, 20.0]);
            assert_eq!(line.own, line.name == "allotment-free-list");
        }
        let section = sizes.section().unwrap();
        for text in ["<svg", ">\nglibc\n<", ">\nallotment-free-list\n<", ">\n2²⁰\n<", ">\n2⁸\n<"]
        {
            assert!(section.contains(text), "{text} {section}");
        }
    }

    #[test]
    fn there_is_one_plot_for_each_kind_with_sizes() {
        let all = measured(&["tree", "pair", "tree-copy", "many-trees"], &[]);
        let plots: Vec<_> = all
            .iter()
            .filter_map(|(workload, _)| Sizes::beginning_with(workload, &all))
            .map(|sizes| (sizes.family, sizes.rows.len()))
            .collect();
        assert_eq!(plots, [("tree", 7), ("tree-copy", 7)]);
        let alone = measured(&["tree-8", "tree-copy-8"], &[]);
        assert!(alone.iter().all(|(one, _)| Sizes::beginning_with(one, &alone).is_none()));
    }

    #[test]
    fn names_that_would_lie_upon_each_other_stand_around_their_lines() {
        let end = |height| ((0, height), OWN_COLOUR, "");
        let heights = |ends: &[i32]| -> Vec<i32> {
            spread(ends.iter().map(|height| end(*height)).collect(), 300)
                .iter()
                .map(|(_, height)| *height)
                .collect()
        };
        assert_eq!(heights(&[100, 60, 200]), [60, 100, 200]);
        assert_eq!(heights(&[100, 100]), [92, 108]);
        assert_eq!(heights(&[50, 40, 41, 0, 200]), [LABEL, 32, 48, 64, 200]);
        assert_eq!(heights(&[0, 0, 0]), [16, 32, 48]);
        assert_eq!(heights(&[299, 298, 297]), [252, 268, 284]);
        assert_eq!(heights(&[100, 120, 110, 119]), [88, 104, 120, 136]);
    }
}
