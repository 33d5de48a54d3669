//! Our own arena, with its everyday calls: `allotment-arena` with its defaults; `mmap-per-query`,
//! the same arena without recycling; `mmap-huge` and `mmap-small`, the same on pages of one size.
//! `allotment-arena-raw` has the defaults too, and allocates bytes instead of values.
//!
//! `mmap-per-query` works as the arena's ancestor did: each task maps its chunks, faults in every
//! page and unmaps all chunks. It is listed among the peers, to show the effect of the recycler.
//!
//! The invariant is that of [`arena`](crate::peers::arena).

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use allotment::{Arena, ArenaVec, Mmap, Release};

use super::{CollectionsArena, New, TaskArena, raw};
use crate::peers::about::Listed;
use crate::peers::keep::{keep, push_all};
use crate::peers::{About, AllocatorKind, Line, SCOPED, Scopes};

/// An arena with the options of a row, and what the row is.
pub(crate) trait Options: 'static {
    const ABOUT: About;

    fn arena() -> Arena;
}

/// `allotment-arena`.
pub(crate) enum Defaults {}

/// `mmap-per-query`: nothing is kept between tasks.
pub(crate) enum PerQuery {}

/// `mmap-huge` and `mmap-small`.
pub(crate) struct On<const HUGE: bool>;

const ORIGIN: &str = "allotment, this workspace's library";
const ADAPTIVE: &str = "adaptive: chunks stay warm for later tasks of any thread, with huge pages \
                        beyond 2 MiB where they are cheap; unused memory is released";

impl Options for Defaults {
    const ABOUT: About = About {
        ours: true,
        collections: true,
        scopes: true,
        ..About::peer(AllocatorKind::Arena, "allotment-arena", ORIGIN, ADAPTIVE)
    };

    #[inline]
    fn arena() -> Arena {
        Arena::new()
    }
}

impl Options for PerQuery {
    const ABOUT: About = About::peer(
        AllocatorKind::Arena,
        "mmap-per-query",
        "allotment's arena with recycling and huge pages off",
        "at once: every chunk is unmapped when its task ends",
    );

    #[inline]
    fn arena() -> Arena {
        Arena::builder().source(Mmap::small_pages()).release(Release::AtOnce).build()
    }
}

impl<const HUGE: bool> Options for On<HUGE> {
    const ABOUT: About = if HUGE {
        About::reference(
            "mmap-huge",
            "allotment's arena or slab on huge pages alone, if the kernel has any",
        )
    } else {
        About::reference("mmap-small", "allotment's arena or slab on ordinary pages alone")
    };

    #[inline]
    fn arena() -> Arena {
        Arena::builder().source(Self::source()).build()
    }
}

impl<const HUGE: bool> On<HUGE> {
    pub(crate) fn source() -> Mmap {
        if HUGE { Mmap::huge_pages() } else { Mmap::small_pages() }
    }
}

/// An arena, by its everyday calls; if `RAW`, by the calls for bytes.
pub(crate) struct OurArena<O, const RAW: bool = false>(Arena, PhantomData<O>);

impl<O: Options> Listed for New<OurArena<O>> {
    const ABOUT: About = O::ABOUT;
}

impl Listed for New<OurArena<Defaults, true>> {
    const ABOUT: About = About {
        name: "allotment-arena-raw",
        origin: "allotment's arena, by alloc_layout() instead of alloc(value)",
        collections: false,
        scopes: false,
        ..Defaults::ABOUT
    };
}

impl<O: Options, const RAW: bool> TaskArena for OurArena<O, RAW> {
    #[inline]
    fn create() -> Self {
        Self(O::arena(), PhantomData)
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(block, layout) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        unsafe { self.0.grow(block, old, new) }
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        if RAW { raw::put(self, value) } else { NonNull::from(self.0.alloc(value)) }
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        if RAW { raw::put_str(self, text) } else { NonNull::from(self.0.alloc_str(text)).cast() }
    }
}

impl<O: Options> CollectionsArena for OurArena<O> {
    fn push(&self, numbers: u64) {
        push_all!(ArenaVec::new_in(&self.0), numbers);
    }

    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>) {
        for Line { name, number, value } in lines {
            let text = allotment::format_in!(&self.0, "{name}.{number}={value}");
            keep(text.into_str().as_ptr());
        }
    }
}

/// One arena for each thread, in which scopes follow each other.
pub(crate) struct ArenaScopes(Arena);

impl Scopes for ArenaScopes {
    fn start() -> Self {
        Self(Arena::new())
    }

    fn scope(&mut self, places: &mut [NonNull<u8>]) -> Duration {
        self.0.scope(|scope| {
            for place in &mut *places {
                *place = scope.alloc_layout(SCOPED);
                // SAFETY: a fresh object, which has a word and is aligned to one.
                unsafe { place.cast::<u64>().write(1) };
            }
            let began = Instant::now();
            for place in places {
                // SAFETY: allocated in this scope with this layout, and not used after.
                unsafe { scope.free(*place, SCOPED) };
            }
            began.elapsed()
        })
    }
}
