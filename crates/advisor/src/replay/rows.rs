//! Turns rounds into verdicts on each plan, on all confirmed plans together and on the mallocs, and
//! into the rows that are shown.
//!
//! The rows of the plans judge each plan by itself. The confirmed plans then run together in rounds
//! of their own, beside the rows that measure the ceilings of their groups.

use super::judge::{self, ComparedMalloc, UsefulMallocs};
use super::round_job::{NULL, REST, Round, RowAllocator};
use super::rounds::{self, Comparison, RowRounds, RowSpec};
use crate::analyse::findings::{
    CombinedPlan, Findings, MallocAdvice, ObjectCategory, RecordedProgram, ReplayFailure,
    ReplayFindings, ReplayRow,
};
use bench::console::failure::Failure;
use bench::console::statistics::{median, median_whole};

/// Rows of the same rounds.
#[derive(Debug)]
pub struct FinishedRows(Vec<(RowSpec, RowRounds)>);

impl FinishedRows {
    pub fn new(specs: Vec<RowSpec>, found: Vec<RowRounds>) -> Self {
        Self(specs.into_iter().zip(found).collect())
    }

    /// Scales the times to the pace of other rounds, because the machine's speed may have changed.
    /// Ratios stay the same.
    pub fn at_the_pace_of(mut self, others: &FinishedRows) -> Self {
        let time =
            |rows: &FinishedRows| median(rows.glibc().iter().map(|round| round.time_ns as f64));
        if let Some((theirs, own)) = time(others).zip(time(&self).filter(|own| *own > 0.0)) {
            let pace = |ns: u64| (ns as f64 * theirs / own) as u64;
            for round in self.0.iter_mut().filter_map(|(_, found)| found.as_mut().ok()).flatten() {
                (round.time_ns, round.wall_ns) = (pace(round.time_ns), pace(round.wall_ns));
            }
        }
        self
    }

    /// The rounds of glibc, with which all others are compared.
    pub fn glibc(&self) -> &[Round] {
        let base = self.0.iter().find(|(spec, _)| spec.name == REST);
        base.and_then(|(_, found)| found.as_deref().ok()).unwrap_or_default()
    }

    fn comparison(&self, found: &RowRounds) -> Option<Comparison> {
        Comparison::of(found.as_ref().ok()?, self.glibc())
    }

    fn comparison_of(&self, is: impl Fn(&RowSpec) -> bool) -> Option<Comparison> {
        let (_, found) = self.0.iter().find(|(spec, _)| is(spec))?;
        self.comparison(found)
    }

    /// What glibc's calls take in all, as a share of the program's CPU time: the saving of the row
    /// `null`, or of the best row if noise makes that more.
    fn ceiling(&self, program: &RecordedProgram) -> Option<f64> {
        self.comparison_of(|spec| spec.name == NULL)?;
        let gains =
            self.0.iter().filter_map(|(_, found)| judge::gain(&self.comparison(found)?, program));
        gains.reduce(f64::max).map(|most| most.max(0.0))
    }

    /// Judges each plan by itself. Returns the groups whose advice is confirmed.
    pub fn judge_plans(&self, findings: &mut Findings) -> Result<Vec<u32>, Failure> {
        match self.0.iter().find(|(spec, _)| spec.name == REST) {
            Some((_, Ok(rounds))) if rounds.is_empty() => return Err(Failure::Interrupted),
            Some((_, Err(why))) => {
                return Err(Failure::Failed(format!(
                    "{REST}'s row failed, so there is nothing to compare with: {why}"
                )));
            }
            _ => {}
        }
        let ceiling = self.ceiling(&findings.program);
        let mut confirmed = Vec::new();
        for (spec, found) in &self.0 {
            let [group] = spec.groups[..] else { continue };
            let group = &mut findings.groups[group as usize];
            match (self.comparison(found), found) {
                (Some(comparison), _) => {
                    let outcome = if group.verdict.candidate {
                        judge::candidate(&comparison)
                    } else {
                        judge::plan(&comparison, &findings.program)
                    };
                    if outcome.confirmed && !group.verdict.candidate {
                        confirmed.push(group.id);
                    }
                    judge::store_outcome(group, outcome, &comparison, &findings.program, ceiling);
                }
                (None, Err(why)) => judge::not_replayed(group, why),
                (None, Ok(_)) => {
                    judge::not_replayed(group, "the replay was interrupted before its first round")
                }
            }
        }
        Ok(confirmed)
    }

