//! `#[derive(ReadOnly)]` where names, parameters and lints could break the generated code.

#![deny(warnings)]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, non_upper_case_globals)]

use allotment::{ReadOnly, Sealed};

/// Names that the generated code uses too.
mod names {
    use allotment::ReadOnly;

    #[derive(ReadOnly)]
    pub struct Field(pub u8);
    #[derive(ReadOnly)]
    pub struct Dropped<'s>(pub &'s Field);
    #[derive(ReadOnly)]
    pub struct Sized;
    #[derive(ReadOnly)]
    pub struct Drop(pub Sized, pub Send);
    #[derive(ReadOnly)]
    pub struct Send;
    #[derive(ReadOnly)]
    pub struct Sealable<'s>(pub &'s Drop);
    #[derive(ReadOnly)]
    pub struct In<'s>(pub Sealable<'s>, pub Dropped<'s>);
    #[derive(ReadOnly)]
    pub struct Of<Field, Dropped>(pub Field, pub Dropped);
    #[derive(ReadOnly)]
    pub enum Option {
        Some(Field),
        None(Result),
    }
    #[derive(ReadOnly)]
    pub struct Result;
    pub mod core {}
}

#[derive(ReadOnly)]
struct List<'s> {
    value: u32,
    next: Option<&'s Self>,
}

#[derive(ReadOnly)]
struct r#struct<'r#static_, r#type> {
    r#fn: &'r#static_ str,
    r#match: r#type,
}

#[derive(ReadOnly)]
struct Behind<'s, T: ?Sized> {
    value: &'s T,
}

#[derive(ReadOnly)]
struct BehindWhere<'s, T>
where
    T: ?Sized + 's,
{
    value: &'s T,
}

#[derive(ReadOnly)]
struct Bounded<'s, T: 's + PartialEq<&'s str> = &'static str, const N: usize = 2>
where
    for<'a> Option<(&'s str, &'a T)>: Clone,
    Option<T>: Clone,
{
    name: &'s str,
    values: [T; N],
}

macro_rules! made {
    ($(#[$attribute:meta])* $name:ident<$lifetime:lifetime> { $($field:ident: $type:ty),* }) => {
        #[derive(ReadOnly)]
        $(#[$attribute])*
        struct $name<$lifetime> { $($field: $type,)* own: &$lifetime str }
    };
}

macro_rules! made_of_its_own {
    ($name:ident) => {
        #[derive(ReadOnly)]
        struct $name<'s, T> {
            own: &'s [T],
            #[cfg(any())]
            gone: std::cell::Cell<u8>,
            #[cfg(not(any()))]
            here: u8,
        }
    };
}

made!(#[repr(C)] Made<'a> { number: u32, other: Option<&'a Made<'a>> });
made_of_its_own!(MadeOfItsOwn);

#[derive(ReadOnly, Clone, Copy)]
#[repr(C, packed)]
struct Packed {
    small: u8,
    large: u64,
}

#[derive(ReadOnly)]
enum Never {}

#[deprecated]
#[derive(ReadOnly)]
struct Deprecated<'s> {
    #[deprecated]
    next: Option<&'s Deprecated<'s>>,
}

#[derive(ReadOnly)]
struct Arrow<'s> {
    of: fn(&'s str) -> usize,
    trait_object: &'s dyn Greets,
}

trait Greets: ReadOnly {
    fn greet(&self) -> usize;
}

#[derive(ReadOnly)]
struct Greeter(usize);

impl Greets for Greeter {
    fn greet(&self) -> usize {
        self.0
    }
}

#[test]
fn names_of_the_derives_own_are_free_for_types_and_parameters() {
    use names::{Dropped, Field, In, Of};
    let sealed = Sealed::<In<'static>>::new(|sealer| {
        let drop = sealer.alloc(names::Drop(names::Sized, names::Send));
        let field = sealer.alloc(Field(7));
        In(names::Sealable(drop), Dropped(field))
    });
    assert_eq!(sealed.get().1.0.0, 7);
    let sealed = Sealed::<Of<u8, &'static str>>::new(|_| Of(1, "two"));
    assert_eq!((sealed.get().0, sealed.get().1), (1, "two"));
    let sealed = Sealed::<names::Option>::new(|_| names::Option::Some(Field(1)));
    assert!(matches!(sealed.get(), names::Option::Some(Field(1))));
    let sealed = Sealed::<names::Option>::new(|_| names::Option::None(names::Result));
    assert!(matches!(sealed.get(), names::Option::None(_)));
}

