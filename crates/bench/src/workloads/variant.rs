//! Variants of a workload: the rows of workloads that don't compare allocators.

use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::workload::RunSpec;
use std::fmt;

/// One variant.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name on the command line and in rows.
    pub name: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// When it releases memory, in words.
    pub policy: &'static str,
    /// Whether it is a peer, with which the project's own variant is compared.
    pub peer: bool,
    /// The row that its time is compared with, if that is not the workload's own row.
    pub own: Option<&'static str>,
    pub(crate) run: RunVariant,
}

/// Does the work of a variant.
type RunVariant = fn(&RunSpec, &dyn Observer) -> Result<Measurement, RunError>;

impl Variant {
    /// A variant of the project's own.
    pub(crate) const fn ours(
        name: &'static str,
        meaning: &'static str,
        policy: &'static str,
        run: RunVariant,
    ) -> Self {
        Self { name, meaning, policy, peer: false, own: None, run }
    }

    /// A peer.
    pub(crate) const fn peer(
        name: &'static str,
        meaning: &'static str,
        policy: &'static str,
        run: RunVariant,
    ) -> Self {
        Self { peer: true, ..Self::ours(name, meaning, policy, run) }
    }

    /// The same variant, whose time is compared with that of the row `own`.
    pub(crate) const fn compared_with(self, own: &'static str) -> Self {
        Self { own: Some(own), ..self }
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The policy of a variant that takes no memory while it is measured.
pub(crate) const TAKES_NO_MEMORY: &str = "takes no memory while it is measured";

#[cfg(test)]
mod tests {
    use crate::workloads::catalogue::catalogue;

    #[test]
    fn a_name_stands_for_one_row_of_a_workload_and_for_one_thing_unless_it_is_an_allocators() {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for workload in catalogue() {
            let names: Vec<&str> = workload.variants().iter().map(|variant| variant.name).collect();
            let twice = |name: &&&str| names.iter().filter(|other| other == name).count() > 1;
            assert_eq!(names.iter().find(twice), None, "{}", workload.name);
            let own = workload
                .variants()
                .iter()
                .filter(|variant| crate::peers::about(variant.name).is_err());
            all.extend(own.map(|variant| (variant.name, variant.meaning)));
        }
        for (name, meaning) in &all {
            let other = all.iter().find(|other| other.0 == *name && other.1 != *meaning);
            assert_eq!(other, None, "{meaning}");
        }
    }

    #[test]
    fn the_own_row_is_one_of_the_variants_and_no_peer_of_itself() {
        for workload in catalogue().iter().filter(|workload| !workload.variants().is_empty()) {
            let own = workload.variants().iter().find(|variant| variant.name == workload.own());
            assert!(own.is_some_and(|own| !own.peer), "{}", workload.name);
            for own in workload.variants().iter().filter_map(|variant| variant.own) {
                let own = workload.variants().iter().find(|variant| variant.name == own);
                assert!(own.is_some_and(|own| !own.peer), "{}", workload.name);
            }
        }
    }
}
