//! The live objects of pools that record places, by the place that allocated them.

use core::cmp::Reverse;
use core::fmt;
use std::collections::HashMap;
use std::path::Path;

use super::checked::BlockLedger;
use super::current::CurrentPoolGuard;
use super::shared::PoolShared;
use crate::checked::{MAX_STACKS, PlaceNumber, WALKING_FUNCTION, symbols};

/// The number of different stacks of calls that a process records. Objects of further ones are
/// [`LiveByPlace::other_objects`].
pub const MAX_PLACES: usize = MAX_STACKS;
/// The number of places that a [`LiveByPlace`] lists.
pub const MAX_REPORTED_PLACES: usize = 64;
/// The number of calls that a [`LivePlace`] lists.
pub const MAX_PLACE_CALLS: usize = 4;

/// The number of stacks whose symbols a report looks up. Several stacks can be one place, if they
/// differ in calls that are not listed.
const MAX_RESOLVED: usize = 4 * MAX_REPORTED_PLACES;

/// Live objects by the place that allocated them; made by
/// [`LocalPool::live_by_place`](crate::LocalPool::live_by_place) and [`escaped_by_place`].
///
/// `Display` prints a line for each place and a line for each further call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveByPlace {
    /// The places with the most bytes, at most [`MAX_REPORTED_PLACES`], those with the most bytes
    /// first.
    pub places: Vec<LivePlace>,
    /// The number of live objects of all other places.
    pub other_objects: usize,
    /// The bytes of those objects.
    pub other_bytes: usize,
}

/// A place and what it allocated that is live.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LivePlace {
    /// The calls that led to the allocation, the innermost first, at most [`MAX_PLACE_CALLS`].
    /// Calls inside this library and the standard library are left out, as is a call that equals
    /// the one before. It is empty if the program has no symbols.
    pub calls: Vec<PlaceCall>,
    /// The number of live objects.
    pub objects: usize,
    /// The bytes of those objects, as they were requested.
    pub bytes: usize,
}

/// A call on the way to an allocation. What the program has no debug information for is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PlaceCall {
    /// The name of the function that contains the call.
    pub function: Option<String>,
    /// The source file, relative to the current directory if it lies there.
    pub file: Option<String>,
    /// The line in the file.
    pub line: Option<u32>,
    /// The column in the line.
    pub column: Option<u32>,
}

/// Returns what pools have left that recorded places and have ended, and that is still live, by the
/// place that allocated it.
///
/// Any thread can call this at any time. It takes the lock of each such pool in turn, and looks at
/// each live object. Looking up symbols for the first time reads the program's debug information:
/// it takes up to seconds, and as much memory as that. This memory comes from the global heap, and
/// stays. In a child made by fork, the call may wait forever if another thread of the parent was
/// looking up symbols at the fork.
///
/// ```
/// use allotment::{LocalPool, PoolBox, pool};
///
/// fn remember(number: u64) -> PoolBox<u64> {
///     PoolBox::new(number)
/// }
///
/// let request = LocalPool::builder().record_places(true).build();
/// let escapes = request.enter(|| [remember(1), remember(2)]);
/// drop(request);
/// let escaped = pool::escaped_by_place();
/// assert_eq!(escaped.places[0].objects, 2);
/// drop(escapes);
/// assert_eq!(pool::escaped_by_place(), Default::default());
/// ```
#[must_use]
pub fn escaped_by_place() -> LiveByPlace {
    let _outside = CurrentPoolGuard::outside();
    let mut counts = PlaceCounts::default();
    PoolShared::visit_ended_checked(|ledger| counts.add(ledger));
    counts.report()
}

/// The live objects and their bytes by the number of the place.
#[derive(Default)]
pub(super) struct PlaceCounts(HashMap<PlaceNumber, (usize, usize)>);

impl PlaceCounts {
    /// Adds the live objects in a ledger.
    pub(super) fn add(&mut self, ledger: &BlockLedger) {
        ledger.ledger.visit_places(|place, size| {
            let (objects, bytes) = self.0.entry(place).or_default();
            *objects += 1;
            *bytes += size;
        });
    }

    /// Looks up the symbols of the places. The caller holds no lock of a pool, and is outside all.
    pub(super) fn report(self) -> LiveByPlace {
        let mut stacks: Vec<_> = self.0.into_iter().collect();
        stacks.sort_unstable_by_key(|(_, (objects, bytes))| Reverse((*bytes, *objects)));
        let mut report = LiveByPlace::default();
        let mut positions: HashMap<Vec<PlaceCall>, usize> = HashMap::new();
        for (index, (place, (objects, bytes))) in stacks.into_iter().enumerate() {
            if place == PlaceNumber::NONE || index >= MAX_RESOLVED {
                report.other_objects += objects;
                report.other_bytes += bytes;
                continue;
            }
            let calls = calls(place.stack());
            let position = *positions.entry(calls.clone()).or_insert(report.places.len());
            match report.places.get_mut(position) {
                Some(same) => {
                    same.objects += objects;
                    same.bytes += bytes;
                }
                None => report.places.push(LivePlace { calls, objects, bytes }),
            }
        }
        report.places.sort_by_key(|place| Reverse((place.bytes, place.objects)));
        report.keep(MAX_REPORTED_PLACES);
        report
    }
}

