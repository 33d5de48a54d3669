//! The table of allocators.

use std::error::Error;

use bench::peers::{
    About, Allocator, AnySize, AnySizeVisitor, Boxes, BoxesVisitor, Collections,
    CollectionsVisitor, FixedSize, FixedSizeVisitor, FreedBy, Global, GlobalVisitor, PeerKind,
    Placement, PlacementVisitor, Requests, RequestsVisitor, Scopes, ScopesVisitor, Service,
    TaskVisitor, UnknownAllocator, about, global_calls, known, missing,
};

/// Its work is to return the name of the row that it is given.
struct Name;

macro_rules! name {
    ($($visitor:ident of $service:ident),+) => {
        $(impl $visitor for Name {
            type Output = &'static str;

            fn visit<A: $service>(self, about: &'static About) -> &'static str {
                about.name
            }
        })+
    };
}

name!(
    TaskVisitor of Allocator,
    FixedSizeVisitor of FixedSize,
    BoxesVisitor of Boxes,
    AnySizeVisitor of AnySize,
    RequestsVisitor of Requests,
    CollectionsVisitor of Collections,
    ScopesVisitor of Scopes,
    GlobalVisitor of Global,
    PlacementVisitor of Placement
);

/// The name that a visitor for `service` was shown.
fn name_of(name: &str, service: Service) -> Result<&'static str, UnknownAllocator> {
    match service {
        Service::Tasks => TaskVisitor::with(Name, name),
        Service::FixedSize => FixedSizeVisitor::with(Name, name),
        Service::Boxes => BoxesVisitor::with(Name, name),
        Service::AnySize => AnySizeVisitor::with(Name, name),
        Service::Requests => RequestsVisitor::with(Name, name),
        Service::Collections => CollectionsVisitor::with(Name, name),
        Service::Scopes => ScopesVisitor::with(Name, name),
        Service::Global => GlobalVisitor::with(Name, name),
        Service::Placement => PlacementVisitor::with(Name, name),
    }
}

const OURS: &[&str] = &[
    "allotment-arena",
    "allotment-arena-reset",
    "allotment-arena-raw",
    "allotment-reap",
    "allotment-pool",
    "allotment-pool-request",
    "allotment-pool-limited",
    "allotment-slab",
    "allotment-slab-handle",
    "allotment-free-list",
];
/// A pool for each request.
const PER_REQUEST: &[&str] = &["allotment-pool-request", "allotment-pool-limited"];
const ARENAS_IN_RUST: &[&str] =
    &["mmap-per-query", "bumpalo", "bumpalo-reset", "bump-scope", "typed-arena"];
/// They need a newer Rust than the tour.
const ARENAS_OF_THE_CATALOGUE: &[&str] = &["multitude", "multitude-reset"];
/// It needs that too, and has boxes only.
const POOL_OF_THE_CATALOGUE: &str = "plurality";
const REFERENCES: &[&str] = &["mmap-huge", "mmap-small"];
const STORES_IN_RUST: &[&str] =
    &["allotment-slab-at-once", "allotment-free-list-a-tree", "slab", "sharded-slab"];
const PLACEMENTS: &[&str] =
    &["malloc-built", "malloc-copy", "free-list-built", "compact-copy", "scrambled-copy"];
const FAST_PEERS: &[&str] =
    &["mimalloc", "snmalloc", "rpmalloc", "mimalloc-heap", "pmr-monotonic", "pmr-pool"];
const SLOW_PEERS: &[&str] =
    if cfg!(target_env = "gnu") { &["jemalloc", "tcmalloc"] } else { &["jemalloc"] };

#[test]
fn the_names_are_those_of_the_measuring_contract() {
    let mut expected = vec![if cfg!(target_env = "gnu") { "glibc" } else { "libc" }];
    expected.extend(OURS);
    expected.extend(ARENAS_IN_RUST);
    expected.extend(REFERENCES);
    expected.extend(STORES_IN_RUST);
    expected.extend(PLACEMENTS);
    if cfg!(feature = "fast-peers") {
        expected.extend(FAST_PEERS);
    }
    if cfg!(feature = "all-peers") {
        expected.extend(SLOW_PEERS);
    }
    if cfg!(feature = "catalogue") {
        expected.extend(ARENAS_OF_THE_CATALOGUE);
        expected.push(POOL_OF_THE_CATALOGUE);
    }
    // Where the headers of Boost are installed.
    expected.extend(about("boost-pool").is_ok().then_some("boost-pool"));
    expected.sort_unstable();
    let mut names: Vec<_> = known().iter().map(|about| about.name).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    for about in known() {
        assert_eq!(about.ours, OURS.contains(&about.name), "{}", about.name);
        assert_eq!(about.reference, REFERENCES.contains(&about.name), "{}", about.name);
    }
}

