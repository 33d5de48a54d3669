//! The same load on two agents in turn: one on the library's allocators, one on plain malloc.

use super::{LoadError, LoadOptions, LoadReport, run};
use bench::console::statistics::{FEWEST_ROUNDS, Ratio, RatioVerdict, median};
use std::fmt;
use std::future::Future;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The options of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Number of computed metrics, all of one context.
    pub metrics: u32,
    /// Number of charts that the metrics are spread over.
    pub charts: u32,
    /// Number of connections.
    pub connections: usize,
    /// Number of rounds. In each, both agents are loaded, one after the other.
    pub rounds: u32,
    /// The duration of one load.
    pub time: Duration,
}

/// The values of `--allocator`, the library's first.
const ALLOCATORS: [&str; 2] = ["allotment", "malloc"];
/// The range of each query, in seconds, which have to be collected first.
const SECONDS: u32 = 10;
/// The pause between two loads, in which running requests end.
const PAUSE: Duration = Duration::from_millis(500);

/// Why there is no comparison.
#[derive(Debug)]
pub enum CompareError {
    /// An agent did not start.
    Agent(&'static str, String),
    /// An agent could not be loaded.
    Load(LoadError),
    /// An agent refused or lost requests, so that the rates mean nothing.
    Refused(&'static str, Box<LoadReport>),
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(allocator, error) => write!(
                f,
                "the agent on {allocator} did not start: {error}; fewer --metrics need less memory"
            ),
            Self::Load(error) => error.fmt(f),
            Self::Refused(allocator, report) => {
                write!(f, "the agent on {allocator} did not answer every request: {report}")
            }
        }
    }
}

impl std::error::Error for CompareError {}

/// An agent in a child process, which ends with this value.
struct AgentProcess {
    child: Child,
    url: String,
}

impl AgentProcess {
    fn start(allocator: &'static str, comparison: &CompareOptions) -> Result<Self, CompareError> {
        let failed = |error: String| CompareError::Agent(allocator, error);
        let io = |error: io::Error| failed(error.to_string());
        let program = std::env::current_exe().map_err(io)?;
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--contexts", "1", "--allocator", allocator]);
        command.args(["--end-with-parent", "--synthetic", &comparison.metrics.to_string()]);
        command.args(["--charts", &comparison.charts.to_string()]);
        // Ctrl-C in the terminal goes to this process alone, which ends the agents.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(io)?;
        let (said, logged) = (child.stdout.take(), child.stderr.take());
        let mut agent = Self { child, url: String::new() };
        // The log is read to its end so that the agent never blocks on it. It is shown if the agent
        // does not start.
        let log = std::thread::spawn(move || logged.map(io::read_to_string));
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(io)?;
        }
        let Some(url) = line.trim().strip_prefix("listening on ") else {
            let status = agent.child.wait().map_err(io)?;
            let log = log.join().ok().flatten().and_then(Result::ok).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it printed nothing");
            return Err(failed(format!("it ended with {status}: {last}")));
        };
        url.trim_end_matches('/').clone_into(&mut agent.url);
        Ok(agent)
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares the two agents. `progress` is called with the current round and agent. `stop` is polled
/// during each load, and ends it; `stopped` is checked between loads.
///
/// # Errors
/// When an agent does not start, can't be loaded, or refuses requests.
pub async fn compare<S: Future<Output = ()>>(
    comparison: &CompareOptions,
    mut progress: impl FnMut(&str),
    mut stop: impl FnMut() -> S,
    stopped: impl Fn() -> bool,
) -> Result<CompareReport, CompareError> {
    let mut agents = Vec::new();
    for allocator in ALLOCATORS {
        progress(&format!("starting the agent on {allocator}"));
        agents.push(AgentProcess::start(allocator, comparison)?);
    }
    for left in (1..=SECONDS + 2).rev() {
        progress(&format!("collecting, {left} s left"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if stopped() {
            return Ok(CompareReport { rounds: Vec::new() });
        }
    }
    let mut rounds = Vec::new();
    'rounds: for round in 1..=comparison.rounds {
        let mut both = Vec::new();
        for (agent, allocator) in agents.iter().zip(ALLOCATORS) {
            progress(&format!("round {round} of {}: {allocator}", comparison.rounds));
            let address = format!(
                "{}/api/v1/query?context=synthetic.context_0&after=-{SECONDS}&points={SECONDS}",
                agent.url
            );
            let wrong = |_| CompareError::Load(LoadError::Address(address.clone()));
            let load = LoadOptions {
                addresses: vec![address.parse().map_err(wrong)?],
                connections: comparison.connections,
                time: comparison.time,
            };
            let report = run(&load, |_, _| {}, stop()).await;
            if stopped() {
                break 'rounds;
            }
            let report = report.map_err(CompareError::Load)?;
            if report.lost > 0 || report.statuses.keys().any(|status| *status != 200) {
                return Err(CompareError::Refused(allocator, Box::new(report)));
            }
            both.push(report);
            tokio::time::sleep(PAUSE).await;
        }
        if let Ok(both) = <[LoadReport; 2]>::try_from(both) {
            rounds.push(both);
        }
    }
    Ok(CompareReport { rounds })
}

/// The result: for each round the library's report and malloc's.
#[derive(Debug, Clone)]
pub struct CompareReport {
    /// In the order in which they ran.
    pub rounds: Vec<[LoadReport; 2]>,
}

/// Returns the median, minimum and maximum.
fn spread(figures: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let figures: Vec<f64> = figures.collect();
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    Some([median(figures)?, least, most])
}

impl CompareReport {
    /// Returns the requests per second of one of the two.
    fn rates(&self, which: usize) -> Option<[f64; 3]> {
        spread(self.rounds.iter().map(|round| round[which].requests_per_second))
    }

    fn times(&self, which: usize, time: impl Fn(&LoadReport) -> Option<f64>) -> Option<[f64; 3]> {
        spread(self.rounds.iter().filter_map(|round| time(&round[which])))
    }

    /// Returns the library's rate divided by malloc's, with its interval.
    fn ratio(&self) -> Option<Ratio> {
        let (ours, malloc): (Vec<_>, Vec<_>) = self.rates_of_both().unzip();
        Ratio::of_rounds(&ours, &malloc)
    }

    /// Returns the verdict on the library: it is ahead if it answers more.
    fn verdict(&self) -> Option<RatioVerdict> {
        self.ratio()?.inverse().verdict()
    }

    /// Returns the rates of the rounds in which malloc answered.
    fn rates_of_both(&self) -> impl Iterator<Item = (Option<f64>, Option<f64>)> {
        let answered = self.rounds.iter().filter(|[_, malloc]| malloc.answered > 0);
        answered.map(|[ours, malloc]| {
            (Some(ours.requests_per_second), Some(malloc.requests_per_second))
        })
    }

    /// Returns the median ratio, and those of the worst and the best round.
    fn ratio_spread(&self) -> Option<[f64; 3]> {
        spread(self.rates_of_both().filter_map(|(ours, malloc)| Some(ours? / malloc?)))
    }

    /// Returns one JSON object per line: each agent's figures, then the ratio.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        for (which, allocator) in ALLOCATORS.iter().enumerate() {
            let line = serde_json::json!({
                "allocator": allocator,
                "rounds": self.rounds.len(),
                "requests_per_second": self.rates(which),
                "p50_ms": self.times(which, |report| report.p50_ms),
                "p99_ms": self.times(which, |report| report.p99_ms),
                "max_ms": self.times(which, |report| report.max_ms),
            });
            text += &format!("{line}\n");
        }
        let interval = self.ratio().and_then(|ratio| ratio.interval);
        let line = serde_json::json!({
            "ratio": self.ratio_spread(),
            "ratio_low": interval.map(|interval| interval.low),
            "ratio_high": interval.map(|interval| interval.high),
            "ratio_verdict": self.verdict().map(RatioVerdict::word),
        });
        text + &line.to_string()
    }
}

