//! A workload, and a run of it.

use crate::workloads::kind::WorkloadKind;
use crate::workloads::setting::{Effort, Setting};

/// One workload of the benchmark.
#[derive(Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name on the command line and in rows.
    pub name: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// What one operation is.
    pub unit: &'static str,
    pub(crate) kind: WorkloadKind,
}

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct RunSpec {
    /// The workload to run.
    pub workload: &'static Workload,
    /// The numbers of threads and callers.
    pub setting: Setting,
    /// The amount of work.
    pub effort: Effort,
}
