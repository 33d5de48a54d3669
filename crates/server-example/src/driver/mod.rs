//! The benchmark `server`: processor time and memory of the service for each way to allocate.
//!
//! Each variant of the service runs as a child process. The driver sends orders to it over
//! 127.0.0.1, compares each reply byte for byte with what it computes itself, and reads the child's
//! processor time from the kernel. Rounds are interleaved: every variant runs once, then every
//! variant runs again.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`sample_order`] | the orders, and the confirmations that they must get |
//! | [`client`] | a keep-alive connection |
//! | [`variant`] | the variants |
//! | [`child`] | the service as a child process, its processor time and its memory |
//! | [`run`] | the load on one child, and its figures |
//! | [`rows`] | medians and ratios, as a table and as JSON |
//! | [`command`] | the command line, and the rounds |

pub mod child;
pub mod client;
pub mod command;
pub mod rows;
pub mod run;
pub mod sample_order;
pub mod variant;

pub use command::main;