impl fmt::Display for CompareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ratio) = self.ratio_spread() else {
            return f.write_str("no round ended with replies from both agents");
        };
        writeln!(
            f,
            "{:<10} {:>18} {:>14} {:>14} {:>14} {:>14}",
            "allocator", "requests/second", "least, most", "median", "p99", "slowest"
        )?;
        let seconds = |time: Option<[f64; 3]>| {
            time.map_or_else(|| "-".to_owned(), |[median, ..]| format!("{:.3} s", median / 1e3))
        };
        for (which, allocator) in ALLOCATORS.iter().enumerate() {
            let [rate, least, most] = self.rates(which).unwrap_or_default();
            writeln!(
                f,
                "{allocator:<10} {rate:>18.1} {:>14} {:>14} {:>14} {:>14}",
                format!("{least:.1}, {most:.1}"),
                seconds(self.times(which, |report| report.p50_ms)),
                seconds(self.times(which, |report| report.p99_ms)),
                seconds(self.times(which, |report| report.max_ms)),
            )?;
        }
        let [ratio, least, most] = ratio;
        writeln!(
            f,
            "allotment answers {ratio:.2} times as many requests ({least:.2} to {most:.2} in {} rounds).",
            self.rounds.len()
        )?;
        match self.ratio().and_then(|ratio| ratio.interval).zip(self.verdict()) {
            Some((interval, verdict)) => writeln!(
                f,
                "95 % interval: {:.2} to {:.2} times; allotment is {verdict}.",
                interval.low, interval.high
            )?,
            None => writeln!(f, "An interval takes {FEWEST_ROUNDS} rounds.")?,
        }
        f.write_str(
            "Times are of the replies that came within their round, so those of a slow agent are too low.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::report::LoadTally;

    fn report(replies: u64) -> LoadReport {
        let mut tally = LoadTally::default();
        (0..replies).for_each(|_| tally.reply(200, Duration::from_millis(2), 1));
        tally.report(Duration::from_secs(1), 1)
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds() {
        let rounds =
            vec![[report(30), report(10)], [report(20), report(10)], [report(100), report(10)]];
        let compared = CompareReport { rounds };
        assert_eq!(compared.ratio_spread(), Some([3.0, 2.0, 10.0]));
        assert_eq!(compared.ratio().map(|ratio| ratio.median), Some(3.0));
        assert!(compared.to_string().contains("3.00 times as many requests (2.00 to 10.00"));
        let last = compared.to_json().lines().last().unwrap().to_owned();
        let expected =
            r#"{"ratio":[3.0,2.0,10.0],"ratio_high":null,"ratio_low":null,"ratio_verdict":null}"#;
        assert_eq!(last, expected);
        assert!(compared.to_string().contains("An interval takes 6 rounds."));
    }

    #[test]
    fn six_rounds_have_an_interval_and_a_verdict() {
        let rounds = (20..26).map(|replies| [report(replies), report(10)]).collect();
        let compared = CompareReport { rounds };
        let text = compared.to_string();
        assert!(text.contains("95 % interval: 2.00 to 2.50 times; allotment is ahead."), "{text}");
        assert!(compared.to_json().ends_with(r#""ratio_low":2.0,"ratio_verdict":"ahead"}"#));
    }

    #[test]
    fn an_agent_that_answers_nothing_has_no_ratio() {
        let compared = CompareReport { rounds: vec![[report(1), report(0)]] };
        assert_eq!((compared.ratio_spread(), compared.verdict()), (None, None));
        assert!(compared.to_string().starts_with("no round"));
    }
}
