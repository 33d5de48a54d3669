//! The code that the derive generates.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    ConstParam, Data, DeriveInput, Error, Fields, GenericParam, Generics, Lifetime, Path, Result,
    Token, TraitBoundModifier, TypeParam, TypeParamBound, WherePredicate, parse_quote,
    parse_quote_spanned,
};

/// The implementations for a type.
pub(crate) fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let library = library(input)?;
    let lifetime = only_lifetime(&input.generics)?;
    let checks = checks(&input.data)?;
    let name = &input.ident;

    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        let bound = parse_quote_spanned!(parameter.ident.span()=> #library::ReadOnly);
        parameter.bounds.push(bound);
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();

    let sealable = sealable(input, &library, lifetime.as_ref());

    Ok(quote! {
        #[allow(deprecated, clippy::multiple_bound_locations)]
        const _: () = {
            // SAFETY: every field is read-only, and the type has no destructor of its own. The code
            // below checks both.
            #[automatically_derived]
            unsafe impl #parameters #library::ReadOnly for #name #arguments #bounds {}

            #sealable

            // Implemented for the type itself, so that the types of its fields may name `Self`, and
            // the bounds that they imply for the parameters hold.
            #[allow(dead_code)]
            trait FieldsAreReadOnly {
                fn check(&self);
            }
            #[allow(deprecated, unreachable_code, unreachable_patterns, unused_variables)]
            #[automatically_derived]
            impl #parameters FieldsAreReadOnly for #name #arguments #bounds {
                fn check(&self) {
                    fn must_be_read_only<Field: #library::ReadOnly + ?::core::marker::Sized>(_: *const Field) {}
                    #checks
                }
            }

            // A type that implements `Drop` would have this implementation twice, which is an
            // error: sealed values are not dropped.
            #[allow(dead_code)]
            trait SealedValuesAreNotDropped {}
            #[allow(drop_bounds)]
            impl<Dropped: ::core::ops::Drop + ?::core::marker::Sized> SealedValuesAreNotDropped for Dropped {}
            #[automatically_derived]
            impl #parameters SealedValuesAreNotDropped for #name #arguments #bounds {}
        };
    })
}

/// The path of the library, which `#[read_only(crate = …)]` can change.
fn library(input: &DeriveInput) -> Result<Path> {
    let mut library = parse_quote!(::allotment);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("read_only")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown option; the only option is `crate = path`"));
            }
            library = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(library)
}

/// The lifetime of the sealed memory, if the type has it.
fn only_lifetime(generics: &Generics) -> Result<Option<Lifetime>> {
    let mut lifetimes = generics.lifetimes();
    let first = lifetimes.next().map(|parameter| parameter.lifetime.clone());
    match lifetimes.next() {
        None => Ok(first),
        Some(second) => Err(Error::new(
            second.span(),
            "a sealed type has at most one lifetime parameter, the lifetime of the sealed memory; use it for all references",
        )),
    }
}