impl LiveByPlace {
    /// Counts all places but the first `most` as others.
    pub(super) fn keep(&mut self, most: usize) {
        for place in self.places.drain(most.min(self.places.len())..) {
            self.other_objects += place.objects;
            self.other_bytes += place.bytes;
        }
    }
}

/// The calls to list for a stack of return addresses.
fn calls(stack: &[usize]) -> Vec<PlaceCall> {
    let mut calls: Vec<PlaceCall> = Vec::new();
    // The innermost calls walked the stack.
    let mut walked = false;
    for &address in stack {
        symbols(address, |symbol| {
            let function = symbol.name().map(|name| format!("{name:#}"));
            if !walked {
                walked = function.is_some_and(|name| name.ends_with(WALKING_FUNCTION));
                return;
            }
            let path = symbol.filename();
            if calls.len() < MAX_PLACE_CALLS && !is_internal(function.as_deref(), path) {
                let file = path.map(|path| relative(path).display().to_string());
                let (line, column) = (symbol.lineno(), symbol.colno());
                let call = PlaceCall { function, file, line, column };
                let is_known = call.function.is_some() || call.file.is_some();
                // A recursion is listed once.
                if is_known && calls.last() != Some(&call) {
                    calls.push(call);
                }
            }
        });
        if calls.len() == MAX_PLACE_CALLS {
            break;
        }
    }
    calls
}

/// Whether a function belongs to this library, the standard library or the start of the program.
fn is_internal(function: Option<&str>, file: Option<&Path>) -> bool {
    const CRATES: [&str; 5] = ["allotment::", "alloc::", "core::", "std::", "test::"];
    // A method of a trait is `<Type as Trait>::name`, and belongs to the crate of either.
    let is_in_crates = |path: &str| CRATES.iter().any(|name| path.starts_with(name));
    let name = function.unwrap_or_default();
    let (of_type, of_trait) = match name.strip_prefix('<').and_then(|name| name.split_once(" as "))
    {
        Some((of_type, of_trait)) => (of_type, of_trait),
        None => (name.trim_start_matches('<'), ""),
    };
    let start = [
        "main",
        "_start",
        "__libc_start_main",
        "__libc_start_main_impl",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
    ];
    let is_internal_file = |file: &Path| {
        let file = file.to_string_lossy();
        let mut folders = ["alloc", "core", "std", "test"].iter();
        folders.any(|folder| file.contains(&format!("/library/{folder}/")))
            || file.contains(file!().trim_end_matches("pool/live_by_place.rs"))
    };
    is_in_crates(of_type)
        || is_in_crates(of_trait)
        || name.starts_with("__rust")
        || name.starts_with("__rustc::")
        || start.contains(&name)
        || file.is_some_and(is_internal_file)
}

/// The path relative to the current directory, if it lies there.
fn relative(path: &Path) -> &Path {
    let directory = std::env::current_dir().ok();
    directory.and_then(|directory| path.strip_prefix(directory).ok()).unwrap_or(path)
}

impl fmt::Display for LiveByPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.places {
            writeln!(f, "{place}")?;
        }
        if self.other_objects > 0 {
            let what = Amount { objects: self.other_objects, bytes: self.other_bytes };
            writeln!(f, "{what} from other places")?;
        }
        Ok(())
    }
}

impl fmt::Display for LivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = Amount { objects: self.objects, bytes: self.bytes };
        let Some((first, further)) = self.calls.split_first() else {
            return write!(f, "{what} from an unknown place: the program has no symbols");
        };
        write!(f, "{what} from {first}")?;
        further.iter().try_for_each(|call| write!(f, "\n    called from {call}"))
    }
}

impl fmt::Display for PlaceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, file, line, column } = self;
        if let Some(file) = file {
            f.write_str(file)?;
            for number in [line, column].into_iter().flatten() {
                write!(f, ":{number}")?;
            }
        }
        match (file, function) {
            (Some(_), Some(function)) => write!(f, " in {function}"),
            (None, Some(function)) => f.write_str(function),
            _ => Ok(()),
        }
    }
}

/// "48 bytes in 3 objects".
struct Amount {
    objects: usize,
    bytes: usize,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.objects == 1 { "" } else { "s" };
        write!(f, "{} bytes in {} object{plural}", self.bytes, self.objects)
    }
}
