//! The terminal, for all of Allotment's programs.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`failure`] | the ways in which a command fails, with their exit codes |
//! | [`statistics`] | medians and ratios |
//! | [`mod@file`] | files that are written whole or not at all |
//! | [`mod@print`] | text on standard output |
//! | [`progress`] | the bar on standard error |
//! | [`signals`] | the reaction to signals |
//! | [`table`] | tables in plain text |

pub mod failure;
pub mod file;
pub mod print;
pub mod progress;
pub mod signals;
pub mod statistics;
pub mod table;

pub use signals::{end_quietly_when_interrupted, report_long_files_as_errors};
