//! The processes of a recording: which is advised on, which others there are, which went on.

use allot_trace::Reader;

/// Others that are named.
const NAMED: usize = 4;
/// A process with so many percent of what was recorded is the program; its helpers are not worth their names.
const MOST: u32 = 90;
/// Characters of a command that are told.
const COMMAND: usize = 24;

/// What a recording has besides the process that is advised on.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Others {
    /// Its number and its command, with its share of all that was recorded in words; the busiest first.
    pub processes: Vec<Other>,
    /// Of all, those that went on when the program had ended.
    pub still_running: Vec<Other>,
    /// The number of the process that is advised on, and its share of what was recorded.
    pub chosen: usize,
    pub percent_of_chosen: u32,
    /// Some went on of which nothing was recorded.
    pub went_on: bool,
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
            chosen,
            went_on: false,
            percent_of_chosen: whole.get(chosen).map_or(0, |other| other.percent),
            still_running: whole.iter().filter(runs).cloned().collect(),
            processes,
        }
    }

    /// The others in a sentence, and how to be advised on them. `kept`: the recording's file, if it has one.
    pub fn sentence(&self, kept: Option<&str>) -> Option<String> {
        self.processes.first()?;
        let mut names: Vec<String> = self
            .processes
            .iter()
            .take(NAMED)
            .map(|other| format!("{} {} ({} %)", other.number, other.command, other.percent))
            .collect();
        if self.processes.len() > NAMED {
            names.push(format!("{} more", self.processes.len() - NAMED));
        }
        let others = match self.percent_of_chosen {
            MOST.. => String::new(),
            _ => format!("; the others: {}", names.join(", ")),
        };
        let file = kept.map_or_else(String::new, |file| format!(" with --recording {file}"));
        Some(format!(
            "That was process {} of those from 0 to {}, with {} % of what was recorded{others}. --process N{file} advises on another.",
            self.chosen,
            self.processes.len(),
            self.percent_of_chosen,
        ))
    }

    /// A warning of those that went on.
    pub fn warning(&self) -> Option<String> {
        let who = match self.still_running.as_slice() {
            [] if self.went_on => "a process that it had started went on".to_owned(),
            [] => return None,
            [one] => format!("{} (process {}) went on", one.command, one.number),
            [first, ..] => {
                format!(
                    "{} processes, {} among them, went on",
                    self.still_running.len(),
                    first.command
                )
            }
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
