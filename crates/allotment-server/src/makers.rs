//! The registry of makers: functions that make the objects that a configuration describes.

use std::collections::HashMap;
use std::error::Error;

use crate::configuration::{Configuration, ConfigurationError, ConfigurationProblem, Section};
use crate::initialised::Initialised;
use crate::initialiser::Initialiser;
use crate::objects::{ReadOnlyObject, ReadOnlyObjects, SharedObject, SharedObjects};
use allotment::{AllocError, Sealable, Sealed, Sealer};

/// The error of a maker: any error type. A [`ConfigurationError`] is passed on unchanged.
pub type MakeError = Box<dyn Error + Send + Sync>;

type ReadOnlyMaker = Box<
    dyn for<'s> Fn(Sealer<'s>, &Section) -> Result<ReadOnlyObject<'s>, MakeError> + Send + Sync,
>;
type SharedMaker = Box<dyn Fn(&Section) -> Result<SharedObject, MakeError> + Send + Sync>;

/// A registry of makers: for each kind of section, a function that makes its objects. The sections
/// of the configuration say which objects are made.
///
/// ```
/// use allotment::{ReadOnly, Sealable};
/// use allotment_server::{Configuration, Initialiser, Makers, Section};
///
/// struct Route<'s> { path: &'s str, ttl: u32 }
/// // SAFETY: a shared reference to text, and a number. With `allotment`'s feature `derive`,
/// // `#[derive(ReadOnly)]` generates this implementation and the next one.
/// unsafe impl ReadOnly for Route<'_> {}
/// impl Sealable for Route<'static> { type In<'s> = Route<'s>; }
///
/// let makers = Makers::new()
///     .read_only::<Route<'static>>("route", |sealer, section| {
///         Ok(Route { path: sealer.try_str(section.get("path")?)?, ttl: section.get_or("ttl", 60)? })
///     })
///     .shared("counter", |section| Ok(section.get_or("start", 0_u64)?));
/// let configuration = Configuration::new("in code")
///     .with(Section::new("route", "home").with("path", "/"))
///     .with(Section::new("counter", "visits"));
///
/// let initialised = Initialiser::new("server").from_configuration(&makers, &configuration)?;
/// let objects = initialised.read_only();
/// let route = objects.get().find::<Route<'static>>("route", "home")?;
/// assert_eq!((route.path, route.ttl), ("/", 60));
/// initialised.shared().find::<u64>("counter", "visits")?.with(|visits| *visits += 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Makers {
    makers: HashMap<Box<str>, Maker>,
}

enum Maker {
    ReadOnly(ReadOnlyMaker),
    Shared(SharedMaker),
}

/// What may fail while the sealed region is built.
enum BuildFailure {
    Configuration(ConfigurationError),
    Memory(AllocError),
}

impl From<AllocError> for BuildFailure {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

impl Makers {
    /// Creates a registry without makers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the maker of the read-only shared objects of this kind, and replaces an earlier
    /// maker of that kind. All read-only objects lie in one sealed region.
    #[must_use]
    pub fn read_only<T: Sealable>(
        mut self,
        kind: &str,
        make: impl for<'s> Fn(Sealer<'s>, &Section) -> Result<T::In<'s>, MakeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let make: ReadOnlyMaker = Box::new(move |sealer, section| {
            let object = make(sealer, section)?;
            Ok(ReadOnlyObject::new::<T>(sealer, (section.kind(), section.name()), object)?)
        });
        self.makers.insert(kind.into(), Maker::ReadOnly(make));
        self
    }

    /// Registers the maker of the shared objects of this kind, and replaces an earlier maker of
    /// that kind. Each object is under a lock of its own, [`Shared`](crate::Shared). The order of
    /// the locks is the order of the sections in the configuration.
    #[must_use]
    pub fn shared<T: Send + 'static>(
        mut self,
        kind: &str,
        make: impl Fn(&Section) -> Result<T, MakeError> + Send + Sync + 'static,
    ) -> Self {
        let make = move |section: &Section| make(section).map(SharedObject::new);
        self.makers.insert(kind.into(), Maker::Shared(Box::new(make)));
        self
    }

    /// Makes all read-only objects and ignores the sections of shared objects. So the objects of a
    /// configuration that was read again can be [published](crate::ServerHandle::publish) while the
    /// server runs.
    ///
    /// # Errors
    /// When a kind has no maker, two sections have the same kind and name, a maker fails, a section
    /// has keys that its maker did not request, or memory is not available. The objects made before
    /// the error are dropped.
    pub fn make_read_only(
        &self,
        configuration: &Configuration,
    ) -> Result<Sealed<ReadOnlyObjects<'static>>, ConfigurationError> {
        self.check(configuration)?;
        let builder = Sealed::<ReadOnlyObjects<'static>>::builder().name("read-only objects");
        let sealed = builder.try_build(|sealer| {
            let mut objects = Vec::new();
            for section in configuration.sections() {
                if let Some(Maker::ReadOnly(make)) = self.makers.get(section.kind()) {
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
            if let Some(Maker::Shared(make)) = self.makers.get(section.kind()) {
                let object = finish(section, make(section))?;
                objects.add(section.kind(), section.name(), object);
            }
        }
        Ok(objects)
    }

    /// Checks that each section has a maker, and that no two sections have the same kind and name.
    fn check(&self, configuration: &Configuration) -> Result<(), ConfigurationError> {
        let has_no_maker = |section: &&Section| !self.makers.contains_key(section.kind());
        if let Some(section) = configuration.sections().iter().find(has_no_maker) {
            let mut known: Vec<_> = self.makers.keys().map(|kind| kind.to_string()).collect();
            known.sort_unstable();
            return Err(section.error(ConfigurationProblem::UnknownKind { known }));
        }
        configuration.check_names()
    }
}

/// Returns the maker's object, or an error if the maker failed or did not request all keys of the
/// section.
fn finish<T>(section: &Section, result: Result<T, MakeError>) -> Result<T, ConfigurationError> {
    let object = result.map_err(|error| match error.downcast::<ConfigurationError>() {
        Ok(error) => *error,
        Err(error) => section.error(ConfigurationProblem::Maker(error)),
    })?;
    section.check_keys()?;
    Ok(object)
}

impl Initialiser {
    /// Leads to the next phase, with the objects that the configuration describes. The read-only
    /// objects are made first.
    ///
    /// # Errors
    /// As for [`Makers::make_read_only`]. All objects made before the error are dropped. A panic of
    /// a maker does the same and passes on to the caller.
    pub fn from_configuration(
        self,
        makers: &Makers,
        configuration: &Configuration,
    ) -> Result<Initialised<Sealed<ReadOnlyObjects<'static>>, SharedObjects>, ConfigurationError>
    {
        let read_only = makers.make_read_only(configuration)?;
        let shared = makers.make_shared(configuration)?;
        Ok(self.objects(read_only, shared))
    }
}

impl std::fmt::Debug for Makers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.makers.iter().map(|(kind, maker)| match maker {
            Maker::ReadOnly(_) => (kind, "read-only"),
            Maker::Shared(_) => (kind, "shared"),
        });
        f.debug_map().entries(kinds).finish()
    }
}
