//! Allocators of boxes: values of one type, each with an owner that any thread may drop.
//!
//! Allotment's slab and pool have boxes of their own, [`SlabBox`] and [`PoolBox`]. A box of a
//! general-purpose malloc, and one of a slab's handle, is the address of an object: [`BlockBoxes`]
//! does what `Box::new` and the box's drop do.

use allotment::{LocalPool, PoolBox, Slab, SlabBox};

use crate::peers::assume_read::assume_read;
use crate::peers::fixed_size::heap::HeapObjects;
use crate::peers::fixed_size::{FixedSize, FixedSizeLocal, OBJECT};
use crate::peers::{BoxedValue, Boxes, LocalBoxes};

const _: () = assert!(
    OBJECT.size() == size_of::<BoxedValue>() && OBJECT.align() == align_of::<BoxedValue>(),
    "an object has the layout of a value"
);

/// Boxes in the objects of an allocator whose objects don't move.
pub(crate) struct BlockBoxes<A>(A);

/// The boxes of a general-purpose malloc.
pub(crate) type HeapBoxes<H> = BlockBoxes<HeapObjects<H>>;

/// One thread's part of [`BlockBoxes`].
pub(crate) struct BlockBoxesLocal<L>(L);

impl<A: FixedSize> Boxes for BlockBoxes<A> {
    type Boxed = A::Object;
    type Local<'s> = BlockBoxesLocal<A::Local<'s>>;

    fn new() -> Self {
        Self(A::new(OBJECT))
    }

    fn local(&self) -> Self::Local<'_> {
        BlockBoxesLocal(self.0.local())
    }
}

impl<L: FixedSizeLocal> LocalBoxes for BlockBoxesLocal<L> {
    type Boxed = L::Object;

    #[inline(always)]
    fn boxed(&self, value: BoxedValue) -> L::Object {
        let object = self.0.alloc(value[0]);
        // SAFETY: the object was just allocated, and it has the layout of a value.
        unsafe {
            let place = self.0.bytes(object).cast::<BoxedValue>();
            place.write(value);
            assume_read(place.as_ptr());
        }
        object
    }

    unsafe fn value(&self, boxed: &L::Object) -> BoxedValue {
        // SAFETY: the object is live: the caller's promise. `boxed` wrote its value.
        unsafe { self.0.bytes(*boxed).cast().read() }
    }

    #[inline(always)]
    unsafe fn drop_box(&self, boxed: L::Object) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(boxed) };
    }
}

/// `allotment-slab`: one slab for all threads, by its typed calls.
pub(crate) struct SlabBoxes(Slab<BoxedValue>);

impl Boxes for SlabBoxes {
    type Boxed = SlabBox<BoxedValue>;
    type Local<'s> = &'s Slab<BoxedValue>;

    fn new() -> Self {
        Self(Slab::new())
    }

    fn local(&self) -> &Slab<BoxedValue> {
        &self.0
    }
}

impl LocalBoxes for &Slab<BoxedValue> {
    type Boxed = SlabBox<BoxedValue>;

    #[inline(always)]
    fn boxed(&self, value: BoxedValue) -> SlabBox<BoxedValue> {
        let boxed = self.alloc(value);
        assume_read(&raw const *boxed);
        boxed
    }

    unsafe fn value(&self, boxed: &SlabBox<BoxedValue>) -> BoxedValue {
        **boxed
    }

    #[inline(always)]
    unsafe fn drop_box(&self, boxed: SlabBox<BoxedValue>) {
        drop(boxed);
    }
}

/// `allotment-pool`: a pool for each thread, which the thread enters for its work.
pub(crate) struct PoolBoxes;

impl Boxes for PoolBoxes {
    type Boxed = PoolBox<BoxedValue>;
    type Local<'s> = LocalPool;

    fn new() -> Self {
        Self
    }

    fn local(&self) -> LocalPool {
        LocalPool::new()
    }
}

impl LocalBoxes for LocalPool {
    type Boxed = PoolBox<BoxedValue>;

    fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        self.enter(work)
    }

    #[inline(always)]
    fn boxed(&self, value: BoxedValue) -> PoolBox<BoxedValue> {
        let boxed = PoolBox::new(value);
        assume_read(&raw const *boxed);
        boxed
    }

    unsafe fn value(&self, boxed: &PoolBox<BoxedValue>) -> BoxedValue {
        **boxed
    }

    #[inline(always)]
    unsafe fn drop_box(&self, boxed: PoolBox<BoxedValue>) {
        drop(boxed);
    }
}
