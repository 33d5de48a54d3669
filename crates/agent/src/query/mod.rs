//! Queries: their parameters, and their answers from the store.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `json` | writes JSON into the memory of a request |
//! | `parameters` | the parameters of a query, and their errors |
//! | `buckets` | divides a range into intervals, and aggregates the values of each |
//! | `virtual_chart` | the series of a reply |
//! | `answer` | answers a query from the store |

pub mod answer;
pub mod buckets;
pub mod json;
pub mod parameters;
pub mod virtual_chart;