/// Checks that each field of each variant has its declared type, and that this type is read-only.
/// So an attribute below the derive can't add a field or change its type without a check.
fn checks(data: &Data) -> Result<TokenStream> {
    match data {
        Data::Struct(data) => {
            let members = data.fields.members();
            let checks = data.fields.iter().zip(data.fields.members()).map(|(field, member)| {
                let declared = &field.ty;
                // An address, because a reference to a packed field is an error.
                quote_spanned! {declared.span()=>
                    must_be_read_only::<#declared>(::core::ptr::addr_of!(self.#member));
                }
            });
            Ok(quote! {
                let Self { #(#members: _,)* } = self;
                #(#checks)*
            })
        }
        Data::Enum(data) => {
            let arms = data.variants.iter().map(|variant| {
                let name = &variant.ident;
                let (pattern, checks) = check_bound(&variant.fields);
                quote!(Self::#name { #pattern } => { #checks })
            });
            // `*self`, not `self`: for an enum without variants the match has no arms, and the type
            // of a reference always has values.
            Ok(quote!(match *self { #(#arms)* }))
        }
        Data::Union(data) => Err(Error::new(
            data.union_token.span,
            "`ReadOnly` can't be derived for a union: nothing says which of its fields holds a value",
        )),
    }
}

/// A pattern that binds the fields of a variant, and the checks of these bindings.
fn check_bound(fields: &Fields) -> (TokenStream, TokenStream) {
    let (patterns, checks): (Vec<_>, Vec<_>) = fields
        .iter()
        .zip(fields.members())
        .enumerate()
        .map(|(at, (field, member))| {
            let (declared, bound) = (&field.ty, format_ident!("field_{at}"));
            let check = quote_spanned! {declared.span()=> must_be_read_only::<#declared>(#bound); };
            (quote!(#member: ref #bound,), check)
        })
        .unzip();
    (quote!(#(#patterns)*), quote!(#(#checks)*))
}

/// `impl Sealable for Name<'static, T>`, whose `In<'s>` is `Name<'s, T>`.
fn sealable(input: &DeriveInput, library: &Path, lifetime: Option<&Lifetime>) -> TokenStream {
    let name = &input.ident;
    let at = |memory: &Lifetime| {
        let arguments = input.generics.params.iter().map(|parameter| match parameter {
            GenericParam::Lifetime(_) => quote!(#memory),
            GenericParam::Type(TypeParam { ident, .. })
            | GenericParam::Const(ConstParam { ident, .. }) => quote!(#ident),
        });
        quote!(#name<#(#arguments),*>)
    };
    let memory = lifetime.cloned().unwrap_or_else(|| parse_quote!('__sealed));
    let (for_ever, for_a_while) = (at(&parse_quote!('static)), at(&memory));

    // The implementation has the type's other parameters. All bounds become predicates that hold
    // for any lifetime.
    let mut parameters = Punctuated::<_, Token![,]>::new();
    let mut predicates = Punctuated::<_, Token![,]>::new();
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {}
            GenericParam::Type(TypeParam { ident, bounds, .. }) => {
                parameters.push(quote!(#ident));
                predicates.push(quote!(#ident: #library::ReadOnly + 'static));
                let predicate = parse_quote!(#ident: #bounds);
                predicates.extend(for_any(predicate, lifetime));
            }
            GenericParam::Const(ConstParam { ident, ty, .. }) => {
                parameters.push(quote!(const #ident: #ty));
            }
        }
    }
    if let Some(clause) = &input.generics.where_clause {
        for predicate in &clause.predicates {
            predicates.extend(for_any(predicate.clone(), lifetime));
        }
    }
    quote! {
        #[automatically_derived]
        impl<#parameters> #library::sealed::Sealable for #for_ever where #predicates {
            type In<#memory> = #for_a_while;
        }
    }
}

/// Makes a predicate hold for any lifetime of the sealed memory. `?Sized` becomes a predicate of
/// its own: it is not a bound, and can't be under a `for`.
fn for_any(predicate: WherePredicate, lifetime: Option<&Lifetime>) -> Vec<TokenStream> {
    let (WherePredicate::Type(mut of_type), Some(lifetime)) = (predicate.clone(), lifetime) else {
        return vec![predicate.into_token_stream()];
    };
    let relaxes = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => matches!(bound.modifier, TraitBoundModifier::Maybe(_)),
        _ => false,
    };
    let (relaxed, bounds): (Vec<_>, Vec<_>) = of_type.bounds.into_iter().partition(relaxes);
    let bounded = &of_type.bounded_ty;
    let mut predicates = Vec::new();
    if !relaxed.is_empty() {
        predicates.push(quote!(#bounded: #(#relaxed)+*));
    }
    of_type.bounds = bounds.into_iter().collect();
    of_type
        .lifetimes
        .get_or_insert_with(|| parse_quote!(for<>))
        .lifetimes
        .push(parse_quote!(#lifetime));
    predicates.push(of_type.into_token_stream());
    predicates
}
