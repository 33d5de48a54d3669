//! The hidden command `queries`: context queries with one allocator in a process of its own.

use super::snapshot;
use crate::console::failure::Failure;
use crate::runner::child_process::end_with_parent;
use crate::workloads::query::store::{DIMENSIONS, Store, VALUES};
use crate::workloads::query::{Callers, Queries, Question};
use crate::workloads::{Measurement, Unobserved};
use std::io::Read;

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

/// Answers the queries and prints a record for each context.
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
    let mut figures: Vec<Measurement> = Vec::new();
    for question in &questions {
        let queries = Queries {
            store: &store,
            questions: std::slice::from_ref(question),
            count: arguments.count,
            callers,
        };
        let measured = queries
            .measure(&arguments.allocator, &Unobserved)
            .map_err(|unknown| Failure::Usage(unknown.to_string()))?;
        figures.push(measured);
    }
    crate::console::print::json_line(&figures)
}