    /// Judges all confirmed plans together, and sets the ceilings. `confirmed_rows` has the rounds
    /// for that.
    pub fn together(
        &self,
        confirmed_rows: &FinishedRows,
        confirmed: &[u32],
        findings: &mut Findings,
    ) -> Option<CombinedPlan> {
        let program = findings.program.clone();
        let all = self.ceiling(&program);
        let without = |groups: &[u32]| {
            let is = |spec: &RowSpec| matches!(&spec.allocator, RowAllocator::Without(own) if own == groups);
            let ceiling = judge::gain(&confirmed_rows.comparison_of(is)?, &program)?;
            // The machine may have been slower in these rounds.
            Some(all.map_or(ceiling, |all| ceiling.min(all)))
        };
        for &group in confirmed {
            if let Some(ceiling) = without(&[group]) {
                judge::store_ceiling(&mut findings.groups[group as usize], ceiling);
            }
        }
        let is_plan = |spec: &RowSpec| {
            matches!(spec.allocator, RowAllocator::Plan(_)) && spec.groups == confirmed
        };
        // A single plan has its own rounds.
        let comparison = if confirmed.len() > 1 {
            confirmed_rows.comparison_of(is_plan)?
        } else {
            self.comparison_of(is_plan)?
        };
        if let Some(all) = all {
            judge::balance(&mut findings.groups, all);
        }
        let gains = confirmed.iter().map(|group| findings.groups[*group as usize].verdict.gain);
        let sum: Option<f64> = gains.map(|gain| gain.map(|gain| gain.share)).sum();
        Some(judge::together(&comparison, confirmed, sum, without(confirmed), &program))
    }

    fn mallocs(&self) -> Vec<ComparedMalloc> {
        self.0
            .iter()
            .filter(|(spec, _)| match &spec.allocator {
                RowAllocator::Malloc(name) => name != REST,
                RowAllocator::Preloaded(_) => true,
                _ => false,
            })
            .filter_map(|(spec, found)| {
                Some(ComparedMalloc {
                    name: spec.name.clone(),
                    installed: library(spec),
                    comparison: self.comparison(found)?,
                })
            })
            .collect()
    }

    /// Looks for mallocs that are better than glibc, and for advice that the best one makes
    /// unnecessary. Returns that one, and one that is faster still but has a drawback.
    pub fn judge_mallocs(
        &self,
        together: Option<&CombinedPlan>,
        findings: &mut Findings,
    ) -> (Option<MallocAdvice>, Option<MallocAdvice>) {
        let UsefulMallocs { best, faster } = judge::useful(self.mallocs(), &findings.program);
        let advice = |malloc: &ComparedMalloc, drawback: Option<&str>| {
            let as_much =
                together.is_some_and(|all| judge::gives_as_much(malloc, all, &findings.program));
            judge::malloc_advice(malloc, as_much, drawback, &findings.program)
        };
        let better = best.map(|best| advice(&best, None));
        let faster = faster.map(|(malloc, drawback)| advice(&malloc, Some(drawback)));
        if let (Some(better), Some(together)) = (&better, together)
            && better.gives_as_much
        {
            for group in &together.groups {
                judge::mark_as_unnecessary(&mut findings.groups[*group as usize], better);
            }
        }
        let ceilings = findings.groups.iter().filter_map(|group| group.verdict.gain);
        let all: f64 = ceilings.map(|gain| gain.ceiling).sum();
        for group in &mut findings.groups {
            if group.verdict.category == ObjectCategory::BetterMalloc
                && group.verdict.replayed.is_none()
            {
                judge::malloc(group, better.as_ref(), all);
            }
        }
        (better, faster)
    }

    /// The rows of figures; those of all confirmed plans together come last.
    pub fn summary(
        &self,
        confirmed_rows: Option<&FinishedRows>,
        program: &RecordedProgram,
    ) -> ReplayFindings {
        let spreads = self.0.iter().filter_map(|(_, found)| rounds::spread(found.as_deref().ok()?));
        let mut replay = ReplayFindings {
            rounds: self.glibc().len() as u32,
            noise: median(spreads).unwrap_or_default(),
            ceiling: self.ceiling(program),
            ..ReplayFindings::default()
        };
        self.show(&mut replay, program);
        if let Some(confirmed_rows) = confirmed_rows {
            confirmed_rows.show_plans(&mut replay, program);
        }
        let most = replay.rows.iter().filter_map(|row| row.gain).reduce(f64::max);
        replay.ceiling = replay.ceiling.map(|ceiling| ceiling.max(most.unwrap_or(ceiling)));
        replay
    }

