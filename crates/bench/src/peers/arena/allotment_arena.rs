//! Our own arena, with its everyday calls: `allotment-arena` with its defaults; `mmap-per-query`,
//! the same arena without recycling; `mmap-huge` and `mmap-small`, the same on pages of one size.
//! `allotment-arena-reset` keeps one arena for each thread, and resets it after each task.
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

use allotment::{Arena, ArenaVec};

use super::{ArenaPerTask, ArenaPerThread, CollectionsArena, ResetArena, TaskArena, raw};
use crate::peers::about::Listed;
use crate::peers::allotment_options::{DefaultOptions, ORIGIN, OnPages, PerQuery, RowOptions};
use crate::peers::assume_read::{assume_read, push_all};
use crate::peers::{About, Line, PeerKind, SCOPED, Scopes};

const ADAPTIVE: &str = "adaptive: chunks stay warm for later tasks of any thread, with huge pages \
                        beyond 2 MiB where they are cheap; unused memory is released";

/// An arena, by its everyday calls; if `RAW`, by the calls for bytes.
pub(crate) struct AllotmentArena<O, const RAW: bool = false>(Arena, PhantomData<O>);

impl Listed for ArenaPerTask<AllotmentArena<DefaultOptions>> {
    const ABOUT: About =
        About { ours: true, ..About::peer(PeerKind::Arena, "allotment-arena", ORIGIN, ADAPTIVE) };
}

impl Listed for ArenaPerThread<AllotmentArena<DefaultOptions>> {
    const ABOUT: About = About {
        ours: true,
        ..About::peer(
            PeerKind::Arena,
            "allotment-arena-reset",
            ORIGIN,
            "adaptive, and each thread keeps its newest chunk of at most 1 MiB",
        )
    };
}

impl Listed for ArenaPerTask<AllotmentArena<PerQuery>> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "mmap-per-query",
        "allotment's arena with recycling and huge pages off",
        "at once: every chunk is unmapped when its task ends",
    );
}

impl<const HUGE: bool> Listed for ArenaPerTask<AllotmentArena<OnPages<HUGE>>> {
    const ABOUT: About = if HUGE {
        About::reference(
            "mmap-huge",
            "allotment's arena or slab on huge pages alone, if the kernel has any",
        )
    } else {
        About::reference("mmap-small", "allotment's arena or slab on ordinary pages alone")
    };
}

impl Listed for ArenaPerTask<AllotmentArena<DefaultOptions, true>> {
    const ABOUT: About = About {
        name: "allotment-arena-raw",
        origin: "allotment's arena, by alloc_layout() instead of alloc(value)",
        ..<ArenaPerTask<AllotmentArena<DefaultOptions>>>::ABOUT
    };
}

impl<O: RowOptions, const RAW: bool> TaskArena for AllotmentArena<O, RAW> {
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
        unsafe { self.0.free_layout(block, layout) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        unsafe { self.0.resize(block, old, new) }
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

impl<O: RowOptions> ResetArena for AllotmentArena<O> {
    #[inline]
    fn reset(&mut self) {
        self.0.reset();
    }
}

impl<O: RowOptions> CollectionsArena for AllotmentArena<O> {
    fn push(&self, numbers: u64) {
        push_all!(ArenaVec::new_in(&self.0), numbers);
    }

    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>) {
        for Line { name, number, value } in lines {
            let text = allotment::format_in!(&self.0, "{name}.{number}={value}");
            assume_read(text.into_str().as_ptr());
        }
    }
}

impl<O: RowOptions> Scopes for ArenaPerThread<AllotmentArena<O>> {
    fn start() -> Self {
        Self(TaskArena::create())
    }

    fn scope(&mut self, places: &mut [NonNull<u8>]) -> Duration {
        self.0.0.scope(|scope| {
            for place in &mut *places {
                *place = scope.alloc_layout(SCOPED);
                // SAFETY: a fresh object, which has a word and is aligned to one.
                unsafe { place.cast::<u64>().write(1) };
            }
            let began = Instant::now();
            for place in places {
                // SAFETY: allocated in this scope with this layout, and not used after.
                unsafe { scope.free_layout(*place, SCOPED) };
            }
            began.elapsed()
        })
    }
}
