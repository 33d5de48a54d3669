//! The command line, and the rounds.

use super::rows::{self, Row};
use super::run::{self, Load};
use super::variant::{BASE, Programs, VARIANTS, Variant};
use crate::service::arguments::parse_cache;
use bench::console::failure::Failure;
use bench::console::progress::Progress;
use bench::console::statistics::FEWEST_ROUNDS;
use bench::console::{self, print};
use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The number of the service's worker threads. It is the service's default.
const WORKERS: usize = 2;
/// The number of rounds, if they fit into the time.
const ROUNDS: u32 = 11;
/// The time in which a round may begin, without `--rounds`.
const TIME: Duration = Duration::from_secs(280);
/// The same with `--quick`.
const QUICK_TIME: Duration = Duration::from_secs(50);
/// The number of measured requests of a run.
const REQUESTS: u64 = 20_000;
/// The same with `--quick`.
const QUICK_REQUESTS: u64 = 3_000;

/// Compare an axum service on malloc, on mimalloc and with pools
///
/// Starts the service for each variant and each cache, round by round, and sends orders to it over
/// 127.0.0.1. Every reply is checked. Prints the median of the service's processor time for a
/// request, its ratio to mimalloc's with its 95 % interval, and its memory.
#[derive(Debug, Parser)]
#[command(
    name = "server",
    bin_name = "cargo bench -p allotment-server-example --bench server --",
    after_help = variants_help()
)]
struct Arguments {
    /// The variants to run, or `all`
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    variants: Vec<String>,
    /// Numbers of orders that the service keeps a summary of
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000], value_name = "N,M", value_parser = parse_cache)]
    caches: Vec<usize>,
    /// Run exactly this number of rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Number of measured requests of a run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    requests: Option<u64>,
    /// Number of connections that send requests at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// Number of requests of a connection
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    requests_per_connection: u64,
    /// Less work for each run: a minute in all
    #[arg(long)]
    quick: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn variants_help() -> String {
    let mut text = "Variants:\n".to_owned();
    for variant in VARIANTS {
        let note = if variant.by_default { "" } else { " (if named)" };
        text += &format!("  {:<22} {}{note}\n", variant.name, variant.description);
    }
    text
}

/// The `main` of the benchmark.
pub fn main(programs: &Programs) -> ExitCode {
    // The services end when this process does, because their standard input is closed then.
    console::end_quietly_when_interrupted();
    print::exit_code("server", compare(&Arguments::parse(), programs))
}

fn chosen(names: &[String], programs: &Programs) -> Result<Vec<Variant>, Failure> {
    let built = || Variant::built(programs);
    if names.is_empty() {
        return Ok(built().filter(|variant| variant.by_default).collect());
    }
    if names == ["all"] {
        return Ok(built().collect());
    }
    let find = |name: &String| {
        built().find(|variant| variant.name == name).ok_or_else(|| {
            let known = print::listed(built().map(|variant| variant.name));
            Failure::Usage(format!("there is no variant {name}; the variants are {known}"))
        })
    };
    names.iter().map(find).collect()
}

fn compare(arguments: &Arguments, programs: &Programs) -> Result<(), Failure> {
    let variants = chosen(&arguments.variants, programs)?;
    let (time, requests) =
        if arguments.quick { (QUICK_TIME, QUICK_REQUESTS) } else { (TIME, REQUESTS) };
    let load = Load {
        requests: arguments.requests.unwrap_or(requests),
        connections: arguments.connections,
        requests_per_connection: arguments.requests_per_connection,
    };
    let mut caches = arguments.caches.clone();
    caches.sort_unstable();
    caches.dedup();
    let mut rows: Vec<Row> = Vec::new();
    for cache in caches {
        let of_cache =
            variants.iter().map(|variant| Row { variant: *variant, cache, rounds: Vec::new() });
        rows.extend(of_cache);
    }
    let most = arguments.rounds.unwrap_or(ROUNDS);
    let progress = Progress::new(rows.len() * most as usize);
    let began = Instant::now();
    for round in 0..most {
        // A round begins only if it is likely to end in time.
        let next_end = began.elapsed() * (round + 1) / round.max(1);
        if arguments.rounds.is_none() && round > 0 && next_end > time {
            break;
        }
        for row in &mut rows {
            progress.say(&format!("{}, a cache of {}", row.variant.name, row.cache));
            let figures = run::run(programs, row.variant, row.cache, &load);
            row.rounds.push(figures.map_err(|error| Failure::Failed(error.to_string()))?);
            progress.step();
        }
    }
    drop(progress);
    if arguments.json {
        return rows::json(&rows, &load, WORKERS).iter().try_for_each(print::json_line);
    }
    print::line(rows::table(&rows).trim_end())?;
    let rounds = rows.first().map_or(0, |row| row.rounds.len());
    print::line(footer(rounds, &load))
}

fn footer(rounds: usize, load: &Load) -> String {
    let mut text = format!(
        "{rounds} rounds of {} requests over {} connections; every reply was as expected. CPU: processor \
         time of the service, the kernel's part included. Ratio: to {BASE}, less is better. RSS: at the \
         end, with a full cache; net: without what was resident before the first request.",
        load.requests, load.connections
    );
    if rounds < FEWEST_ROUNDS {
        text += &format!(" An interval takes {FEWEST_ROUNDS} rounds.");
    }
    print::wrapped(&text)
}