    fn show(&self, replay: &mut ReplayFindings, program: &RecordedProgram) {
        for (spec, found) in &self.0 {
            self.show_one(spec, found, replay, program);
        }
    }

    fn show_plans(&self, replay: &mut ReplayFindings, program: &RecordedProgram) {
        for (spec, found) in &self.0 {
            if matches!(spec.allocator, RowAllocator::Plan(_)) {
                self.show_one(spec, found, replay, program);
            }
        }
    }

    fn show_one(
        &self,
        spec: &RowSpec,
        found: &RowRounds,
        replay: &mut ReplayFindings,
        program: &RecordedProgram,
    ) {
        let name = spec.name.clone();
        let rounds = match found {
            // Interrupted before its first round.
            Ok(rounds) if rounds.is_empty() => return,
            Ok(rounds) => rounds,
            Err(reason) => {
                replay.failed.push(ReplayFailure { name, reason: reason.clone() });
                return;
            }
        };
        let comparison = self.comparison(found);
        let times = || rounds.iter().map(|round| round.time_ns);
        replay.rows.push(ReplayRow {
            name,
            library: library(spec),
            groups: spec.groups.clone(),
            time_ns: median_whole(rounds, |round| Some(round.time_ns)).unwrap_or_default(),
            least_ns: times().min().unwrap_or_default(),
            most_ns: times().max().unwrap_or_default(),
            wall_ns: median_whole(rounds, |round| Some(round.wall_ns)).unwrap_or_default(),
            peak_resident: rounds::peak(rounds),
            minor_faults: median_whole(rounds, |round| round.minor_faults),
            time_ratio: comparison.map(|comparison| comparison.time),
            memory_ratio: comparison.and_then(|comparison| comparison.memory),
            gain: comparison.and_then(|comparison| judge::gain(&comparison, program)),
        });
    }
}

