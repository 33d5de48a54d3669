//! Sealed values: what an initialiser builds is what every thread reads.
#![cfg(system_memory)]

mod support;

use core::alloc::Layout;
use std::borrow::Cow;
use std::fmt::Write;

use allotment::sealed::Sealable;
use allotment::{AllocError, Budget, ErrorKind, RwShared, SealString, SealVec, Sealed, Sealer};

#[test]
fn a_string_and_a_slice_are_read_by_many_threads() {
    let config = Sealed::<(&'static str, &'static [u16])>::new(|sealer| {
        (sealer.alloc_str("http://localhost/"), sealer.alloc_slice_from_iter([80, 443]))
    });
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let (url, ports) = config.get();
                    assert_eq!((*url, *ports), ("http://localhost/", &[80, 443][..]));
                }
            });
        }
    });
}

#[test]
fn a_value_is_built_on_one_thread_and_dropped_on_another() {
    let sealed = Sealed::<SealString<'static>>::new(|sealer| {
        let mut string = sealer.string();
        string.push_str("moved");
        string
    });
    let length = std::thread::spawn(move || sealed.get().len()).join().unwrap();
    assert_eq!(length, 5);
}

/// No bytes, and an alignment that a test can check.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Nothing;
// SAFETY: no bytes at all.
unsafe impl allotment::ReadOnly for Nothing {}

impl Sealable for Nothing {
    type In<'s> = Self;
}

#[test]
fn values_of_no_size_are_aligned_and_counted_as_no_object() {
    let unit = Sealed::<()>::new(|_| ());
    assert_eq!((*unit.get(), unit.statistics().live_bytes as usize), ((), 0));
    let nothing = Sealed::<(Nothing, &'static [Nothing])>::new(|sealer| {
        (Nothing, sealer.alloc_slice_from_iter([Nothing; 1000]))
    });
    assert_eq!(std::ptr::from_ref(&nothing.get().0).addr() % 64, 0);
    assert_eq!(nothing.get().1.as_ptr().addr() % 64, 0);
    assert_eq!(nothing.get().1.len(), 1000);
    let empty = Sealed::<(&'static str, &'static [u64])>::new(|sealer| {
        (sealer.alloc_str(""), sealer.alloc_slice_from_iter([]))
    });
    assert_eq!(*empty.get(), ("", &[][..]));
}

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct OnAPage(u8);
// SAFETY: bytes that are never written to through a shared reference.
unsafe impl allotment::ReadOnly for OnAPage {}

#[derive(Clone, Copy)]
#[repr(align(131072))]
struct OnTwoGranules(u8);
// SAFETY: as above.
unsafe impl allotment::ReadOnly for OnTwoGranules {}

struct Aligned;

impl Sealable for Aligned {
    type In<'s> = (OnAPage, &'s OnTwoGranules, &'s [OnAPage]);
}

#[test]
fn any_alignment_holds() {
    let sealed = Sealed::<Aligned>::new(|sealer| {
        let far = &*sealer.alloc(OnTwoGranules(2));
        (OnAPage(1), far, sealer.alloc_slice_from_iter((0..5).map(OnAPage)))
    });
    let (page, granules, pages) = sealed.get();
    assert_eq!(std::ptr::from_ref(page).addr() % 4096, 0);
    assert_eq!(std::ptr::from_ref(*granules).addr() % 131_072, 0);
    assert_eq!(pages.as_ptr().addr() % 4096, 0);
    assert_eq!((page.0, granules.0, pages[4].0), (1, 2, 4));
}

#[test]
fn memory_by_layout_is_sealed_and_counted_like_any_other() {
    let sealed = Sealed::<&'static [u8]>::new(|sealer| {
        let empty = sealer.alloc_layout(Layout::from_size_align(0, 256).unwrap());
        assert_eq!(empty.addr().get(), 256, "no memory");
        let layout = Layout::from_size_align(100_000, 128).unwrap();
        let start = sealer.try_alloc_layout(layout).unwrap();
        assert_eq!(start.addr().get() % 128, 0);
        // SAFETY: that many bytes, which only this initialiser has; all are written before they are
        // lent.
        unsafe {
            start.write_bytes(7, layout.size());
            core::slice::from_raw_parts(start.as_ptr(), layout.size())
        }
    });
    assert!(sealed.get().iter().all(|byte| *byte == 7));
    assert_eq!(sealed.statistics().live_bytes as usize, 100_000 + size_of::<&[u8]>());
    let beyond = Layout::from_size_align(isize::MAX as usize - 1, 2).unwrap();
    let error = Sealed::<()>::try_new(|sealer| sealer.try_alloc_layout(beyond).map(|_| ()));
    assert!(matches!(error.unwrap_err().kind(), ErrorKind::SizeOverflow | ErrorKind::System(_)));
}

