//! Response times as a child process answers them.

use crate::workloads::query::Responses;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Response times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResponseReport {
    /// The mean.
    pub average_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl From<Responses> for ResponseReport {
    fn from(responses: Responses) -> Self {
        Self {
            average_ms: milliseconds(responses.average),
            min_ms: milliseconds(responses.min),
            max_ms: milliseconds(responses.max),
        }
    }
}

/// `time` in milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