/// The shared library of a row's malloc.
fn library(spec: &RowSpec) -> Option<String> {
    match &spec.allocator {
        RowAllocator::Preloaded(library) => Some(library.display().to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::findings::{Gain, SiteGroup};
    use crate::replay::allocator_plan::Route;

    fn rounds(time_ms: u64, peak: u64) -> RowRounds {
        let round = |extra| Round {
            time_ns: (time_ms + extra) * 1_000_000,
            peak_resident: Some(peak << 20),
            ..Round::default()
        };
        Ok(vec![round(0), round(0), round(1)])
    }

    fn entry(name: &str, groups: &[u32], allocator: RowAllocator) -> RowSpec {
        RowSpec { name: name.to_owned(), groups: groups.to_vec(), allocator }
    }

    fn rows(all: Vec<(RowSpec, RowRounds)>) -> FinishedRows {
        let (specs, found) = all.into_iter().unzip();
        FinishedRows::new(specs, found)
    }

    fn malloc(name: &str) -> RowSpec {
        entry(name, &[], RowAllocator::Malloc(name.to_owned()))
    }

    fn plan(group: u32) -> RowSpec {
        entry(&format!("plan {group}"), &[group], RowAllocator::Plan(Vec::<Route>::new()))
    }

    fn without(groups: &[u32]) -> RowSpec {
        entry("without", groups, RowAllocator::Without(groups.to_vec()))
    }

    /// A program of two seconds with three groups, of which each is estimated to gain 5 of 20 %.
    fn findings() -> Findings {
        let group = |id: u32| -> SiteGroup {
            serde_json::from_value(serde_json::json!({
                "id": id, "title": "g", "sites": [],
                "count": 1, "reallocated": 0, "bytes": 1, "dominant_size": 1, "dominant_share": 1.0, "sizes": 1,
                "least_size": 1, "most_size": 1, "lifetime_ns": null, "lifetime_allocations": null,
                "same_thread_share": 1.0, "threads": 1, "last_in_first_out_share": 1.0, "peak_live_objects": 1,
                "peak_live_bytes": 1, "never_freed": 0, "freed_at_exit": 0, "burst_share": 0.0, "mean_burst": 1.0,
                "returns_to_zero": 1, "phase_objects": 1.0, "drag": 1.0, "peak_drag": 1.0, "peak_held_bytes": 1,
                "first_ns": 0, "last_ns": 1,
                "verdict": {
                    "category": "transient", "allocator": "pool", "without_reset": false, "reason": "", "refused": [],
                    "gain": Gain { share: 0.05, ceiling: 0.2, measured: false, ceiling_measured: false, tried: false },
                    "change": { "rust": "", "c": "" }, "candidate": false, "replayed": null
                }
            }))
            .unwrap()
        };
        let mut findings: Findings = serde_json::from_value(serde_json::json!({
            "version": 1, "program": RecordedProgram::default(), "timeline": [], "sites": [], "groups": [],
            "flame": { "name": "", "count": 0, "bytes": 0 }, "overlaps": null, "locks": [],
            "system": crate::analyse::findings::SystemFindings::default(), "replay": null, "notes": []
        }))
        .unwrap();
        findings.program.bare_cpu_ns = Some(2_000_000_000);
        findings.groups = (0..3).map(group).collect();
        findings
    }

    fn first(jemalloc: u64) -> FinishedRows {
        rows(vec![
            (entry(NULL, &[], RowAllocator::Null), rounds(100, 1)),
            (malloc(REST), rounds(700, 100)),
            (malloc("jemalloc"), rounds(jemalloc, 90)),
            (plan(0), rounds(400, 100)),
            (plan(1), rounds(600, 100)),
            (plan(2), rounds(750, 100)),
        ])
    }

    fn second() -> FinishedRows {
        rows(vec![
            (malloc(REST), rounds(700, 100)),
            (entry("all", &[0, 1], RowAllocator::Plan(Vec::new())), rounds(320, 100)),
            (without(&[0, 1]), rounds(260, 100)),
            (without(&[0]), rounds(360, 100)),
            (without(&[1]), rounds(560, 100)),
        ])
    }

    fn near(measured: Option<f64>, wanted: f64) -> bool {
        measured.is_some_and(|measured| (measured - wanted).abs() < 0.001)
    }

    #[test]
    fn measured_gains_and_ceilings_replace_the_estimates() {
        let mut findings = findings();
        let plan_rows = first(690);
        let confirmed = plan_rows.judge_plans(&mut findings).unwrap();
        assert_eq!(confirmed, [0, 1]);
        let together = plan_rows.together(&second(), &confirmed, &mut findings).unwrap();
        let gain = |group: usize| findings.groups[group].verdict.gain.unwrap();
        // 300 ms of two seconds, of 340 that the group costs.
        assert!(near(Some(gain(0).share), 0.15) && near(Some(gain(0).ceiling), 0.17));
        assert!(gain(0).measured && gain(0).ceiling_measured);
        assert!(near(Some(gain(1).share), 0.05) && near(Some(gain(1).ceiling), 0.07));
        // The third was slower: it gains nothing, and its ceiling was not measured.
        assert_eq!(gain(2).share, 0.0);
        assert!(gain(2).measured && !gain(2).ceiling_measured);
        assert!(near(together.gain, 0.19) && near(together.sum, 0.2));
        assert!(near(together.ceiling, 0.22));
        // The whole is 30 %, of which the two have 24 %: the third's estimate of 20 % can't be
        // right.
        assert!(near(Some(gain(2).ceiling), 0.06));
        assert!(together.reason.contains("saves 19 %"), "{}", together.reason);
        let replay = plan_rows.summary(Some(&second()), &findings.program);
        assert!(near(replay.ceiling, 0.3));
        let names: Vec<&str> = replay.rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, [NULL, REST, "jemalloc", "plan 0", "plan 1", "plan 2", "all"]);
        assert!(near(replay.rows[5].gain, -0.025));
    }

    #[test]
    fn rounds_of_a_slower_hour_save_no_more() {
        let slow = rows(vec![
            (malloc(REST), rounds(1400, 200)),
            (entry("all", &[0, 1], RowAllocator::Plan(Vec::new())), rounds(640, 200)),
            (without(&[0, 1]), rounds(520, 200)),
        ]);
        let mut findings = findings();
        let plan_rows = first(690);
        let confirmed = plan_rows.judge_plans(&mut findings).unwrap();
        let slow = slow.at_the_pace_of(&plan_rows);
        let together = plan_rows.together(&slow, &confirmed, &mut findings).unwrap();
        assert!(near(together.gain, 0.19) && near(together.ceiling, 0.22), "{together:?}");
        assert!(near(together.time_ratio, 320.0 / 700.0));
        // Without glibc's rounds there is nothing to go by.
        let none = rows(vec![(malloc(REST), Ok(Vec::new())), (plan(0), rounds(400, 100))]);
        assert_eq!(none.at_the_pace_of(&plan_rows).0[1].1, rounds(400, 100));
    }

    #[test]
    fn a_malloc_that_gives_as_much_makes_the_change_unnecessary() {
        for (jemalloc, as_much) in [(350, false), (325, true)] {
            let mut findings = findings();
            let plan_rows = first(jemalloc);
            let confirmed = plan_rows.judge_plans(&mut findings).unwrap();
            let together = plan_rows.together(&second(), &confirmed, &mut findings);
            let better = plan_rows.judge_mallocs(together.as_ref(), &mut findings).0.unwrap();
            assert_eq!((&*better.name, better.gives_as_much), ("jemalloc", as_much));
            assert!(better.gain.unwrap() > 0.17, "{better:?}");
            let category = findings.groups[0].verdict.category;
            assert_eq!(category == ObjectCategory::BetterMalloc, as_much);
            // What was not confirmed stays so.
            assert_eq!(findings.groups[2].verdict.category, ObjectCategory::Transient);
        }
        let mut findings = findings();
        // 10 ms of two seconds are not worth it.
        assert_eq!(first(690).judge_mallocs(None, &mut findings), (None, None));
    }

    #[test]
    fn no_part_is_more_than_the_whole() {
        let mut findings = findings();
        findings.groups.truncate(2);
        let plan_rows = rows(vec![
            (entry(NULL, &[], RowAllocator::Null), rounds(300, 1)),
            (malloc(REST), rounds(700, 100)),
            (plan(0), rounds(400, 100)),
        ]);
        // In the rounds of the confirmed plans the machine was slower: without the group there is
        // more to save than there was in all.
        let confirmed_rows =
            rows(vec![(malloc(REST), rounds(1400, 100)), (without(&[0]), rounds(700, 9))]);
        let confirmed = plan_rows.judge_plans(&mut findings).unwrap();
        let together = plan_rows.together(&confirmed_rows, &confirmed, &mut findings).unwrap();
        let replay = plan_rows.summary(Some(&confirmed_rows), &findings.program);
        assert!(near(replay.ceiling, 0.2) && near(together.ceiling, 0.2), "{together:?}");
        let ceilings = findings.groups.iter().map(|group| group.verdict.gain.unwrap().ceiling);
        assert!(near(Some(ceilings.sum()), 0.2), "{:?}", findings.groups);
        // What is estimated is no more than what it is a part of.
        let gain = findings.groups[1].verdict.gain.unwrap();
        assert!(gain.share <= gain.ceiling, "{gain:?}");
        // A plan that saved more than no allocator at all shows that the whole is more than that.
        let odd = rows(vec![
            (entry(NULL, &[], RowAllocator::Null), rounds(450, 1)),
            (malloc(REST), rounds(700, 100)),
            (plan(0), rounds(400, 100)),
        ]);
        assert!(near(odd.summary(None, &findings.program).ceiling, 0.15));
    }

    #[test]
    fn of_one_that_holds_its_own_rounds_say_what_all_together_gain() {
        let mut findings = findings();
        findings.groups.truncate(1);
        let plan_rows = rows(vec![(malloc(REST), rounds(700, 100)), (plan(0), rounds(400, 100))]);
        let confirmed_rows =
            rows(vec![(malloc(REST), rounds(900, 100)), (without(&[0]), rounds(500, 9))]);
        let together = plan_rows.together(&confirmed_rows, &[0], &mut findings).unwrap();
        assert!(near(together.gain, 0.15) && near(together.ceiling, 0.2), "{together:?}");
    }

    #[test]
    fn a_replay_that_was_stopped_before_glibcs_first_round_says_nothing() {
        let mut findings = findings();
        let before = findings.clone();
        let stopped = rows(vec![(malloc(REST), Ok(Vec::new())), (plan(0), Ok(Vec::new()))]);
        assert!(matches!(stopped.judge_plans(&mut findings), Err(Failure::Interrupted)));
        assert_eq!(findings, before);
        let later = rows(vec![(malloc(REST), rounds(700, 100)), (plan(0), Ok(Vec::new()))]);
        assert_eq!(later.judge_plans(&mut findings).unwrap(), [0; 0]);
        let outcome = findings.groups[0].verdict.replayed.as_ref().unwrap();
        assert!(!outcome.confirmed && outcome.reason.contains("interrupted"), "{outcome:?}");
    }
}
