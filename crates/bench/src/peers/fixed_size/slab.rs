//! `slab`: tokio's store of values behind keys, for one thread.
//!
//! The values are in one `Vec`. A value is identified by its key, and moves when the vector grows.
//! Objects of 64 bytes are stored as values, and an insertion writes the whole value.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::ptr::NonNull;

use ::slab::Slab;

use super::{FixedSize, FixedSizeLocal, OneThread, StoreGuard, check_object};
use crate::peers::about::Listed;
use crate::peers::assume_read::assume_read;
use crate::peers::{About, PeerKind};

type Value = [u64; 8];

/// `slab`.
pub(crate) struct ValueSlab(OneThread<Slab<Value>>);

impl Listed for ValueSlab {
    const ABOUT: About = About {
        several_threads: false,
        every_layout: false,
        ..About::peer(
            PeerKind::FixedSize,
            "slab",
            "slab 0.4.12",
            "one vector that doubles; it shrinks only when it is trimmed, down to its last value",
        )
    };
}

impl FixedSize for ValueSlab {
    type Object = usize;
    type Local<'s> = StoreGuard<'s, Slab<Value>>;

    fn new(layout: Layout) -> Self {
        check_object("slab", layout);
        Self(OneThread::new(Slab::new()))
    }

    fn local(&self) -> Self::Local<'_> {
        self.0.lend()
    }
}

impl FixedSizeLocal for StoreGuard<'_, Slab<Value>> {
    type Object = usize;

    #[inline(always)]
    fn alloc(&self, word: u64) -> usize {
        self.with(|slab| {
            let key = slab.insert([word, 0, 0, 0, 0, 0, 0, 0]);
            assume_read(slab);
            key
        })
    }

    #[inline(always)]
    unsafe fn free(&self, key: usize) {
        self.with(|slab| slab.remove(key));
    }

    #[inline(always)]
    unsafe fn bytes(&self, key: usize) -> NonNull<u8> {
        self.with(|slab| NonNull::from(&mut slab[key]).cast())
    }

    fn trim(&self) -> bool {
        self.with(Slab::shrink_to_fit);
        true
    }
}
