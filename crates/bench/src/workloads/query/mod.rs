//! `query`: a context query over a store of metrics, from create to destroy.
//!
//! A query builds a virtual chart. For each dimension of the context, it allocates a structure, two
//! strings, an array of aggregated points and an entry in the map of groups. Then it sums the
//! groups, renders JSON into memory of the same task, and frees everything.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `store` | the metrics that queries read |
//! | `points` | the aggregation of values into points |
//! | `json` | the JSON of a reply |
//! | `view` | the virtual chart of one query |
//! | `reference` | the expected reply, computed in ordinary Rust |

mod json;
mod points;
mod reference;
pub mod store;
mod view;

use crate::peers::{About, Allocator, Task, TaskVisitor, UnknownAllocator};
use crate::workloads::clock::{self, Overhead, ticks};
use crate::workloads::measurement::{
    Measurement, RESPONSE_MS_AVG, RESPONSE_MS_MAX, RESPONSE_MS_MIN, milliseconds,
};
use crate::workloads::observer::{Observer, Unobserved};
use crate::workloads::task_threads::{self, Run, TaskCounter};
use crate::workloads::timed::{CallTicks, Timed, take_call_ticks};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::Store;
use view::View;

pub use points::POINTS;

/// The answer to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Dimensions of the virtual chart.
    pub dimensions: u64,
    /// Groups, each a series of the reply.
    pub series: u64,
    /// FNV-1a of the reply's bytes.
    pub checksum: u64,
}

/// A context to query, and the expected answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    context: String,
    expected: Answer,
}

impl Question {
    /// Computes the expected answer by other means than the query.
    pub fn new(store: &Store, context: &str) -> Self {
        Self { context: context.to_owned(), expected: reference::answer(store, context) }
    }

    /// The context.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The expected answer.
    pub fn expected(&self) -> Answer {
        self.expected
    }
}

/// The callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// One caller, which sends a query as soon as the previous reply has come.
    One,
    /// As many callers as queries. They all send their query at once, and `workers` threads serve
    /// them. A response time counts from that moment.
    Many {
        /// The number of threads that serve them.
        workers: usize,
    },
}

/// A series of queries.
#[derive(Debug, Clone, Copy)]
pub struct Queries<'s> {
    /// The metrics that are queried.
    pub store: &'s Store,
    /// The questions, used in turn.
    pub questions: &'s [Question],
    /// The number of queries.
    pub count: usize,
    /// The callers.
    pub callers: Callers,
}

/// The response times of one worker, and the dimensions of its replies.
struct ReplyTimes {
    responses: Vec<Duration>,
    dimensions: u64,
}

impl Queries<'_> {
    /// Runs all queries with the allocator called `allocator`.
    ///
    /// # Panics
    /// If a reply is not the expected one: the allocator gave out memory that was in use.
    pub fn measure(
        &self,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, UnknownAllocator> {
        Measure { queries: self, observer }.with(allocator)
    }

    /// The part of the workers' time that is spent in the allocator, from 0 to 1. It comes from a
    /// separate run, whose times have no other use. `None` if the processor has no counter.
    pub fn share(&self, allocator: &str) -> Result<Option<f64>, UnknownAllocator> {
        Share { queries: self }.with(allocator)
    }

    pub(crate) fn measure_with<A: Allocator>(&self, observer: &dyn Observer) -> Measurement {
        let run = self.serve::<A, _>(observer, |_| ());
        let served = || run.results.iter().map(|(served, ())| served);
        let responses = || served().flat_map(|served| served.responses.iter().copied());
        let average = responses().sum::<Duration>().checked_div(responses().count() as u32);
        Measurement::timed(served().map(|served| served.dimensions).sum(), run.wall)
            .with_tasks(self.count as u64, run.steady)
            .with(&RESPONSE_MS_AVG, average.map(milliseconds))
            .with(&RESPONSE_MS_MIN, responses().min().map(milliseconds))
            .with(&RESPONSE_MS_MAX, responses().max().map(milliseconds))
    }

    fn share_with<A: Allocator>(&self) -> Option<f64> {
        if !clock::AVAILABLE {
            return None;
        }
        let overhead = Overhead::calibrate();
        take_call_ticks();
        let run = self.serve::<Timed<A>, _>(&Unobserved, |whole| (take_call_ticks(), whole));
        let mut all = CallTicks::default();
        let mut whole = 0;
        for (_, (spent, ticks)) in run.results {
            all.ticks += spent.ticks;
            all.calls += spent.calls;
            whole += ticks;
        }
        Some(all.share_of(whole, overhead))
    }

    /// Serves the queries, and calls `last` on each worker with the ticks that its work took.
    fn serve<A: Allocator, R: Send>(
        &self,
        observer: &dyn Observer,
        last: impl Fn(u64) -> R + Sync,
    ) -> Run<(ReplyTimes, R)> {
        let next = AtomicUsize::new(0);
        let workers = match self.callers {
            Callers::One => 1,
            Callers::Many { workers } => workers,
        };
        task_threads::run(
            workers,
            observer,
            |_| touched(self.count),
            A::start,
            |allocator, responses: &mut Vec<Duration>, counter: &mut TaskCounter<'_>| {
                let start = ticks();
                let submitted = Instant::now();
                let mut dimensions = 0;
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= self.count {
                        break;
                    }
                    let question = &self.questions[turn % self.questions.len()];
                    let asked = match self.callers {
                        Callers::One => Instant::now(),
                        Callers::Many { .. } => submitted,
                    };
                    let task = allocator.begin();
                    let answer = answer(&task, self.store, &question.context);
                    drop(task);
                    responses.push(asked.elapsed());
                    assert_eq!(answer, question.expected, "the reply is not the expected one");
                    dimensions += answer.dimensions;
                    counter.task_done();
                }
                let whole = ticks().wrapping_sub(start);
                (ReplyTimes { responses: std::mem::take(responses), dimensions }, last(whole))
            },
        )
    }
}

