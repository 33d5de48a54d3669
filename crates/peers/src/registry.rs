//! The table of allocators: names, what they are, and static dispatch to them.

use std::fmt;

use crate::arena::{bump_scope, bumpalo, own, typed_arena};
use crate::fixed_size::heap::HeapObjects;
use crate::fixed_size::{own as our_slab, own_list, sharded_slab, slab};
use crate::local::{NewReap, Pool as OurPool};
use crate::malloc::HeapAsGlobal;
use crate::malloc::libc::Libc;
use crate::placement::{self, Placement};
use crate::{Allocator, AnySize, FixedSize, Global, GlobalCalls, malloc};

#[cfg(feature = "fast-peers")]
use crate::arena::{mimalloc_heap, pmr};
#[cfg(boost_pool)]
use crate::fixed_size::boost_pool;
#[cfg(feature = "all-peers")]
use crate::malloc::jemalloc::Jemalloc;
#[cfg(all(feature = "all-peers", target_env = "gnu"))]
use crate::malloc::tcmalloc::Tcmalloc;
#[cfg(feature = "fast-peers")]
use crate::malloc::{mimalloc::Mimalloc, rpmalloc::Rpmalloc, snmalloc::Snmalloc};

/// What one row of the tables is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The row's name, as given to `--allocators` and printed in every table.
    pub name: &'static str,
    /// How its objects are freed, and of how many sizes they are.
    pub kind: Kind,
    /// When it gives memory back, as configured here, in words.
    pub policy: &'static str,
    /// What it is and where it comes from, with the version where there is one.
    pub origin: &'static str,
    /// Whether it is one of Allotment's own, as it ships.
    pub ours: bool,
    /// Whether it serves tasks: whether [`with`] knows it.
    pub tasks: bool,
    /// Whether its tasks serve every layout and grow objects. If not, they serve
    /// [`TYPED_ARENA_SIZES`](crate::TYPED_ARENA_SIZES) alone and grow nothing: they panic on the rest.
    pub any_size: bool,
    /// Whether what its tasks free one by one makes room for what they allocate next. If not, all that they
    /// allocate stays until they end.
    pub frees_within_tasks: bool,
    /// Who may free its objects of any size that belong to no task: what [`with_any_size`] needs. `None` if it
    /// has none.
    pub lasting: Option<FreedBy>,
    /// Whether it can be a program's global allocator: whether [`with_global`] knows it.
    pub global: bool,
    /// Which objects of one size it gives to whom: what [`with_fixed_size`] needs. `None` if it gives out
    /// none that outlive their task.
    pub fixed_size: Option<FixedSizeAbout>,
    /// Whether there is to be one for each data structure, instead of one for all of the program: such a row
    /// tells something where there are many structures alone.
    pub one_for_each_structure: bool,
    /// Variables, with their values, that the measuring process must have been *started* with for the
    /// allocator to be at its best. They do no harm to the other rows.
    pub environment: &'static [(&'static str, &'static str)],
    /// What keeps the allocator from its best in this very process, and the remedy; `None` if nothing
    /// does. To be asked in the process that measures.
    pub handicap: fn() -> Option<&'static str>,
}

/// Which threads may free an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBy {
    /// The one that allocated it.
    ItsThread,
    /// Any.
    AnyThread,
}

/// What an allocator of objects of one size does besides 64 bytes for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizeAbout {
    /// Whether several threads may use it at a time, each freeing what any of them allocated.
    pub several_threads: bool,
    /// Whether it serves every layout. If not, it serves [`OBJECT`](crate::OBJECT) alone: it panics on the
    /// rest.
    pub every_layout: bool,
}

impl About {
    /// A peer of which nothing special is to be said; the constructors' common part.
    pub(crate) const fn peer(
        kind: Kind,
        name: &'static str,
        origin: &'static str,
        policy: &'static str,
    ) -> Self {
        let (tasks, fixed_size) = match kind {
            Kind::Malloc => (true, true),
            Kind::Arena | Kind::Pool => (true, false),
            Kind::FixedSize => (false, true),
            Kind::Placement => (false, false),
        };
        let malloc = matches!(kind, Kind::Malloc);
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
            one_for_each_structure: false,
            environment: &[],
            handicap: || None,
        }
    }

    /// The same, where not every layout or not every thread is served.
    pub(crate) const fn serving(self, fixed_size: FixedSizeAbout) -> Self {
        Self { fixed_size: Some(fixed_size), ..self }
    }
}

