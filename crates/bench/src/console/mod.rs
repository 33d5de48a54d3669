//! The terminal, for all of Allotment's programs.
//!
//! [`failure`] has the exit codes; [`mod@print`] writes text, and [`mod@file`] whole files;
//! [`progress`] is the bar on standard error; [`signals`] has the reaction to signals;
//! [`statistics`] has medians and ratios, and [`table`] shows them.

pub mod failure;
pub mod file;
pub mod print;
pub mod progress;
pub mod signals;
pub mod statistics;
pub mod table;

pub use signals::{end_quietly_when_interrupted, report_long_files_as_errors};
