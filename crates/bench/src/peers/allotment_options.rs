//! The options of the rows of Allotment's own arenas and slabs.

use std::alloc::Layout;
use std::sync::Arc;

use allotment::{Arena, Mmap, RawSlab, Release};

/// The origin of the rows with the library's defaults.
pub(crate) const ORIGIN: &str = "allotment, this workspace's library";

/// The options of a row.
pub(crate) trait RowOptions: Send + Sync + 'static {
    /// Whether all options are the library's defaults.
    const DEFAULT: bool = false;

    /// When empty memory goes back to the system, unless the library's default holds.
    const RELEASE: Option<Release> = None;

    /// The source of the memory, unless the library's default holds.
    #[inline]
    fn source() -> Option<Mmap> {
        None
    }

    /// An arena with these options.
    #[inline]
    fn arena() -> Arena {
        if Self::DEFAULT {
            return Arena::new();
        }
        let mut builder = Arena::builder();
        if let Some(source) = Self::source() {
            builder = builder.source(source);
        }
        if let Some(release) = Self::RELEASE {
            builder = builder.release(release);
        }
        builder.build()
    }

    /// A slab with these options.
    fn slab(layout: Layout) -> RawSlab {
        let mut builder = RawSlab::builder(layout);
        if let Some(source) = Self::source() {
            builder = builder.source(source);
        }
        if let Some(release) = Self::RELEASE {
            builder = builder.release(release);
        }
        builder.build()
    }

    /// The slab for objects of this layout. The slabs that the process shares have the default
    /// options.
    fn slab_by_size(layout: Layout) -> Arc<RawSlab> {
        if Self::DEFAULT { RawSlab::by_size(layout) } else { Arc::new(Self::slab(layout)) }
    }
}

/// `allotment-arena` and `allotment-slab`.
pub(crate) enum DefaultOptions {}

/// `allotment-slab-at-once`.
pub(crate) enum AtOnce {}

/// `mmap-per-query`: nothing is kept between tasks.
pub(crate) enum PerQuery {}

/// `mmap-huge` and `mmap-small`.
pub(crate) enum OnPages<const HUGE: bool> {}

impl RowOptions for DefaultOptions {
    const DEFAULT: bool = true;
}

impl RowOptions for AtOnce {
    const RELEASE: Option<Release> = Some(Release::AtOnce);
}

impl RowOptions for PerQuery {
    const RELEASE: Option<Release> = Some(Release::AtOnce);

    #[inline]
    fn source() -> Option<Mmap> {
        Some(Mmap::small_pages())
    }
}

impl<const HUGE: bool> RowOptions for OnPages<HUGE> {
    #[inline]
    fn source() -> Option<Mmap> {
        Some(if HUGE { Mmap::huge_pages() } else { Mmap::small_pages() })
    }
}