/// How an allocator's objects are freed, and of how many sizes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One by one, of any size.
    Malloc,
    /// One by one, of any size, from what each thread has for itself.
    Pool,
    /// Together, when their task ends.
    Arena,
    /// One by one, all of one size.
    FixedSize,
    /// It is no allocator, but a way in which the nodes of a structure come to lie where they lie: what
    /// [`with_placement`] knows.
    Placement,
}

impl fmt::Display for Kind {
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

/// Something to be done with an allocator that is known by its name at run time and by its type at
/// compile time.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it with the allocator `A`.
    fn visit<A: Allocator>(self, about: &'static About) -> Self::Output;
}

/// The same for allocators of objects of one size.
pub trait FixedSizeVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the allocator `A`.
    fn visit<A: FixedSize>(self, about: &'static About) -> Self::Output;
}

/// The same for allocators of objects of any size which outlive all tasks.
pub trait AnySizeVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the allocator `A`.
    fn visit<A: AnySize>(self, about: &'static About) -> Self::Output;
}

/// The same for what a program can have as its global allocator.
pub trait GlobalVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the allocator `G`.
    fn visit<G: Global>(self, about: &'static About) -> Self::Output;
}

/// The same for placements.
pub trait PlacementVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the placement `P`.
    fn visit<P: Placement>(self, about: &'static About) -> Self::Output;
}

/// There is no allocator of that name in this build, or none that does this work. Its text lists those
/// that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAllocator {
    name: String,
    work: Work,
}

/// What an allocator was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Any,
    Tasks,
    FixedSize,
    AnySize,
    Global,
    Placement,
}

impl Work {
    fn done_by(self, about: &About) -> bool {
        match self {
            Self::Any => true,
            Self::Tasks => about.tasks,
            Self::FixedSize => about.fixed_size.is_some(),
            Self::AnySize => about.lasting.is_some(),
            Self::Global => about.global,
            Self::Placement => about.kind == Kind::Placement,
        }
    }
}

impl UnknownAllocator {
    /// The name that was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether another build of this program would know the name.
    pub fn left_out(&self) -> bool {
        LEFT_OUT.contains(&self.name.as_str())
    }
}

impl fmt::Display for UnknownAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if self.left_out() {
            write!(f, "the allocator '{name}' is not in this build: {}", why_left_out(name))?;
        } else {
            let kind = known().iter().find(|about| about.name == name).map(|about| about.kind);
            match (self.work, kind) {
                (_, None) | (Work::Any, _) => write!(f, "unknown allocator '{name}'")?,
                (_, Some(Kind::Placement)) => write!(f, "'{name}' is a placement, no allocator")?,
                (Work::Placement, _) => write!(f, "'{name}' is an allocator, no placement")?,
                (Work::Global, _) => {
                    write!(f, "the allocator '{name}' can't be a program's global one")?;
                }
                (Work::Tasks, _) | (Work::AnySize, Some(Kind::FixedSize)) => {
                    write!(f, "the allocator '{name}' serves objects of one size alone")?;
                }
                (Work::FixedSize, Some(Kind::Pool)) => {
                    write!(f, "the allocator '{name}' is each thread's own")?;
                }
                (Work::FixedSize | Work::AnySize, _) => {
                    write!(f, "no object of the allocator '{name}' outlives its task")?;
                }
            }
        }
        f.write_str("; known are ")?;
        for (i, about) in known().iter().filter(|about| self.work.done_by(about)).enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", about.name)?;
        }
        Ok(())
    }
}

/// The names of the allocators that another build of this crate has and this build lacks, each with the remedy.
pub fn missing() -> impl Iterator<Item = (&'static str, &'static str)> {
    LEFT_OUT.iter().map(|name| (*name, why_left_out(name)))
}

/// How to get an allocator that this build lacks.
fn why_left_out(name: &str) -> &'static str {
    let slow = ["jemalloc", "tcmalloc"].contains(&name);
    if slow && !cfg!(feature = "all-peers") {
        "build with --features all-peers (takes minutes)"
    } else if cfg!(not(feature = "fast-peers")) {
        "build with the default features, or with --features fast-peers"
    } else if name == "boost-pool" {
        "the headers of Boost.Pool were not found when it was compiled; install them (libboost-dev, \
         boost-devel) or name their directory in CPLUS_INCLUDE_PATH, and compile the crate peers again"
    } else {
        "it is not to be had on this platform"
    }
}

impl std::error::Error for UnknownAllocator {}

/// An allocator with an entry in the table.
pub(crate) trait Listed {
    const ABOUT: About;
}

