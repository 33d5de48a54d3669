//! Allotment.
