//! What the rounds say of the advice.

use super::rounds::Standing;
use crate::analyse::findings::{BetterMalloc, Category, Group, Outcome, Program, Together};
use crate::analyse::words;

/// A malloc whose time is longer than all plans' by less than this share of glibc's gives as much, where the program's CPU time isn't known.
const AS_MUCH: f64 = 0.01;
/// It may take so many times glibc's memory ...
pub const MOST_MEMORY: f64 = 1.5;
/// ... or this much more, for less than that is an allocator's first chunk.
const FREE_MEMORY: u64 = 1 << 20;
/// What it saves has to be more than this share of the program's CPU time.
const LEAST_GAIN: f64 = 0.01;

/// A malloc that takes everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    pub name: String,
    pub standing: Standing,
}

fn is_small(standing: &Standing) -> bool {
    standing.peaks.is_none_or(|(own, glibc)| {
        own as f64 <= MOST_MEMORY * glibc as f64 || own <= glibc + FREE_MEMORY
    })
}

/// What a row saves of the program's CPU time against glibc, if that is known; never more than all of it.
pub fn gain(standing: &Standing, program: &Program) -> Option<f64> {
    let cpu = program.bare_cpu_ns.or(program.cpu_ns).filter(|cpu| *cpu > 0)?;
    Some((standing.saved_ns / cpu as f64).min(1.0))
}

fn figures(standing: &Standing) -> String {
    let memory = match standing.memory {
        Some(memory) => format!("{memory:.2} of its peak memory"),
        None => "an unknown part of its memory".to_owned(),
    };
    format!("{:.2} of glibc's time ({}) and {memory}", standing.time, rounds(standing))
}

fn rounds(standing: &Standing) -> String {
    let all = standing.rounds;
    if all < 3 {
        return if all == 1 { "one round".to_owned() } else { format!("{all} rounds") };
    }
    let apart = standing.apart * 100.0;
    let (count, word) = if standing.time > 1.0 {
        (standing.slower, "longer")
    } else {
        (standing.quicker, "shorter")
    };
    let number = if count == all { format!("all {all}") } else { format!("{count} of {all}") };
    format!("{word} in {number} rounds, ±{apart:.1} %")
}

/// Judges a group's plan by itself.
pub fn plan(standing: &Standing, program: &Program) -> Outcome {
    let gain = gain(standing, program);
    let figures = figures(standing);
    let (confirmed, reason) = if !standing.is_quicker() {
        let slower = if standing.is_slower() {
            "it is slower"
        } else if standing.time < 1.0 - LEAST_GAIN {
            "the noise hides whether it is faster"
        } else {
            "it is no faster"
        };
        (false, format!("withdrawn, {slower}: replayed, it takes {figures}"))
    } else if !is_small(standing) {
        (false, format!("withdrawn, it takes too much memory: replayed, {figures}"))
    } else if gain.is_some_and(|gain| gain < LEAST_GAIN) {
        let gain = percent(gain.unwrap_or_default());
        (
            false,
            format!(
                "withdrawn, it saves {gain} of the program's CPU time, too little: replayed, {figures}"
            ),
        )
    } else {
        let saves = gain.map_or_else(String::new, |gain| {
            format!(", which saves {} of the program's CPU time", percent(gain))
        });
        (true, format!("confirmed: replayed, it takes {figures}{saves}"))
    };
    Outcome { confirmed, reason, time_ratio: Some(standing.time), memory_ratio: standing.memory }
}

/// Judges a plan that isn't for the sake of time: what is sealed only must not cost any.
pub fn candidate(standing: &Standing) -> Outcome {
    let figures = figures(standing);
    let is_slower = standing.is_slower() || standing.time > 1.0 + standing.noise();
    let (confirmed, reason) = if is_slower {
        (false, format!("withdrawn, it is slower: replayed, it takes {figures}"))
    } else if !is_small(standing) {
        (false, format!("withdrawn, it takes too much memory: replayed, {figures}"))
    } else {
        (true, format!("it costs nothing: replayed, it takes {figures}"))
    };
    Outcome { confirmed, reason, time_ratio: Some(standing.time), memory_ratio: standing.memory }
}

