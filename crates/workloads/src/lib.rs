//! The workloads of the measuring contract.
