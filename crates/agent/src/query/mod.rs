//! Queries: what may be asked, and how a context is answered from the store into the memory of a request.

pub mod answer;
pub mod buckets;
pub mod json;
pub mod parameters;
pub mod virtual_chart;