#[test]
fn values_can_be_changed_and_linked_while_the_initialiser_runs() {
    let sealed = Sealed::<(&'static [u32], &'static str)>::new(|sealer| {
        let total = sealer.alloc(0u32);
        let mut doubled: SealVec<'_, u32> = sealer.vec();
        doubled.try_extend([1, 2, 3]).unwrap();
        doubled.extend_from_slice(&[4, 5]);
        doubled.insert(0, 9);
        doubled.retain(|value| *value % 2 == 1);
        assert_eq!(doubled.remove(0), 9);
        for value in doubled.iter_mut() {
            *value *= 2;
            *total += *value;
        }
        let mut text = sealer.string();
        write!(text, "sum {total}é").unwrap();
        assert_eq!(text.pop(), Some('é'));
        (doubled.into_slice(), text.into_str())
    });
    assert_eq!(*sealed.get(), (&[2, 6, 10][..], "sum 18"));
}

#[test]
fn iterators_and_formatters_may_use_the_sealer() {
    struct Inside<'s>(Sealer<'s>);
    impl std::fmt::Display for Inside<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0.alloc_str("inside"))
        }
    }
    let sealed = Sealed::<(&'static [&'static str], &'static str)>::new(|sealer| {
        let names = sealer
            .alloc_slice_from_iter((0..100).map(|n| sealer.alloc_format(format_args!("name {n}"))));
        (names, sealer.alloc_format(format_args!("<{}>", Inside(sealer))))
    });
    let (names, inside) = sealed.get();
    assert_eq!((names[0], names[99], *inside), ("name 0", "name 99", "<inside>"));
}

#[test]
fn nested_builds_have_separate_memory() {
    let outer = Sealed::<(&'static str, u64)>::new(|outer| {
        let inner = Sealed::<&'static str>::new(|inner| {
            outer.alloc_str("in the outer one");
            inner.alloc_str("in the inner one")
        });
        (outer.alloc_str(inner.get()), inner.statistics().live_objects)
    });
    assert_eq!(*outer.get(), ("in the inner one", 2));
    assert_eq!(outer.statistics().live_objects, 3);
}

#[test]
fn ten_megabytes_of_strings_keep_their_contents() {
    let texts: Vec<String> = (0..10_000).map(|n| format!("{n:0>1000}")).collect();
    let sealed = Sealed::<&'static [&'static str]>::new(|sealer| {
        sealer.alloc_slice_from_iter(texts.iter().map(|text| sealer.alloc_str(text)))
    });
    assert!(sealed.get().iter().zip(&texts).all(|(sealed, text)| sealed == text));
    assert!(sealed.statistics().live_bytes as usize >= 10_000_000);
    let large =
        Sealed::<&'static [u64]>::new(|sealer| sealer.alloc_slice_from_iter(vec![7; 10 << 17]));
    assert!(large.get().iter().all(|&value| value == 7));
    assert_eq!(large.get().len(), 10 << 17);
}

#[test]
fn a_failed_build_returns_the_error_of_the_initialiser() {
    #[derive(Debug, PartialEq)]
    enum Wrong {
        Memory(ErrorKind),
        Port(u32),
    }
    impl From<AllocError> for Wrong {
        fn from(error: AllocError) -> Self {
            Self::Memory(error.kind())
        }
    }
    let parse = |text: &str| {
        Sealed::<u16>::try_new(|_| {
            let port: u32 = text.parse().map_err(|_| Wrong::Port(0))?;
            u16::try_from(port).map_err(|_| Wrong::Port(port))
        })
    };
    assert_eq!(*parse("443").unwrap().get(), 443);
    assert_eq!(parse("70000").unwrap_err(), Wrong::Port(70000));
    let none = Sealed::<u16>::builder().budget(&Budget::new(0));
    assert_eq!(
        none.try_build(|_| Ok::<_, Wrong>(1)).unwrap_err(),
        Wrong::Memory(ErrorKind::BudgetExceeded)
    );
    let long = Sealed::<u16>::builder().name("n".repeat(65)).try_build(|_| Ok::<_, AllocError>(1));
    assert_eq!(long.unwrap_err().kind(), ErrorKind::NameTooLong);
}

