//! `sharded-slab`: a lock-free store of values behind keys, sharded by thread.
//!
//! Objects of 64 bytes are stored as values, and an insertion writes the whole value. All calls
//! take only the key. If a thread removes a value that another thread inserted, the value goes to a
//! separate list of its shard.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use ::sharded_slab::Slab;

use super::{FixedSize, FixedSizeLocal, check_object};
use crate::peers::about::Listed;
use crate::peers::{About, PeerKind};

/// A value that may be written while it is shared.
pub(crate) struct Value([AtomicU64; 8]);

/// `sharded-slab`.
pub(crate) struct ShardedSlab(Slab<Value>);

impl Listed for ShardedSlab {
    const ABOUT: About = About {
        every_layout: false,
        ..About::peer(
            PeerKind::FixedSize,
            "sharded-slab",
            "sharded-slab 0.1.7",
            "pages that double from 32 values on, kept until the slab is dropped",
        )
    };
}

impl FixedSize for ShardedSlab {
    type Object = usize;
    type Local<'s> = &'s Self;

    fn new(layout: Layout) -> Self {
        check_object("sharded-slab", layout);
        Self(Slab::new())
    }

    fn local(&self) -> &Self {
        self
    }
}

impl FixedSizeLocal for &ShardedSlab {
    type Object = usize;

    #[inline(always)]
    fn alloc(&self, word: u64) -> usize {
        let value = Value([word, 0, 0, 0, 0, 0, 0, 0].map(AtomicU64::new));
        self.0.insert(value).expect("a shard of 32 doubling pages has room")
    }

    #[inline(always)]
    unsafe fn free(&self, key: usize) {
        self.0.remove(key);
    }

    #[inline(always)]
    unsafe fn bytes(&self, key: usize) -> NonNull<u8> {
        let value = self.0.get(key).expect("the caller promises that the key is live");
        NonNull::from(&value.0).cast()
    }
}
