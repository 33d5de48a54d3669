//! The command line, and the file of options.
//!
//! Each option of the agent is also a key of the file. The file's options are put in front of those
//! of the command line, so that both are checked by the same rules, and the command line wins.

mod option_file;
mod values;

pub use option_file::FileError;
pub use values::{AllocatorChoice, ByteSize, KeepTimes};

use crate::clock::Speed;
use crate::store::Second;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A small metrics agent, in which each allocator does the work that it is designed for.
///
/// It collects this machine's counters every second and keeps them per second, minute and hour. It
/// answers queries over HTTP and draws live charts on one page: http://127.0.0.1:19990/
#[derive(Debug, Clone, Parser)]
#[command(
    name = "allotment-agent",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    after_help = "\
Signals:
  SIGHUP           read the --config file again; an invalid file changes nothing and is logged
  SIGTERM, SIGINT  answer the accepted requests, then end

Examples:
  allotment-agent --listen 127.0.0.1:19990 --memory-limit 256MiB
  allotment-agent --synthetic 100000 --charts 1000
  allotment-agent compare
  allotment-agent load 'http://127.0.0.1:19990/api/v1/query?context=synthetic.context_0' --connections 256"
)]
pub struct CommandLine {
    /// A command other than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The agent's options.
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// The commands other than serving.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Load a running agent with requests, and print the rate and the reply times
    ///
    /// Each connection sends its next request when it has received the reply. Several addresses are
    /// requested in turn.
    Load(LoadArguments),
    /// Compare two agents under load: one on the library's allocators, one on malloc
    ///
    /// The command starts both agents, with computed metrics of one context, and ends them. Each
    /// request asks for the last ten seconds of all metrics. The rounds alternate between the
    /// agents. The result has medians, minima and maxima, and the ratio has its 95 % interval.
    Compare(CompareArguments),
}

/// Options of the comparison.
#[derive(Debug, Clone, Args)]
pub struct CompareArguments {
    /// Number of computed metrics
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub metrics: u32,
    /// Number of charts that the metrics are spread over
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub charts: u32,
    /// Number of connections
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Number of rounds; an interval takes 6
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Duration of each load, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print the result as JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Options of the load generator.
#[derive(Debug, Clone, Args)]
pub struct LoadArguments {
    /// Addresses to request, such as http://127.0.0.1:19990/api/v1/contexts
    #[arg(required = true, value_name = "URL")]
    pub addresses: Vec<hyper::Uri>,
    /// Number of connections
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Duration of the load, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The agent's options.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ServeArguments {
    /// A TOML file with these options as keys, such as `max-points = 1000`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address and port to listen on; with port 0 the agent picks a free port and prints it
    #[arg(long, default_value = "127.0.0.1:19990", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// The title of the page
    #[arg(long, default_value = "allotment-agent", value_name = "TEXT")]
    pub title: String,
    /// Number of computed metrics to collect besides this machine's
    #[arg(long, value_name = "METRICS", value_parser = clap::value_parser!(u32).range(1..))]
    pub synthetic: Option<u32>,
    /// Number of charts that the computed metrics are spread over [default: one for each 100]
    #[arg(long, value_name = "CHARTS", requires = "synthetic", value_parser = clap::value_parser!(u32).range(1..))]
    pub charts: Option<u32>,
    /// Number of contexts that the charts are spread over [default: one for each 1000]
    #[arg(long, value_name = "CONTEXTS", requires = "synthetic", value_parser = clap::value_parser!(u32).range(1..))]
    pub contexts: Option<u32>,
    /// Start at this time, such as 2026-01-31T23:59:00Z, on a simulated clock and with computed
    /// metrics only
    #[arg(long, requires = "synthetic", value_name = "TIME", value_parser = crate::clock::parse_start_time)]
    pub start_at: Option<Second>,
    /// Speed of the simulated clock: with 60, a minute passes each second; with 'max', the clock
    /// never waits
    #[arg(long, requires = "synthetic", value_name = "FACTOR")]
    pub speed: Option<Speed>,
    /// Where memory comes from; 'malloc' is for comparison
    #[arg(long, value_enum, default_value_t = AllocatorChoice::Allotment)]
    pub allocator: AllocatorChoice,
    /// Limit on the memory of metrics and requests together, such as 512MiB; a request beyond it
    /// gets status 503 [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<ByteSize>,
    /// Limit on the memory of one request
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub request_memory: ByteSize,
    /// Seconds for which the points per second, per minute and per hour are kept
    #[arg(long, value_name = "S,M,H", default_value = "3600,86400,2592000")]
    pub keep: KeepTimes,
    /// Number of threads that answer requests [default: one for each processor]
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: Option<u32>,
    /// Number of requests that may wait for a worker; further requests get status 503
    #[arg(long, default_value_t = 1024, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub queue: u32,
    /// The log file [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log each request before it is answered
    #[arg(long)]
    pub log_requests: bool,
    /// Limit on open connections; a further one closes the connection that has been silent longest
    #[arg(long, default_value_t = 4096, value_name = "CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,
    /// Limit on the size of a request's header
    #[arg(long, default_value = "16KiB", value_name = "SIZE")]
    pub max_header: ByteSize,
    /// Seconds within which a request's header must arrive, and for which a connection may be
    /// silent
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub header_seconds: u32,
    /// Seconds for which a client may leave its reply unread
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub write_seconds: u32,
    /// Seconds that requests in progress may still take when the agent ends
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub drain_seconds: u32,
    /// Limit on the points of each series in a query
    #[arg(long, default_value_t = 10_000, value_name = "POINTS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_points: u32,
    /// Limit on sessions; a further one replaces the session that was idle longest
    #[arg(long, default_value_t = 10_000, value_name = "SESSIONS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_sessions: u32,
    /// Minutes for which a session is kept after its last request
    #[arg(long, default_value_t = 60, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub session_minutes: u32,
    /// Pages that panic and sleep, for tests.
    #[arg(long, hide = true)]
    pub test_pages: bool,
    /// End when the parent process ends. `compare` starts its agents with this option.
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
}

impl ServeArguments {
    /// Returns the number of threads that answer requests.
    pub fn workers(&self) -> u32 {
        let processors =
            || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        self.workers.unwrap_or_else(processors)
    }

