//! Measurements for the reader.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`columns`] | the columns of the tables, and their figures as text |
//! | [`table`] | tables on the terminal |
//! | [`plot_parts`] | what the plots share |
//! | [`ratio_plot`] | all workloads in one plot: `--svg` |
//! | [`size_plot`] | a plot over the sizes of a workload |
//! | [`html`] | all plots and tables in one page |

pub mod columns;
pub mod html;
pub mod plot_parts;
pub mod ratio_plot;
pub mod size_plot;
pub mod table;
