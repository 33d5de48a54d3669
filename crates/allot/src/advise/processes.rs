//! The processes of a recording: which is advised on, which others there are, which went on.

use allot_trace::Reader;

/// Others that are named.
const NAMED: usize = 4;
/// Characters of a command that are told.
const COMMAND: usize = 24;

/// What a recording has besides the process that is advised on.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Others {
    /// Its number and its command, with its share of all that was recorded in words; the busiest first.
    pub processes: Vec<Other>,
    /// Of all, those that went on when the program had ended.
    pub still_running: Vec<Other>,
    /// The first process had a part of what was recorded that isn't worth a word: it only started the others.
    pub percent_of_chosen: u32,
}

/// Another process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Other {
    pub number: usize,
    pub command: String,
    pub percent: u32,
}

impl Others {
    /// Those beside the one that was chosen.
    pub fn of(reader: &Reader, chosen: usize) -> Self {
        let all: u64 = reader.processes().iter().map(allot_trace::Process::raw_bytes).sum();
        let other = |(number, process): (usize, &allot_trace::Process)| Other {
            number,
            command: short(&process.header.command),
            percent: (process.raw_bytes() as f64 * 100.0 / all.max(1) as f64).round() as u32,
        };
        let whole: Vec<Other> = reader.processes().iter().enumerate().map(other).collect();
        let mut processes: Vec<Other> =
            whole.iter().filter(|other| other.number != chosen).cloned().collect();
        processes.sort_by_key(|other| (std::cmp::Reverse(other.percent), other.number));
        let runs = |other: &&Other| {
            reader.processes()[other.number].end.as_ref().is_some_and(|end| end.still_running)
        };
        Self {
            percent_of_chosen: whole.get(chosen).map_or(0, |other| other.percent),
            still_running: whole.iter().filter(runs).cloned().collect(),
            processes,
        }
    }

    /// The others in a sentence, and how to be advised on them. `kept`: the recording's file, if it has one.
    pub fn sentence(&self, kept: Option<&str>) -> Option<String> {
        let first = self.processes.first()?;
        let mut names: Vec<String> = self
            .processes
            .iter()
            .take(NAMED)
            .map(|other| format!("{} {} ({} %)", other.number, other.command, other.percent))
            .collect();
        if self.processes.len() > NAMED {
            names.push(format!("{} more", self.processes.len() - NAMED));
        }
        let how = match kept {
            Some(file) => format!("allot advise --recording {file} --process {}", first.number),
            None => format!("--process {} for the first of them", first.number),
        };
        Some(format!(
            "This process did {} % of what was recorded; beside it: {}. Another: {how}.",
            self.percent_of_chosen,
            names.join(", ")
        ))
    }

    /// A warning of those that went on.
    pub fn warning(&self) -> Option<String> {
        let first = self.still_running.first()?;
        let who = match self.still_running.len() {
            1 => format!("{} (process {}) went on", first.command, first.number),
            more => format!("{more} processes, {} among them, went on", first.command),
        };
        Some(format!(
            "{who} in the background when the program had ended: what came then wasn't recorded; run it in the foreground, and end it when it has done enough"
        ))
    }
}

/// A command in few characters, without its path.
fn short(command: &[String]) -> String {
    let program =
        command.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    let rest = command.iter().skip(1).map(String::as_str);
    let whole = std::iter::once(program).chain(rest).collect::<Vec<_>>().join(" ");
    super::words::one_line(&whole, COMMAND)
}
