//! Runs the passes one after the other, and makes findings of their results.

use super::block_statistics::share;
use super::cost_model::{self, MeanCallTimes, RunContext};
use super::event_pass::{self, STEPS, pass};
use super::findings::{
    Findings, ObjectCategory, RecordedProgram, ReportNote, Site, SiteGroup, StackFrame, VERSION,
};
use super::group_pass::{GroupPass, GroupPassInput, StackClass};
use super::groups::{self, FinishedGroup, FinishedSite, GroupName, GroupingInput, MeasuredBlocks};
use super::kept_events::MOST_KEPT;
use super::possible_groups::{self, PossibleGroup};
use super::sites::{SiteDraft, SiteFinder};
use super::stack_pass::{StackPass, StackPassResult, StackStatistics};
use super::symbols::{self, Symbols, short};
use super::{
    AnalyseOptions, Analysis, NO_SITE, flame, formatting, lock_waits, own_heap, source_line,
    system_calls, wrappers,
};
use crate::record::why_unseen;
use bench::console::progress::Progress;
use hashbrown::HashMap;
use trace_format::container::{AllocatorCosts, ProgramExit};
use trace_format::{NodeId, RecordingReader, Stacks, TraceError};

/// Assumed bytes of an event before compression, for the progress bar.
const EVENT_BYTES: u64 = 4;
/// Fewer allocations without their outermost callers come from the dynamic loader.
const LEAST_CUT_OFF: u64 = 100;
/// A piece of work is named after a function that makes at least this share of its allocations.
const NAMED: f64 = 0.995;
/// The C library's functions that call `main` and a thread's first function.
const START: [&str; 4] =
    ["__libc_start_call_main", "__libc_start_main_impl", "__libc_start_main", "start_thread"];

