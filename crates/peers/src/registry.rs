//! The table of allocators: names, what they are, and static dispatch to them.

use std::fmt;

use crate::arena::{bump_scope, bumpalo, own, typed_arena};
use crate::{Allocator, malloc};

#[cfg(feature = "c-peers")]
use crate::arena::{mimalloc_heap, pmr};

/// What one row of the tables is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The row's name, as given to `--allocators` and printed in every table.
    pub name: &'static str,
    /// How its objects are freed.
    pub kind: Kind,
    /// When it gives memory back, as configured here, in words.
    pub policy: &'static str,
    /// What it is and where it comes from, with the version where there is one.
    pub origin: &'static str,
    /// Whether it is one of Allotment's own, as it ships.
    pub ours: bool,
    /// Whether it serves every layout and grows objects. If not, it serves
    /// [`TYPED_ARENA_SIZES`](crate::TYPED_ARENA_SIZES) alone and grows nothing: it panics on the rest.
    pub any_size: bool,
    /// Variables, with their values, that the measuring process must have been *started* with for the
    /// allocator to be at its best. They do no harm to the other rows.
    pub environment: &'static [(&'static str, &'static str)],
    /// What keeps the allocator from its best in this very process, and the remedy; `None` if nothing
    /// does. To be asked in the process that measures.
    pub handicap: fn() -> Option<&'static str>,
}

impl About {
    /// A peer of which nothing special is to be said; the constructors' common part.
    pub(crate) const fn peer(
        kind: Kind,
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
            any_size: true,
            environment: &[],
            handicap: || None,
        }
    }
}

/// How an allocator's objects are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One by one.
    Malloc,
    /// Together, when their task ends.
    Arena,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malloc => "malloc",
            Self::Arena => "arena",
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

/// There is no allocator of that name in this build. Its text lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAllocator {
    name: String,
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
        if !self.left_out() {
            write!(f, "unknown allocator '{name}'")?;
        } else if cfg!(feature = "c-peers") {
            write!(f, "the allocator '{name}' is not to be had on this platform")?;
        } else {
            write!(
                f,
                "the allocator '{name}' is not in this build: the feature c-peers (on by default) brings it"
            )?;
        }
        f.write_str("; known are ")?;
        for (i, about) in known().iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", about.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownAllocator {}

/// An allocator with an entry in the table.
pub(crate) trait Listed: Allocator {
    const ABOUT: About;
}

/// From one line an allocator: the entry in [`known`], the arm of [`with`], and, for builds whose
/// `cfg` leaves it out, the entry in `LEFT_OUT`.
macro_rules! registry {
    ($( $(#[cfg($($present:tt)+)])? row $name:expr => $allocator:ty; )+) => {
        static KNOWN: &[About] = &[
            $( $(#[cfg($($present)+)])? <$allocator as Listed>::ABOUT, )+
        ];

        /// Names that other builds know.
        static LEFT_OUT: &[&str] = &[
            $( $( #[cfg(not($($present)+))] $name, )? )+
        ];

        // The table and the allocator agree on the name.
        $( $(#[cfg($($present)+)])? const _: () = assert!(same($name, <$allocator as Listed>::ABOUT.name)); )+

        /// Runs `visitor` with the allocator called `name`.
        ///
        /// # Errors
        /// [`UnknownAllocator`] if this build has none of that name.
        pub fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownAllocator> {
            let Some(about) = KNOWN.iter().find(|about| about.name == name) else {
                return Err(UnknownAllocator { name: name.to_owned() });
            };
            $( $(#[cfg($($present)+)])? if name == $name { return Ok(visitor.visit::<$allocator>(about)); } )+
            unreachable!("every entry of the table has its arm")
        }
    };
}

registry! {
    row malloc::libc::NAME => malloc::libc::Libc;
    #[cfg(feature = "c-peers")]
    row "jemalloc" => malloc::jemalloc::Jemalloc;
    #[cfg(feature = "c-peers")]
    row "mimalloc" => malloc::mimalloc::Mimalloc;
    #[cfg(feature = "c-peers")]
    row "snmalloc" => malloc::snmalloc::Snmalloc;
    #[cfg(all(feature = "c-peers", target_env = "gnu"))]
    row "tcmalloc" => malloc::tcmalloc::Tcmalloc;
    #[cfg(feature = "c-peers")]
    row "rpmalloc" => malloc::rpmalloc::Rpmalloc;
    row "allotment-arena" => own::New;
    row "mmap-per-query" => own::MmapPerQuery;
    row "bumpalo" => bumpalo::New;
    row "bumpalo-reset" => bumpalo::Reset;
    row "bump-scope" => bump_scope::Reset;
    #[cfg(feature = "c-peers")]
    row "mimalloc-heap" => mimalloc_heap::MimallocHeap;
    #[cfg(feature = "c-peers")]
    row "pmr-monotonic" => pmr::Monotonic;
    #[cfg(feature = "c-peers")]
    row "pmr-pool" => pmr::Pool;
    row "typed-arena" => typed_arena::TypedArena;
}

/// Every allocator of this build, in the order of the tables: mallocs, then arenas.
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
