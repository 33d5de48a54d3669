//! A small metrics agent: `allotment-agent --help`.

use allotment::Routed;
use allotment_agent::cli::{self, Command, LoadArguments, ReadError};
use allotment_agent::load::{self, Load};
use allotment_agent::server::agent;
use std::alloc::System;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The workers' ordinary `Box`, `Vec` and `String` come from the pools that they have entered.
#[global_allocator]
static GLOBAL: Routed<System> = Routed::new(System);

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let command_line = match cli::read(&line) {
        Ok(read) => read,
        Err(ReadError::Asked(text)) => {
            // Who asked for help and closed the pipe has read enough.
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
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("allotment-agent: {message}");
            ExitCode::from(FAILED)
        }
    }
}

fn load(arguments: &LoadArguments) -> Result<(), String> {
    allotment_agent::server::files::raise_limit();
    let load = Load {
        addresses: arguments.addresses.clone(),
        connections: arguments.connections as usize,
        time: Duration::from_secs(arguments.seconds.into()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let shows = io::stderr().is_terminal() && arguments.seconds > 2;
    let progress = |since: Duration, replies: u64| {
        if shows {
            let left = load.time.saturating_sub(since).as_secs();
            eprint!("\r{replies} replies, {left} s left ");
        }
    };
    // At Ctrl-C the report is of what there was until then.
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    };
    let report = runtime.block_on(load::run(&load, progress, interrupted));
    if shows {
        eprint!("\r\x1b[K");
    }
    let report = report.map_err(|error| error.to_string())?;
    let text = if arguments.json { report.to_json() } else { report.to_string() };
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