/// Analyses a process.
pub fn assemble(
    reader: &RecordingReader,
    process: usize,
    options: &AnalyseOptions,
) -> Result<Analysis, TraceError> {
    let progress = options.progress.then(|| Progress::new(2 * STEPS + 2));
    let say = |what: &str| progress.iter().for_each(|progress| progress.say(what));
    let raw = reader.processes()[process].raw_bytes();
    say("reading the recording");
    let mut stack_pass = StackPass::new(options.check, if options.frugal { 0 } else { MOST_KEPT });
    let shown = progress.as_ref().map(|progress| (progress, raw / EVENT_BYTES));
    let (ended, opened) = std::thread::scope(|scope| {
        let opened = scope.spawn(|| symbols::open_in_advance(reader, process));
        let ended = pass(reader, process, shown, None, &mut stack_pass);
        (ended, opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let event_pass::PassResult { stacks, modules, resolver } = ended?;
    let (all, mut end) = stack_pass.finish(&resolver.live);

    say("finding sites");
    let mut symbols = Symbols::new(&modules, &stacks, &all, opened);
    let (drafts, possible_groups) = std::thread::scope(|scope| {
        let possible_groups = scope.spawn(|| possible_groups::possible_groups(&stacks, &all));
        let drafts = SiteFinder::new(&stacks, &all, &mut symbols).find();
        (drafts, possible_groups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (classes, class_of_stack) = classes(&all, &drafts, &possible_groups);
    let mut counts = vec![0; classes.len()];
    for (stack, &class) in all.iter().zip(&class_of_stack) {
        counts[class as usize] += stack.statistics.count;
    }
    let of_class = |&(stack, thread): &(u32, u32)| (class_of_stack[stack as usize], thread);
    let cells: Vec<(u32, u32)> = end.cells.iter().map(of_class).collect();
    progress.iter().for_each(Progress::step);

    say("following sites and groups");
    let mut group_pass = GroupPass::new(&GroupPassInput {
        classes: &classes,
        counts: &counts,
        cells: &cells,
        sites: drafts.len(),
        possible_groups: possible_groups.len() + classes.len(),
        exit_from: end.totals.exit_from,
    });
    let stacks = match end.kept_events.take() {
        Some(kept_events) => {
            group_pass.visit_all(&kept_events, progress.as_ref());
            stacks
        }
        None => {
            let shown = progress.as_ref().map(|progress| (progress, end.totals.events));
            let previous = Some((stacks, resolver));
            pass(reader, process, shown, previous, &mut group_pass)?.stacks
        }
    };
    let figures = group_pass.finish();

    say("judging");
    let mut program = program(reader, process, &end);
    // The kernel's figures are of the first process.
    let anonymous = reader.end().filter(|_| process == 0).and_then(|end| end.usage.peak_anonymous);
    program.own_heap =
        own_heap::own_heap(&program.executable, modules.all(), anonymous, program.peak_live_bytes);
    if let Some(bare) = options.bare_cpu_ns {
        let all = reader.end().map(|end| end.usage.user_ns + end.usage.system_ns);
        let part = share(program.cpu_ns.unwrap_or(0), all.unwrap_or(0)).unwrap_or(1.0);
        program.bare_cpu_ns = Some((bare as f64 * part) as u64);
        program.bare_measured = true;
    }
    let mut run_context = RunContext {
        cpu_ns: program.bare_cpu_ns.map(|ns| ns as f64),
        wall_ns: program.wall_ns,
        threads: end.threads.clone(),
        allocator_share: None,
        pace: 1.0,
        peak_live_bytes: program.peak_live_bytes,
    };
    let expected: f64 = drafts
        .iter()
        .zip(&figures)
        .map(|(draft, figures)| MeasuredBlocks {
            statistics: draft.statistics.clone(),
            figures: figures.clone(),
        })
        .map(|measured| cost_model::glibc(&measured.behaviour()))
        .sum();
    let measured = MeanCallTimes::new(costs_of(reader, process)).allocator_ns(&end.totals);
    let cost = measured.unwrap_or(expected);
    run_context.pace = if expected > 0.0 { cost / expected } else { 1.0 };
    run_context.allocator_share = run_context.cpu_ns.map(|cpu| (cost / cpu).min(1.0));
    program.allocator_share = run_context.allocator_share;
    program.allocator_measured = measured.is_some();
    let mut titles = TitleFinder {
        stacks: &stacks,
        all: &all,
        symbols: &mut symbols,
        drafts: &drafts,
        possible_groups: &possible_groups,
    };
    let (finished_sites, finished_groups) = groups::make(GroupingInput {
        stacks: &all,
        drafts: &drafts,
        possible_groups: &possible_groups,
        class_of_stack: &class_of_stack,
        figures: &figures,
        run_context: &run_context,
        classes: groups::sums(&all, &class_of_stack, classes.len()),
        title: &mut |name| titles.of(name),
    });
    let (sites, groups) = named(&mut titles, &finished_sites, finished_groups);
    let mut site_of = vec![NO_SITE; stacks.len()];
    for (index, site) in finished_sites.iter().enumerate() {
        for &stack in &site.stacks {
            site_of[all[stack as usize].node as usize] = index as u32;
        }
    }
    let name = program.command.first().map_or("program", |name| name);
    let flame = flame::flame(&stacks, &all, &mut symbols, name.rsplit('/').next().unwrap_or(name));
    let locks = lock_waits::lock_sites(&stacks, &mut symbols, &end);
    let system = system_calls::system(reader, &program);
    let notes = notes(reader, process, &program, &end, &stacks, &all, &symbols);
    let findings = Findings {
        version: VERSION,
        program,
        timeline: end.timeline,
        sites,
        groups,
        flame,
        overlaps: end.overlaps,
        locks,
        system,
        replay: None,
        measured: None,
        notes,
    };
    drop(symbols);
    Ok(Analysis { findings, process, site_of, stacks, modules })
}

/// Stacks of one site that are in the same possible groups are one class. If a site has several
/// classes, the second pass follows each of them.
fn classes(
    all: &[StackStatistics],
    drafts: &[SiteDraft],
    possible_groups: &[PossibleGroup],
) -> (Vec<StackClass>, Vec<u32>) {
    let mut within: Vec<Vec<u32>> = vec![Vec::new(); all.len()];
    for (index, possible) in possible_groups.iter().enumerate() {
        possible.stacks.iter().for_each(|&stack| within[stack as usize].push(index as u32));
    }
    let mut classes: Vec<StackClass> = Vec::new();
    let mut class_of = vec![0; all.len()];
    // Of the current site.
    let mut known = HashMap::new();
    for (site, draft) in drafts.iter().enumerate() {
        known.clear();
        for &stack in &draft.stacks {
            let possible_groups = std::mem::take(&mut within[stack as usize]);
            class_of[stack as usize] = match known.get(&possible_groups) {
                Some(&class) => class,
                None => {
                    let next = classes.len() as u32;
                    classes.push(StackClass {
                        site: site as u32,
                        possible_groups: possible_groups.clone(),
                    });
                    known.insert(possible_groups, next);
                    next
                }
            };
        }
    }
    let mut of_site = vec![0; drafts.len()];
    classes.iter().for_each(|class| of_site[class.site as usize] += 1);
    for (index, class) in classes.iter_mut().enumerate() {
        if of_site[class.site as usize] > 1 {
            class.possible_groups.push((possible_groups.len() + index) as u32);
        }
    }
    (classes, class_of)
}

/// Names for sites and groups.
struct TitleFinder<'a, 'm> {
    stacks: &'a Stacks,
    all: &'a [StackStatistics],
    symbols: &'a mut Symbols<'m>,
    drafts: &'a [SiteDraft],
    possible_groups: &'a [PossibleGroup],
}

impl TitleFinder<'_, '_> {
    fn of(&mut self, name: &GroupName) -> String {
        match name {
            GroupName::Work(possible) => self.work(*possible),
            GroupName::Site(draft) => self.site(*draft).0,
            GroupName::Words(words) => (*words).to_owned(),
        }
    }

    /// The name of a piece of work: among its own frame and the function that it calls there,
    /// inlined functions included, the innermost named one that makes [`NAMED`] of its allocations.
    fn work(&mut self, possible: usize) -> String {
        let PossibleGroup { node, stacks, .. } = &self.possible_groups[possible];
        // By depth: the functions there, inlined ones included.
        let mut levels: Vec<HashMap<String, u64>> = Vec::new();
        let mut total = 0;
        for &stack in stacks {
            let stack = &self.all[stack as usize];
            total += stack.statistics.count;
            let frames: Vec<NodeId> = self.stacks.frames(NodeId(stack.node)).collect();
            let at = frames.iter().position(|frame| frame == node).unwrap_or(0);
            let mut level = 0;
            // The frame of the piece of work, and its callees.
            for &frame in frames[at.saturating_sub(1)..=at].iter().rev() {
                for inner in self.symbols.at(self.stacks, frame).iter().rev() {
                    if levels.len() == level {
                        levels.push(HashMap::new());
                    }
                    *levels[level].entry(inner.function.clone()).or_default() +=
                        stack.statistics.count;
                    level += 1;
                }
            }
        }
        let mut title = None;
        for level in levels {
            let Some((function, count)) = level.into_iter().max_by_key(|(_, count)| *count) else {
                break;
            };
            if (count as f64) < NAMED * total as f64 {
                break;
            }
            let called = START.contains(&&*function);
            let nameless = function.contains("+0x");
            if !nameless && !called && !wrappers::by_name(&function) {
                title = Some(short(&function));
            } else if called {
                title =
                    Some(if function == "start_thread" { "a thread" } else { "main" }.to_owned());
            }
        }
        title.unwrap_or_else(|| self.function(*node))
    }

    /// The call in which a piece of work begins: that of its frame or, where the function is
    /// recursive, the call of the outermost one.
    fn place(&mut self, name: &GroupName) -> Option<StackFrame> {
        let GroupName::Work(possible) = *name else { return None };
        let path: Vec<NodeId> = self.stacks.frames(self.possible_groups[possible].node).collect();
        let functions: Vec<String> = path.iter().map(|&node| self.containing(node)).collect();
        let at = outside_recursion(&functions, self.callee(possible).as_deref());
        for &node in path.get(at..)? {
            let found = self.symbols.at(self.stacks, node);
            if found.iter().any(|frame| START.contains(&&*frame.function)) {
                return None;
            }
            if let Some(frame) = found.iter().find(|frame| !frame.wrapper) {
                return Some(frame.clone());
            }
        }
        None
    }

    /// The function that contains a frame, with those that are inlined in it.
    fn containing(&mut self, node: NodeId) -> String {
        let found = self.symbols.at(self.stacks, node);
        found.last().map_or_else(String::new, |frame| frame.function.clone())
    }

    /// The function that the frame of a piece of work calls, if [`NAMED`] of its allocations are
    /// made in one.
    fn callee(&mut self, possible: usize) -> Option<String> {
        let possible_groups = self.possible_groups;
        let PossibleGroup { node, stacks, .. } = &possible_groups[possible];
        let mut callees: HashMap<String, u64> = HashMap::new();
        let mut total = 0;
        for &stack in stacks {
            let stack = &self.all[stack as usize];
            total += stack.statistics.count;
            let frames = self.stacks.frames(NodeId(stack.node));
            if let Some(callee) = frames.take_while(|frame| frame != node).last() {
                *callees.entry(self.containing(callee)).or_default() += stack.statistics.count;
            }
        }
        let (function, count) = callees.into_iter().max_by_key(|(_, count)| *count)?;
        (count as f64 >= NAMED * total as f64).then_some(function)
    }

    /// The function of a frame, or of the first caller that isn't a wrapper.
    fn function(&mut self, node: NodeId) -> String {
        let frames: Vec<NodeId> = self.stacks.frames(node).collect();
        for &node in &frames {
            let found = self.symbols.at(self.stacks, node);
            if let Some(frame) = found.iter().find(|frame| !frame.wrapper) {
                return short(&frame.function);
            }
        }
        match frames.first() {
            Some(&node) => short(&self.symbols.at(self.stacks, node)[0].function),
            None => "unknown".to_owned(),
        }
    }

    /// A site's title and its frames.
    fn site(&mut self, draft: usize) -> (String, Vec<StackFrame>) {
        let draft = &self.drafts[draft];
        let mut frames: Vec<StackFrame> = Vec::new();
        for (index, &node) in draft.path.iter().enumerate() {
            let at = self.symbols.at(self.stacks, node);
            let wrapper = index < draft.wrappers;
            frames.extend(
                at.iter()
                    .map(|frame| StackFrame { wrapper: frame.wrapper || wrapper, ..frame.clone() }),
            );
        }
        if frames.is_empty() {
            return ("unknown".to_owned(), frames);
        }
        let own = frames.iter().position(|frame| !frame.wrapper).unwrap_or(frames.len() - 1);
        let mut title = short(&frames[own].function);
        if draft.rest {
            title += ", other callers";
        } else if let Some(last) = frames[own + 1..].iter().rfind(|frame| !frame.inlined) {
            // Functions that inlined it are the same place.
            let caller = short(&last.function);
            if draft.path.len() > draft.wrappers + 1 && caller != title {
                title += ", from ";
                title += &caller;
            }
        }
        (title, frames)
    }
}

/// The index of the first of these functions, the innermost first, that is outside of the recursion
/// of the innermost one, which calls `callee`. It may be the length.
fn outside_recursion(functions: &[String], callee: Option<&str>) -> usize {
    let outermost = |name: &str| functions.iter().rposition(|function| function == name);
    let mut at = callee.and_then(outermost).map_or(0, |callee| callee + 1);
    while let Some(function) = functions.get(at) {
        let last = outermost(function).unwrap_or(at);
        if last == at && !functions[..at].contains(function) {
            break;
        }
        at = last + 1;
    }
    at
}

/// Sites and groups with names, the groups by gain.
fn named(
    titles: &mut TitleFinder<'_, '_>,
    done: &[FinishedSite],
    groups: Vec<FinishedGroup>,
) -> (Vec<Site>, Vec<SiteGroup>) {
    let advice = |group: &FinishedGroup| group.verdict.category != ObjectCategory::LeaveIt;
    let gain = |group: &FinishedGroup| group.verdict.gain.map_or(0.0, |gain| gain.share);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&groups[a], &groups[b]);
        advice(b)
            .cmp(&advice(a))
            .then(gain(b).total_cmp(&gain(a)))
            .then(b.measured.count.cmp(&a.measured.count))
    });
    let mut number = vec![0; groups.len()];
    order.iter().enumerate().for_each(|(new, &old)| number[old] = new as u32);
    let mut sites_of: Vec<Vec<u32>> = vec![Vec::new(); groups.len()];
    let mut sites = Vec::new();
    for (id, site) in done.iter().enumerate() {
        let (title, frames) = titles.site(site.draft);
        sites_of[site.group].push(id as u32);
        sites.push(Site {
            id: id as u32,
            title,
            frames,
            stacks: site.stacks.len() as u32,
            group: number[site.group],
            behaviour: site.measured.behaviour(),
        });
    }
    let mut groups: Vec<SiteGroup> = groups
        .into_iter()
        .enumerate()
        .map(|(old, group)| SiteGroup {
            id: number[old],
            title: titles.of(&group.name),
            sites: std::mem::take(&mut sites_of[old]),
            place: titles.place(&group.name),
            behaviour: group.measured,
            verdict: group.verdict,
        })
        .collect();
    for SiteGroup { sites: own, verdict, .. } in &mut groups {
        if let Some(first) = own.first() {
            let frames = &sites[*first as usize].frames;
            source_line::show_in(&mut verdict.change, verdict.allocator, frames);
        }
    }
    groups.sort_by_key(|group| group.id);
    (sites, groups)
}

/// What calls took in a process, if the recorder measured enough of them.
fn costs_of(reader: &RecordingReader, process: usize) -> Option<&AllocatorCosts> {
    reader.processes()[process].end.as_ref()?.costs.as_ref()
}

fn program(reader: &RecordingReader, number: usize, end: &StackPassResult) -> RecordedProgram {
    let process = &reader.processes()[number];
    let totals = &end.totals;
    let costs = MeanCallTimes::new(costs_of(reader, number));
    let usage = reader.end().map(|end| &end.usage);
    let measured = usage.map(|usage| usage.user_ns + usage.system_ns).filter(|&ns| ns > 0);
    // The kernel's figures are of all processes together.
    let all: u64 = reader.processes().iter().map(trace_format::Process::raw_bytes).sum();
    let part = share(process.raw_bytes(), all).unwrap_or(1.0);
    let cpu_ns = measured.map(|ns| (ns as f64 * part) as u64);
    let exit = reader.end().filter(|_| number == 0).and_then(|end| end.outcome);
    let wall = usage.filter(|_| number == 0).map_or(0, |usage| usage.wall_ns);
    let wall_ns = wall.max(totals.last_ns);
    // Where it is estimated: one thread takes no more CPU time than it lasts.
    let is_estimated = reader.processes().len() > 1 && end.threads.len() <= 1;
    let cpu_ns = cpu_ns.map(|ns| if is_estimated { ns.min(wall_ns) } else { ns });
    RecordedProgram {
        command: process.header.command.clone(),
        executable: process.header.executable.clone(),
        process: number as u32,
        processes: reader.processes().len() as u32,
        exit: exit.map(|outcome| match outcome {
            ProgramExit::Code(code) => code.to_string(),
            ProgramExit::Signal(signal) => format!("signal {signal}"),
        }),
        cpu_ns,
        bare_cpu_ns: cpu_ns.map(|ns| {
            // Counting system calls took CPU time in the kernel that isn't the program's.
            let counting = system_calls::counting_ns(reader) as f64 * part;
            costs.without_recorder(ns.saturating_sub(counting as u64), totals)
        }),
        bare_measured: false,
        wall_ns,
        peak_resident: usage.map(|usage| usage.peak_resident).filter(|&bytes| bytes > 0),
        own_heap: None,
        threads: end.threads.len() as u32,
        events: totals.events,
        allocations: totals.allocations,
        frees: totals.frees,
        realloc_share: share(totals.reallocations, totals.allocations).unwrap_or(0.0),
        bytes: totals.bytes,
        peak_live_bytes: totals.peak_live_bytes,
        peak_live_objects: totals.peak_live_objects,
        live_at_end: end.live_at_end,
        unknown_frees: totals.unknown_frees,
        allocator_share: None,
        allocator_measured: false,
        allocation_ns: costs.allocation_ns,
        free_ns: costs.free_ns,
        recorder_ns: costs.recorder_ns,
        freed_at_exit: totals.freed_at_exit,
        trace_bytes_per_event: share(process.compressed_bytes(), totals.events).unwrap_or(0.0),
        raw_bytes_per_event: share(process.raw_bytes(), totals.events).unwrap_or(0.0),
        truncated: process.end.as_ref().is_none_or(|end| end.full_at_ns.is_some()),
    }
}

fn notes(
    reader: &RecordingReader,
    number: usize,
    program: &RecordedProgram,
    end: &StackPassResult,
    stacks: &Stacks,
    all: &[StackStatistics],
    symbols: &Symbols<'_>,
) -> Vec<ReportNote> {
    let mut notes = Vec::new();
    let mut note = |warning: bool, text: String| notes.push(ReportNote { warning, text });
    let process = &reader.processes()[number];
    if let Some(at) = reader.cut_off_at() {
        note(true, format!("the recording was cut off at byte {at}: later events are missing"));
    }
    if let Some(full) = process.end.as_ref().and_then(|end| end.full_at_ns) {
        note(
            true,
            format!(
                "its recording ended after {}, because the disk was full, a limit was reached or a call was forbidden: later events are missing",
                formatting::time(full)
            ),
        );
    }
    if let Some(missed) = process.end.as_ref().map(|end| end.missed).filter(|&missed| missed > 0) {
        note(
            true,
            format!("not recorded because memory ran out: {}", formatting::counted(missed, "call")),
        );
    }
    if process.end.as_ref().is_some_and(|end| end.own_malloc) {
        note(
            true,
            format!(
                "{} has a malloc of its own in its executable, so nothing was recorded; build it with the system's malloc to record it",
                process.header.executable
            ),
        );
    }
    if let Some(library) = process.end.as_ref().and_then(|end| end.new_unseen.as_ref()) {
        note(true, why_unseen(library));
    }
    if program.processes > 1 {
        note(
            false,
            format!(
                "process {number} of {}: its CPU time is estimated from its share of the recorded events; --process chooses another process",
                program.processes
            ),
        );
    }
    if program.allocations == 0 {
        note(true, "no allocation was recorded: the program is linked statically, has a malloc of its own, or doesn't allocate".to_owned());
    } else if program.cpu_ns.is_none() {
        note(
            true,
            "its CPU time isn't known, so no gain can be calculated, and no change is advised"
                .to_owned(),
        );
    }
    if end.totals.twice > 0 {
        note(
            true,
            format!(
                "{} came at the address of a live one: the recording lacks some frees",
                formatting::counted(end.totals.twice, "block")
            ),
        );
    }
    if process.header.forked && end.totals.unknown_frees > 0 {
        note(
            false,
            format!(
                "{} of blocks from before the fork",
                formatting::counted(end.totals.unknown_frees, "free")
            ),
        );
    }
    // By node: whether its outermost frames are there. Parents have smaller numbers.
    let mut whole = vec![false; stacks.len()];
    for node in (0..stacks.len()).map(|node| NodeId(node as u32)).filter(|node| !node.is_root()) {
        let parent = stacks.parent(node);
        whole[node.0 as usize] = parent == NodeId::ROOT || whole[parent.0 as usize];
    }
    let cut: u64 = all
        .iter()
        .filter(|stack| !whole[stack.node as usize])
        .map(|stack| stack.statistics.count)
        .sum();
    let enough = cut >= LEAST_CUT_OFF;
    if let Some(share) = share(cut, program.allocations).filter(|&share| enough && share > 0.01) {
        note(
            true,
            format!(
                "{} of the allocations have a stack whose outermost callers could not be found",
                formatting::percent(share)
            ),
        );
    }
    // The recorder's library was deleted with the recording's directory; its names are not needed.
    for module in symbols.changed().filter(|path| !path.ends_with("/allot-recorder.so")) {
        note(
            true,
            format!(
                "{module} is missing, or is not the file that was recorded, so its functions have no names"
            ),
        );
    }
    let nameless: Vec<&str> = symbols.nameless().take(6).collect();
    if !nameless.is_empty() {
        note(
            false,
            format!(
                "some functions have no name, because debug symbols are not installed for {}",
                nameless.join(", ")
            ),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::outside_recursion;

    #[test]
    fn the_call_of_the_outermost_recursive_function_is_found() {
        let at = |path: &str, callee: Option<&str>| {
            let functions: Vec<String> = path.split(' ').map(str::to_owned).collect();
            let at = outside_recursion(&functions, callee);
            functions.get(at).cloned()
        };
        let is = |function: &str| Some(function.to_owned());
        // Without recursion, the call is in the innermost frame.
        assert_eq!(at("main _start", Some("parse")), is("main"));
        assert_eq!(at("parse parse main", None), is("main"));
        assert_eq!(at("parse main", Some("parse")), is("main"));
        assert_eq!(at("array value array value load main", Some("value")), is("load"));
        assert_eq!(at("object value array value load main", Some("value")), is("load"));
        assert_eq!(at("value object value load main", Some("object")), is("load"));
        // An interpreter that calls itself further out is not this work's recursion.
        assert_eq!(at("request eval call eval main", Some("parse")), is("request"));
        assert_eq!(at("walk walk", None), None);
    }
}
