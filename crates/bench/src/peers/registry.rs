//! The table of allocators: names, what they are, and static dispatch to them.

use std::fmt;

use allotment::Reap;

use crate::peers::about::{About, Listed, Service};
use crate::peers::allotment_options::{AtOnce, DefaultOptions, OnPages, PerQuery};
use crate::peers::allotment_pool::{OwnPool, PoolPerRequest};
use crate::peers::arena::allotment_arena::AllotmentArena;
use crate::peers::arena::typed_arena::TypedArenas;
use crate::peers::arena::{ArenaPerTask, ArenaPerThread};
use crate::peers::boxes::{BlockBoxes, HeapBoxes, PoolBoxes, SlabBoxes};
use crate::peers::fixed_size::allotment_slab::{AllotmentSlab, AllotmentSlabHandle};
use crate::peers::fixed_size::heap::HeapObjects;
use crate::peers::fixed_size::{allotment_free_list, sharded_slab, slab};
use crate::peers::malloc::HeapAsGlobal;
use crate::peers::malloc::libc::Libc;
use crate::peers::placement::{self, Placement};
use crate::peers::{
    Allocator, AnySize, Boxes, Collections, FixedSize, Global, GlobalCalls, Requests, Scopes,
    malloc,
};

#[cfg(feature = "fast-peers")]
use crate::peers::arena::{mimalloc_heap::MimallocHeap, pmr};
#[cfg(boost_pool)]
use crate::peers::fixed_size::boost_pool;
#[cfg(feature = "catalogue")]
use crate::peers::fixed_size::plurality::PluralityPools;
#[cfg(feature = "all-peers")]
use crate::peers::malloc::jemalloc::Jemalloc;
#[cfg(all(feature = "all-peers", target_env = "gnu"))]
use crate::peers::malloc::tcmalloc::Tcmalloc;
#[cfg(feature = "fast-peers")]
use crate::peers::malloc::{mimalloc::Mimalloc, rpmalloc::Rpmalloc, snmalloc::Snmalloc};

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
            let about = known().iter().find(|about| about.name == name);
            match about.zip(self.service) {
                Some((about, service)) => {
                    let why = about.lack(service).why;
                    write!(f, "the row '{name}' can't do this work: {why}")?;
                }
                None => write!(f, "unknown allocator '{name}'")?,
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
    } else if name == "plurality" || name.starts_with("multitude") {
        "build with --features catalogue, as `allot` is"
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

/// Makes the visitor of one service: a trait whose method the compiler compiles for each allocator
/// with that service. The lines are the names of all allocators, and the types that have it.
macro_rules! visitor {
    (
        $(#[doc = $doc:literal])+
        $visitor:ident of $service:ident, $value:expr;
        $( $(#[$present:meta])? row $name:expr => $($served:ty)?; )+
    ) => {
        $(#[doc = $doc])+
        ///
        /// The work is compiled for each such allocator, as in a program that knows its type.
        pub trait $visitor: Sized {
            /// The result of the work.
            type Output;

            /// Does the work with `A`.
            fn visit<A: $service>(self, about: &'static About) -> Self::Output;

            /// Does the work with the row called `name`.
            ///
            /// # Errors
            /// [`UnknownAllocator`] if this build has no row of that name, or if the row does not
            /// have this service.
            fn with(self, name: &str) -> Result<Self::Output, UnknownAllocator> {
                let about = find(name, Some($value))?;
                $( $(#[$present])? {
                    $( if name == $name { return Ok(self.visit::<$served>(about)); } )?
                } )+
                unreachable!("a row with the service has a type with it")
            }
        }
    };
}

/// Makes, from one line for each allocator: the entry in [`known`]; its part of each visitor; and,
/// in builds whose `cfg` excludes the allocator, the entry in `LEFT_OUT`. The type after the name
/// has the entry's text. The types after it serve tasks, objects of one size, boxes, objects of any
/// size that belong to no task, requests, and a whole program, or are a placement.
macro_rules! registry {
    ($(
        $(#[cfg($($present:tt)+)])?
        row $name:expr => $listed:ty $(, tasks $tasks:ty)? $(, fixed_size $fixed_size:ty)?
            $(, boxes $boxes:ty)? $(, any_size $any_size:ty)? $(, requests $requests:ty)?
            $(, global $global:ty)? $(, collections $collections:ty)?
            $(, scopes $scopes:ty)? $(, placement $placement:ty)?;
    )+) => {
        static KNOWN: &[About] = &[
            $( $(#[cfg($($present)+)])? About {
                services: &[
                    $( served!($tasks => Service::Tasks), )?
                    $( served!($fixed_size => Service::FixedSize), )?
                    $( served!($boxes => Service::Boxes), )?
                    $( served!($any_size => Service::AnySize), )?
                    $( served!($requests => Service::Requests), )?
                    $( served!($global => Service::Global), )?
                    $( served!($collections => Service::Collections), )?
                    $( served!($scopes => Service::Scopes), )?
                    $( served!($placement => Service::Placement), )?
                ],
                ..<$listed as Listed>::ABOUT
            }, )+
        ];

        /// The names of the allocators that this build lacks.
        static LEFT_OUT: &[&str] = &[
            $( $( #[cfg(not($($present)+))] $name, )? )+
        ];

        // Checks that table and allocator agree on the name.
        $( $(#[cfg($($present)+)])? const _: () =
            assert!(same($name, <$listed as Listed>::ABOUT.name)); )+

        visitor! {
            /// Work with an allocator that serves tasks.
            TaskVisitor of Allocator, Service::Tasks;
            $( $(#[cfg($($present)+)])? row $name => $($tasks)?; )+
        }
        visitor! {
            /// Work with an allocator that serves objects of one size.
            FixedSizeVisitor of FixedSize, Service::FixedSize;
            $( $(#[cfg($($present)+)])? row $name => $($fixed_size)?; )+
        }
        visitor! {
            /// Work with an allocator that has boxes.
            BoxesVisitor of Boxes, Service::Boxes;
            $( $(#[cfg($($present)+)])? row $name => $($boxes)?; )+
        }
        visitor! {
            /// Work with an allocator that serves requests.
            RequestsVisitor of Requests, Service::Requests;
            $( $(#[cfg($($present)+)])? row $name => $($requests)?; )+
        }
        visitor! {
            /// Work with an allocator that serves objects of any size.
            AnySizeVisitor of AnySize, Service::AnySize;
            $( $(#[cfg($($present)+)])? row $name => $($any_size)?; )+
        }
        visitor! {
            /// Work with an allocator that serves this program. The caller must have made it the
            /// global allocator of this program, with [`global_calls`].
            GlobalVisitor of Global, Service::Global;
            $( $(#[cfg($($present)+)])? row $name => $($global)?; )+
        }
        visitor! {
            /// Work with an allocator that has collections of its own.
            CollectionsVisitor of Collections, Service::Collections;
            $( $(#[cfg($($present)+)])? row $name => $($collections)?; )+
        }
        visitor! {
            /// Work with an allocator that has scopes.
            ScopesVisitor of Scopes, Service::Scopes;
            $( $(#[cfg($($present)+)])? row $name => $($scopes)?; )+
        }
        visitor! {
            /// Work with a placement.
            PlacementVisitor of Placement, Service::Placement;
            $( $(#[cfg($($present)+)])? row $name => $($placement)?; )+
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

/// The service that a type has.
macro_rules! served {
    ($type:ty => $service:expr) => {
        $service
    };
}

fn serves(about: &About, service: Option<Service>) -> bool {
    service.is_none_or(|service| about.serves(service))
}

fn find(name: &str, service: Option<Service>) -> Result<&'static About, UnknownAllocator> {
    KNOWN
        .iter()
        .find(|about| about.name == name && serves(about, service))
        .ok_or_else(|| UnknownAllocator { name: name.to_owned(), service })
}

registry! {
    row malloc::libc::NAME => Libc, tasks Libc, fixed_size HeapObjects<malloc::libc::LibcCalls>,
        boxes HeapBoxes<malloc::libc::LibcCalls>, any_size Libc, requests Libc,
        global HeapAsGlobal<malloc::libc::LibcCalls>, collections Libc;
    #[cfg(feature = "all-peers")]
    row "jemalloc" => Jemalloc, tasks Jemalloc,
        fixed_size HeapObjects<malloc::jemalloc::JemallocCalls>,
        boxes HeapBoxes<malloc::jemalloc::JemallocCalls>, any_size Jemalloc, requests Jemalloc,
        global HeapAsGlobal<malloc::jemalloc::JemallocCalls>, collections Jemalloc;
    #[cfg(feature = "fast-peers")]
    row "mimalloc" => Mimalloc, tasks Mimalloc,
        fixed_size HeapObjects<malloc::mimalloc::MimallocCalls>,
        boxes HeapBoxes<malloc::mimalloc::MimallocCalls>, any_size Mimalloc, requests Mimalloc,
        global HeapAsGlobal<malloc::mimalloc::MimallocCalls>, collections Mimalloc;
    #[cfg(feature = "fast-peers")]
    row "snmalloc" => Snmalloc, tasks Snmalloc,
        fixed_size HeapObjects<malloc::snmalloc::SnmallocCalls>,
        boxes HeapBoxes<malloc::snmalloc::SnmallocCalls>, any_size Snmalloc, requests Snmalloc,
        global HeapAsGlobal<malloc::snmalloc::SnmallocCalls>, collections Snmalloc;
    #[cfg(all(feature = "all-peers", target_env = "gnu"))]
    row "tcmalloc" => Tcmalloc, tasks Tcmalloc,
        fixed_size HeapObjects<malloc::tcmalloc::TcmallocCalls>,
        boxes HeapBoxes<malloc::tcmalloc::TcmallocCalls>, any_size Tcmalloc, requests Tcmalloc,
        global HeapAsGlobal<malloc::tcmalloc::TcmallocCalls>, collections Tcmalloc;
    #[cfg(feature = "fast-peers")]
    row "rpmalloc" => Rpmalloc, tasks Rpmalloc,
        fixed_size HeapObjects<malloc::rpmalloc::RpmallocCalls>,
        boxes HeapBoxes<malloc::rpmalloc::RpmallocCalls>, any_size Rpmalloc, requests Rpmalloc,
        global HeapAsGlobal<malloc::rpmalloc::RpmallocCalls>, collections Rpmalloc;
    row "allotment-arena" => ArenaPerTask<AllotmentArena<DefaultOptions>>, tasks ArenaPerTask<AllotmentArena<DefaultOptions>>,
        collections ArenaPerTask<AllotmentArena<DefaultOptions>>, scopes ArenaPerThread<AllotmentArena<DefaultOptions>>;
    row "allotment-arena-reset" => ArenaPerThread<AllotmentArena<DefaultOptions>>, tasks ArenaPerThread<AllotmentArena<DefaultOptions>>,
        collections ArenaPerThread<AllotmentArena<DefaultOptions>>;
    row "allotment-arena-raw" => ArenaPerTask<AllotmentArena<DefaultOptions, true>>, tasks ArenaPerTask<AllotmentArena<DefaultOptions, true>>;
    row "allotment-reap" => ArenaPerTask<Reap>, tasks ArenaPerTask<Reap>;
    row "allotment-pool" => OwnPool, tasks OwnPool, boxes PoolBoxes, any_size OwnPool,
        requests OwnPool, global OwnPool;
    row "allotment-pool-request" => PoolPerRequest<false>, requests PoolPerRequest<false>;
    row "allotment-pool-limited" => PoolPerRequest<true>, requests PoolPerRequest<true>;
    row "mmap-per-query" => ArenaPerTask<AllotmentArena<PerQuery>>, tasks ArenaPerTask<AllotmentArena<PerQuery>>;
    row "mmap-huge" => ArenaPerTask<AllotmentArena<OnPages<true>>>, tasks ArenaPerTask<AllotmentArena<OnPages<true>>>,
        fixed_size AllotmentSlab<OnPages<true>>;
    row "mmap-small" => ArenaPerTask<AllotmentArena<OnPages<false>>>, tasks ArenaPerTask<AllotmentArena<OnPages<false>>>,
        fixed_size AllotmentSlab<OnPages<false>>;
    row "bumpalo" => ArenaPerTask<bumpalo::Bump>, tasks ArenaPerTask<bumpalo::Bump>, collections ArenaPerTask<bumpalo::Bump>;
    row "bumpalo-reset" => ArenaPerThread<bumpalo::Bump>, tasks ArenaPerThread<bumpalo::Bump>,
        collections ArenaPerThread<bumpalo::Bump>;
    row "bump-scope" => ArenaPerThread<bump_scope::Bump>, tasks ArenaPerThread<bump_scope::Bump>,
        collections ArenaPerThread<bump_scope::Bump>, scopes ArenaPerThread<bump_scope::Bump>;
    #[cfg(feature = "catalogue")]
    row "multitude" => ArenaPerTask<multitude::Arena>, tasks ArenaPerTask<multitude::Arena>,
        collections ArenaPerTask<multitude::Arena>;
    #[cfg(feature = "catalogue")]
    row "multitude-reset" => ArenaPerThread<multitude::Arena>, tasks ArenaPerThread<multitude::Arena>,
        collections ArenaPerThread<multitude::Arena>;
    #[cfg(feature = "fast-peers")]
    row "mimalloc-heap" => ArenaPerTask<MimallocHeap>, tasks ArenaPerTask<MimallocHeap>;
    #[cfg(feature = "fast-peers")]
    row "pmr-monotonic" => pmr::MonotonicPerTask, tasks pmr::MonotonicPerTask;
    #[cfg(feature = "fast-peers")]
    row "pmr-pool" => pmr::PoolPerTask, tasks pmr::PoolPerTask, any_size pmr::ThreadPool;
    row "typed-arena" => ArenaPerTask<TypedArenas>, tasks ArenaPerTask<TypedArenas>;
    row "allotment-slab" => AllotmentSlab<DefaultOptions>,
        fixed_size AllotmentSlab<DefaultOptions>, boxes SlabBoxes;
    row "allotment-slab-handle" => AllotmentSlabHandle, fixed_size AllotmentSlabHandle,
        boxes BlockBoxes<AllotmentSlabHandle>;
    row "allotment-slab-at-once" => AllotmentSlab<AtOnce>, fixed_size AllotmentSlab<AtOnce>;
    row "allotment-free-list" => allotment_free_list::List, fixed_size allotment_free_list::List;
    row "allotment-free-list-a-tree" => allotment_free_list::ListEach,
        fixed_size allotment_free_list::ListEach;
    row "slab" => slab::ValueSlab, fixed_size slab::ValueSlab;
    row "sharded-slab" => sharded_slab::ShardedSlab, fixed_size sharded_slab::ShardedSlab;
    #[cfg(feature = "catalogue")]
    row "plurality" => PluralityPools, boxes PluralityPools;
    #[cfg(boost_pool)]
    row "boost-pool" => boost_pool::BoostPool, fixed_size boost_pool::BoostPool;
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