    /// Returns the options that differ between `self` and `new` and need a restart.
    pub fn options_that_need_a_restart(&self, new: &Self) -> Vec<&'static str> {
        let mut kept = Vec::new();
        macro_rules! stays {
            ($($field:ident)*) => {
                $(if self.$field != new.$field { kept.push(stringify!($field)); })*
            };
        }
        stays!(listen synthetic charts contexts start_at speed allocator memory_limit keep workers);
        stays!(queue log max_connections max_header header_seconds write_seconds drain_seconds);
        stays!(request_memory log_requests);
        kept
    }

    /// Returns `self` with those options of `new` that a running agent can adopt.
    #[must_use]
    pub fn with_reloadable_options_of(&self, new: &Self) -> Self {
        Self {
            title: new.title.clone(),
            max_points: new.max_points,
            max_sessions: new.max_sessions,
            session_minutes: new.session_minutes,
            ..self.clone()
        }
    }
}

/// Why the command line does not name work to do.
#[derive(Debug)]
pub enum CommandLineError {
    /// Help or the version was requested: the text to print.
    HelpRequested(String),
    /// The command line is invalid.
    Usage(String),
    /// The file can't be read, or is invalid.
    File(FileError),
}

impl fmt::Display for CommandLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HelpRequested(text) => f.write_str(text),
            Self::Usage(line) => f.write_str(line),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommandLineError {}

impl From<FileError> for CommandLineError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Reads the command line, and the file that it names.
///
/// # Errors
/// With one line that names the cause and the remedy.
pub fn read(line: &[OsString]) -> Result<CommandLine, CommandLineError> {
    let alone = parse(line).map_err(usage)?;
    let Some(path) = alone.serve.config.as_ref().filter(|_| alone.command.is_none()) else {
        return check(alone);
    };
    let from_file = option_file::options(path)?;
    let program = line.first().cloned().unwrap_or_else(|| "allotment-agent".into());
    let with = |rest: &[OsString]| {
        let both: Vec<_> = [program.clone()]
            .into_iter()
            .chain(from_file.clone())
            .chain(rest.iter().cloned())
            .collect();
        parse(&both)
    };
    // The file's options are parsed alone first, so that an error in them names the file.
    with(&[]).map_err(|error| FileError::value(path, in_one_line(&error.render().to_string())))?;
    check(with(line.get(1..).unwrap_or_default()).map_err(usage)?)
}

/// Checks what depends on more than one option.
fn check(line: CommandLine) -> Result<CommandLine, CommandLineError> {
    let serve = &line.serve;
    if serve.allocator == AllocatorChoice::Malloc && serve.memory_limit.is_some() {
        return Err(CommandLineError::Usage(
            "--memory-limit needs the library's allocators: leave out --memory-limit or --allocator malloc".to_owned(),
        ));
    }
    if let Some(limit) = serve.memory_limit
        && limit.0 < MIN_MEMORY
    {
        return Err(CommandLineError::Usage(format!(
            "a --memory-limit of {} bytes is too small: give at least 4MiB",
            limit.0
        )));
    }
    Ok(line)
}

