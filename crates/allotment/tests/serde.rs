//! Collections, boxes and handles through serde, and back.
#![cfg(system_memory)]

use std::marker::PhantomData;
use std::rc::Rc;

use allotment::arena::{ArenaArc, ArenaRc, SharedArena};
use allotment::collections::{StringSeed, VecSeed};
use allotment::{
    Arena, ArenaString, ArenaVec, Budget, LocalPool, PoolBox, PoolString, PoolVec, Reap, format_in,
};
use serde::de::value::{BytesDeserializer, Error, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer};
use serde_json::{Deserializer, json, to_value};

#[test]
fn a_value_serializes_as_that_of_the_standard_library() {
    let arena = Arena::new();
    let vec = ArenaVec::from_iter_in([1, 2], &arena);
    assert_eq!(to_value(&vec).unwrap(), json!([1, 2]));
    assert_eq!(to_value(vec.into_boxed_slice()).unwrap(), json!([1, 2]));
    assert_eq!(to_value(format_in!(&arena, "a\t")).unwrap(), json!("a\t"));
    assert_eq!(to_value(arena.alloc_boxed(Some("boxed"))).unwrap(), json!("boxed"));
    assert_eq!(to_value(arena.alloc_thin_str("thin")).unwrap(), json!("thin"));
    assert_eq!(to_value(arena.alloc_thin_slice_boxed(2, |n| n)).unwrap(), json!([0, 1]));
    let rc: ArenaRc<str> = ArenaRc::new(&Rc::new(Arena::new()), |arena| arena.alloc_str("rc"));
    assert_eq!(to_value(rc).unwrap(), json!("rc"));
    let arc = ArenaArc::new(&SharedArena::new(), |arena| arena.alloc(7));
    assert_eq!(to_value(arc).unwrap(), json!(7));
}

#[test]
fn values_of_the_current_pool_deserialize_into_it() {
    let pool = LocalPool::new();
    pool.enter(|| {
        let words: PoolVec<PoolString> = serde_json::from_str(r#"["one", "\u00e9"]"#).unwrap();
        assert_eq!(words, ["one", "é"]);
        assert!(words.pool() == pool.reference() && words[1].pool() == pool.reference());
        let boxed: PoolBox<(u8, PoolBox<str>)> = serde_json::from_str(r#"[1, "text"]"#).unwrap();
        assert_eq!((boxed.0, &*boxed.1), (1, "text"));
        let slice: PoolBox<[u8]> = serde_json::from_str("[1, 2, 3]").unwrap();
        assert_eq!(*slice, [1, 2, 3]);
        let wrong = serde_json::from_str::<PoolVec<u8>>("[1, 2, 300]").unwrap_err();
        assert!(wrong.to_string().contains("300"), "{wrong}");
        assert!(
            serde_json::from_str::<PoolString>("7").unwrap_err().to_string().contains("a string")
        );
    });
}

#[test]
fn seeds_nest_in_any_memory() {
    let (arena, reap) = (Arena::<1>::with_min_align(), Reap::new());
    let text = r#"[["a", "b\n"], [], ["c"]]"#;
    let words = VecSeed::new_in(StringSeed::new_in(&arena), &reap);
    let lists = VecSeed::new_in(words, &arena).deserialize(&mut Deserializer::from_str(text));
    let lists = lists.unwrap();
    assert_eq!(to_value(&lists).unwrap(), json!([["a", "b\n"], [], ["c"]]));
    assert!(
        VecSeed::new_in(PhantomData::<u8>, &arena)
            .deserialize(&mut Deserializer::from_str("[1, true]"))
            .is_err()
    );
}

#[test]
fn a_string_from_bytes_must_be_utf8() {
    let arena = Arena::new();
    let string = |bytes: &[u8]| -> Result<ArenaString<'_>, Error> {
        StringSeed::new_in(&arena).deserialize(BytesDeserializer::new(bytes))
    };
    assert_eq!(string("é".as_bytes()).unwrap(), "é");
    assert!(string(&[0xff]).is_err());
}

#[test]
fn a_refusal_is_an_error_and_a_claimed_length_takes_no_memory() {
    let budget = Budget::new(64 << 10);
    let arena = Arena::builder().budget(&budget).build();
    let long = "x".repeat(100 << 10);
    let text: StrDeserializer<'_, Error> = long.as_str().into_deserializer();
    let refused = StringSeed::new_in(&arena).deserialize(text).unwrap_err();
    assert!(refused.to_string().contains("budget"), "{refused}");
    let many = SeqDeserializer::<_, Error>::new(0..1_000_000u64);
    assert!(VecSeed::new_in(PhantomData::<u64>, &arena).deserialize(many).is_err());
    assert!(budget.used() <= 64 << 10);
    // Claims a length, and has one value.
    struct Claims(bool);
    impl Iterator for Claims {
        type Item = u64;
        fn next(&mut self) -> Option<u64> {
            std::mem::take(&mut self.0).then_some(7)
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX >> 8, Some(usize::MAX >> 8))
        }
    }
    let arena = Arena::builder().budget(&budget).build();
    let claims = SeqDeserializer::<_, Error>::new(Claims(true));
    let vec = VecSeed::new_in(PhantomData::<u64>, &arena).deserialize(claims).unwrap();
    assert_eq!(vec, [7]);
}
