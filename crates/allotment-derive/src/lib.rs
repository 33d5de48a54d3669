//! `#[derive(ReadOnly)]`: says of a type that it may be sealed, if all that it is made of may.
//!
//! Use it as `allotment::ReadOnly`, with the feature `derive` of the crate `allotment`.

mod read_only;

use proc_macro::TokenStream;

/// Lets a type be sealed: implements `ReadOnly` for it, and `Sealable` for it at the lifetime `'static`.
///
/// Every field's type must be `ReadOnly`; one that is not is an error at that field. A type has at most one lifetime
/// parameter, that of the sealed memory. Type parameters must be `ReadOnly`, and stay as they are when the lifetime
/// changes; what fields need beyond that belongs into the type's own `where` clause. A type that implements `Drop` is
/// refused, since sealed values are not dropped; so is a union.
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
/// Where the crate has another name: `#[read_only(crate = my_allotment)]`.
#[proc_macro_derive(ReadOnly, attributes(read_only))]
pub fn derive_read_only(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    read_only::implement(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
