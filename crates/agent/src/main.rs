//! A small metrics agent: `allotment-agent --help`.

use allotment::PoolGlobalAlloc;
use allotment_agent::cli::{self, Command, CommandLineError, CompareArguments, LoadArguments};
use allotment_agent::load::{self, CompareOptions, LoadOptions};
use allotment_agent::server::agent;
use std::alloc::System;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The workers' ordinary `Box`, `Vec` and `String` come from the pools that they have entered.
#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let command_line = match cli::read(&line) {
        Ok(read) => read,
        Err(CommandLineError::HelpRequested(text)) => {
            // An error means that the reader closed the pipe, which is no failure.
            let _ = io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("allotment-agent: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let done = match &command_line.command {
        None => agent::serve(&command_line.serve, &line).map_err(|error| error.to_string()),
        Some(Command::Load(arguments)) => load(arguments),
        Some(Command::Compare(arguments)) => compare(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("allotment-agent: {message}");
            ExitCode::from(FAILED)
        }
    }
}

/// Returns the event loop of the load generators.
fn runtime() -> Result<Runtime, String> {
    allotment_agent::server::open_files::raise_limit();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|error| error.to_string())
}

/// Ends at Ctrl-C. The report then covers the load until that moment.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Prints a result. A closed pipe is no failure.
fn print(text: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn load(arguments: &LoadArguments) -> Result<(), String> {
    let load = LoadOptions {
        addresses: arguments.addresses.clone(),
        connections: arguments.connections as usize,
        time: Duration::from_secs(arguments.seconds.into()),
    };
    let show_progress = io::stderr().is_terminal() && arguments.seconds > 2;
    let progress = |since: Duration, replies: u64| {
        if show_progress {
            let left = load.time.saturating_sub(since).as_secs();
            eprint!("\r{replies} replies, {left} s left ");
        }
    };
    let report = runtime()?.block_on(load::run(&load, progress, interrupted()));
    if show_progress {
        eprint!("\r\x1b[K");
    }
    let report = report.map_err(|error| error.to_string())?;
    print(&if arguments.json { report.to_json() } else { report.to_string() })
}

fn compare(arguments: &CompareArguments) -> Result<(), String> {
    let comparison = CompareOptions {
        metrics: arguments.metrics,
        charts: arguments.charts,
        connections: arguments.connections as usize,
        rounds: arguments.rounds,
        time: Duration::from_secs(arguments.seconds.into()),
    };
    let show_progress = io::stderr().is_terminal();
    let progress = |text: &str| {
        if show_progress {
            eprint!("\r\x1b[K{text} ");
        }
    };
    let compared = runtime()?.block_on(async {
        // Received from the first agent's start to the last one's end, also between two loads.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            if interrupt.recv().await.is_some() {
                sender.send_replace(true);
            }
            // The sender must live as long as the receivers, or they would see its end as an
            // interrupt.
            sender.closed().await;
        });
        let stop = || {
            let mut receiver = receiver.clone();
            async move { drop(receiver.wait_for(|stopped| *stopped).await) }
        };
        let compared = load::compare(&comparison, progress, stop, || *receiver.borrow()).await;
        compared.map_err(|error| error.to_string())
    });
    if show_progress {
        eprint!("\r\x1b[K");
    }
    let compared = compared?;
    print(&if arguments.json { compared.to_json() } else { compared.to_string() })
}
