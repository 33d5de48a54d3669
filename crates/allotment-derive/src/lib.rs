//! `#[derive(ReadOnly)]`: says of a type that it may be sealed, if all that it is made of may.