/// From one line an allocator: the entry in [`known`], the arms of [`with`] and its like, and, for
/// builds whose `cfg` leaves it out, the entry in `LEFT_OUT`. The type after the name has the entry's text,
/// those behind it serve tasks, objects of one size, objects of any size that belong to no task, and all of a
/// program, or are a placement.
macro_rules! registry {
    ($(
        $(#[cfg($($present:tt)+)])?
        row $name:expr => $listed:ty $(, tasks $tasks:ty)? $(, fixed_size $fixed_size:ty)?
            $(, any_size $any_size:ty)? $(, global $global:ty)? $(, placement $placement:ty)?;
    )+) => {
        static KNOWN: &[About] = &[
            $( $(#[cfg($($present)+)])? <$listed as Listed>::ABOUT, )+
        ];

        /// The names of the allocators that this build lacks.
        static LEFT_OUT: &[&str] = &[
            $( $( #[cfg(not($($present)+))] $name, )? )+
        ];

        // The table and the allocator agree on the name and on what it serves.
        $( $(#[cfg($($present)+)])? const _: () = {
            let about = <$listed as Listed>::ABOUT;
            assert!(same($name, about.name));
            assert!(about.tasks == named!($($tasks)?));
            assert!(about.fixed_size.is_some() == named!($($fixed_size)?));
            assert!(about.lasting.is_some() == named!($($any_size)?));
            assert!(about.global == named!($($global)?));
            assert!(matches!(about.kind, Kind::Placement) == named!($($placement)?));
        }; )+

        /// Runs `visitor` with the allocator called `name`.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has none of that name, or it serves no tasks.
        pub fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Work::Tasks)?;
            $( $(#[cfg($($present)+)])? {
                $( if name == $name { return Ok(visitor.visit::<$tasks>(about)); } )?
            } )+
            unreachable!("every entry of the table has its arm")
        }

        /// Runs `visitor` with the allocator called `name`, as one of objects of one size.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has none of that name, or its objects don't outlive their task.
        pub fn with_fixed_size<V: FixedSizeVisitor>(
            name: &str,
            visitor: V,
        ) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Work::FixedSize)?;
            $( $(#[cfg($($present)+)])? {
                $( if name == $name { return Ok(visitor.visit::<$fixed_size>(about)); } )?
            } )+
            unreachable!("every entry of the table has its arm")
        }

        /// Runs `visitor` with the allocator called `name`, as one of objects of any size which belong to no
        /// task.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has none of that name, or none of its objects is of any size and
        /// outlives its task.
        pub fn with_any_size<V: AnySizeVisitor>(
            name: &str,
            visitor: V,
        ) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Work::AnySize)?;
            $( $(#[cfg($($present)+)])? {
                $( if name == $name { return Ok(visitor.visit::<$any_size>(about)); } )?
            } )+
            unreachable!("every entry of the table has its arm")
        }

        /// Runs `visitor` with the allocator called `name`, as a program's global one. That it is the global one
        /// of this program is for the caller to see to, by means of [`global_calls`].
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has none of that name, or it can't be a program's.
        pub fn with_global<V: GlobalVisitor>(
            name: &str,
            visitor: V,
        ) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Work::Global)?;
            $( $(#[cfg($($present)+)])? {
                $( if name == $name { return Ok(visitor.visit::<$global>(about)); } )?
            } )+
            unreachable!("every entry of the table has its arm")
        }

        /// The calls that a program makes which has the allocator called `name` as its global one, and that name.
        /// Finding them allocates nothing. `None` if this build has none of that name, or it can't be a
        /// program's.
        pub fn global_calls(name: &[u8]) -> Option<(&'static str, &'static GlobalCalls)> {
            $( $(#[cfg($($present)+)])? {
                $( if name == $name.as_bytes() {
                    return Some(($name, const { &<$global as Global>::CALLS }));
                } )?
            } )+
            None
        }

        /// Runs `visitor` with the placement called `name`.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if there is none of that name, or it is an allocator.
        pub fn with_placement<V: PlacementVisitor>(
            name: &str,
            visitor: V,
        ) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Work::Placement)?;
            $( $(#[cfg($($present)+)])? {
                $( if name == $name { return Ok(visitor.visit::<$placement>(about)); } )?
            } )+
            unreachable!("every entry of the table has its arm")
        }
    };
}

/// Whether there is a type.
macro_rules! named {
    () => {
        false
    };
    ($type:ty) => {
        true
    };
}

fn find(name: &str, work: Work) -> Result<&'static About, UnknownAllocator> {
    KNOWN
        .iter()
        .find(|about| about.name == name && work.done_by(about))
        .ok_or_else(|| UnknownAllocator { name: name.to_owned(), work })
}

