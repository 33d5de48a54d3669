//! The category *read-only shared*: objects that all workers read without a lock.

use allotment::sealed::Sealable;
use allotment::{RwShared, Sealed};

/// The category *read-only shared*: objects that all workers read without a lock.
///
/// Workers get only `&R`. For most types the compiler cannot check that nothing changes behind a
/// shared reference. So this trait marks the types that may be used here: sealed objects, which
/// cannot change by construction; an almost read-only object under a read-write lock; and `()` for
/// none. To add a type of your own, implement the trait. The `impl` promises that the type's
/// operations on `&self` change nothing, or use a suitable lock.
///
/// ```compile_fail,E0277
/// # use allotment_server::Initialiser;
/// let counter = std::sync::Mutex::new(0); // not read-only: it belongs among the shared objects
/// let server = Initialiser::new("server").objects(counter, ());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not marked as read-only",
    label = "workers read this without a lock",
    note = "seal it (`Sealed`), or put it under a lock (`Shared`) and among the shared objects"
)]
pub trait ReadOnlyShared: Send + Sync + 'static {}

impl ReadOnlyShared for () {}
impl<T: Sealable> ReadOnlyShared for Sealed<T> {}
impl<T: Sealable> ReadOnlyShared for RwShared<T> {}
