//! The processes of a recording: the one that the advice is on, the others, and those that still
//! ran when the program had ended.

use trace_format::RecordingReader;

/// The most other processes that are named.
const MOST_NAMED: usize = 4;
/// From this percentage of the recorded bytes on, the process is the program, and its helpers are
/// not named.
const MOST: u32 = 90;
/// The most characters of a command that are shown.
const COMMAND_LENGTH: usize = 24;

/// The processes of a recording besides the one that the advice is on.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct OtherProcesses {
    /// The others, the busiest first.
    pub processes: Vec<OtherProcess>,
    /// Those of all processes that still ran when the program had ended.
    pub still_running: Vec<OtherProcess>,
    /// The number of the process that the advice is on, and its percentage of the recorded bytes.
    pub chosen: usize,
    pub percent_of_chosen: u32,
    /// A process of which nothing was recorded still ran when the program had ended.
    pub went_on: bool,
    /// Those of the others whose executable has a `malloc` of its own.
    pub own_malloc: Vec<OtherProcess>,
}

/// Another process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OtherProcess {
    pub number: usize,
    pub command: String,
    pub percent: u32,
}

impl OtherProcesses {
    /// The processes besides `chosen`.
    pub fn of(reader: &RecordingReader, chosen: usize) -> Self {
        let all: u64 = reader.processes().iter().map(trace_format::Process::raw_bytes).sum();
        let other = |(number, process): (usize, &trace_format::Process)| OtherProcess {
            number,
            command: short(&process.header.command),
            percent: (process.raw_bytes() as f64 * 100.0 / all.max(1) as f64).round() as u32,
        };
        let whole: Vec<OtherProcess> = reader.processes().iter().enumerate().map(other).collect();
        let mut processes: Vec<OtherProcess> =
            whole.iter().filter(|other| other.number != chosen).cloned().collect();
        processes.sort_by_key(|other| (std::cmp::Reverse(other.percent), other.number));
        let runs = |other: &&OtherProcess| {
            reader.processes()[other.number].end.as_ref().is_some_and(|end| end.still_running)
        };
        let has_own_malloc = |other: &&OtherProcess| {
            reader.processes()[other.number].end.as_ref().is_some_and(|end| end.own_malloc)
        };
        Self {
            chosen,
            went_on: false,
            own_malloc: processes.iter().filter(has_own_malloc).cloned().collect(),
            percent_of_chosen: whole.get(chosen).map_or(0, |other| other.percent),
            still_running: whole.iter().filter(runs).cloned().collect(),
            processes,
        }
    }

    /// A sentence that names the others and says how to get advice on them. `kept`: the recording's
    /// file, if it is kept.
    pub fn sentence(&self, kept: Option<&str>) -> Option<String> {
        self.processes.first()?;
        let mut names: Vec<String> = self
            .processes
            .iter()
            .take(MOST_NAMED)
            .map(|other| format!("{} {} ({} %)", other.number, other.command, other.percent))
            .collect();
        if self.processes.len() > MOST_NAMED {
            names.push(format!("{} more", self.processes.len() - MOST_NAMED));
        }
        let others = match self.percent_of_chosen {
            MOST.. => String::new(),
            _ => format!("; the others: {}", names.join(", ")),
        };
        let file = kept.map_or_else(String::new, |file| format!(" with --recording {file}"));
        Some(format!(
            "The advice is on process {} of those from 0 to {}, with {} % of what was recorded{others}. For another: --process N{file}.",
            self.chosen,
            self.processes.len(),
            self.percent_of_chosen,
        ))
    }

    /// A warning about processes of which nothing was recorded.
    pub fn own_malloc_warning(&self) -> Option<String> {
        let first = self.own_malloc.first()?;
        let more = match self.own_malloc.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{} (process {}){more} has a malloc of its own in its executable, so what it allocates is not recorded",
            first.command, first.number
        ))
    }

    /// A warning about processes that still ran when the program had ended.
    pub fn warning(&self) -> Option<String> {
        let who = match self.still_running.as_slice() {
            [] if self.went_on => "a process that the program had started went on".to_owned(),
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
            "{who} in the background after the program had ended, and what it did there was not recorded; run it in the foreground, and stop it with Ctrl-C when it has done enough"
        ))
    }
}

/// A command, shortened, without the program's path.
fn short(command: &[String]) -> String {
    let program =
        command.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    let rest = command.iter().skip(1).map(String::as_str);
    let whole = std::iter::once(program).chain(rest).collect::<Vec<_>>().join(" ");
    super::terminal_text::one_line(&whole, COMMAND_LENGTH)
}