/// Writes down what became of a group's advice. `ceiling` is what glibc's calls cost in all.
pub fn settle(
    group: &mut Group,
    outcome: Outcome,
    standing: &Standing,
    program: &Program,
    ceiling: Option<f64>,
) {
    if let Some(share) = gain(standing, program)
        && let Some(gain) = &mut group.verdict.gain
    {
        gain.share = share.max(0.0);
        gain.measured = true;
        let most = ceiling.map_or(gain.ceiling, |ceiling| gain.ceiling.min(ceiling));
        // The rest of the sequence may run better for it too.
        gain.ceiling = most.max(gain.share);
    }
    group.verdict.replayed = Some(outcome);
}

/// Writes down the most that can be saved in a group: what was saved with its blocks from nowhere.
pub fn bound(group: &mut Group, ceiling: f64) {
    if let Some(gain) = &mut group.verdict.gain {
        gain.ceiling = ceiling.max(gain.share);
        gain.ceiling_measured = true;
    }
}

/// Makes the estimated ceilings small enough for all of them and the measured ones not to be more than there is. Nothing is taken from
/// what was measured.
pub fn balance(groups: &mut [Group], all: f64) {
    let gains = |measured: bool| {
        let gains = groups.iter().filter_map(|group| group.verdict.gain);
        gains.filter(move |gain| gain.ceiling_measured == measured)
    };
    let measured: f64 = gains(true).map(|gain| gain.ceiling).sum();
    let estimated: f64 = gains(false).map(|gain| gain.ceiling).sum();
    let left = (all - measured).max(0.0);
    if estimated <= left {
        return;
    }
    for gain in groups.iter_mut().filter_map(|group| group.verdict.gain.as_mut()) {
        if gain.ceiling_measured {
            continue;
        }
        gain.ceiling *= left / estimated;
        if gain.measured {
            gain.ceiling = gain.ceiling.max(gain.share);
        } else {
            gain.share *= left / estimated;
        }
    }
}

/// What all confirmed advice gives together. `sum` is what each gives by itself, `ceiling` what all of it can save at most.
pub fn together(
    standing: &Standing,
    groups: &[u32],
    sum: Option<f64>,
    ceiling: Option<f64>,
    program: &Program,
) -> Together {
    let gain = gain(standing, program);
    let ceiling = ceiling.map(|ceiling| ceiling.max(gain.unwrap_or_default()));
    let mut reason = format!("replayed, it takes {}", figures(standing));
    if let Some(gain) = gain {
        reason += &format!(", which saves {} of the program's CPU time", percent(gain));
        if let Some(ceiling) = ceiling {
            reason += &format!(", of {}", words::at_most(ceiling));
        }
    }
    Together {
        groups: groups.to_vec(),
        gain,
        sum,
        ceiling,
        time_ratio: Some(standing.time),
        memory_ratio: standing.memory,
        reason,
    }
}

/// As the summary has it. A plan that costs more saves nothing.
fn percent(share: f64) -> String {
    words::percent(share.max(0.0))
}

/// The malloc that is the fastest of those that do not take too much memory, are faster than glibc, and save enough.
pub fn best(rivals: Vec<Rival>, program: &Program) -> Option<Rival> {
    rivals
        .into_iter()
        .filter(|rival| rival.standing.is_quicker() && is_small(&rival.standing))
        .filter(|rival| gain(&rival.standing, program).is_none_or(|gain| gain >= LEAST_GAIN))
        .min_by(|a, b| a.standing.time.total_cmp(&b.standing.time))
}

/// Whether a malloc gives as much as all confirmed plans together, as far as a change of the code would be worth it: the change has to
/// save that much of the program's CPU time beyond what comes for nothing.
pub fn gives_as_much(rival: &Rival, together: &Together, program: &Program) -> bool {
    match (gain(&rival.standing, program), together.gain) {
        (Some(malloc), Some(plans)) => plans - malloc < LEAST_GAIN,
        _ => together.time_ratio.is_some_and(|time| rival.standing.time <= time + AS_MUCH),
    }
}

