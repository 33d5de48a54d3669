//! What the plots share.

use plotters::prelude::RGBColor;

/// A plot or a page, or why it could not be drawn.
pub type PlotResult<T> = Result<T, Box<dyn std::error::Error>>;

/// The project's own row.
pub const OWN_COLOUR: RGBColor = RGBColor(0x2f, 0x8f, 0x4e);
/// Axes and grids.
pub const LINE_COLOUR: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Distinct colours, one for each allocator of the largest plot other than the project's own.
pub const COLOURS: [RGBColor; 12] = [
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

/// Escapes `text` for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
