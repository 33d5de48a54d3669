//! What the plots share.

use plotters::prelude::RGBColor;

/// A plot or a page, or why it could not be drawn.
pub type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

/// The project's own row.
pub const OWN_COLOUR: RGBColor = RGBColor(0x2f, 0x8f, 0x4e);
/// Axes and grids.
pub const LINE_COLOUR: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Escapes `text` for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
