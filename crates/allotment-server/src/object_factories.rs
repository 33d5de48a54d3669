//! The registry of factories: functions that make the objects that a configuration describes.

use std::collections::HashMap;
use std::error::Error;

use crate::configuration::{Configuration, ConfigurationError, ConfigurationProblem, Section};
use crate::initialised::Initialised;
use crate::initialiser::Initialiser;
use crate::objects::{ReadOnlyObject, ReadOnlyObjects, SharedObject, SharedObjects};
use allotment::sealed::Sealable;
use allotment::{AllocError, Sealed, Sealer};

/// The error of a factory: any error type. A [`ConfigurationError`] is passed on unchanged.
pub type FactoryError = Box<dyn Error + Send + Sync>;

type ReadOnlyFactory = Box<
    dyn for<'s> Fn(Sealer<'s>, &Section) -> Result<ReadOnlyObject<'s>, FactoryError> + Send + Sync,
>;
type SharedFactory = Box<dyn Fn(&Section) -> Result<SharedObject, FactoryError> + Send + Sync>;

/// A registry of factories: for each kind of section, a function that makes its objects. The
/// sections of the configuration say which objects are made.
///
/// ```
/// use allotment::sealed::Sealable;
/// use allotment::ReadOnly;
/// use allotment_server::{Configuration, Initialiser, ObjectFactories, Section};
///
/// struct Route<'s> { path: &'s str, ttl: u32 }
/// // SAFETY: a shared reference to text, and a number. With `allotment`'s feature `derive`,
/// // `#[derive(ReadOnly)]` generates this implementation and the next one.
/// unsafe impl ReadOnly for Route<'_> {}
/// impl Sealable for Route<'static> { type In<'s> = Route<'s>; }
///
/// let factories = ObjectFactories::new()
///     .read_only::<Route<'static>>("route", |sealer, section| {
///         Ok(Route { path: sealer.try_alloc_str(section.get("path")?)?, ttl: section.get_or("ttl", 60)? })
///     })
///     .shared("counter", |section| Ok(section.get_or("start", 0_u64)?));
/// let configuration = Configuration::new("in code")
///     .with(Section::new("route", "home").with("path", "/"))
///     .with(Section::new("counter", "visits"));
///
/// let initialised = Initialiser::new("server").from_configuration(&factories, &configuration)?;
/// let objects = initialised.read_only();
/// let route = objects.get().find::<Route<'static>>("route", "home")?;
/// assert_eq!((route.path, route.ttl), ("/", 60));
/// initialised.shared().find::<u64>("counter", "visits")?.with(|visits| *visits += 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct ObjectFactories {
    factories: HashMap<Box<str>, ObjectFactory>,
}

enum ObjectFactory {
    ReadOnly(ReadOnlyFactory),
    Shared(SharedFactory),
}

/// What may fail while the read-only objects are built.
enum BuildFailure {
    Configuration(ConfigurationError),
    Memory(AllocError),
}

