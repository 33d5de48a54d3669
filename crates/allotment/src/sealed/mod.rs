//! Read-only shared objects: `Sealed`, `Published`, `RwShared`.