/// The smallest value of `--memory-limit`, in bytes.
const MIN_MEMORY: u64 = 4 << 20;

fn parse(line: &[OsString]) -> Result<CommandLine, clap::Error> {
    let matches = CommandLine::command().try_get_matches_from(line)?;
    CommandLine::from_arg_matches(&matches)
}

fn usage(error: clap::Error) -> CommandLineError {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            CommandLineError::HelpRequested(error.render().to_string())
        }
        _ => CommandLineError::Usage(
            in_one_line(&error.render().to_string()) + "; see 'allotment-agent --help'",
        ),
    }
}

/// Returns the first paragraph of clap's error, and its tip if there is one.
fn in_one_line(error: &str) -> String {
    let mut paragraphs = error.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let mut line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    for tip in paragraphs.filter_map(|paragraph| paragraph.trim().strip_prefix("tip: ")) {
        line += "; ";
        line += tip.lines().next().unwrap_or_default();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Result<CommandLine, CommandLineError> {
        let line: Vec<OsString> =
            ["allotment-agent"].iter().chain(arguments).map(OsString::from).collect();
        read(&line)
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("allotment-agent-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_file_says_what_options_say_and_the_command_line_wins() {
        let path = file(
            "both.toml",
            "max-points = 77\nsynthetic = 1000\ntitle = 'from the file'\nmemory-limit = '64MiB'\n",
        );
        let path_text = path.to_str().unwrap();
        let both = line(&["--config", path_text, "--title", "from the line"]).unwrap().serve;
        assert_eq!((both.max_points, both.synthetic), (77, Some(1000)));
        assert_eq!(both.title, "from the line");
        assert_eq!(both.memory_limit, Some(ByteSize(64 << 20)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_the_file_has_wrong_names_the_file_and_the_key() {
        for (text, expected) in [
            ("max-pints = 3\n", "max-pints"),
            ("max-points = 'many'\n", "max-points"),
            ("max-points = 0\n", "max-points"),
            ("max-points = [1]\n", "max-points"),
            ("[section]\nx = 1\n", "section"),
            ("config = 'other.toml'\n", "config"),
            ("max-points = \n", "line 1"),
            ("test-pages = 1\n", "test-pages"),
            ("no-such-thing = false\n", "no-such-thing"),
        ] {
            let path = file("wrong.toml", text);
            let error = line(&["--config", path.to_str().unwrap()]).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, CommandLineError::File(_)), "{text}: {message}");
            assert!(message.contains("wrong.toml") && message.contains(expected), "{message}");
            assert!(!message.trim_end().contains('\n'), "{message}");
            std::fs::remove_file(path).unwrap();
        }
        let message = line(&["--config", "/no/such/file"]).unwrap_err().to_string();
        assert!(message.contains("/no/such/file"), "{message}");
    }

    #[test]
    fn what_the_line_has_wrong_fits_in_one_line() {
        for bad in [
            &["--listen", "nowhere"][..],
            &["--workers", "0"],
            &["--memory-limit", "12XB"],
            &["--memory-limit", "1KiB"],
            &["--memory-limit", "1GiB", "--allocator", "malloc"],
            &["--allocator", "jemalloc"],
            &["--charts", "3"],
            &["--keep", "1,2"],
            &["--start-at", "yesterday"],
            &["--speed", "fast"],
            &["--max-points", "0"],
            &["load"],
            &["load", "not a url"],
            &["--listen", "127.0.0.1:1", "load", "http://a/"],
        ] {
            let error = line(bad).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, CommandLineError::Usage(_)), "{bad:?}: {message}");
            assert!(!message.contains('\n') && message.len() > 10, "{message}");
        }
        assert!(matches!(line(&["--help"]), Err(CommandLineError::HelpRequested(_))));
    }

    #[test]
    fn what_a_running_agent_can_take_over_is_known() {
        let old = line(&[]).unwrap().serve;
        let new = line(&["--max-points", "5", "--workers", "7", "--title", "x"]).unwrap().serve;
        assert_eq!(old.options_that_need_a_restart(&new), ["workers"]);
        let taken = old.with_reloadable_options_of(&new);
        assert_eq!((taken.max_points, taken.workers, &*taken.title), (5, None, "x"));
    }
}
