//! The objects that a configuration describes, found by kind and name.
//!
//! # Invariant
//!
//! The field `object` of a [`ReadOnlyObject<'s>`] points to a `T::In<'s>` in sealed memory that
//! stays valid for `'s`, and `type_id` is that of `T`. The function that made the object is generic
//! over the lifetime, and nothing writes to the object. So the object is a `T::In` of every
//! lifetime for which the memory stays valid.

use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::any::Any;
use std::collections::HashMap;

use allotment::sealed::Sealable;
use allotment::{AllocError, ReadOnly, Sealer};

use crate::shared::Shared;

/// The read-only objects of a configuration, all sealed together.
/// [`ObjectFactories`](crate::ObjectFactories) makes them.
#[derive(Clone, Copy)]
pub struct ReadOnlyObjects<'s> {
    /// Sorted by kind; those of one kind are in the order of the configuration.
    objects: &'s [ReadOnlyObject<'s>],
    /// Positions in `objects`, sorted by kind and name.
    by_name: &'s [usize],
}

/// One read-only object of any type, with its kind and name.
#[derive(Clone, Copy)]
pub(crate) struct ReadOnlyObject<'s> {
    kind: &'s str,
    name: &'s str,
    type_id: TypeId,
    type_name: &'static str,
    object: NonNull<()>,
    sealed: PhantomData<&'s ()>,
}

// SAFETY: the object is `ReadOnly`, and so `Sync`; the pointer is used only as a shared reference.
unsafe impl Send for ReadOnlyObject<'_> {}
// SAFETY: as above.
unsafe impl Sync for ReadOnlyObject<'_> {}
// SAFETY: by the module's invariant it reaches only sealed memory, as a shared reference would.
unsafe impl ReadOnly for ReadOnlyObject<'_> {}
// SAFETY: it holds only shared references to `ReadOnly` values.
unsafe impl ReadOnly for ReadOnlyObjects<'_> {}

impl Sealable for ReadOnlyObjects<'static> {
    type In<'s> = ReadOnlyObjects<'s>;
}

impl<'s> ReadOnlyObject<'s> {
    /// Puts an object into the sealed memory.
    pub(crate) fn new<T: Sealable>(
        sealer: Sealer<'s>,
        (kind, name): (&str, &str),
        object: T::In<'s>,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            kind: sealer.try_alloc_str(kind)?,
            name: sealer.try_alloc_str(name)?,
            type_id: TypeId::of::<T>(),
            type_name: core::any::type_name::<T>(),
            object: NonNull::from(sealer.try_alloc(object)?).cast(),
            sealed: PhantomData,
        })
    }

    fn get<T: Sealable>(&self) -> Option<&'s T::In<'s>> {
        // SAFETY: by the module's invariant, for the same `T`.
        (self.type_id == TypeId::of::<T>()).then(|| unsafe { self.object.cast().as_ref() })
    }
}

impl<'s> ReadOnlyObjects<'s> {
    pub(crate) fn new(
        sealer: Sealer<'s>,
        mut objects: Vec<ReadOnlyObject<'s>>,
    ) -> Result<Self, AllocError> {
        objects.sort_by_key(|object| object.kind);
        let mut by_name: Vec<usize> = (0..objects.len()).collect();
        by_name.sort_by_key(|position| (objects[*position].kind, objects[*position].name));
        Ok(Self {
            objects: sealer.try_alloc_slice_copy(&objects)?,
            by_name: sealer.try_alloc_slice_copy(&by_name)?,
        })
    }

    /// Returns the object of this kind and name, if there is one and it is a `T`.
    #[must_use]
    pub fn get<T: Sealable>(&self, kind: &str, name: &str) -> Option<&'s T::In<'s>> {
        self.find::<T>(kind, name).ok()
    }

    /// Returns the object of this kind and name.
    ///
    /// # Errors
    /// When there is none, or it is not a `T`.
    pub fn find<T: Sealable>(&self, kind: &str, name: &str) -> Result<&'s T::In<'s>, NotFound> {
        let found = self.by_name.binary_search_by(|position| {
            let object = &self.objects[*position];
            (object.kind, object.name).cmp(&(kind, name))
        });
        let Ok(index) = found else { return Err(NotFound::new::<T>(kind, name, None)) };
        let object = &self.objects[self.by_name[index]];
        match object.get::<T>() {
            Some(value) => Ok(value),
            None => Err(NotFound::new::<T>(kind, name, Some(object.type_name))),
        }
    }

