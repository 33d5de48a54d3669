//! `allot bench`: the measuring contract's command.

mod details;
mod html;
mod plan;
mod rounds;
mod row;
mod shares;
mod sizes;
mod table;

use crate::failure::Failure;
use crate::output::{line, to_errors};
use clap::Args;
use plan::{Plan, Plans, Wishes};
use procfs::Current;
use rounds::{Children, Limits};
use row::Row;
use shares::Shares;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use workloads::{Effort, Workload};

/// The arguments of `allot bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Which workloads to run; all if none is named
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Which rows: allocators, or a workload's own ways; all that can run it if none is named
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Vec<String>,
    /// Numbers of threads, instead of the workload's own
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Exactly this many rounds; else at most 5, within five minutes a workload
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Less work in each run, and one minute a workload
    #[arg(long)]
    quick: bool,
    /// One JSON object a line instead of tables
    #[arg(long)]
    json: bool,
    /// Also write plots and tables to this file, which needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const MOST_ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(285);
const QUICK_TIME: Duration = Duration::from_secs(50);

/// Runs what is asked for and prints it.
pub fn run(arguments: BenchArguments) -> Result<(), Failure> {
    let wishes = Wishes {
        workloads: arguments.workloads,
        allocators: arguments.allocators,
        threads: arguments.threads,
    };
    let Plans { plans, refused } = plan::plans(&wishes)?;
    for line in refused {
        to_errors(format!("allot: {line}"));
    }
    // Opened first: a path that can't be written is told before the work, not after it.
    let page = arguments.html.map(html::Page::create).transpose()?;
    let limits = match arguments.rounds {
        Some(rounds) => Limits { rounds: usize::from(rounds), time: None },
        None => Limits {
            rounds: MOST_ROUNDS,
            time: Some(if arguments.quick { QUICK_TIME } else { TIME }),
        },
    };
    let mut shares = Shares::default();
    let runner = Children { quick: arguments.quick };
    let mut all: Vec<(&Workload, Vec<Row>)> = Vec::new();
    let mut lacking = 0;
    for (index, plan) in plans.iter().enumerate() {
        if let Some(line) = lacks_memory(plan.workload, arguments.quick) {
            to_errors(format!("allot: {line}"));
            lacking += 1;
            continue;
        }
        let to_be_run: Vec<&Workload> = plans[index..].iter().map(|plan| plan.workload).collect();
        let began = Instant::now();
        let rows = measure(plan, shares.limits(limits, &to_be_run), &runner);
        shares.note(plan.workload, began.elapsed());
        if arguments.json {
            for row in &rows {
                line(json(row)?)?;
            }
        } else {
            table::print(plan, &rows)?;
        }
        all.push((plan.workload, rows));
    }
    let rows: Vec<&Row> = all.iter().flat_map(|(_, rows)| rows).collect();
    if !arguments.json && !rows.is_empty() {
        table::programs(&all)?;
        table::legend(&rows)?;
    }
    if let Some(page) = page {
        page.write(&all)?;
    }
    match rows.iter().filter(|row| row.error.is_some()).count() {
        0 if lacking > 0 => {
            Err(Failure::Failed(format!("{lacking} of {} workloads not run", plans.len())))
        }
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} rows failed", rows.len()))),
    }
}

/// Says that this machine has too little memory for a workload, if it has: the run would swap, or be killed.
fn lacks_memory(workload: &Workload, quick: bool) -> Option<String> {
    let effort = if quick { Effort::Quick } else { Effort::Full };
    let needed = workload.memory(effort)?;
    let available = procfs::Meminfo::current().ok()?.mem_available?;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (available < needed).then(|| {
        format!(
            "{} is not run: it needs {:.0} GiB of memory, and {:.1} GiB are available; --quick needs a tenth",
            workload.name,
            gib(needed),
            gib(available)
        )
    })
}

fn measure(plan: &Plan, limits: Limits, runner: &Children) -> Vec<Row> {
    row::rows(&plan.cases, &rounds::run(plan, limits, runner))
}

