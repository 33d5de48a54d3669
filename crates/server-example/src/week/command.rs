//! The command line, and the children.

use super::calendar::Calendar;
use super::plot;
use super::sample::Sample;
use super::simulation::{SAMPLE_MINUTES, WORKERS};
use super::summary::{self, Played, SHARE};
use super::variant::{Programs, VARIANTS, Variant};
use bench::console::failure::Failure;
use bench::console::file::write_whole;
use bench::console::progress::Progress;
use bench::console::{self, print};
use clap::Parser;
use serde_json::json;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Play a simulated week, and show memory over time
///
/// Plays the same week on malloc, on mimalloc and with pools, each in a child process. All children
/// run at the same time, and no time is measured. A simulated hour takes at least a second, because
/// pools keep empty memory for up to a second.
#[derive(Debug, Parser)]
#[command(
    name = "week",
    bin_name = "cargo bench -p allotment-server-example --bench week --",
    after_help = variants_help()
)]
struct Arguments {
    /// The variants to play
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    variants: Vec<String>,
    /// Number of simulated days; the first is a Monday
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
    /// Mean number of requests in a simulated minute
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Least time of a simulated hour, in milliseconds
    #[arg(long, default_value_t = 1100, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=3_600_000))]
    hour_ms: u32,
    /// Play one day
    #[arg(long, conflicts_with = "days")]
    quick: bool,
    /// Print one JSON object a line: the samples of all variants
    #[arg(long)]
    json: bool,
    /// Also write the plot to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn variants_help() -> String {
    let mut text = "Variants:\n".to_owned();
    for variant in VARIANTS {
        text += &format!("  {:<14} {}\n", variant.name, variant.description);
    }
    text
}

/// The `main` of the benchmark.
pub fn main(programs: &Programs) -> ExitCode {
    // The children end when this process does, because their standard input is closed then.
    console::end_quietly_when_interrupted();
    print::exit_code("week", play_all(&Arguments::parse(), programs))
}

fn chosen(names: &[String], programs: &Programs) -> Result<Vec<Variant>, Failure> {
    let built = || VARIANTS.into_iter().filter(|variant| variant.program(programs).is_some());
    if names.is_empty() {
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

/// The week that all variants play.
#[derive(Debug, Clone, Copy)]
pub struct Week {
    /// The number of days.
    pub days: u32,
    /// The mean number of requests a minute.
    pub rate: u32,
    /// The least time of a simulated hour, in milliseconds.
    pub hour_ms: u32,
}

/// Why a child has no samples.
#[derive(Debug)]
pub struct PlayError(String);

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlayError {}

/// Plays a variant in a child process. Calls `each` after each sample.
///
/// # Errors
/// When the child does not start, a reply is wrong, something that escaped has changed, or the child
/// has printed anything else than samples.
pub fn play(
    program: &Path,
    variant: Variant,
    week: Week,
    each: impl Fn(),
) -> Result<Played, PlayError> {
    let failed = |what: String| PlayError(format!("{}: {what}", variant.name));
    let mut command = Command::new(program);
    command.args(variant.options()).arg("--until-stdin-closes");
    command.args(["--days", &week.days.to_string(), "--rate", &week.rate.to_string()]);
    command.args(["--hour-ms", &week.hour_ms.to_string()]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| failed(format!("it did not start: {error}")))?;
    // Kept open until the child has ended.
    let stdin = child.stdin.take();
    let stderr = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut samples = Vec::new();
    let mut strange = None;
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let text = line.unwrap_or_else(|error| error.to_string());
        match Sample::from_json(&text) {
            Some(sample) => samples.push(sample),
            None => strange = strange.or(Some(text)),
        }
        each();
    }
    let status = child.wait();
    drop(stdin);
    let errors = errors.join().unwrap_or_default();
    let expected = Calendar::new(week.days, week.rate).minutes() / SAMPLE_MINUTES + 1;
    match (status, strange) {
        (Err(error), _) => Err(failed(error.to_string())),
        (_, Some(text)) => Err(failed(format!("it has printed {text:?}"))),
        (Ok(status), _) if !status.success() || !errors.trim().is_empty() => {
            Err(failed(format!("{status}: {}", errors.trim())))
        }
        _ if samples.len() != expected as usize => {
            Err(failed(format!("{} samples; expected {expected}", samples.len())))
        }
        _ => Ok(Played { variant, samples }),
    }
}

fn play_all(arguments: &Arguments, programs: &Programs) -> Result<(), Failure> {
    let variants = chosen(&arguments.variants, programs)?;
    let days = if arguments.quick { 1 } else { arguments.days };
    let week = Week { days, rate: arguments.rate, hour_ms: arguments.hour_ms };
    let each = Calendar::new(days, arguments.rate).minutes() / SAMPLE_MINUTES + 1;
    let progress = Progress::new(each as usize * variants.len());
    progress.say("all variants at the same time");
    let step = || {
        progress.step();
        progress.say("all variants at the same time");
    };
    let all: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
        let step = &step;
        let children: Vec<_> = variants
            .iter()
            .filter_map(|variant| Some((*variant, variant.program(programs)?)))
            .map(|(variant, program)| scope.spawn(move || play(program, variant, week, step)))
            .collect();
        // All end before the first error is returned.
        let results: Vec<_> = children.into_iter().map(|child| child.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .map(|result| result.map_err(|error| Failure::Failed(error.to_string())))
            .collect()
    });
    drop(progress);
    let all = all?;
    if let Some(path) = &arguments.svg {
        let svg = plot::draw(&all).map_err(|error| Failure::Failed(error.to_string()))?;
        write_whole(path, svg.as_bytes())
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    }
    if arguments.json {
        return all.iter().try_for_each(print_json);
    }
    print::line(summary::table(&all).trim_end())?;
    print::line(footer(days))
}

fn print_json(played: &Played) -> Result<(), Failure> {
    played.samples.iter().try_for_each(|sample| {
        let mut line = sample.to_json();
        line["workload"] = json!("week");
        line["variant"] = json!(played.variant.name);
        line["threads"] = json!(WORKERS);
        print::json_line(&line)
    })
}

fn footer(days: u32) -> String {
    print::wrapped(&format!(
        "{days} simulated days, MiB, a sample each {SAMPLE_MINUTES} minutes; every reply and all that escaped \
         was as expected. Live: bytes that the program asked for and had not freed. Over live: the most by \
         which RSS exceeded RSS at first and {:.0} % of the bytes that were live. Over peak: the same with \
         the most bytes that had been live until then.",
        100.0 * (1.0 + SHARE)
    ))
}