    /// Returns the objects of this kind that are `T`s, with their names, in the order of the
    /// configuration.
    pub fn of_kind<T: Sealable>(
        &self,
        kind: &str,
    ) -> impl Iterator<Item = (&'s str, &'s T::In<'s>)> + use<'s, T> {
        let first = self.objects.partition_point(|object| object.kind < kind);
        let end = self.objects.partition_point(|object| object.kind <= kind);
        let objects: &'s [ReadOnlyObject<'s>] = &self.objects[first..end];
        objects.iter().filter_map(|object| Some((object.name, object.get::<T>()?)))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl fmt::Debug for ReadOnlyObjects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            self.objects.iter().map(|object| ((object.kind, object.name), object.type_name));
        f.debug_map().entries(names).finish()
    }
}

/// The shared objects of a configuration, each under a lock of its own.
/// [`ObjectFactories`](crate::ObjectFactories) makes them.
#[derive(Default)]
pub struct SharedObjects {
    /// By kind, then by name.
    objects: HashMap<Box<str>, HashMap<Box<str>, SharedObject>>,
}

/// One shared object of any type.
pub(crate) struct SharedObject {
    /// A `Shared<T>`.
    object: Box<dyn Any + Send + Sync>,
    /// The name of `T`.
    type_name: &'static str,
}

impl SharedObject {
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let object = Box::new(Shared::new(value));
        Self { object, type_name: core::any::type_name::<T>() }
    }
}

impl SharedObjects {
    pub(crate) fn add(&mut self, kind: &str, name: &str, object: SharedObject) {
        self.objects.entry(kind.into()).or_default().insert(name.into(), object);
    }

    /// Returns the object of this kind and name, if there is one and it is a `T`.
    #[must_use]
    pub fn get<T: Send + 'static>(&self, kind: &str, name: &str) -> Option<&Shared<T>> {
        self.find(kind, name).ok()
    }

    /// Returns the object of this kind and name.
    ///
    /// # Errors
    /// When there is none, or it is not a `T`.
    pub fn find<T: Send + 'static>(&self, kind: &str, name: &str) -> Result<&Shared<T>, NotFound> {
        let Some(object) = self.objects.get(kind).and_then(|objects| objects.get(name)) else {
            return Err(NotFound::new::<T>(kind, name, None));
        };
        match object.object.downcast_ref() {
            Some(shared) => Ok(shared),
            None => Err(NotFound::new::<T>(kind, name, Some(object.type_name))),
        }
    }

    /// Returns the objects of this kind that are `T`s, with their names, in no particular order.
    pub fn of_kind<T: Send + 'static>(
        &self,
        kind: &str,
    ) -> impl Iterator<Item = (&str, &Shared<T>)> {
        let objects = self.objects.get(kind).into_iter().flatten();
        objects.filter_map(|(name, object)| Some((&**name, object.object.downcast_ref()?)))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.values().map(HashMap::len).sum()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl fmt::Debug for SharedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.objects.iter().flat_map(|(kind, objects)| {
            objects.iter().map(move |(name, object)| ((kind, name), object.type_name))
        });
        f.debug_map().entries(names).finish()
    }
}

/// The requested object does not exist, or is of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFound {
    /// The requested kind.
    pub kind: Box<str>,
    /// The requested name.
    pub name: Box<str>,
    /// The requested type.
    pub wanted: &'static str,
    /// The type of the object of this kind and name, if there is one.
    pub found: Option<&'static str>,
}

impl NotFound {
    fn new<T: ?Sized>(kind: &str, name: &str, found: Option<&'static str>) -> Self {
        let wanted = core::any::type_name::<T>();
        Self { kind: kind.into(), name: name.into(), wanted, found }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, wanted, found } = self;
        match found {
            None => write!(
                f,
                "there is no {kind} '{name}': the configuration needs a section [{kind}.{name}]"
            ),
            Some(found) => write!(f, "{kind} '{name}' is a {found}, not a {wanted}"),
        }
    }
}

impl std::error::Error for NotFound {}
