//! The subject of a row: an allocator, or a variant of the work.

use crate::console::print::listed;
use crate::peers::About;
use crate::workloads::catalogue::catalogue;
use crate::workloads::run_error::UnknownRow;
use crate::workloads::variant::Variant;
use crate::workloads::workload::Workload;
use std::fmt;

/// The subject of a row.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// An allocator, which serves the work's allocations.
    Allocator(&'static About),
    /// A variant of the work.
    Variant(&'static Variant),
}

/// The general-purpose allocators. The fastest of them is the best peer.
const PEERS: [&str; 5] = ["glibc", "jemalloc", "mimalloc", "snmalloc", "tcmalloc"];

impl Subject {
    /// The name of the row.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocator(about) => about.name,
            Self::Variant(variant) => variant.name,
        }
    }

    /// Its kind, in a word or two.
    pub fn kind(self) -> String {
        match self {
            Self::Allocator(about) => about.kind.to_string(),
            Self::Variant(_) => "variant".to_owned(),
        }
    }

    /// When it releases memory, in words.
    pub fn policy(self) -> &'static str {
        match self {
            Self::Allocator(about) => about.policy,
            Self::Variant(variant) => variant.policy,
        }
    }

    /// Environment variables, with their values, that its process must be started with.
    pub fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Allocator(about) => about.environment,
            Self::Variant(_) => &[],
        }
    }

    /// Whether it may be the best peer.
    pub fn is_peer(self) -> bool {
        match self {
            Self::Allocator(about) => PEERS.contains(&about.name),
            Self::Variant(variant) => variant.peer,
        }
    }

    /// Whether rows of work on cold memory compare with it.
    pub fn is_reference(self) -> bool {
        matches!(self, Self::Allocator(about) if about.reference)
    }

    /// The row that its time is compared with, if that is not the workload's own row.
    pub fn own(self) -> Option<&'static str> {
        match self {
            Self::Allocator(_) => None,
            Self::Variant(variant) => variant.own,
        }
    }

    /// Whether it is listed first: it is the project's own, or a variant that is not a peer.
    pub fn is_ours(self) -> bool {
        match self {
            Self::Allocator(about) => about.ours,
            Self::Variant(variant) => !variant.peer,
        }
    }

    /// The row called `name`, of any workload.
    ///
    /// # Errors
    /// [`UnknownRow`] if there is none. It lists the rows of the workloads `asked_for`.
    pub fn named(name: &str, asked_for: &[&'static Workload]) -> Result<Self, UnknownRow> {
        let of = |variant: &&Variant| variant.name == name;
        // A variant may have the name of the allocator that it uses. In its workload, the name
        // means the variant.
        if let Some(variant) = asked_for.iter().flat_map(|one| one.variants()).find(of) {
            return Ok(Self::Variant(variant));
        }
        match crate::peers::about(name) {
            Ok(about) => Ok(Self::Allocator(about)),
            Err(unknown) => catalogue()
                .iter()
                .flat_map(Workload::variants)
                .find(of)
                .map(Self::Variant)
                .ok_or_else(|| UnknownRow {
                    with_variants: asked_for
                        .iter()
                        .copied()
                        .filter(|one| !one.variants().is_empty())
                        .collect(),
                    with_allocators: asked_for.iter().any(|one| one.variants().is_empty()),
                    unknown,
                }),
        }
    }
}

impl Workload {
    /// The subjects of all its rows: its variants, or all allocators of this build.
    pub fn subjects(&self) -> Vec<Subject> {
        match self.variants() {
            [] => crate::peers::known().iter().map(Subject::Allocator).collect(),
            variants => variants.iter().map(Subject::Variant).collect(),
        }
    }
}

impl fmt::Display for UnknownRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.with_allocators {
            self.unknown.fmt(f)?;
        } else {
            write!(f, "unknown row '{}'", self.unknown.name())?;
        }
        for workload in &self.with_variants {
            let names = workload.variants().iter().map(|variant| variant.name);
            write!(f, "; {} has {}", workload.name, listed(names))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(name: &str, workloads: &[&str]) -> String {
        let workloads: Vec<_> =
            workloads.iter().map(|name| Workload::named(name).unwrap()).collect();
        Subject::named(name, &workloads).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_row_lists_those_of_the_workloads_that_were_asked_for() {
        let text = unknown("mutx", &["published"]);
        assert!(text.starts_with("unknown row 'mutx'; published has "), "{text}");
        assert!(text.contains("mutex, rwlock") && !text.contains("glibc"), "{text}");
        let text = unknown("mutx", &["published", "letters-read"]);
        assert!(text.ends_with("; letters-read has read"), "{text}");
        let text = unknown("glibcc", &["grow"]);
        assert!(text.contains("'glibcc'; available: ") && !text.contains("mutex"), "{text}");
        let text = unknown("glibcc", &["grow", "categories"]);
        assert!(text.contains("; available: ") && text.contains("; categories has "), "{text}");
    }

    #[test]
    fn a_row_is_found_whichever_workload_has_it() {
        let grow = [Workload::named("grow").unwrap()];
        assert_eq!(Subject::named("mutex", &grow).unwrap().kind(), "variant");
        assert_eq!(Subject::named("bumpalo", &grow).unwrap().kind(), "arena");
    }
}
