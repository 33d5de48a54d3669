//! The summary of invented findings, for every kind of advice.

use super::other_processes::{OtherProcess, OtherProcesses};
use super::summary::{LINES, SummaryFacts, summary};
use crate::analyse::findings::{
    AdvisedAllocator, BlockFigures, CodeChange, CombinedPlan, Findings, FlameNode, Gain, LockSite,
    MallocAdvice, MallocLibrary, ObjectCategory, OwnHeap, RecordedProgram, ReplayFindings,
    ReplayOutcome, ReplayRow, ReportNote, Site, SiteGroup, StackFrame, SystemCallAdvice,
    SystemFindings, VERSION, Verdict,
};

fn plain(findings: &Findings, facts: &SummaryFacts) -> String {
    let text = summary(findings, facts);
    anstream::adapter::strip_str(&text).to_string()
}

/// Without its line breaks.
fn text_of(findings: &Findings) -> String {
    plain(findings, &SummaryFacts::default()).split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn findings(groups: Vec<SiteGroup>) -> Findings {
    Findings {
        version: VERSION,
        program: RecordedProgram {
            command: vec!["/usr/bin/server".to_owned(), "--once".to_owned()],
            exit: Some("0".to_owned()),
            cpu_ns: Some(2_000_000_000),
            bare_cpu_ns: Some(1_500_000_000),
            wall_ns: 2_500_000_000,
            processes: 1,
            threads: 1,
            allocations: 3_000_000,
            bytes: 300 << 20,
            peak_live_bytes: 20 << 20,
            allocator_share: Some(0.21),
            ..RecordedProgram::default()
        },
        timeline: Vec::new(),
        sites: vec![Site {
            id: 0,
            title: "parse".to_owned(),
            frames: vec![frame("parse", "parse.c")],
            stacks: 1,
            group: 0,
            behaviour: BlockFigures::default(),
        }],
        groups,
        flame: FlameNode::default(),
        overlaps: None,
        locks: Vec::new(),
        system: SystemFindings::default(),
        replay: Some(ReplayFindings { rounds: 9, noise: 0.01, ..ReplayFindings::default() }),
        measured: None,
        notes: Vec::new(),
    }
}

fn frame(function: &str, file: &str) -> StackFrame {
    StackFrame {
        function: function.to_owned(),
        file: Some(file.to_owned()),
        line: Some(7),
        module: "server".to_owned(),
        inlined: false,
        wrapper: false,
    }
}

fn row(name: &str, groups: Vec<u32>, mib: u64) -> ReplayRow {
    ReplayRow {
        library: None,
        name: name.to_owned(),
        groups,
        time_ns: 1,
        least_ns: 1,
        most_ns: 1,
        wall_ns: 1,
        peak_resident: Some(mib << 20),
        minor_faults: None,
        time_ratio: None,
        memory_ratio: None,
        gain: None,
    }
}

fn group(
    id: u32,
    title: &str,
    category: ObjectCategory,
    allocator: AdvisedAllocator,
    gain: f64,
) -> SiteGroup {
    SiteGroup {
        id,
        title: title.to_owned(),
        sites: vec![0],
        place: None,
        behaviour: BlockFigures { count: 1_000_000, ..BlockFigures::default() },
        verdict: Verdict {
            category,
            allocator,
            without_reset: false,
            reason: "1,200 blocks accumulate and are freed together 900 times".to_owned(),
            refused: Vec::new(),
            gain: Some(Gain {
                share: gain,
                ceiling: gain * 1.3,
                measured: true,
                ceiling_measured: true,
                tried: false,
            }),
            change: CodeChange {
                rust: "// here\nlet mut arena = allotment::Arena::new();".to_owned(),
                c: "/* here */\nallot_arena *arena = allot_arena_create(NULL);".to_owned(),
            },
            candidate: false,
            replayed: None,
        },
    }
}

fn replayed(mut group: SiteGroup, confirmed: bool, reason: &str) -> SiteGroup {
    group.verdict.replayed = Some(ReplayOutcome {
        confirmed,
        reason: reason.to_owned(),
        time_ratio: Some(0.44),
        memory_ratio: Some(1.02),
    });
    group
}

fn arena(id: u32, title: &str, gain: f64) -> SiteGroup {
    let group = group(id, title, ObjectCategory::Transient, AdvisedAllocator::Arena, gain);
    replayed(group, true, "confirmed: in the replay it takes 0.44 × glibc's time")
}

#[test]
fn a_confirmed_change_is_told_with_its_gain_its_reason_and_its_code() {
    let mut findings = findings(vec![arena(0, "parse", 0.123)]);
    let rows = vec![row("null", vec![], 0), row("glibc", vec![], 10), row("arena", vec![0], 12)];
    findings.replay.as_mut().unwrap().rows = rows;
    let text = text_of(&findings);
    let answer = "Use an arena for `parse`: saves about 12 % of CPU time (replay-confirmed).";
    assert!(text.starts_with(&format!("/usr/bin/server --once {answer} Ran for 2.50 s")), "{text}");
    assert!(text.contains("0.44 +2.0 MiB confirmed"), "{text}");
    assert!(text.contains("Why an arena for `parse`: 1,200 blocks accumulate"), "{text}");
    assert!(text.contains("allot_arena_create"), "C for a file in C: {text}");
    assert!(text.contains("freeing takes about 21 % of the CPU time"), "{text}");
}

#[test]
fn the_legend_fits_on_a_line() {
    let text = plain(&findings(vec![arena(0, "parse", 0.1)]), &SummaryFacts::default());
    let legend = text.lines().find(|line| line.contains("saves: share")).unwrap();
    assert!(legend.contains("cost:") && legend.chars().count() <= 100, "{legend}");
}

#[test]
fn code_is_in_the_language_of_the_place() {
    let mut findings = findings(vec![arena(0, "parse", 0.1)]);
    findings.sites[0].frames = vec![frame("server::parse", "src/parse.rs")];
    let text = text_of(&findings);
    assert!(text.contains("allotment::Arena::new()") && !text.contains("allot_arena"), "{text}");
}

#[test]
fn what_was_not_confirmed_is_no_advice_but_is_told_with_its_figures() {
    let list = group(0, "rows", ObjectCategory::Transient, AdvisedAllocator::FreeList, 0.0);
    let why = "not confirmed, it is slower: in the replay it takes 1.21 × glibc's time";
    let text = text_of(&findings(vec![replayed(list, false, why)]));
    assert!(text.contains("No allocator would help: what looked promising was replayed"), "{text}");
    assert!(text.contains("A free list for `rows`: not confirmed, it is slower"), "{text}");
    assert!(text.contains("it takes 1.21 × glibc's time."), "{text}");
    assert!(!text.contains("(replay-confirmed)") && !text.contains("allot_arena_create"), "{text}");
}

#[test]
fn what_was_not_replayed_is_called_an_estimate() {
    let mut findings =
        findings(vec![group(0, "rows", ObjectCategory::Transient, AdvisedAllocator::Pool, 0.1)]);
    findings.replay = None;
    let text = text_of(&findings);
    assert!(text.contains("Not tested: the advice below is an estimate"), "{text}");
    assert!(text.contains("not replayed") && !text.contains("(replay-confirmed)"), "{text}");
}

#[test]
fn a_sealed_object_stays_a_candidate_whatever_the_replay_says() {
    let mut sealed =
        group(0, "load_config", ObjectCategory::ReadOnlyShared, AdvisedAllocator::Sealed, 0.0);
    sealed.verdict.candidate = true;
    let text = text_of(&findings(vec![replayed(sealed, true, "it costs no more than malloc")]));
    assert!(text.contains("No allocator would help: no change would save 1 %"), "{text}");
    assert!(text.contains("But one group of blocks could be sealed (read-only"), "{text}");
    assert!(text.contains("if nothing writes to it; a recording can't"), "{text}");
    assert!(text.contains("sealed?") && text.contains("no extra cost"), "{text}");
    assert!(!text.contains("(replay-confirmed)"), "{text}");
    let sealed = |id| {
        let mut sealed =
            group(id, "load", ObjectCategory::ReadOnlyShared, AdvisedAllocator::Sealed, 0.0);
        sealed.verdict.candidate = true;
        replayed(sealed, true, "it costs no more than malloc")
    };
    let text = text_of(&findings(vec![sealed(0), sealed(1)]));
    assert!(text.contains("2 groups of blocks could be sealed"), "{text}");
    assert!(text.contains("nothing writes to them"), "{text}");
}

#[test]
fn a_candidate_that_nobody_measured_comes_last() {
    let mut sealed =
        group(0, "load", ObjectCategory::ReadOnlyShared, AdvisedAllocator::Sealed, 0.5);
    sealed.verdict.candidate = true;
    let sealed = replayed(sealed, true, "it costs no more than malloc");
    let list = group(1, "rows", ObjectCategory::Transient, AdvisedAllocator::FreeList, 0.0);
    let list = replayed(list, false, "not confirmed, it is slower");
    let text = text_of(&findings(vec![sealed, list]));
    assert!(text.find("rows").unwrap() < text.find("load").unwrap(), "{text}");
    assert!(text.contains("No allocator would help: what looked promising"), "{text}");
}

#[test]
fn a_program_with_a_heap_of_its_own_is_told_so_before_candidates_are_named() {
    let sealed = |id| {
        let mut sealed =
            group(id, "load", ObjectCategory::ReadOnlyShared, AdvisedAllocator::Sealed, 0.0);
        sealed.verdict.candidate = true;
        replayed(sealed, true, "it costs no more than malloc")
    };
    let heap = OwnHeap {
        reason: "most of its objects are in V8's heap".to_owned(),
        remedy: "Use `node --heap-prof` for them.".to_owned(),
    };
    let mut findings = findings(vec![sealed(0), sealed(1)]);
    findings.program.own_heap = Some(heap.clone());
    let text = text_of(&findings);
    let answer = "No allocator would help: most of its objects are in V8's heap. Use `node --heap-prof` for them.";
    assert!(text.contains(answer), "{text}");
    assert!(!text.contains("could be sealed"), "{text}");
    // Beside advice on what malloc does allocate, it is told below.
    findings.groups = vec![arena(0, "parse", 0.2)];
    let text = text_of(&findings);
    assert!(text.contains("Use an arena for `parse`"), "{text}");
    assert!(text.contains("Not recorded: most of its objects are in V8's heap."), "{text}");
}

#[test]
fn a_malloc_that_saves_more_than_any_change_is_the_answer() {
    let mut findings =
        findings(vec![group(0, "all", ObjectCategory::LeaveIt, AdvisedAllocator::None, 0.001)]);
    let replay = findings.replay.as_mut().unwrap();
    replay.better_malloc = Some(MallocAdvice {
        name: "jemalloc".to_owned(),
        gain: Some(0.08),
        time_ratio: Some(0.6),
        more_peak_bytes: Some(17 << 17),
        library: Some(MallocLibrary {
            file: "libjemalloc.so.2".to_owned(),
            packages: "libjemalloc2 in Debian".to_owned(),
        }),
        ..MallocAdvice::default()
    });
    replay.faster_malloc = Some(MallocAdvice {
        name: "snmalloc".to_owned(),
        gain: Some(0.12),
        memory_ratio: Some(1.1),
        drawback: Some("no distribution has it".to_owned()),
        ..MallocAdvice::default()
    });
    let text = text_of(&findings);
    let answer =
        "Use jemalloc instead of glibc's malloc: saves about 8 % of CPU time (replay-confirmed).";
    assert!(text.contains(answer), "{text}");
    assert!(!text.contains("No allocator would help"), "{text}");
    assert!(text.contains("0.60 × glibc's time and 2.1 MiB more memory"), "{text}");
    assert!(
        text.contains("LD_PRELOAD=libjemalloc.so.2 /usr/bin/server … (libjemalloc2 in Debian)"),
        "{text}"
    );
    assert!(text.contains("snmalloc saves 12 %, but no distribution has it"), "{text}");
}

#[test]
fn what_a_change_may_save_is_not_bounded_by_the_cost_of_malloc() {
    let mut findings = findings(vec![arena(0, "parse", 0.3)]);
    let replay = findings.replay.as_mut().unwrap();
    replay.rows = vec![row("arena", vec![0], 12)];
    replay.ceiling = Some(0.51);
    let text = text_of(&findings);
    assert!(text.contains("takes about 51 % of the CPU time; better locality"), "{text}");
    assert!(!text.contains("can save more"), "{text}");
}

#[test]
fn the_place_of_a_change_is_told_with_its_file_and_line() {
    let mut group = arena(0, "parse", 0.3);
    group.place = Some(StackFrame { line: Some(120), ..frame("load_all", "/src/app/load.c") });
    let text = text_of(&findings(vec![group.clone()]));
    assert!(text.contains("Create and reset it in `load_all` (load.c:120)."), "{text}");
    assert!(text.contains("They are allocated in `parse` (parse.c:7)."), "{text}");
    group.verdict.without_reset = true;
    let text = text_of(&findings(vec![group]));
    assert!(text.contains("Create it in `load_all` (load.c:120)"), "{text}");
}

#[test]
fn a_malloc_that_gives_as_much_comes_before_a_change_of_the_code() {
    let mut pool = arena(0, "rows", 0.1);
    pool.verdict.category = ObjectCategory::BetterMalloc;
    let mut findings = findings(vec![pool]);
    findings.replay.as_mut().unwrap().better_malloc = Some(MallocAdvice {
        name: "mimalloc".to_owned(),
        gain: Some(0.11),
        time_ratio: Some(0.42),
        memory_ratio: Some(1.1),
        gives_as_much: true,
        library: Some(MallocLibrary {
            file: "libmimalloc.so".to_owned(),
            packages: "libmimalloc-dev in Debian".to_owned(),
        }),
        ..MallocAdvice::default()
    });
    let text = text_of(&findings);
    let answer = "Change the malloc, not the program: mimalloc saves about 11 % of CPU time, as much as \
                  changing the code would (replay-confirmed).";
    assert!(text.contains(answer), "{text}");
    assert!(text.contains("LD_PRELOAD=libmimalloc.so /usr/bin/server"), "{text}");
    assert!(text.contains("saves 11 % of the program's CPU time"), "{text}");
    assert!(text.contains("malloc as good"), "{text}");
}

#[test]
fn where_nothing_is_worth_a_change_it_says_so_in_one_line() {
    let mut findings =
        findings(vec![group(0, "all", ObjectCategory::LeaveIt, AdvisedAllocator::None, 0.001)]);
    findings.program.allocator_share = Some(0.008);
    let text = text_of(&findings);
    assert!(
        text.contains(
            "No allocator would help: allocating and freeing takes 0.8 % of its CPU time"
        ),
        "{text}"
    );
    assert!(text.contains("Nothing to gain from system calls or locks"), "{text}");
}

#[test]
fn a_program_that_allocates_nothing_and_one_that_is_over_at_once_are_told_so() {
    let mut findings = findings(Vec::new());
    findings.program.allocations = 0;
    findings.program.bare_cpu_ns = Some(3_000_000);
    findings.replay = None;
    let text = text_of(&findings);
    assert!(text.contains("it allocated nothing"), "{text}");
    assert!(text.contains("It took 3.0 ms of CPU time, which is mostly its start"), "{text}");
}

#[test]
fn how_the_program_ended_is_told() {
    let ended = |exit: &str| {
        let mut findings = findings(Vec::new());
        findings.program.exit = Some(exit.to_owned());
        text_of(&findings)
    };
    assert!(ended("0").contains("Ran for 2.50 s"));
    assert!(ended("3").contains("Ended with exit code 3 after 2.50 s"));
    assert!(ended("signal 11").contains("Was ended by SIGSEGV (a crash) after"));
    assert!(ended("signal 2").contains("Was ended by Ctrl-C after"));
    assert!(ended("signal 64").contains("Was ended by signal 64 after"));
}

#[test]
fn the_bare_program_s_time_is_called_measured() {
    let mut findings = findings(Vec::new());
    assert!(text_of(&findings).contains(" with about 1.50 s of CPU time, the recorder's share"));
    findings.program.bare_measured = true;
    assert!(text_of(&findings).contains(" with 1.50 s of CPU time, measured without the recorder"));
}

#[test]
fn cpu_time_above_the_time_of_the_run_is_explained() {
    let mut findings = findings(Vec::new());
    findings.program.bare_cpu_ns = Some(4_000_000_000);
    let text = text_of(&findings);
    assert!(text.contains("about 4.00 s of CPU time in all its threads and children"), "{text}");
}

#[test]
fn the_remedy_is_on_the_screen_even_where_the_figures_are_long() {
    let mut findings = findings(Vec::new());
    let remedy = "Collect them in a buffer. More on that.";
    findings.system.advice = vec![SystemCallAdvice {
        kind: "writes".to_owned(),
        title: "buffer the writes".to_owned(),
        advice: format!("{}. That is 7 % of its CPU time. {remedy}", "3,000 writes ".repeat(20)),
        remedy: remedy.to_owned(),
        calls: 3_000,
        saved_ns: 1,
        gain: Some(0.07),
    }];
    let text = text_of(&findings);
    assert!(text.contains("Buffer the writes: 3,000 writes"), "{text}");
    assert!(text.contains("Collect them in a buffer.") && !text.contains("More on"), "{text}");
}

#[test]
fn everything_at_once_fits_on_one_screen_and_what_matters_is_there() {
    let long =
        "void std::__detail::_Insert<std::pair<std::basic_string<char> const, int>>::operator()";
    let wide = |id| {
        let mut group = arena(id, &long.repeat(60), 0.02);
        group.verdict.without_reset = true;
        group.behaviour.count = 123_456_789_012;
        group
    };
    let mut findings = findings((0..40).map(wide).collect());
    findings.program.command =
        vec!["server".to_owned(), "create table\n\x1b[2Jt(a);\n".repeat(300)];
    let together = CombinedPlan { gain: Some(0.31), ..CombinedPlan::default() };
    let replay = findings.replay.as_mut().unwrap();
    replay.together = Some(together);
    replay.rows =
        vec![row("null", vec![], 0), row("glibc", vec![], 1), row("arena", vec![0], 123_456)];
    replay.better_malloc = Some(MallocAdvice {
        name: "mimalloc".to_owned(),
        gain: Some(0.2),
        time_ratio: Some(0.5),
        ..MallocAdvice::default()
    });
    let advice = |title: &str| SystemCallAdvice {
        kind: "reads".to_owned(),
        title: title.to_owned(),
        advice: "408,889 reads of 1 byte each took 0.2 s; one of 64 KiB takes the place of 65,536"
            .repeat(3),
        remedy: String::new(),
        calls: 408_889,
        saved_ns: 1,
        gain: Some(0.1),
    };
    findings.system.advice =
        vec![advice("buffer the reads"), advice("buffer the writes"), advice("more")];
    findings.locks = vec![LockSite {
        frames: Vec::new(),
        kind: "mutex".to_owned(),
        waits: 9,
        waited_ns: 9,
        longest_ns: 9,
        locks: 1,
        share: Some(0.2),
        advice: Some(
            "threads wait 20 % of their time for the mutex that cache_get locks".to_owned(),
        ),
    }];
    let note = |warning| ReportNote {
        warning,
        text: "debug symbols of a library are not installed ".repeat(5),
    };
    findings.notes = vec![note(true), note(true), note(true), note(false)];
    let other = |number| OtherProcess { number, command: "helper".to_owned(), percent: 5 };
    let facts = SummaryFacts {
        report: Some(Ok("allot-server.html".to_owned())),
        recording: Some("server.rec".to_owned()),
        others: OtherProcesses {
            processes: (1..9).map(other).collect(),
            percent_of_chosen: 60,
            ..OtherProcesses::default()
        },
    };
    let text = plain(&findings, &facts);
    assert!(text.lines().count() < LINES, "{} lines: {text}", text.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains('\x1b'), "{line}");
    }
    for word in [
        "Make 40 changes: together they save about",
        "31 %",
        "mimalloc",
        "35 more",
        "allot-server.html",
        "server.rec",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn other_processes_are_named_with_the_way_to_them() {
    let other = |number, percent| OtherProcess { number, command: "cc1".to_owned(), percent };
    let others = OtherProcesses {
        processes: vec![other(1, 40), other(0, 2)],
        percent_of_chosen: 58,
        ..OtherProcesses::default()
    };
    let sentence = others.sentence(Some("gcc.rec")).unwrap();
    assert!(sentence.contains("58 %") && sentence.contains("1 cc1 (40 %)"), "{sentence}");
    assert!(sentence.contains("--process N with --recording gcc.rec"), "{sentence}");
    let most = OtherProcesses { percent_of_chosen: 95, ..others.clone() };
    assert!(!most.sentence(None).unwrap().contains("cc1"));
    assert!(others.sentence(None).unwrap().ends_with("For another: --process N."));
    assert_eq!(OtherProcesses::default().sentence(None), None);
}

#[test]
fn a_process_with_a_malloc_of_its_own_is_named() {
    let rustc = OtherProcess { number: 2, command: "rustc main.rs".to_owned(), percent: 0 };
    let others = OtherProcesses { own_malloc: vec![rustc], ..OtherProcesses::default() };
    let warning = others.own_malloc_warning().unwrap();
    assert!(warning.contains("rustc main.rs (process 2) has a malloc of its own"), "{warning}");
    assert_eq!(OtherProcesses::default().own_malloc_warning(), None);
}

#[test]
fn a_program_that_went_on_in_the_background_is_told_with_what_to_do() {
    let other = |number| OtherProcess { number, command: "nginx".to_owned(), percent: 1 };
    let one = OtherProcesses { still_running: vec![other(1)], ..OtherProcesses::default() };
    let warning = one.warning().unwrap();
    assert!(
        warning.contains("nginx (process 1) went on") && warning.contains("foreground"),
        "{warning}"
    );
    let two =
        OtherProcesses { still_running: vec![other(1), other(2)], ..OtherProcesses::default() };
    assert!(two.warning().unwrap().contains("2 processes"));
    let nameless = OtherProcesses { went_on: true, ..OtherProcesses::default() };
    assert!(nameless.warning().unwrap().contains("a process that the program had started went on"));
    assert_eq!(OtherProcesses::default().warning(), None);
}

#[test]
fn advice_on_system_calls_and_locks_is_told_in_whole_sentences() {
    let mut findings = findings(Vec::new());
    let facts = "408,889 reads of 1 byte on average, at least 120 ns each.";
    findings.system.advice = vec![SystemCallAdvice {
        kind: "reads".to_owned(),
        title: "buffer the reads".to_owned(),
        advice: format!(
            "{facts} That is 31 % of its CPU time. {}",
            "Read more at once. ".repeat(9)
        ),
        remedy: "Read more at once. ".repeat(9),
        calls: 408_889,
        saved_ns: 1,
        gain: Some(0.31),
    }];
    findings.locks = vec![LockSite {
        frames: vec![frame("cache_get", "cache.c")],
        kind: "mutex".to_owned(),
        waits: 9,
        waited_ns: 9,
        longest_ns: 9,
        locks: 1,
        share: Some(0.2),
        advice: Some(
            "9 waits for a mutex: 20 % of the time of all threads. Hold it shorter.".to_owned(),
        ),
    }];
    let text = text_of(&findings);
    assert!(
        text.contains(&format!("Buffer the reads: {facts} That is 31 % of its CPU time.")),
        "{text}"
    );
    assert!(text.contains("Lock in cache_get: 9 waits"), "{text}");
    assert!(!text.contains("Nothing to gain"), "{text}");
    assert_eq!(text.matches("Read more at once.").count(), 3, "{text}");
}

#[test]
fn a_recorder_that_took_more_than_the_program_is_told_with_a_way_out() {
    let mut findings = findings(Vec::new());
    findings.program.cpu_ns = Some(9_000_000_000);
    assert!(text_of(&findings).contains("Run again with --against-bare"));
    findings.program.bare_measured = true;
    assert!(!text_of(&findings).contains("--against-bare"));
}

#[test]
fn where_nothing_was_planned_the_summary_has_one_figure_of_what_calls_take() {
    let mut findings = findings(Vec::new());
    findings.program.allocator_share = Some(0.014);
    // A replay of a few thousand calls is mostly the first touch of their pages.
    findings.replay.as_mut().unwrap().ceiling = Some(0.13);
    let text = text_of(&findings);
    assert!(text.contains("freeing takes about 1.4 % of the CPU time."), "{text}");
    assert!(text.contains("takes 1.4 % of its CPU time, too little"), "{text}");
    assert!(!text.contains("13 %"), "{text}");
}

#[test]
fn what_all_calls_take_is_by_the_replay_where_it_was_measured() {
    let mut findings = findings(Vec::new());
    assert!(text_of(&findings).contains("freeing takes about 21 % of the CPU time."));
    let replay = findings.replay.as_mut().unwrap();
    replay.ceiling = Some(0.13);
    replay.rows.push(row("arena for group 0", vec![0], 1));
    assert!(
        text_of(&findings).contains("freeing takes about 13 % of the CPU time; better locality")
    );
}
