//! The hidden command `queries`: context queries with one allocator in a process of its own.

use super::snapshot;
use crate::console::failure::Failure;
use crate::runner::child_process::end_with_parent;
use crate::workloads::Unobserved;
use crate::workloads::query::store::{DIMENSIONS, Store, VALUES};
use crate::workloads::query::{Callers, Queries, Question, Responses};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::time::Duration;

/// The arguments of `queries`, which the tour starts.
#[derive(Debug, Clone, clap::Args)]
pub struct QueriesArguments {
    /// The allocator's name
    pub allocator: String,
    /// Queries on each context
    #[arg(long)]
    pub count: usize,
    /// Threads that answer them
    #[arg(long)]
    pub threads: usize,
    /// Callers that wait for the answers
    #[arg(long)]
    pub callers: usize,
    /// Charts of the synthetic store; without it, the store is read from standard input, and each
    /// of its contexts is queried in turn
    #[arg(long)]
    pub charts: Option<usize>,
}

impl QueriesArguments {
    /// One caller queries each context of a store on standard input.
    pub fn on_stdin(count: usize) -> Self {
        Self { allocator: String::new(), count, threads: 1, callers: 1, charts: None }
    }

    /// `callers` callers query a synthetic store of `charts` charts.
    pub fn synthetic(charts: usize, count: usize, threads: usize, callers: usize) -> Self {
        Self { allocator: String::new(), count, threads, callers, charts: Some(charts) }
    }

    /// The purpose of these queries.
    pub fn meaning(&self) -> &'static str {
        match (self.charts, self.callers) {
            (None, _) => "this machine's counters",
            (Some(_), 1) => "full size, one caller",
            (Some(_), _) => "full size, many callers",
        }
    }

    /// These arguments as words of a command line, with the allocator `allocator`.
    pub fn line(&self, allocator: &str) -> Vec<String> {
        let mut line = vec![
            "queries".to_owned(),
            allocator.to_owned(),
            format!("--count={}", self.count),
            format!("--threads={}", self.threads),
            format!("--callers={}", self.callers),
        ];
        line.extend(self.charts.map(|charts| format!("--charts={charts}")));
        line
    }
}

/// Response times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResponseReport {
    /// The mean.
    pub average_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl From<Responses> for ResponseReport {
    fn from(responses: Responses) -> Self {
        Self {
            average_ms: milliseconds(responses.average),
            min_ms: milliseconds(responses.min),
            max_ms: milliseconds(responses.max),
        }
    }
}

/// The results of the queries on one context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryReport {
    pub context: String,
    pub dimensions: u64,
    pub series: u64,
    pub queries: usize,
    pub wall_seconds: f64,
    pub responses: ResponseReport,
}

/// Answers the queries and prints the reports.
pub fn answer(arguments: &QueriesArguments) -> Result<(), Failure> {
    end_with_parent();
    let failed = |why: String| Failure::Failed(why);
    let store = match arguments.charts {
        Some(charts) => Store::synthetic(charts, DIMENSIONS, VALUES),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
            snapshot::read(&bytes).map_err(|error| failed(error.to_string()))?
        }
    };
    let contexts = store.contexts();
    let questions: Vec<_> =
        contexts.into_iter().map(|context| Question::new(&store, context)).collect();
    let callers = match arguments.callers {
        1 => Callers::One,
        _ => Callers::Many { workers: arguments.threads },
    };
    let mut reports = Vec::new();
    for question in &questions {
        let queries = Queries {
            store: &store,
            questions: std::slice::from_ref(question),
            count: arguments.count,
            callers,
        };
        let outcome = queries
            .measure(&arguments.allocator, &Unobserved)
            .map_err(|unknown| Failure::Usage(unknown.to_string()))?;
        reports.extend(outcome.responses.map(|responses| QueryReport {
            context: question.context().to_owned(),
            dimensions: question.expected().dimensions,
            series: question.expected().series,
            queries: arguments.count,
            wall_seconds: outcome.wall.as_secs_f64(),
            responses: responses.into(),
        }));
    }
    crate::console::print::json_line(&reports)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
