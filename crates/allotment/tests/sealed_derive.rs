//! `#[derive(ReadOnly)]`: the shapes of types that it takes.

use allotment::{ReadOnly, SealMap, SealString, SealVec, Sealed};

#[derive(ReadOnly)]
struct Config<'s> {
    url: &'s str,
    ports: &'s [u16],
    names: SealVec<'s, SealString<'s>>,
    routes: SealMap<'s, &'s str, Route<'s>>,
    fallback: Option<&'s Config<'s>>,
}

#[derive(ReadOnly, Clone, Copy, Debug, PartialEq)]
enum Route<'s> {
    Files { root: &'s str },
    Redirect(&'s str, u16),
    Gone,
}

#[derive(ReadOnly, Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(ReadOnly)]
struct Marker;

#[derive(ReadOnly)]
struct Named<'s, T, const N: usize>
where
    T: Clone,
{
    name: &'s str,
    values: [T; N],
}

#[derive(ReadOnly)]
struct Pair<A: Copy, B = A>(A, B);

fn build<'s>(sealer: allotment::Sealer<'s>, url: &str, depth: u32) -> Config<'s> {
    let mut routes = SealMap::with_capacity_in(3, sealer);
    routes.insert(sealer.alloc_str("/"), Route::Files { root: sealer.alloc_str("/srv") });
    routes.insert(sealer.alloc_str("/old"), Route::Redirect(sealer.alloc_str("/"), 301));
    routes.insert("/gone", Route::Gone);
    let mut names = sealer.vec();
    for name in ["one", "two"] {
        let mut string = sealer.string();
        string.push_str(name);
        names.push(string);
    }
    Config {
        url: sealer.alloc_format(format_args!("{url}{depth}")),
        ports: sealer.alloc_slice_from_iter([80, 443]),
        names,
        routes,
        fallback: (depth > 0).then(|| &*sealer.alloc(build(sealer, url, depth - 1))),
    }
}

#[test]
fn a_configuration_of_strings_vectors_maps_and_itself_is_sealed_and_read_by_threads() {
    let config = Sealed::<Config<'static>>::new(|sealer| build(sealer, "http://host/", 2));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let outer = config.get();
                let inner = outer.fallback.unwrap().fallback.unwrap();
                assert_eq!((outer.url, inner.url), ("http://host/2", "http://host/0"));
                assert!(inner.fallback.is_none());
                assert_eq!(inner.ports, [80, 443]);
                assert_eq!(inner.names.iter().map(|name| name.len()).sum::<usize>(), 6);
                assert_eq!(inner.routes["/old"], Route::Redirect("/", 301));
                assert_eq!(outer.routes["/"], Route::Files { root: "/srv" });
                assert_eq!(outer.routes.get("/gone"), Some(&Route::Gone));
                assert!(!outer.routes.contains_key("/nowhere"));
            });
        }
    });
}

#[test]
fn types_without_a_lifetime_with_parameters_and_without_fields_are_sealed() {
    let point = Sealed::<Point>::new(|_| Point { x: 1.0, y: 2.0 });
    assert_eq!(*point.get(), Point { x: 1.0, y: 2.0 });
    let Marker = Sealed::<Marker>::new(|_| Marker).get();
    let named = Sealed::<Named<'static, u8, 3>>::new(|sealer| Named {
        name: sealer.alloc_str("three"),
        values: [1, 2, 3],
    });
    assert_eq!((named.get().name, named.get().values), ("three", [1, 2, 3]));
    let pair = Sealed::<Pair<u32, &'static str>>::new(|_| Pair(1, "literal"));
    assert_eq!((pair.get().0, pair.get().1), (1, "literal"));
    let points = Sealed::<&'static [Point]>::new(|sealer| {
        sealer.alloc_slice_from_iter((0..100).map(|n| Point { x: f64::from(n), y: 0.0 }))
    });
    assert_eq!(points.get()[99].x, 99.0);
}
