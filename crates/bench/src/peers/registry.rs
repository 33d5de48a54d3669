//! The table of allocators: names, what they are, and static dispatch to them.

use std::fmt;

use crate::peers::about::{About, Kind, Listed, Service};
use crate::peers::arena::{bump_scope, bumpalo, own, typed_arena};
use crate::peers::fixed_size::heap::HeapObjects;
use crate::peers::fixed_size::{own as our_slab, own_list, sharded_slab, slab};
use crate::peers::local::{NewReap, Pool as OurPool};
use crate::peers::malloc::HeapAsGlobal;
use crate::peers::malloc::libc::Libc;
use crate::peers::placement::{self, Placement};
use crate::peers::{Allocator, AnySize, FixedSize, Global, GlobalCalls, malloc};

#[cfg(feature = "fast-peers")]
use crate::peers::arena::{mimalloc_heap, pmr};
#[cfg(boost_pool)]
use crate::peers::fixed_size::boost_pool;
#[cfg(feature = "all-peers")]
use crate::peers::malloc::jemalloc::Jemalloc;
#[cfg(all(feature = "all-peers", target_env = "gnu"))]
use crate::peers::malloc::tcmalloc::Tcmalloc;
#[cfg(feature = "fast-peers")]
use crate::peers::malloc::{mimalloc::Mimalloc, rpmalloc::Rpmalloc, snmalloc::Snmalloc};

/// Work to do with an allocator whose name is known at run time. The compiler knows its type, so
/// the work is compiled for each allocator.
///
/// A visitor implements the method of its [`SERVICE`](Self::SERVICE); [`with`] calls no other.
pub trait Visitor: Sized {
    /// The result of the work.
    type Output;

    /// The service that the work needs.
    const SERVICE: Service;

    /// Does the work with the allocator `A`, which serves tasks.
    fn tasks<A: Allocator>(self, about: &'static About) -> Self::Output {
        not_implemented(Self::SERVICE, about)
    }

    /// Does the work with the allocator `A`, which serves objects of one size.
    fn fixed_size<A: FixedSize>(self, about: &'static About) -> Self::Output {
        not_implemented(Self::SERVICE, about)
    }

    /// Does the work with the allocator `A`, which serves objects of any size.
    fn any_size<A: AnySize>(self, about: &'static About) -> Self::Output {
        not_implemented(Self::SERVICE, about)
    }

    /// Does the work with the allocator `G`, which serves this program. The caller must have made
    /// it the global allocator of this program, with [`global_calls`].
    fn global<G: Global>(self, about: &'static About) -> Self::Output {
        not_implemented(Self::SERVICE, about)
    }

    /// Does the work with the placement `P`.
    fn placement<P: Placement>(self, about: &'static About) -> Self::Output {
        not_implemented(Self::SERVICE, about)
    }
}

#[cold]
fn not_implemented(service: Service, about: &About) -> ! {
    unreachable!("the visitor of {} has no work for {service:?}", about.name)
}

/// The error if this build has no allocator of that name, or if that allocator does not do this
/// work. Its text lists the available ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAllocator {
    name: String,
    /// The service that was asked for; `None` if any allocator would do.
    service: Option<Service>,
}

impl UnknownAllocator {
    /// The requested name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether another build of this program has the allocator.
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
            match (self.service, kind) {
                (_, None) | (None, _) => write!(f, "unknown allocator '{name}'")?,
                (_, Some(Kind::Placement)) => {
                    write!(f, "'{name}' is a placement, not an allocator")?;
                }
                (Some(Service::Placement), _) => {
                    write!(f, "'{name}' is an allocator, not a placement")?
                }
                (Some(Service::Global), _) => {
                    write!(f, "the allocator '{name}' can't be a program's global allocator")?;
                }
                (Some(Service::Tasks), _) | (Some(Service::AnySize), Some(Kind::FixedSize)) => {
                    write!(f, "the allocator '{name}' serves objects of one size only")?;
                }
                (Some(Service::FixedSize), Some(Kind::Pool)) => {
                    write!(f, "the allocator '{name}' is private to each thread")?;
                }
                (Some(Service::FixedSize | Service::AnySize), _) => {
                    write!(f, "no object of the allocator '{name}' outlives its task")?;
                }
            }
        }
        f.write_str("; available: ")?;
        for (i, about) in known().iter().filter(|about| serves(about, self.service)).enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", about.name)?;
        }
        Ok(())
    }
}