fn json(row: &Row) -> Result<String, Failure> {
    serde_json::to_string(row).map_err(|error| Failure::Failed(error.to_string()))
}

/// The workloads and allocators, for `allot bench --help`.
pub fn lists() -> String {
    let mut text = String::from("Workloads:\n");
    for workload in workloads::catalogue() {
        text += &format!("  {:<16} {}\n", workload.name, workload.meaning);
    }
    text += "  query stands for itself; burst, exchange, tiers, tree, tree-copy, many-trees, letters, c,\n  \
             pmr and client stand for all of their kind.\n";
    text += "\nAllocators:\n";
    for about in peers::known() {
        text += &format!("  {:<16} {}\n", about.name, about.origin);
    }
    text += "\nWays, which are the rows where no allocators are compared:\n";
    for workload in workloads::catalogue().iter().filter(|one| !one.ways().is_empty()) {
        text += &format!("  {}\n", workload.name);
        for way in workload.ways() {
            text += &format!("    {:<22}{}\n", way.name, way.meaning);
        }
    }
    text += FIGURES;
    text += EXAMPLES;
    text
}

const FIGURES: &str = "
Figures (--json; what could not be had is null):
  ns_per_op          wall time from the common start to the last finish, by the operations of all
                     threads; median of the rounds, with _min and _max
  ratio_to_own       ns_per_op by that of the row named own: allotment-arena; allotment-slab where objects
                     have one size; allotment-free-list or compact-copy for trees; allotment-pool for
                     mixed and handler, allotment-reap for scope; for a std::pmr resource the one of ours
                     that does its work. The median of the rounds' own ratios;
                     ratio_to_best_peer: by that of best_peer, the fastest of glibc, jemalloc,
                     mimalloc, snmalloc and tcmalloc, or of the ways that are not ours
  user_ns_per_op     client: user time of an operation; user_ratio_to_own: ratio_to_own by it
  base_rss_bytes     resident with the harness's own arrays, before the work; peak_ and end_rss_bytes
                     include it, the tables take it off
  minor_faults       page faults of the measured part; faults_per_query: those of the steady state,
                     after each thread's first two queries, for each query in it
  mmap_calls         mmap, munmap, mremap, madvise, mprotect and brk of a traced run of its own, which
                     does less (has traced_queries queries); mmap_calls_per_query: in its steady state
  system_calls       letters: all system calls of one search, in the traced run
  locks_per_op       categories: lock acquisitions of a request, in all and by what they guard
  live_bytes         what the live objects ask for at most; in churn and mixed, while they are
                     replaced; in scope, at a request's end
  rss_steps          churn: resident beyond the base after the burst, the frees, the replacements, when all
                     is freed, and after each thread has asked the allocator to give back what it
                     keeps; many-trees: when the trees are built, pruned, rebuilt, freed; tree-copy: when
                     they are built, laid out, and after asking
  walk_ns_per_node   many-trees: a walk of all trees once they are rebuilt, by their nodes
  reserve_ms         tiers: the reservation; second_ms_avg, second_ms_max: an ordinary second's buffers
  alloc_share        query, handler: the part of the time spent in the allocator, by the time stamp
                     counter, in a run of its own
";

const EXAMPLES: &str = "
Examples:
  allot bench query                        all peers, 256 queries by 1 and by 256 callers
  allot bench query-alloc --quick          the order of things within a minute
  allot bench grow --allocators glibc,mimalloc --threads 1,2 --json
  allot bench pair lifo fifo random        objects of one size, by 1, 2 and 16 threads
  allot bench burst --allocators jemalloc,slab --threads 1
  allot bench mixed mixed-remote scope     objects of 16 to 1024 B
  allot bench handler --quick              ordinary code, on each malloc as the global allocator
  allot bench letters --json               a file searched by a call a byte, by a buffer, by mmap
  allot bench published --allocators mutex,arc-swap,allotment-published
  allot bench c pmr --quick                the headers for C and C++, beside Rust and beside std::pmr
  allot bench client --json                SQLite, Lua and expat, on malloc and on allocators of ours
  allot bench tree-copy --html trees.html  a tree's layouts, at all sizes, with their plot
";
