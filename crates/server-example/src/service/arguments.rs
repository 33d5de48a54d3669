//! The command line of the service.

use super::GlobalAllocator;
use super::pools::Pools;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use std::net::SocketAddr;
use std::num::ParseIntError;
use std::path::PathBuf;

/// The values of `--pools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PoolsArgument {
    /// No pools: everything comes from the program's allocator
    None,
    /// Each poll of a connection runs in the pool of its thread
    Connection,
    /// Each poll of a handler runs in the pool of its thread
    Handler,
    /// Each request has a pool of its own
    Request,
}

/// The most orders that can be kept.
const MOST_KEPT: usize = 10_000_000;

/// An HTTP service that confirms orders
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Example:\n  curl http://127.0.0.1:3000/orders --json '{\"id\": 7, \"message\": \"to me@example.com\", \"items\": []}'"
)]
pub struct Arguments {
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, default_value = "127.0.0.1:3000", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where pools are used
    #[arg(long, value_enum, default_value = "none")]
    pub pools: PoolsArgument,
    /// Limit on the memory of a request's pool; without it there is none
    #[arg(long, value_name = "BYTES")]
    pub limit: Option<usize>,
    /// Number of orders whose summaries are kept
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = parse_cache)]
    pub cache: usize,
    /// Number of tokio's worker threads
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = |text: &str| parse_number(text, 1, 1024))]
    pub workers: usize,
    /// File to append the log to; without it the log goes to standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// End when standard input is closed
    #[arg(long)]
    pub until_stdin_closes: bool,
}

/// Parses a whole number of `least..=most`. (clap has such a parser for `u64`, not for `usize`.)
///
/// # Errors
/// When the text is no such number.
pub fn parse_number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().map_err(|error: ParseIntError| error.to_string())?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("the number is not in {least}..={most}"))
    }
}

/// Parses a number of orders to keep.
///
/// # Errors
/// When it is more than the tables of the cache can be made for at once.
pub fn parse_cache(text: &str) -> Result<usize, String> {
    parse_number(text, 0, MOST_KEPT)
}

impl Arguments {
    /// Checks what the options ask of each other and of the program.
    ///
    /// # Errors
    /// When they don't go together.
    pub fn check(&self, allocator: GlobalAllocator) -> Result<(), clap::Error> {
        let wrong = |text| Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        if self.limit.is_some() && self.pools != PoolsArgument::Request {
            return wrong("--limit is for the pool of a request: add --pools request");
        }
        if self.pools != PoolsArgument::None && allocator == GlobalAllocator::Plain {
            return wrong(
                "this program's allocator does not know pools: run service-pools or service-pools-mimalloc",
            );
        }
        Ok(())
    }

    /// Returns how pools are used.
    pub fn pools(&self) -> Pools {
        match self.pools {
            PoolsArgument::None => Pools::None,
            PoolsArgument::Connection => Pools::Connection,
            PoolsArgument::Handler => Pools::Handler,
            PoolsArgument::Request => Pools::Request { limit: self.limit },
        }
    }
}
