//! `plurality`: a `Pool` for each thread, with its defaults. It has boxes only, which any thread may
//! drop.

use ::plurality::{Box, Pool};

use crate::peers::about::Listed;
use crate::peers::assume_read::assume_read;
use crate::peers::{About, BoxedValue, Boxes, LocalBoxes, PeerKind};

pub(crate) struct PluralityPools;

impl Listed for PluralityPools {
    const ABOUT: About = About::peer(
        PeerKind::FixedSize,
        "plurality",
        "plurality 0.2.3",
        "a pool keeps its chunks until it and its last box were dropped",
    );
}

impl Boxes for PluralityPools {
    type Boxed = Box<BoxedValue>;
    type Local<'s> = Pool<BoxedValue>;

    fn new() -> Self {
        Self
    }

    fn local(&self) -> Pool<BoxedValue> {
        Pool::new()
    }
}

impl LocalBoxes for Pool<BoxedValue> {
    type Boxed = Box<BoxedValue>;

    #[inline(always)]
    fn boxed(&self, value: BoxedValue) -> Box<BoxedValue> {
        let boxed = self.alloc_box(value);
        assume_read(&raw const *boxed);
        boxed
    }

    unsafe fn value(&self, boxed: &Box<BoxedValue>) -> BoxedValue {
        **boxed
    }

    #[inline(always)]
    unsafe fn drop_box(&self, boxed: Box<BoxedValue>) {
        drop(boxed);
    }
}