#[test]
fn each_name_leads_to_its_own_allocator() {
    for entry in known() {
        assert_eq!(about(entry.name).unwrap().name, entry.name);
        for service in [
            Service::Tasks,
            Service::FixedSize,
            Service::Boxes,
            Service::AnySize,
            Service::Requests,
            Service::Global,
            Service::Collections,
            Service::Scopes,
            Service::Placement,
        ] {
            let found = entry.serves(service).then_some(entry.name);
            assert_eq!(name_of(entry.name, service).ok(), found, "{service:?}");
        }
        let calls = global_calls(entry.name.as_bytes()).map(|(name, _)| name);
        assert_eq!(calls, entry.serves(Service::Global).then_some(entry.name));
        assert_eq!(entry.kind == PeerKind::Placement, entry.serves(Service::Placement));
    }
}

#[test]
fn mallocs_serve_all_work_arenas_tasks_alone_and_the_others_objects_of_one_size() {
    for about in known() {
        // Both our arena and our slab, under one name.
        if about.reference {
            assert_eq!(about.services, [Service::Tasks, Service::FixedSize]);
            continue;
        }
        if PER_REQUEST.contains(&about.name) {
            assert_eq!(about.services, [Service::Requests]);
            continue;
        }
        if about.name == POOL_OF_THE_CATALOGUE {
            assert_eq!(about.services, [Service::Boxes]);
            continue;
        }
        let serves = (about.serves(Service::Tasks), about.serves(Service::FixedSize));
        let expected = match about.kind {
            PeerKind::Malloc => (true, true),
            PeerKind::Arena | PeerKind::Pool => (true, false),
            PeerKind::FixedSize => (false, true),
            PeerKind::Placement => (false, false),
        };
        assert_eq!(serves, expected, "{}", about.name);
    }
}

#[test]
fn mallocs_free_anywhere_and_can_be_a_programs_global_allocator_and_nobody_else_of_the_peers_can() {
    for about in known().iter().filter(|about| !about.ours) {
        let malloc = about.kind == PeerKind::Malloc;
        assert_eq!(about.serves(Service::Global), malloc, "{}", about.name);
        let anywhere = about.serves(Service::AnySize) && about.freed_by == FreedBy::AnyThread;
        assert_eq!(anywhere, malloc, "{}", about.name);
        let within = malloc || ["mimalloc-heap", "pmr-pool"].contains(&about.name);
        assert_eq!(about.frees_within_tasks, within, "{}", about.name);
    }
}

#[test]
fn mallocs_have_boxes_and_serve_requests_and_so_do_our_slab_and_our_pools() {
    let rest = |service| -> Vec<&str> {
        let rows = known().iter().filter(|about| {
            let malloc = about.kind == PeerKind::Malloc;
            assert!(!malloc || about.serves(service), "{}", about.name);
            about.serves(service) && !malloc
        });
        rows.map(|about| about.name).collect()
    };
    let mut boxes = vec!["allotment-pool", "allotment-slab", "allotment-slab-handle"];
    boxes.extend(cfg!(feature = "catalogue").then_some(POOL_OF_THE_CATALOGUE));
    assert_eq!(rest(Service::Boxes), boxes);
    let pools: Vec<_> = ["allotment-pool"].iter().chain(PER_REQUEST).copied().collect();
    assert_eq!(rest(Service::Requests), pools);
}

#[test]
fn mallocs_and_arenas_with_collections_have_vectors_and_those_with_scopes_have_scopes() {
    let with = |service| -> Vec<&str> {
        let rows =
            known().iter().filter(|about| about.serves(service) && about.kind == PeerKind::Arena);
        rows.map(|about| about.name).collect()
    };
    let mallocs = known().iter().filter(|about| about.kind == PeerKind::Malloc);
    assert!(
        mallocs
            .into_iter()
            .all(|about| about.serves(Service::Collections) && !about.serves(Service::Scopes))
    );
    let mut arenas =
        vec!["allotment-arena", "allotment-arena-reset", "bumpalo", "bumpalo-reset", "bump-scope"];
    if cfg!(feature = "catalogue") {
        arenas.extend(ARENAS_OF_THE_CATALOGUE);
    }
    assert_eq!(with(Service::Collections), arenas);
    let scopes = with(Service::Scopes);
    assert_eq!(scopes, ["allotment-arena", "bump-scope"]);
}