registry! {
    row malloc::libc::NAME => Libc, tasks Libc, fixed_size HeapObjects<malloc::libc::Calls>,
        any_size Libc, global HeapAsGlobal<malloc::libc::Calls>;
    #[cfg(feature = "all-peers")]
    row "jemalloc" => Jemalloc, tasks Jemalloc, fixed_size HeapObjects<malloc::jemalloc::Calls>,
        any_size Jemalloc, global HeapAsGlobal<malloc::jemalloc::Calls>;
    #[cfg(feature = "fast-peers")]
    row "mimalloc" => Mimalloc, tasks Mimalloc, fixed_size HeapObjects<malloc::mimalloc::Calls>,
        any_size Mimalloc, global HeapAsGlobal<malloc::mimalloc::Calls>;
    #[cfg(feature = "fast-peers")]
    row "snmalloc" => Snmalloc, tasks Snmalloc, fixed_size HeapObjects<malloc::snmalloc::Calls>,
        any_size Snmalloc, global HeapAsGlobal<malloc::snmalloc::Calls>;
    #[cfg(all(feature = "all-peers", target_env = "gnu"))]
    row "tcmalloc" => Tcmalloc, tasks Tcmalloc, fixed_size HeapObjects<malloc::tcmalloc::Calls>,
        any_size Tcmalloc, global HeapAsGlobal<malloc::tcmalloc::Calls>;
    #[cfg(feature = "fast-peers")]
    row "rpmalloc" => Rpmalloc, tasks Rpmalloc, fixed_size HeapObjects<malloc::rpmalloc::Calls>,
        any_size Rpmalloc, global HeapAsGlobal<malloc::rpmalloc::Calls>;
    row "allotment-arena" => own::New, tasks own::New;
    row "allotment-reap" => NewReap, tasks NewReap;
    row "allotment-pool" => OurPool, tasks OurPool, any_size OurPool, global OurPool;
    row "mmap-per-query" => own::MmapPerQuery, tasks own::MmapPerQuery;
    row "bumpalo" => bumpalo::New, tasks bumpalo::New;
    row "bumpalo-reset" => bumpalo::Reset, tasks bumpalo::Reset;
    row "bump-scope" => bump_scope::Reset, tasks bump_scope::Reset;
    #[cfg(feature = "fast-peers")]
    row "mimalloc-heap" => mimalloc_heap::MimallocHeap, tasks mimalloc_heap::MimallocHeap;
    #[cfg(feature = "fast-peers")]
    row "pmr-monotonic" => pmr::Monotonic, tasks pmr::Monotonic;
    #[cfg(feature = "fast-peers")]
    row "pmr-pool" => pmr::Pool, tasks pmr::Pool, any_size pmr::ThreadPool;
    row "typed-arena" => typed_arena::TypedArena, tasks typed_arena::TypedArena;
    row "allotment-slab" => our_slab::Slab, fixed_size our_slab::Slab;
    row "allotment-slab-handle" => our_slab::SlabHandle, fixed_size our_slab::SlabHandle;
    row "allotment-slab-at-once" => our_slab::SlabAtOnce, fixed_size our_slab::SlabAtOnce;
    row "allotment-free-list" => own_list::List, fixed_size own_list::List;
    row "allotment-free-list-a-tree" => own_list::ListEach, fixed_size own_list::ListEach;
    row "slab" => slab::Values, fixed_size slab::Values;
    row "sharded-slab" => sharded_slab::Values, fixed_size sharded_slab::Values;
    #[cfg(boost_pool)]
    row "boost-pool" => boost_pool::Pool, fixed_size boost_pool::Pool;
    row "malloc-built" => placement::MallocBuilt, placement placement::MallocBuilt;
    row "malloc-copy" => placement::MallocCopy, placement placement::MallocCopy;
    row "free-list-built" => placement::FreeListBuilt, placement placement::FreeListBuilt;
    row "compact-copy" => placement::CompactCopy, placement placement::CompactCopy;
    row "scrambled-copy" => placement::ScrambledCopy, placement placement::ScrambledCopy;
}

/// The entry of the allocator called `name`.
///
/// # Errors
/// [`UnknownAllocator`] if this build has none of that name.
pub fn about(name: &str) -> Result<&'static About, UnknownAllocator> {
    find(name, Work::Any)
}

/// Every allocator of this build, in the order of the tables: mallocs, arenas and pools, those of objects of one
/// size; then the placements.
pub fn known() -> &'static [About] {
    KNOWN
}

/// Whether two names are equal, at compile time.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