/// The allocators that other builds of this crate have and this build lacks: each name, and how to
/// get it.
pub fn missing() -> impl Iterator<Item = (&'static str, &'static str)> {
    LEFT_OUT.iter().map(|name| (*name, why_left_out(name)))
}

/// How to get an allocator that this build lacks.
fn why_left_out(name: &str) -> &'static str {
    let slow = ["jemalloc", "tcmalloc"].contains(&name);
    if name == "tcmalloc" && cfg!(not(target_env = "gnu")) {
        "this platform does not have it"
    } else if slow && !cfg!(feature = "all-peers") {
        "build with --features all-peers (takes minutes)"
    } else if cfg!(not(feature = "fast-peers")) {
        "build with the default features, or with --features fast-peers"
    } else if name == "boost-pool" {
        "the compiler did not find the headers of Boost.Pool; install them (libboost-dev, boost-devel) or \
         name their directory in CPLUS_INCLUDE_PATH, and compile the package allotment-bench again"
    } else {
        "this platform does not have it"
    }
}

impl std::error::Error for UnknownAllocator {}

/// Makes, from one line for each allocator: the entry in [`known`]; the arms of [`with`]; and, in
/// builds whose `cfg` excludes the allocator, the entry in `LEFT_OUT`. The type
/// after the name has the entry's text. The types after it serve tasks, objects of one size,
/// objects of any size that belong to no task, and a whole program, or are a placement.
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

        // Checks that table and allocator agree on the name and on what it serves.
        $( $(#[cfg($($present)+)])? const _: () = {
            let about = <$listed as Listed>::ABOUT;
            assert!(same($name, about.name));
            assert!(about.tasks == named!($($tasks)?));
            assert!(about.fixed_size.is_some() == named!($($fixed_size)?));
            assert!(about.lasting.is_some() == named!($($any_size)?));
            assert!(about.global == named!($($global)?));
            assert!(matches!(about.kind, Kind::Placement) == named!($($placement)?));
        }; )+

        /// Runs `visitor` with the allocator or placement called `name`.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has no allocator of that name, or if it does not have
        /// the visitor's service.
        pub fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownAllocator> {
            let about = find(name, Some(V::SERVICE))?;
            match V::SERVICE {
                Service::Tasks => { $( $(#[cfg($($present)+)])? {
                    $( if name == $name { return Ok(visitor.tasks::<$tasks>(about)); } )?
                } )+ }
                Service::FixedSize => { $( $(#[cfg($($present)+)])? {
                    $( if name == $name { return Ok(visitor.fixed_size::<$fixed_size>(about)); } )?
                } )+ }
                Service::AnySize => { $( $(#[cfg($($present)+)])? {
                    $( if name == $name { return Ok(visitor.any_size::<$any_size>(about)); } )?
                } )+ }
                Service::Global => { $( $(#[cfg($($present)+)])? {
                    $( if name == $name { return Ok(visitor.global::<$global>(about)); } )?
                } )+ }
                Service::Placement => { $( $(#[cfg($($present)+)])? {
                    $( if name == $name { return Ok(visitor.placement::<$placement>(about)); } )?
                } )+ }
            }
            unreachable!("every entry of the table has an arm")
        }

        /// The calls of a program whose global allocator is the one called `name`, and that name.
        /// Finding them allocates nothing. `None` if this build has no allocator of that name, or
        /// if it can't be global.
        pub fn global_calls(name: &[u8]) -> Option<(&'static str, &'static GlobalCalls)> {
            $( $(#[cfg($($present)+)])? {
                $( if name == $name.as_bytes() {
                    return Some(($name, const { &<$global as Global>::CALLS }));
                } )?
            } )+
            None
        }
    };
}

/// `true` if a type is given.
macro_rules! named {
    () => {
        false
    };
    ($type:ty) => {
        true
    };
}

fn serves(about: &About, service: Option<Service>) -> bool {
    service.is_none_or(|service| service.is_of(about))
}

fn find(name: &str, service: Option<Service>) -> Result<&'static About, UnknownAllocator> {
    KNOWN
        .iter()
        .find(|about| about.name == name && serves(about, service))
        .ok_or_else(|| UnknownAllocator { name: name.to_owned(), service })
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
/// [`UnknownAllocator`] if this build has no allocator of that name.
pub fn about(name: &str) -> Result<&'static About, UnknownAllocator> {
    find(name, None)
}

/// Every allocator of this build, in the order of the tables: mallocs, arenas and pools, then
/// allocators of objects of one size, then the placements.
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