#[test]
fn an_allocator_that_does_other_work_says_so_and_names_those_that_do_this() {
    for (name, service, why, one_that_does) in [
        ("slab", Service::Tasks, "it serves objects of one size only", "bumpalo"),
        ("bumpalo", Service::FixedSize, "its objects are freed when their task ends", "slab"),
        ("allotment-pool", Service::FixedSize, "each thread has one of its own", "slab"),
        (
            "bumpalo",
            Service::AnySize,
            "its objects are freed when their task ends",
            "allotment-pool",
        ),
        ("slab", Service::AnySize, "it serves objects of one size only", "allotment-pool"),
        ("slab", Service::Boxes, "it has no boxes that several threads may drop", "allotment-slab"),
        ("bumpalo", Service::Boxes, "its objects are freed when their task ends", "allotment-slab"),
        (
            "allotment-slab",
            Service::Requests,
            "it serves objects of one size only",
            "allotment-pool-request",
        ),
        (
            "allotment-pool-limited",
            Service::Tasks,
            "it is a pool for each request",
            "allotment-pool",
        ),
        ("bumpalo", Service::Global, "it can't be a program's global allocator", "allotment-pool"),
        ("slab", Service::Collections, "it has no vector and no string of its own", "bumpalo"),
        ("slab", Service::Scopes, "it has no scopes", "bump-scope"),
        ("slab", Service::Placement, "it is an allocator", "malloc-built"),
        ("compact-copy", Service::FixedSize, "it is a layout of a tree", "slab"),
    ] {
        let text = name_of(name, service).unwrap_err().to_string();
        assert!(text.contains(&format!("'{name}' can't do this work: {why}")), "{text}");
        let (_, available) = text.split_once("; available: ").unwrap();
        let available: Vec<&str> = available.split(", ").collect();
        assert!(available.contains(&one_that_does) && !available.contains(&name), "{text}");
    }
    let text = name_of("glibc-or-so", Service::Scopes).unwrap_err().to_string();
    assert!(text.ends_with("; available: allotment-arena, bump-scope"), "{text}");
}

#[test]
fn every_row_says_what_it_is() {
    for about in known() {
        assert!(!about.policy.is_empty() && !about.origin.is_empty(), "{about:?}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let unknown = about("dlmalloc").unwrap_err();
    assert_eq!(unknown.name(), "dlmalloc");
    assert!(!unknown.left_out());
    assert!(unknown.source().is_none());
    let text = unknown.to_string();
    assert!(text.starts_with("unknown allocator 'dlmalloc'; available: "), "{text}");
    for about in known() {
        assert!(text.contains(about.name), "{text} lacks {}", about.name);
    }
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn names_are_exact() {
    for name in ["", "Glibc", "glibc ", "bump"] {
        assert!(name_of(name, Service::Tasks).is_err(), "{name:?}");
        assert!(global_calls(name.as_bytes()).is_none(), "{name:?}");
    }
}

#[test]
fn a_name_that_was_compiled_out_is_answered_with_the_feature_that_brings_it() {
    let fast = if cfg!(feature = "fast-peers") { &[] } else { FAST_PEERS };
    let slow = if cfg!(feature = "all-peers") { &[] } else { SLOW_PEERS };
    let expected = fast.iter().map(|name| (*name, "fast-peers"));
    let rest: Vec<&str> = if cfg!(feature = "catalogue") {
        Vec::new()
    } else {
        ARENAS_OF_THE_CATALOGUE.iter().copied().chain([POOL_OF_THE_CATALOGUE]).collect()
    };
    let expected = expected.chain(rest.iter().map(|name| (*name, "catalogue")));
    for (name, feature) in expected.chain(slow.iter().map(|name| (*name, "all-peers"))) {
        let unknown = name_of(name, Service::Tasks).unwrap_err();
        assert!(unknown.left_out());
        let text = unknown.to_string();
        assert!(text.contains(name) && text.contains(&format!("--features {feature}")), "{text}");
        assert!(text.contains("available: ") && text.contains("bumpalo-reset"), "{text}");
        let (_, remedy) = missing().find(|(missing, _)| *missing == name).unwrap();
        assert!(remedy.contains(feature), "{remedy}");
    }
    let boost = usize::from(about("boost-pool").is_err());
    let tcmalloc = usize::from(cfg!(not(target_env = "gnu")));
    assert_eq!(missing().count(), fast.len() + slow.len() + rest.len() + boost + tcmalloc);
}

#[cfg(feature = "fast-peers")]
#[test]
fn boost_pool_is_there_or_says_how_it_comes() {
    if let Err(unknown) = about("boost-pool") {
        assert!(unknown.left_out());
        let text = unknown.to_string();
        assert!(text.contains("headers of Boost.Pool") && text.contains("libboost-dev"), "{text}");
    }
}

/// An origin such as `snmalloc 0.7, from snmalloc-sys 0.7.6` or `bumpalo 3.20.3` ends in the crate
/// and its version.
#[test]
fn the_origins_name_the_versions_that_are_built() {
    let lock = include_str!("../../../Cargo.lock");
    let mut crates = 0;
    for about in known() {
        let Some((rest, version)) = about.origin.rsplit_once(' ') else { continue };
        if !version.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let name = rest.rsplit(' ').next().unwrap();
        // A build's metadata, after a plus sign, is not part of what we print.
        let entry = format!("name = \"{name}\"\nversion = \"{version}");
        let locked = lock
            .match_indices(&entry)
            .any(|(at, _)| lock[at + entry.len()..].starts_with(['"', '+']));
        assert!(locked, "{}: Cargo.lock has no {name} {version}", about.name);
        crates += 1;
    }
    // All but glibc, ours and their variants, the placements, the two of the C++ library and
    // Boost's.
    let boost = usize::from(about("boost-pool").is_ok());
    let without = 16 + PLACEMENTS.len() + boost + if cfg!(feature = "fast-peers") { 2 } else { 0 };
    assert_eq!(crates, known().len() - without);
}