#[test]
fn a_sealer_serves_its_own_thread_alone_and_only_while_it_builds() {
    let sealed = Sealed::<SealVec<'static, u64>>::try_new(|sealer| {
        let mut values = sealer.vec();
        values.try_push(1)?;
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                assert_eq!(sealer.try_alloc_str("no").unwrap_err().kind(), ErrorKind::Sealed);
                let error = sealer.try_alloc_format(format_args!("{}", 1)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Sealed);
                // The vector can use its capacity and be dropped, but can't grow.
                while values.len() < values.capacity() {
                    values.push(2);
                }
                assert_eq!(values.try_push(3).unwrap_err().kind(), ErrorKind::Sealed);
                values
            });
            Ok::<_, AllocError>(elsewhere.join().unwrap())
        })
    })
    .unwrap();
    assert_eq!(sealed.get()[..2], [1, 2]);
    let text = format!("{}", AllocError::new(ErrorKind::Sealed, 7));
    assert!(text.contains("initialiser"), "{text}");
}

#[test]
fn a_leaked_value_lives_on() {
    let text: &'static &'static str =
        Sealed::<&'static str>::new(|sealer| sealer.alloc_str("for ever")).leak();
    assert_eq!(std::thread::spawn(move || text.len()).join().unwrap(), 8);
}

#[test]
fn an_almost_read_only_object_is_replaced_while_threads_read_it() {
    let shared = RwShared::<(u64, &'static str)>::new(|sealer| (0, sealer.alloc_str("0")));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 200 {
                        let guard = shared.read();
                        let &(number, text) = guard.get();
                        assert_eq!(text, number.to_string());
                        assert!(number >= last, "generations follow each other");
                        last = number;
                    }
                })
            })
            .collect();
        for number in 1..=200 {
            shared.replace(|sealer| (number, sealer.alloc_format(format_args!("{number}"))));
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(shared.into_inner().get().0, 200);
}

#[test]
fn a_replacement_that_fails_or_panics_leaves_the_old_value_and_no_poison() {
    let shared = RwShared::<&'static str>::try_new(|sealer| sealer.try_alloc_str("first")).unwrap();
    let error = AllocError::new(ErrorKind::SourceRefused, 1);
    assert_eq!(shared.try_replace(|_| Err::<&str, _>(error)).unwrap_err(), error);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.replace(|_| panic!("on purpose"));
    }));
    assert!(caught.is_err());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = shared.read();
        panic!("a reader, on purpose");
    }));
    assert!(caught.is_err());
    assert_eq!(*shared.read().get(), "first");
    shared.try_replace(|sealer| sealer.try_alloc_str("second")).unwrap();
    assert_eq!(*shared.read().get(), "second");
    let third = Sealed::new(|sealer| sealer.alloc_str("third"));
    assert_eq!(*shared.swap(third).get(), "second");
    assert_eq!(shared.read().sealed().statistics().live_bytes as usize, 5 + size_of::<&str>());
}

#[test]
fn read_only_types_of_the_standard_library_may_be_sealed() {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    type All = (
        (Duration, Instant, std::cmp::Ordering, Option<std::num::NonZero<u8>>),
        (IpAddr, SocketAddr, std::ops::Range<u32>, Result<u8, char>),
        [&'static str; 2],
        (u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64),
        &'static Option<&'static [bool]>,
    );
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    let now = Instant::now();
    let sealed = Sealed::<All>::new(|sealer| {
        (
            (Duration::from_secs(1), now, std::cmp::Ordering::Less, std::num::NonZero::new(3)),
            (address.ip(), address, 1..5, Err('x')),
            ["literal", sealer.alloc_str("copy")],
            (1, 2, 3, 4, 5, -1, -2, -3, -4, -5, 1.5, 2.5),
            &*sealer.alloc(Some(sealer.alloc_slice_copy(&[true, false]))),
        )
    });
    let (first, second, texts, numbers, flags) = sealed.get();
    assert_eq!((first.1, second.1, second.2.len()), (now, address, 4));
    assert_eq!((texts[1], numbers.9, **flags), ("copy", -5, Some(&[true, false][..])));
    let cow: Cow<'_, str> = Cow::Borrowed(texts[0]);
    assert_eq!(cow, "literal");
}