/// The best malloc, in words and figures.
pub fn better_malloc(best: &Rival, gives_as_much: bool, program: &Program) -> BetterMalloc {
    let Rival { name, standing } = best;
    let gain = gain(standing, program);
    let mut reason = format!("replayed, {name} takes {}", figures(standing));
    if let Some(gain) = gain {
        reason += &format!(", which saves {} of the program's CPU time", percent(gain));
    }
    BetterMalloc {
        name: name.clone(),
        gain,
        time_ratio: Some(standing.time),
        memory_ratio: standing.memory,
        gives_as_much,
        reason,
    }
}

/// A malloc gives as much as the confirmed plans: their groups need no change.
pub fn prefer_malloc(group: &mut Group, better: &BetterMalloc) {
    group.verdict.category = Category::BetterMalloc;
    let Some(outcome) = &mut group.verdict.replayed else { return };
    outcome.reason += &format!(
        "; but a malloc gives as much as all confirmed advice together, without any change: {}",
        better.reason
    );
}

/// Judges the advice to take a better malloc. `ceilings` is what all groups can save at most, added up: the group has its part of
/// what the malloc saves.
pub fn malloc(group: &mut Group, better: Option<&BetterMalloc>, ceilings: f64) {
    let saved = better.map_or(Some(0.0), |better| better.gain);
    if let (Some(saved), Some(gain)) = (saved, &mut group.verdict.gain) {
        gain.share = (saved * gain.ceiling / ceilings.max(f64::MIN_POSITIVE)).min(gain.ceiling);
        gain.measured = true;
    }
    group.verdict.replayed = Some(match better {
        Some(better) => Outcome {
            confirmed: true,
            reason: format!("confirmed: {} for all groups", better.reason),
            time_ratio: better.time_ratio,
            memory_ratio: better.memory_ratio,
        },
        None => Outcome {
            confirmed: false,
            reason: "withdrawn: replayed, no other malloc saves 1 % of the program's CPU time in as little memory as glibc"
                .to_owned(),
            time_ratio: None,
            memory_ratio: None,
        },
    });
}