#[test]
fn a_type_refers_to_itself_as_self() {
    let sealed = Sealed::<List<'static>>::new(|sealer| {
        let last = sealer.alloc(List { value: 1, next: None });
        List { value: 2, next: Some(last) }
    });
    assert_eq!(sealed.get().value + sealed.get().next.unwrap().value, 3);
}

#[test]
#[allow(deprecated)]
fn what_is_deprecated_is_sealed_without_a_warning() {
    let sealed = Sealed::<Deprecated<'static>>::new(|_| Deprecated { next: None });
    assert!(sealed.get().next.is_none());
}

#[test]
fn raw_names_are_names() {
    let sealed = Sealed::<r#struct<'static, u8>>::new(|sealer| r#struct {
        r#fn: sealer.alloc_str("fn"),
        r#match: 1,
    });
    assert_eq!((sealed.get().r#fn, sealed.get().r#match), ("fn", 1));
}

#[test]
fn parameters_have_defaults_bounds_and_no_size() {
    let sealed = Sealed::<Behind<'static, u8>>::new(|sealer| Behind { value: sealer.alloc(1) });
    assert_eq!(*sealed.get().value, 1);
    let sealed =
        Sealed::<Behind<'static, str>>::new(|sealer| Behind { value: sealer.alloc_str("str") });
    assert_eq!(sealed.get().value, "str");
    let sealed = Sealed::<BehindWhere<'static, [u8]>>::new(|sealer| BehindWhere {
        value: sealer.alloc_slice_from_iter([1, 2]),
    });
    assert_eq!(sealed.get().value, [1, 2]);
    let sealed = Sealed::<Bounded<'static>>::new(|sealer| Bounded {
        name: sealer.alloc_str("bounded"),
        values: ["a", "b"],
    });
    assert_eq!((sealed.get().name, sealed.get().values), ("bounded", ["a", "b"]));
}

#[test]
fn types_that_macros_make_are_sealed() {
    let sealed = Sealed::<Made<'static>>::new(|sealer| {
        let own = sealer.alloc_str("own");
        Made { number: 1, other: Some(sealer.alloc(Made { number: 2, other: None, own })), own }
    });
    assert_eq!(sealed.get().number + sealed.get().other.unwrap().number, 3);
    assert_eq!(sealed.get().own, "own");
    let sealed = Sealed::<MadeOfItsOwn<'static, u8>>::new(|sealer| MadeOfItsOwn {
        own: sealer.alloc_slice_from_iter([1]),
        here: 1,
    });
    assert_eq!((sealed.get().own, sealed.get().here), (&[1][..], 1));
}

#[test]
fn packed_empty_and_dynamic_types_are_sealed() {
    let sealed = Sealed::<Packed>::new(|_| Packed { small: 1, large: 2 });
    let Packed { small, large } = *sealed.get();
    assert_eq!((small, large), (1, 2));
    let never = std::panic::catch_unwind(|| Sealed::<Never>::new(|_| panic!("there is none")));
    assert!(never.is_err());
    let sealed = Sealed::<Arrow<'static>>::new(|sealer| Arrow {
        of: str::len,
        trait_object: sealer.alloc(Greeter(3)),
    });
    let arrow = sealed.get();
    assert_eq!((arrow.of)("x") + arrow.trait_object.greet(), 4);
}
