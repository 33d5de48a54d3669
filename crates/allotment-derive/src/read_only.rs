//! What the derive writes.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    ConstParam, Data, DeriveInput, Error, GenericParam, Generics, Lifetime, Path, Result, Token,
    Type, TypeParam, WherePredicate, parse_quote, parse_quote_spanned,
};

/// The implementations for a type.
pub(crate) fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let library = library(input)?;
    let lifetime = only_lifetime(&input.generics)?;
    let fields = field_types(&input.data)?;
    let name = &input.ident;

    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        let bound = parse_quote_spanned!(parameter.ident.span()=> #library::ReadOnly);
        parameter.bounds.push(bound);
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();

    // In a function of its own for each field, so that a type may refer to itself, and the error is at the field.
    let checks = fields.iter().map(|field| {
        quote_spanned! {field.span()=>
            must_be_read_only::<#field>();
        }
    });
    let sealable = sealable(input, &library, lifetime.as_ref());

    Ok(quote! {
        #[allow(clippy::multiple_bound_locations)]
        const _: () = {
            // SAFETY: every field is read-only, as is checked below, and the type has no destructor of its own.
            #[automatically_derived]
            unsafe impl #parameters #library::ReadOnly for #name #arguments #bounds {}

            #sealable

            #[allow(dead_code, clippy::extra_unused_lifetimes)]
            fn fields_are_read_only #parameters () #bounds {
                fn must_be_read_only<Field: #library::ReadOnly + ?::core::marker::Sized>() {}
                #(#checks)*
            }

            // A type that implements `Drop` has this twice: sealed values are not dropped.
            #[allow(dead_code)]
            trait SealedValuesAreNotDropped {}
            #[allow(drop_bounds)]
            impl<Dropped: ::core::ops::Drop + ?::core::marker::Sized> SealedValuesAreNotDropped for Dropped {}
            #[automatically_derived]
            impl #parameters SealedValuesAreNotDropped for #name #arguments #bounds {}
        };
    })
}

/// The library, by the name that `#[read_only(crate = …)]` gives it.
fn library(input: &DeriveInput) -> Result<Path> {
    let mut library = parse_quote!(::allotment);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("read_only")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown option; there is `crate = path` alone"));
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
            "a sealed type has one lifetime parameter at most, that of the sealed memory: use it for all references",
        )),
    }
}

/// The types of all fields, of all variants.
fn field_types(data: &Data) -> Result<Vec<&Type>> {
    match data {
        Data::Struct(data) => Ok(data.fields.iter().map(|field| &field.ty).collect()),
        Data::Enum(data) => {
            let fields = data.variants.iter().flat_map(|variant| &variant.fields);
            Ok(fields.map(|field| &field.ty).collect())
        }
        Data::Union(data) => Err(Error::new(
            data.union_token.span,
            "a union can't be sealed by a derive: nothing says which of its fields is there",
        )),
    }
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

    // The implementation has the type's other parameters, and all bounds as predicates that hold for any lifetime.
    let mut parameters = Punctuated::<_, Token![,]>::new();
    let mut predicates = Punctuated::<_, Token![,]>::new();
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {}
            GenericParam::Type(TypeParam { ident, bounds, .. }) => {
                parameters.push(quote!(#ident));
                predicates.push(quote!(#ident: #library::ReadOnly + 'static));
                if !bounds.is_empty() {
                    let predicate: WherePredicate = parse_quote!(#ident: #bounds);
                    predicates.push(for_any(predicate, lifetime).into_token_stream());
                }
            }
            GenericParam::Const(ConstParam { ident, ty, .. }) => {
                parameters.push(quote!(const #ident: #ty));
            }
        }
    }
    if let Some(clause) = &input.generics.where_clause {
        for predicate in &clause.predicates {
            predicates.push(for_any(predicate.clone(), lifetime).into_token_stream());
        }
    }
    quote! {
        #[automatically_derived]
        impl<#parameters> #library::Sealable for #for_ever where #predicates {
            type In<#memory> = #for_a_while;
        }
    }
}

/// A predicate that holds whatever the lifetime of the sealed memory is.
fn for_any(mut predicate: WherePredicate, lifetime: Option<&Lifetime>) -> WherePredicate {
    if let (WherePredicate::Type(of_type), Some(lifetime)) = (&mut predicate, lifetime) {
        let any: GenericParam = parse_quote!(#lifetime);
        of_type.lifetimes.get_or_insert_with(|| parse_quote!(for<>)).lifetimes.push(any);
    }
    predicate
}
