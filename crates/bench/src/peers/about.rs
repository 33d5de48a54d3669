//! What a row of the tables is, and what its allocator can do.

use std::fmt;

/// One row of the tables: an allocator and what it can do.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The row's name, as given to `--allocators` and printed in every table.
    pub name: &'static str,
    /// How its objects are freed, and whether they have several sizes.
    pub kind: PeerKind,
    /// When it releases memory, as configured here, in words.
    pub policy: &'static str,
    /// What it is and where it comes from, with the version if there is one.
    pub origin: &'static str,
    /// Whether it is one of Allotment's own, as it ships.
    pub ours: bool,
    /// What it serves.
    pub services: &'static [Service],
    /// Whether its tasks serve every layout and grow objects. If not, they serve only
    /// [`TYPED_ARENA_SIZES`](crate::peers::TYPED_ARENA_SIZES), and panic on other sizes and on
    /// growth.
    pub any_size: bool,
    /// Whether a task reuses the memory of objects that it frees one by one. If not, all objects of
    /// a task take memory until the task ends.
    pub frees_within_tasks: bool,
    /// Which threads may free its objects of [`Service::AnySize`].
    pub freed_by: FreedBy,
    /// Whether several threads may use its [`Service::FixedSize`] at the same time, and each may
    /// free what another allocated.
    pub several_threads: bool,
    /// Whether its [`Service::FixedSize`] serves every layout. If not, it serves only
    /// [`OBJECT`](crate::peers::OBJECT), and panics on other layouts.
    pub every_layout: bool,
    /// Whether it is a reference: Allotment on pages of one size, with which rows of work on cold
    /// memory compare. Other work has no such rows.
    pub reference: bool,
    /// Whether each data structure gets an allocator of its own, instead of one for the whole
    /// program. Such a row is only of use in workloads with many structures.
    pub one_for_each_structure: bool,
    /// Environment variables, with their values, that the measuring process must have been
    /// *started* with for the allocator to run at its best. They do not affect other rows.
    pub environment: &'static [(&'static str, &'static str)],
    /// What keeps the allocator from its best in this process, and the remedy; `None` if nothing
    /// does. Call it in the process that measures.
    pub handicap: fn() -> Option<&'static str>,
}

/// Which threads may free an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBy {
    /// The thread that allocated it.
    ItsThread,
    /// Any thread.
    AnyThread,
}

impl About {
    /// A peer with the usual properties of its kind. The registry adds what it serves.
    pub(crate) const fn peer(
        kind: PeerKind,
        name: &'static str,
        origin: &'static str,
        policy: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            policy,
            origin,
            ours: false,
            services: &[],
            any_size: true,
            frees_within_tasks: matches!(kind, PeerKind::Malloc),
            freed_by: FreedBy::AnyThread,
            several_threads: true,
            every_layout: true,
            reference: false,
            one_for_each_structure: false,
            environment: &[],
            handicap: || None,
        }
    }

    /// Allotment's arena and slab on pages of one size.
    pub(crate) const fn reference(name: &'static str, origin: &'static str) -> Self {
        let arena = Self::peer(PeerKind::Arena, name, origin, "adaptive, as without these pages");
        Self { reference: true, ..arena }
    }

    /// Whether it has this service.
    pub fn serves(&self, service: Service) -> bool {
        self.services.contains(&service)
    }
}

/// How an allocator's objects are freed, and whether they have several sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// One by one; any size.
    Malloc,
    /// One by one; any size; each thread has a pool of its own.
    Pool,
    /// All together, when their task ends.
    Arena,
    /// One by one; all of one size.
    FixedSize,
    /// Not an allocator, but a way to place the nodes of a structure in memory.
    /// [`Service::Placement`] finds it.
    Placement,
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malloc => "malloc",
            Self::Pool => "pool",
            Self::Arena => "arena",
            Self::FixedSize => "fixed size",
            Self::Placement => "placement",
        })
    }
}

/// What an allocator serves, and so the trait by which work uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Tasks: [`Allocator`](crate::peers::Allocator).
    Tasks,
    /// Objects of one size that belong to no task: [`FixedSize`](crate::peers::FixedSize).
    FixedSize,
    /// Objects of any size that belong to no task: [`AnySize`](crate::peers::AnySize).
    AnySize,
    /// Boxes, which any thread may drop: [`Boxes`](crate::peers::Boxes).
    Boxes,
    /// Requests whose objects may outlive them: [`Requests`](crate::peers::Requests).
    Requests,
    /// Tasks with a vector or a string: [`Collections`](crate::peers::Collections).
    Collections,
    /// Scopes: [`Scopes`](crate::peers::Scopes).
    Scopes,
    /// A whole program: [`Global`](crate::peers::Global).
    Global,
    /// The nodes of a tree: [`Placement`](crate::peers::Placement).
    Placement,
}

/// Why an allocator does not have a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MissingService {
    /// The reason, in words.
    pub why: &'static str,
    /// Whether the reason is obvious from the kinds of allocator and service.
    pub is_plain: bool,
}

impl About {
    /// Whether there is one for each request.
    fn is_per_request(&self) -> bool {
        self.serves(Service::Requests) && !self.serves(Service::AnySize)
    }

    /// Why it does not have this service.
    pub fn lack(&self, service: Service) -> MissingService {
        let (why, is_plain) = match (service, self.kind) {
            (Service::Placement, _) => {
                ("it is an allocator, and this workload compares layouts of a tree", true)
            }
            (_, PeerKind::Placement) => ("it is a layout of a tree, for tree-copy only", true),
            (Service::Global, _) => ("it can't be a program's global allocator", true),
            (Service::Collections, _) => ("it has no vector and no string of its own", true),
            (Service::Scopes, _) => ("it has no scopes", true),
            _ if self.is_per_request() => {
                ("it is a pool for each request, for pool-request only", true)
            }
            (Service::Boxes | Service::Requests, _)
                if self.serves(Service::AnySize) && self.freed_by == FreedBy::ItsThread =>
            {
                ("only the thread that allocated an object may free it", false)
            }
            (Service::Boxes, PeerKind::FixedSize) => {
                ("it has no boxes that several threads may drop", false)
            }
            (Service::Tasks, _) | (Service::AnySize | Service::Requests, PeerKind::FixedSize) => {
                ("it serves objects of one size only", false)
            }
            (Service::FixedSize, _)
                if self.serves(Service::AnySize) || self.serves(Service::Boxes) =>
            {
                ("each thread has one of its own, and this workload shares one", false)
            }
            (Service::FixedSize | Service::Boxes | Service::AnySize | Service::Requests, _) => {
                ("its objects are freed when their task ends", false)
            }
        };
        MissingService { why, is_plain }
    }
}

/// An allocator with an entry in the table.
pub(crate) trait Listed {
    const ABOUT: About;
}
