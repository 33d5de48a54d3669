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
    /// Whether it serves tasks, for [`Service::Tasks`].
    pub tasks: bool,
    /// Whether its tasks serve every layout and grow objects. If not, they serve only
    /// [`TYPED_ARENA_SIZES`](crate::peers::TYPED_ARENA_SIZES), and panic on other sizes and on
    /// growth.
    pub any_size: bool,
    /// Whether a task reuses the memory of objects that it frees one by one. If not, all objects of
    /// a task take memory until the task ends.
    pub frees_within_tasks: bool,
    /// Which threads may free its objects of any size that belong to no task, which
    /// [`Service::AnySize`] needs. `None` if it has no such objects.
    pub lasting: Option<FreedBy>,
    /// Whether it can be a program's global allocator, for [`Service::Global`].
    pub global: bool,
    /// Its service for objects of one size, for [`Service::FixedSize`]. `None` if none of its
    /// objects outlive their task, or if it is private to each thread.
    pub fixed_size: Option<FixedSizeAbout>,
    /// Whether it has a vector and a string of its own, for [`Service::Collections`].
    pub collections: bool,
    /// Whether it has scopes, for [`Service::Scopes`].
    pub scopes: bool,
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

/// What an allocator of objects of one size can do beyond 64-byte objects on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizeAbout {
    /// Whether several threads may use it at the same time, and each may free what another
    /// allocated.
    pub several_threads: bool,
    /// Whether it serves every layout. If not, it serves only [`OBJECT`](crate::peers::OBJECT), and
    /// panics on other layouts.
    pub every_layout: bool,
}

impl About {
    /// A peer with the usual properties of its kind.
    pub(crate) const fn peer(
        kind: PeerKind,
        name: &'static str,
        origin: &'static str,
        policy: &'static str,
    ) -> Self {
        let (tasks, fixed_size) = match kind {
            PeerKind::Malloc => (true, true),
            PeerKind::Arena | PeerKind::Pool => (true, false),
            PeerKind::FixedSize => (false, true),
            PeerKind::Placement => (false, false),
        };
        let malloc = matches!(kind, PeerKind::Malloc);
        let all = FixedSizeAbout { several_threads: true, every_layout: true };
        Self {
            name,
            kind,
            policy,
            origin,
            ours: false,
            tasks,
            any_size: tasks,
            frees_within_tasks: malloc,
            lasting: if malloc { Some(FreedBy::AnyThread) } else { None },
            global: malloc,
            fixed_size: if fixed_size { Some(all) } else { None },
            collections: malloc,
            scopes: false,
            reference: false,
            one_for_each_structure: false,
            environment: &[],
            handicap: || None,
        }
    }

    /// Allotment's arena and slab on pages of one size.
    pub(crate) const fn reference(name: &'static str, origin: &'static str) -> Self {
        Self {
            fixed_size: Some(FixedSizeAbout { several_threads: true, every_layout: true }),
            reference: true,
            ..Self::peer(PeerKind::Arena, name, origin, "adaptive, as without these pages")
        }
    }

    /// The same row, with a vector and a string of its own.
    pub(crate) const fn with_collections(self) -> Self {
        Self { collections: true, ..self }
    }

    /// The same row, with scopes.
    pub(crate) const fn with_scopes(self) -> Self {
        Self { scopes: true, ..self }
    }

    /// The same row with this service for objects of one size.
    pub(crate) const fn serving(self, fixed_size: FixedSizeAbout) -> Self {
        Self { fixed_size: Some(fixed_size), ..self }
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
    /// Tasks with a vector or a string: [`Collections`](crate::peers::Collections).
    Collections,
    /// Scopes: [`Scopes`](crate::peers::Scopes).
    Scopes,
    /// A whole program: [`Global`](crate::peers::Global).
    Global,
    /// The nodes of a tree: [`Placement`](crate::peers::Placement).
    Placement,
}

impl Service {
    pub(crate) fn is_of(self, about: &About) -> bool {
        match self {
            Self::Tasks => about.tasks,
            Self::FixedSize => about.fixed_size.is_some(),
            Self::AnySize => about.lasting.is_some(),
            Self::Collections => about.collections,
            Self::Scopes => about.scopes,
            Self::Global => about.global,
            Self::Placement => about.kind == PeerKind::Placement,
        }
    }
}

/// An allocator with an entry in the table.
pub(crate) trait Listed {
    const ABOUT: About;
}
