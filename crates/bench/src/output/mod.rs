//! Measurements for the reader. Lowest first:
//!
//! - [`details`]: the second table of some workloads.
//! - [`table`]: tables on the terminal.
//! - [`plot`]: what the plots share.
//! - [`ratio_plot`]: all workloads in one plot, as SVG.
//! - [`size_plot`]: a plot over the sizes of a workload.
//! - [`html`]: all plots and tables in one page.

pub mod details;
pub mod html;
pub mod plot;
pub mod ratio_plot;
pub mod size_plot;
pub mod table;
