//! What the plots share.

use plotters::prelude::*;

/// A plot or a page, or why it could not be drawn.
pub type PlotResult<T> = Result<T, Box<dyn std::error::Error>>;

/// The project's own row.
pub const OWN_COLOUR: RGBColor = RGBColor(0x2f, 0x8f, 0x4e);
/// Axes and grids.
pub const LINE_COLOUR: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Distinct colours, without the project's own.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x4e, 0x79, 0xa7),
    RGBColor(0xe1, 0x57, 0x59),
    RGBColor(0xb0, 0x7a, 0xa1),
    RGBColor(0xf2, 0x8e, 0x2b),
    RGBColor(0x48, 0xb3, 0xc4),
    RGBColor(0x9c, 0x75, 0x5f),
    RGBColor(0xc9, 0xa2, 0x27),
    RGBColor(0x8a, 0x8a, 0x8a),
    RGBColor(0xe3, 0x6f, 0xc0),
    RGBColor(0x5b, 0x50, 0xd6),
    RGBColor(0x9a, 0xb8, 0x2e),
    RGBColor(0xa0, 0x1e, 0x3c),
];

/// The mark of one of a plot's rows: a disc or a ring in a colour, large or small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// The colour.
    pub colour: RGBColor,
    is_ring: bool,
    is_small: bool,
}

impl Mark {
    /// The mark of the row with this index. After the last colour, the colours repeat as rings,
    /// then as small discs, then as small rings.
    pub fn of(index: usize) -> Self {
        let (shape, colour) = (index / COLOURS.len(), COLOURS[index % COLOURS.len()]);
        Self { colour, is_ring: shape % 2 == 1, is_small: shape % 4 > 1 }
    }

    /// A disc in a colour.
    pub fn disc(colour: RGBColor) -> Self {
        Self { colour, is_ring: false, is_small: false }
    }

    /// The mark at a point of the plot.
    pub fn at<C>(self, place: C, radius: i32) -> Circle<C, i32> {
        let style = if self.is_ring { self.colour.stroke_width(2) } else { self.colour.filled() };
        Circle::new(place, if self.is_small { radius - 2 } else { radius }, style)
    }
}

/// Escapes `text` for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_largest_plot_has_a_mark_of_its_own() {
        let rows = crate::peers::known().len() + crate::peers::missing().count();
        assert!(rows > COLOURS.len(), "{rows} rows would need no shapes");
        let marks: Vec<Mark> = (0..rows).map(Mark::of).collect();
        for (index, mark) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(mark) && mark.colour != OWN_COLOUR, "{index}");
        }
    }
}
