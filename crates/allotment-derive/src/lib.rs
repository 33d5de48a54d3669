//! `#[derive(ReadOnly)]`: declares that a type may be sealed, if all of its fields may be sealed.
//!
//! Use it as `allotment::ReadOnly`, with the feature `derive` of the crate `allotment`.

mod read_only;

use proc_macro::TokenStream;

/// Implements `ReadOnly` for a type, and `Sealable` for the type at the lifetime `'static`. The
/// type can then be sealed.
///
/// - The type of every field must be `ReadOnly`. A field whose type is not is a compile error at
///   that field.
/// - The type has at most one lifetime parameter, the lifetime of the sealed memory.
/// - Type parameters must be `ReadOnly`. They stay as they are when the lifetime changes. If fields
///   need further bounds, write them into the type's own `where` clause.
/// - A type that implements `Drop` is refused, because sealed values are not dropped. A union is
///   refused too.
///
/// ```ignore
/// #[derive(ReadOnly)]
/// struct Config<'s> {
///     url: &'s str,
///     ports: &'s [u16],
///     fallback: Option<&'s Config<'s>>,
/// }
/// ```
///
/// If the crate `allotment` has another name in your program, add
/// `#[read_only(crate = my_allotment)]` to the type.
#[proc_macro_derive(ReadOnly, attributes(read_only))]
pub fn derive_read_only(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    read_only::implement(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
