//! Memory over time, as SVG.

use super::calendar::DAY;
use super::sample::Sample;
use super::summary::Played;
use plotters::prelude::*;
use std::error::Error;

/// The colours of the variants: grey tones for those without pools.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x8a, 0x8a, 0x8a),
    RGBColor(0xf2, 0x8e, 0x2b),
    RGBColor(0x2f, 0x8f, 0x4e),
    RGBColor(0x4e, 0x79, 0xa7),
    RGBColor(0xb0, 0x7a, 0xa1),
];
const LINE_COLOUR: RGBColor = RGBColor(0x80, 0x80, 0x80);
const LIVE_COLOUR: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Returns a plot of resident memory over simulated time, with the live bytes as an area.
///
/// # Errors
/// When it can't be drawn.
pub fn draw(all: &[Played]) -> Result<String, Box<dyn Error>> {
    let samples = || all.iter().flat_map(|played| &played.samples);
    let last = samples().map(|sample| days(sample.minute)).fold(0.0, f64::max);
    let most = samples().map(|sample| mib(sample.resident_bytes)).fold(1.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 460)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption("Resident memory over a simulated week", ("sans-serif", 15))
            .x_label_area_size(30)
            .y_label_area_size(56)
            .margin(8)
            .margin_right(20)
            .build_cartesian_2d(0.0..last.max(1.0), 0.0..most * 1.3)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINE_COLOUR.mix(0.3))
            .axis_style(LINE_COLOUR)
            .label_style(("sans-serif", 13))
            .x_labels(last.ceil() as usize + 1)
            .x_label_formatter(&|day| weekday(*day))
            .y_labels(8)
            .y_label_formatter(&|mib| format!("{mib:.0}"))
            .y_desc("MiB")
            .draw()?;
        if let Some(first) = all.first() {
            let mut outline: Vec<_> = line(first, |sample| sample.live_bytes).collect();
            outline.extend([(last, 0.0), (0.0, 0.0)]);
            chart.draw_series([Polygon::new(outline, LIVE_COLOUR.filled())])?.label("live").legend(
                |(x, y)| Rectangle::new([(x, y - 5), (x + 20, y + 5)], LIVE_COLOUR.filled()),
            );
        }
        for (played, colour) in all.iter().zip(COLOURS.into_iter().cycle()) {
            let style = colour.stroke_width(2);
            let points: Vec<_> = line(played, |sample| sample.resident_bytes).collect();
            chart
                .draw_series([PathElement::new(points, style)])?
                .label(played.variant.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(LINE_COLOUR)
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

fn days(minute: u32) -> f64 {
    f64::from(minute) / f64::from(DAY)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn line(played: &Played, bytes: fn(&Sample) -> u64) -> impl Iterator<Item = (f64, f64)> + '_ {
    played.samples.iter().map(move |sample| (days(sample.minute), mib(bytes(sample))))
}

/// Returns the name of the day that begins here, or nothing between two days.
fn weekday(day: f64) -> String {
    if day.fract() == 0.0 { WEEKDAYS[day as usize % 7].to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::played;
    use super::*;

    #[test]
    fn every_variant_has_a_line_and_a_name() {
        let all = [played(0, &[(10, 12); 144]), played(2, &[(10, 30); 300])];
        let svg = draw(&all).unwrap();
        for text in
            ["<svg", ">\nlive\n<", ">\nglibc\n<", ">\nconnection\n<", ">\nMon\n<", ">\nWed\n<"]
        {
            assert!(svg.contains(text), "{text} {svg}");
        }
        assert_eq!(svg.matches("<polygon").count(), 1, "the live bytes");
        assert!(draw(&[]).unwrap().contains("<svg"));
    }
}