impl From<AllocError> for BuildFailure {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

impl ObjectFactories {
    /// Creates a registry without factories.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the factory of the read-only shared objects of this kind, and replaces an earlier
    /// factory of that kind. All read-only objects are sealed together.
    #[must_use]
    pub fn read_only<T: Sealable>(
        mut self,
        kind: &str,
        make: impl for<'s> Fn(Sealer<'s>, &Section) -> Result<T::In<'s>, FactoryError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let make: ReadOnlyFactory = Box::new(move |sealer, section| {
            let object = make(sealer, section)?;
            Ok(ReadOnlyObject::new::<T>(sealer, (section.kind(), section.name()), object)?)
        });
        self.factories.insert(kind.into(), ObjectFactory::ReadOnly(make));
        self
    }

    /// Registers the factory of the shared objects of this kind, and replaces an earlier factory of
    /// that kind. Each object is under a lock of its own, [`Shared`](crate::Shared). The order of
    /// the locks is the order of the sections in the configuration.
    #[must_use]
    pub fn shared<T: Send + 'static>(
        mut self,
        kind: &str,
        make: impl Fn(&Section) -> Result<T, FactoryError> + Send + Sync + 'static,
    ) -> Self {
        let make = move |section: &Section| make(section).map(SharedObject::new);
        self.factories.insert(kind.into(), ObjectFactory::Shared(Box::new(make)));
        self
    }

    /// Makes all read-only objects and ignores the sections of shared objects. So the objects of a
    /// configuration that was read again can be [published](crate::ServerHandle::publish) while the
    /// server runs.
    ///
    /// # Errors
    /// When a kind has no factory, two sections have the same kind and name, a factory fails, a
    /// section has keys that its factory did not request, or memory is not available. The objects
    /// made before the error are dropped.
    pub fn make_read_only(
        &self,
        configuration: &Configuration,
    ) -> Result<Sealed<ReadOnlyObjects<'static>>, ConfigurationError> {
        self.check(configuration)?;
        let builder = Sealed::<ReadOnlyObjects<'static>>::builder().name("read-only objects");
        let sealed = builder.try_build(|sealer| {
            let mut objects = Vec::new();
            for section in configuration.sections() {
                if let Some(ObjectFactory::ReadOnly(make)) = self.factories.get(section.kind()) {
                    let object = finish(section, make(sealer, section));
                    objects.push(object.map_err(BuildFailure::Configuration)?);
                }
            }
            Ok(ReadOnlyObjects::new(sealer, objects)?)
        });
        sealed.map_err(|failure| match failure {
            BuildFailure::Configuration(error) => error,
            BuildFailure::Memory(error) => configuration.error(ConfigurationProblem::Memory(error)),
        })
    }

    /// Makes all shared objects and ignores the sections of read-only objects.
    ///
    /// # Errors
    /// As for [`make_read_only`](Self::make_read_only).
    pub fn make_shared(
        &self,
        configuration: &Configuration,
    ) -> Result<SharedObjects, ConfigurationError> {
        self.check(configuration)?;
        let mut objects = SharedObjects::default();
        for section in configuration.sections() {
            if let Some(ObjectFactory::Shared(make)) = self.factories.get(section.kind()) {
                let object = finish(section, make(section))?;
                objects.add(section.kind(), section.name(), object);
            }
        }
        Ok(objects)
    }

    /// Checks that each section has a factory, and that no two sections have the same kind and
    /// name.
    fn check(&self, configuration: &Configuration) -> Result<(), ConfigurationError> {
        let has_no_factory = |section: &&Section| !self.factories.contains_key(section.kind());
        if let Some(section) = configuration.sections().iter().find(has_no_factory) {
            let mut known: Vec<_> = self.factories.keys().map(|kind| kind.to_string()).collect();
            known.sort_unstable();
            return Err(section.error(ConfigurationProblem::UnknownKind { known }));
        }
        configuration.check_names()
    }
}

/// Returns the factory's object, or an error if the factory failed or did not request all keys of
/// the section.
fn finish<T>(section: &Section, result: Result<T, FactoryError>) -> Result<T, ConfigurationError> {
    let object = result.map_err(|error| match error.downcast::<ConfigurationError>() {
        Ok(error) => *error,
        Err(error) => section.error(ConfigurationProblem::Factory(error)),
    })?;
    section.check_keys()?;
    Ok(object)
}

impl Initialiser {
    /// Leads to the next phase, with the objects that the configuration describes. The read-only
    /// objects are made first.
    ///
    /// # Errors
    /// As for [`ObjectFactories::make_read_only`]. All objects made before the error are dropped. A
    /// panic of a factory does the same and passes on to the caller.
    pub fn from_configuration(
        self,
        factories: &ObjectFactories,
        configuration: &Configuration,
    ) -> Result<Initialised<Sealed<ReadOnlyObjects<'static>>, SharedObjects>, ConfigurationError>
    {
        let read_only = factories.make_read_only(configuration)?;
        let shared = factories.make_shared(configuration)?;
        Ok(self.objects(read_only, shared))
    }
}

impl std::fmt::Debug for ObjectFactories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.factories.iter().map(|(kind, factory)| match factory {
            ObjectFactory::ReadOnly(_) => (kind, "read-only"),
            ObjectFactory::Shared(_) => (kind, "shared"),
        });
        f.debug_map().entries(kinds).finish()
    }
}
