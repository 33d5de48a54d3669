//! `--try`: another allocator for a group than the advised one.

use super::allocator_plan::Route;
use crate::analyse::findings::{AdvisedAllocator, Findings, ObjectCategory};
use bench::console::failure::Failure;
use std::str::FromStr;

/// The names on the command line: the allocator, and whether it is an arena without reset.
const NAMES: [(&str, AdvisedAllocator, bool); 6] = [
    ("arena", AdvisedAllocator::Arena, false),
    ("arena-without-reset", AdvisedAllocator::Arena, true),
    ("reap", AdvisedAllocator::Reap, false),
    ("free-list", AdvisedAllocator::FreeList, false),
    ("pool", AdvisedAllocator::Pool, false),
    ("slab", AdvisedAllocator::Slab, false),
];

/// An allocator for one group, or for all groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryOption {
    group: Option<u32>,
    allocator: AdvisedAllocator,
    without_reset: bool,
}

/// The name of a route's allocator in the table.
pub fn allocator_name(route: &Route) -> &'static str {
    let is = |(_, allocator, without_reset): &&(&str, AdvisedAllocator, bool)| {
        *allocator == route.allocator && *without_reset == route.without_reset
    };
    NAMES.iter().find(is).map_or("malloc", |(name, ..)| name)
}

impl FromStr for TryOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (group, name) =
            text.split_once('=').ok_or("the form is GROUP=ALLOCATOR, as in 0=reap")?;
        let group = match group {
            "all" => None,
            number => Some(
                number
                    .parse()
                    .map_err(|_| format!("'{number}' is not a group's number, and not 'all'"))?,
            ),
        };
        let known = NAMES.map(|(name, ..)| name).join(", ");
        let (_, allocator, without_reset) = NAMES
            .into_iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| format!("'{name}' is not an allocator; choose from {known}"))?;
        Ok(Self { group, allocator, without_reset })
    }
}

impl TryOption {
    /// Replaces the advice by this allocator.
    pub fn apply(&self, findings: &mut Findings) -> Result<(), Failure> {
        let groups = findings.groups.len();
        if let Some(group) = self.group
            && group as usize >= groups
        {
            return Err(Failure::Usage(format!(
                "the recording has no group {group}; give --try a number below {groups}"
            )));
        }
        for group in &mut findings.groups {
            if self.group.is_none_or(|wanted| wanted == group.id) {
                let verdict = &mut group.verdict;
                verdict.allocator = self.allocator;
                verdict.without_reset = self.without_reset;
                verdict.candidate = false;
                verdict.category = match self.allocator {
                    AdvisedAllocator::Slab => ObjectCategory::Shared,
                    _ => ObjectCategory::Transient,
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_is_a_group_and_an_allocator() {
        let option: TryOption = "3=arena-without-reset".parse().unwrap();
        assert_eq!(
            option,
            TryOption { group: Some(3), allocator: AdvisedAllocator::Arena, without_reset: true }
        );
        assert_eq!("all=pool".parse::<TryOption>().unwrap().group, None);
        for (text, why) in [("arena", "GROUP="), ("x=arena", "'x'"), ("1=heap", "free-list")] {
            let error = text.parse::<TryOption>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