/// An advice that was not replayed.
pub fn unproved(group: &mut Group, why: &str) {
    let reason = format!("withdrawn, not replayed: {why}");
    group.verdict.replayed =
        Some(Outcome { confirmed: false, reason, time_ratio: None, memory_ratio: None });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::rounds::by_chance;

    fn standing(time: f64, apart: f64, peaks: (u64, u64)) -> Standing {
        let memory = Some(peaks.0 as f64 / peaks.1 as f64);
        // Five rounds, of which the outermost lie twice as far out.
        let ratios = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|far| time + far * apart);
        let count = |is: &dyn Fn(f64) -> bool| ratios.iter().filter(|ratio| is(**ratio)).count();
        Standing {
            time,
            apart,
            rounds: 5,
            quicker: count(&|ratio| ratio < 0.99),
            slower: count(&|ratio| ratio > 1.01),
            extremes: (ratios[0], ratios[4]),
            chance: (
                by_chance(ratios.iter().map(|ratio| ratio / 0.99)),
                by_chance(ratios.iter().map(|ratio| 1.01 / ratio)),
            ),
            memory,
            peaks: Some(peaks),
            saved_ns: (1.0 - time) * 1e9,
        }
    }

    fn program(cpu_ns: u64) -> Program {
        Program { cpu_ns: Some(cpu_ns), ..Program::default() }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_plan_has_to_beat_the_noise() {
        let program = program(2_000_000_000);
        let even = (10 * MIB, 10 * MIB);
        assert!(plan(&standing(0.9, 0.01, even), &program).confirmed);
        let noisy = plan(&standing(0.9, 0.06, even), &program);
        assert!(!noisy.confirmed && noisy.reason.contains("noise"), "{}", noisy.reason);
        let slower = plan(&standing(6.0, 0.06, even), &program);
        assert!(!slower.confirmed && slower.reason.contains("slower"), "{}", slower.reason);
        assert!(
            slower.reason.contains("6.00 of glibc's time (longer in all 5 rounds"),
            "{}",
            slower.reason
        );
        // Noise doesn't matter where every round says the same.
        let clear = plan(&standing(0.5, 0.24, even), &program);
        assert!(
            clear.confirmed && clear.reason.contains("shorter in all 5 rounds, ±24.0 %"),
            "{}",
            clear.reason
        );
    }

    #[test]
    fn a_plan_may_not_take_half_as_much_memory_again() {
        let program = program(2_000_000_000);
        let large = plan(&standing(0.5, 0.01, (16 * MIB, 10 * MIB)), &program);
        assert!(!large.confirmed && large.reason.contains("memory"), "{}", large.reason);
        // A first chunk isn't much.
        assert!(plan(&standing(0.5, 0.01, (MIB, MIB / 8)), &program).confirmed);
    }

    #[test]
    fn a_plan_that_saves_next_to_nothing_of_the_program_is_withdrawn() {
        let little = plan(&standing(0.5, 0.01, (MIB, MIB)), &program(500_000_000_000));
        assert!(!little.confirmed && little.reason.contains("it saves 0.1 %"), "{}", little.reason);
        // The replay took longer than the program did, perhaps because the machine was busy.
        assert_eq!(gain(&standing(0.5, 0.01, (MIB, MIB)), &program(1)), Some(1.0));
        let unknown = Program::default();
        assert!(plan(&standing(0.5, 0.01, (MIB, MIB)), &unknown).confirmed);
    }

    #[test]
    fn a_saving_too_small_to_be_told_is_told_as_in_the_summary() {
        let little = plan(&standing(0.97, 0.001, (MIB, MIB)), &program(40_000_000_000));
        assert!(little.reason.contains("it saves less than 0.1 % of"), "{}", little.reason);
    }

    #[test]
    fn the_best_malloc_is_fast_and_small() {
        let rival = |name: &str, time, own| Rival {
            name: name.to_owned(),
            standing: standing(time, 0.01, (own, 10 * MIB)),
        };
        let rivals = vec![
            rival("large", 0.3, 30 * MIB),
            rival("good", 0.6, 9 * MIB),
            rival("slow", 0.99, MIB),
        ];
        let program = program(2_000_000_000);
        assert_eq!(best(rivals.clone(), &program).unwrap().name, "good");
        // 0.4 s of a hundred are too little for a change, even for so small a one.
        let long = Program { cpu_ns: Some(100_000_000_000), ..Program::default() };
        assert_eq!(best(rivals, &long), None);
        assert_eq!(best(vec![rival("slow", 0.99, MIB)], &program), None);
    }

    #[test]
    fn a_malloc_gives_as_much_if_it_is_as_fast_as_all_plans_together() {
        let rival = Rival { name: "good".to_owned(), standing: standing(0.6, 0.01, (MIB, MIB)) };
        let all = |time| {
            let standing = standing(time, 0.01, (MIB, MIB));
            together(&standing, &[0], None, None, &Program::default())
        };
        assert!(gives_as_much(&rival, &all(0.595), &Program::default()));
        assert!(!gives_as_much(&rival, &all(0.4), &Program::default()));
    }

    #[test]
    fn a_change_has_to_be_worth_it_beyond_what_a_malloc_gives() {
        let rival = Rival { name: "good".to_owned(), standing: standing(0.6, 0.01, (MIB, MIB)) };
        // 0.4 s of 0.5: 0.1 s are 1 % of ten seconds, and a tenth of one.
        let as_much = |cpu_ns| {
            let program = program(cpu_ns);
            let plans = together(&standing(0.5, 0.01, (MIB, MIB)), &[0], None, None, &program);
            gives_as_much(&rival, &plans, &program)
        };
        assert!(as_much(10_100_000_000));
        assert!(!as_much(1_000_000_000));
    }
}
