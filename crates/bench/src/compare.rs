//! `allot bench`: runs the workloads of the benchmark and prints the results.

use crate::console::failure::Failure;
use crate::console::print::{WIDTH, json_line, line, to_errors, wrapped, wrapped_to};
use crate::console::table::counted;
use crate::output::{html, ratio_plot, table};
use crate::runner::plan::{self, Plan, Plans, Selection};
use crate::runner::resources;
use crate::runner::rounds::{self, ChildRuns, Limits};
use crate::runner::row::{self, Row};
use crate::runner::time_shares::TimeShares;
use crate::runner::two_builds::BuildRuns;
use crate::workloads::measurement::{METRICS, RATIOS};
use crate::workloads::{Effort, Workload};
use clap::Args;
use procfs::Current;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The arguments of `allot bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Workloads to run; all of them if none is named
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Rows to run: allocators, or a workload's own variants; every row that can run the
    /// workload if none is named
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Vec<String>,
    /// Numbers of threads, in place of the workload's own
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Run exactly N rounds; without it, at most 11 rounds within five minutes for each workload
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Compare with another build of this command, an older one too: each row runs with both builds
    /// in each round, and ratios compare the builds
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["html", "svg"])]
    against: Option<PathBuf>,
    /// Fragment free memory before each timed run, so that the kernel has few huge pages to give:
    /// takes up to nine tenths of it for some seconds, and holds up to a quarter during the run
    #[arg(long, conflicts_with = "against")]
    fragmented: bool,
    /// Do less work in each run, and take about one minute for each workload
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Also write plots and tables to FILE, a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write one plot of all ratios to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Eleven rounds have an interval that one disturbed round on each side does not move.
const MOST_ROUNDS: usize = 11;
const TIME: Duration = Duration::from_secs(285);
const QUICK_TIME: Duration = Duration::from_secs(50);

/// Runs the requested workloads and prints the results.
pub fn run(arguments: BenchArguments) -> Result<(), Failure> {
    let selection = Selection {
        workloads: arguments.workloads,
        allocators: arguments.allocators,
        threads: arguments.threads,
    };
    let chosen = !selection.allocators.is_empty();
    let Plans { plans, refused } = plan::plans(&selection)?;
    for line in refused {
        to_errors(format!("allot: {line}"));
    }
    let both_builds = match arguments.against {
        Some(other) => Some(BuildRuns::new(other, arguments.quick)?),
        None => None,
    };
    let plans = match both_builds {
        Some(_) => plans.into_iter().map(Plan::with_both_builds).collect(),
        None => plans,
    };
    // Opened first: a path that can't be written is reported before the work, not after it.
    let page = arguments.html.map(html::Page::create).transpose()?;
    let plot = arguments.svg.map(html::Page::create).transpose()?;
    let limits = match arguments.rounds {
        Some(rounds) => Limits { rounds: usize::from(rounds), time: None },
        None => Limits {
            rounds: MOST_ROUNDS,
            time: Some(if arguments.quick { QUICK_TIME } else { TIME }),
        },
    };
    let mut shares = TimeShares::default();
    let runner = ChildRuns { quick: arguments.quick, fragmented: arguments.fragmented };
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
        let limits = shares.limits(limits, &to_be_run);
        if plan.workload.is_cold() {
            to_errors(format!("allot: {}", huge_pages_before(plan.workload, arguments.fragmented)));
        }
        let results = match &both_builds {
            Some(runner) => rounds::run(plan, limits, runner),
            None => rounds::run(plan, limits, &runner),
        };
        let rows = row::rows(&plan.cases, &results);
        shares.note(plan.workload, began.elapsed());
        if arguments.json {
            for row in &rows {
                json_line(row)?;
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
    // Not if the rows were chosen, and not below variants and placements, which no build lacks.
    if !chosen && rows.iter().any(|row| row.kind != "variant" && row.kind != "placement") {
        for text in missing_rows() {
            if arguments.json { to_errors(format!("allot: {text}")) } else { line(wrapped(&text))? }
        }
    }
    if let Some(page) = page {
        page.write(html::page(&all))?;
    }
    if let Some(plot) = plot {
        plot.write(ratio_plot::overview(&all))?;
    }
    match rows.iter().filter(|row| row.error.is_some()).count() {
        0 if lacking > 0 => {
            Err(Failure::Failed(format!("{lacking} of {} workloads were not run", plans.len())))
        }
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} rows failed", rows.len()))),
    }
}

/// How many huge pages the kernel could give before the rounds of a workload on cold memory.
fn huge_pages_before(workload: &Workload, fragmented: bool) -> String {
    let name = workload.name;
    let free = match resources::free_huge_pages() {
        Some(pages) => format!("the kernel has {} free", counted(pages as usize, "huge page")),
        None => "the kernel does not tell its free huge pages".to_owned(),
    };
    let more = if fragmented { ", and memory is fragmented before each run" } else { "" };
    format!("{name}: {free}{more}; the column 'free before' has the number before each row's runs")
}

/// The allocators that this build lacks, and how to get them: a line for each remedy.
fn missing_rows() -> Vec<String> {
    let mut by_remedy: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, remedy) in crate::peers::missing() {
        match by_remedy.iter_mut().find(|(known, _)| *known == remedy) {
            Some((_, names)) => names.push(name),
            None => by_remedy.push((remedy, vec![name])),
        }
    }
    let text = |(remedy, names): (&str, Vec<&str>)| {
        format!("Not in this build: {} ({remedy}).", names.join(", "))
    };
    by_remedy.into_iter().map(text).collect()
}

/// A message if this machine has too little memory for a workload: the run would swap, or be
/// killed.
fn lacks_memory(workload: &Workload, quick: bool) -> Option<String> {
    let effort = if quick { Effort::Quick } else { Effort::Full };
    let needed = workload.memory(effort)?;
    let available = procfs::Meminfo::current().ok()?.mem_available?;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (available < needed).then(|| {
        format!(
            "{} was not run: it needs {:.0} GiB of memory, and {:.1} GiB is available; --quick needs a tenth",
            workload.name,
            gib(needed),
            gib(available)
        )
    })
}

/// The workloads and allocators, for `allot bench --help`.
pub fn lists() -> String {
    let mut text = String::from("Workloads:\n");
    for workload in crate::workloads::catalogue() {
        text += &format!("  {:<16} {}\n", workload.name, workload.meaning);
    }
    text += "  arena, burst, exchange, scope-free, pool-request, tiers, tree, tree-copy, many-trees, letters,\n  \
             c, pmr and client run all workloads of their kind; query runs only the workload of that name.\n";
    text += "\nAllocators:\n";
    for about in crate::peers::known() {
        text += &format!("  {:<26} {}\n", about.name, about.origin);
    }
    text += "\nRows of the workloads that compare variants of their work, not allocators:\n";
    for workload in crate::workloads::catalogue().iter().filter(|one| !one.variants().is_empty()) {
        text += &format!("  {}\n", workload.name);
        for variant in workload.variants() {
            text += &format!("    {:<22}{}\n", variant.name, variant.meaning);
        }
    }
    text += "\nFigures (--json; a figure that could not be measured is null):\n";
    let ratios = RATIOS.iter().map(|ratio| &ratio.median);
    let figures = METRICS.iter().copied().chain(ratios).map(|one| (one.key, one.meaning));
    for (key, meaning) in figures.chain(RATIO_FIELDS) {
        text += &described(key, meaning);
    }
    text += EXAMPLES;
    text
}

/// The fields of JSON for each ratio other than the median, and their meanings.
const RATIO_FIELDS: [(&str, &str); 2] = [
    (
        "..._low, ..._high",
        "the 95 % interval of each ratio: it contains the median of the ratios of single rounds with 95 % \
         confidence. null with fewer than 6 rounds",
    ),
    (
        "..._verdict",
        "ahead if the whole interval is below 1, behind if it is above 1, level if it contains 1; null if \
         there is no interval",
    ),
];

/// A name, with its meaning beside it.
fn described(name: &str, meaning: &str) -> String {
    let lines = wrapped_to(WIDTH - DESCRIPTION, meaning);
    let mut text = String::new();
    for (index, line) in lines.lines().enumerate() {
        let name = if index == 0 { name } else { "" };
        text += &format!("  {name:<width$}{line}\n", width = DESCRIPTION - 2);
    }
    text
}

/// The column in which a description begins.
const DESCRIPTION: usize = 24;

const EXAMPLES: &str = "
Examples:
  allot bench query                        all allocators; 256 queries by 1 and by 256 callers
  allot bench query-alloc --quick          a rough ranking within a minute
  allot bench grow --allocators glibc,mimalloc --threads 1,2 --json
  allot bench pair lifo fifo random        objects of one size, on 1, 2 and 16 threads
  allot bench typed typed-small arena      an arena as programs call it, beside other arenas
  allot bench query-alloc-cold --fragmented  the first touch of memory without free huge pages
  allot bench burst --allocators jemalloc,slab --threads 1
  allot bench mixed mixed-remote scope     objects of 16 to 1024 B
  allot bench handler --quick              ordinary Rust code, with each malloc as global allocator
  allot bench letters --json               a file read byte by byte, through a buffer, and mapped
  allot bench published --allocators mutex,arc-swap,allotment-published
  allot bench c pmr --quick                the C and C++ headers, compared with Rust and std::pmr
  allot bench client --json                SQLite, Lua and expat, on malloc and on Allotment
  allot bench pair --allocators allotment-slab --against ../before/target/release/allot
  allot bench tree-copy --html trees.html  five layouts of a tree at all sizes, with a plot
";