struct Measure<'q> {
    queries: &'q Queries<'q>,
    observer: &'q dyn Observer,
}

impl TaskVisitor for Measure<'_> {
    type Output = Measurement;

    fn visit<A: Allocator>(self, _: &'static About) -> Measurement {
        self.queries.measure_with::<A>(self.observer)
    }
}

struct Share<'q> {
    queries: &'q Queries<'q>,
}

impl TaskVisitor for Share<'_> {
    type Output = Option<f64>;

    fn visit<A: Allocator>(self, _: &'static About) -> Option<f64> {
        self.queries.share_with::<A>()
    }
}

/// An array for `count` times, with every page written.
fn touched(count: usize) -> Vec<Duration> {
    let mut times = vec![Duration::MAX; count];
    std::hint::black_box(&mut times).clear();
    times
}

/// Answers one context query in the memory of `task`.
pub fn answer<T: Task>(task: &T, store: &Store, context: &str) -> Answer {
    let mut view = View::new(task);
    for (chart_index, chart) in store.charts.iter().enumerate() {
        if chart.context == context {
            for (position, dimension) in chart.dimensions.iter().enumerate() {
                view.add(dimension, chart_index as u32, position as u32);
            }
        }
    }
    view.sum_groups();
    let reply = view.render(context);
    let answer = Answer {
        dimensions: view.dimensions(),
        series: view.groups(),
        checksum: checksum(reply.as_bytes()),
    };
    reply.free();
    view.free();
    answer
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::store::{Chart, Dimension, SYNTHETIC_CONTEXT};
    use super::*;
    use crate::workloads::measurement::{QUERIES, SECONDS};
    use crate::workloads::testing::{FreedTogether, NEEDLESS_FREES, System, take_counts};

    fn ask<A: Allocator>(store: &Store, context: &str) -> Answer {
        let mut allocator = A::start();
        let task = allocator.begin();
        answer(&task, store, context)
    }

    #[test]
    fn a_query_answers_what_plain_collections_answer() {
        let store = Store::synthetic(20, 130, 60);
        let expected = reference::answer(&store, SYNTHETIC_CONTEXT);
        assert_eq!((expected.dimensions, expected.series), (2600, 130));
        assert_eq!(ask::<System>(&store, SYNTHETIC_CONTEXT), expected);
        assert_eq!(ask::<FreedTogether>(&store, SYNTHETIC_CONTEXT), expected);
        assert_eq!(NEEDLESS_FREES.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_query_takes_five_objects_a_dimension_and_leaves_none() {
        take_counts();
        ask::<System>(&Store::synthetic(10, 5, 60), SYNTHETIC_CONTEXT);
        // In addition to the dimensions' objects: two for each of five groups, the buckets, the
        // reply.
        assert_eq!(take_counts(), (50 * 5 + 5 * 2 + 2, 0));
    }

    #[test]
    fn charts_of_any_shape_are_answered() {
        let dimension = |name: &str, values: &[f64]| Dimension {
            id: format!("1.{name}"),
            name: name.to_owned(),
            values: values.to_vec(),
        };
        let chart = |context: &str, dimensions| Chart {
            context: context.to_owned(),
            name: "c".to_owned(),
            dimensions,
        };
        let store = Store {
            charts: vec![
                chart("one", vec![dimension("", &[]), dimension("a \"b\"", &[1.0])]),
                chart("two", vec![]),
                chart("one", vec![dimension("", &[f64::NAN, 2.0, 3.0])]),
            ],
        };
        for (context, dimensions, series) in [("one", 3, 2), ("two", 0, 0), ("none", 0, 0)] {
            let expected = reference::answer(&store, context);
            assert_eq!((expected.dimensions, expected.series), (dimensions, series));
            assert_eq!(ask::<System>(&store, context), expected);
        }
    }

    #[test]
    fn all_callers_are_served_and_their_time_counts_from_submission() {
        let store = Store::synthetic(2, 3, 20);
        let questions = [Question::new(&store, SYNTHETIC_CONTEXT)];
        for callers in [Callers::One, Callers::Many { workers: 3 }] {
            let queries = Queries { store: &store, questions: &questions, count: 12, callers };
            let figures = queries.measure_with::<System>(&Unobserved);
            assert_eq!((figures.ops(), figures.count(&QUERIES)), (12 * 6, 12));
            let [least, average, greatest] =
                [&RESPONSE_MS_MIN, &RESPONSE_MS_AVG, &RESPONSE_MS_MAX].map(|of| figures.get(of));
            assert!(least.is_some() && least <= average && average <= greatest);
            assert!(greatest <= figures.get(&SECONDS).map(|seconds| seconds * 1e3));
        }
    }

    #[test]
    fn the_share_is_a_part() {
        let store = Store::synthetic(5, 20, 20);
        let questions = [Question::new(&store, SYNTHETIC_CONTEXT)];
        let queries =
            Queries { store: &store, questions: &questions, count: 4, callers: Callers::One };
        let share = queries.share_with::<System>();
        assert_eq!(share.is_some(), clock::AVAILABLE);
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
