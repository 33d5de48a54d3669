//! The example: an HTTP service that confirms orders, with axum on tokio.
//!
//! `POST /orders` takes an order as JSON: its number, a message, and its items. The reply has the
//! message with its mail addresses masked and the items with their gross prices. `GET
//! /orders/{number}` returns a summary of one of the orders that were confirmed last.
//!
//! The code of the orders is ordinary: it uses `serde_json`, `regex`, `tracing`, `String` and
//! `HashMap`, and no type of Allotment. [`routes`] and `connections` have the lines that use
//! pools.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`pools`] | the ways to use pools |
//! | [`recent`] | the summaries of the orders that were confirmed last |
//! | [`shop`] | the work of a request |
//! | [`routes`] | the routes; a pool around a handler's polls, or for each request |
//! | `connections` | accepts connections; a pool around their polls |
//! | [`arguments`] | the command line |

pub mod arguments;
mod connections;
pub mod pools;
pub mod recent;
pub mod routes;
pub mod shop;

use allotment::pool;
use arguments::Arguments;
use clap::Parser;
use shop::Shop;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// The global allocator of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalAllocator {
    /// It does not know pools.
    Plain,
    /// It is a [`PoolGlobalAlloc`](allotment::PoolGlobalAlloc).
    PrefersPools,
}

/// The `main` of the service's programs.
pub fn main(allocator: GlobalAllocator) -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = arguments.check(allocator) {
        error.exit();
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // A panic inside a pool prints a backtrace with symbols that would stay in that pool.
    pool::run_panic_hook_outside();
    write_log(arguments)?;
    if arguments.until_stdin_closes {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(0);
        });
    }
    // Everything that the requests share is made here, outside every pool.
    let shop = Arc::new(Shop::new(arguments.cache)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.workers)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen).await?;
        let mut stdout = io::stdout();
        writeln!(stdout, "listening on http://{}", listener.local_addr()?)?;
        stdout.flush()?;
        let routes = routes::routes(shop, arguments.pools());
        connections::serve(listener, routes, arguments.pools()).await
    })
}

/// Sends the lines of `tracing` to the log.
fn write_log(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let writer = match &arguments.log {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|error| format!("can't open {}: {error}", path.display()))?;
            BoxMakeWriter::new(Arc::new(file))
        }
        None => BoxMakeWriter::new(io::stderr),
    };
    tracing_subscriber::fmt().with_ansi(false).with_writer(writer).init();
    Ok(())
}
