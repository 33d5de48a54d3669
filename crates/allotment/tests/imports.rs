//! The library's files import downward: a folder imports only from the folders below it, and no
//! files of a folder import each other in a circle.

#[path = "support/import_graph.rs"]
mod import_graph;

use import_graph::{parse, plain_code};

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 16] = [
    "sync",
    "standard_error",
    "system_error",
    "error",
    "memory",
    "statistics",
    "checked",
    "options",
    "collections",
    "arena",
    "free_list",
    "slab",
    "pool",
    "sealed",
    "report",
    "allocator",
];

imports_go_downward!(ORDER, 50);

#[test]
fn the_allocators_do_not_import_each_other() {
    let wrong = library().imports_between(&["arena", "free_list", "slab", "pool", "sealed"]);
    assert!(wrong.is_empty(), "imports between allocators:\n{}", wrong.join("\n"));
}

#[test]
fn every_form_of_import_is_read() {
    let code = plain_code(
        r#"
        use super::{a::{self, B as C}, d::*}; // use super::comment;
        pub(crate) use crate::memory::{
            os, source::{Malloc, Mmap},
        };
        fn f() -> impl Sized + use<'_> { crate::error::fail("crate::in_string::x") }
        fn g(self) { super::h::<u8>(self::i::J) }
        mod inline {
            use super::own;
            pub(in super::super) fn k() { super::super::outer() }
        }
        "#,
    );
    let source = parse(&code, false);
    let mut paths: Vec<String> = source.paths.iter().map(|path| path.join("::")).collect();
    paths.sort();
    let expected = [
        "crate::error::fail",
        "crate::memory::os",
        "crate::memory::source::Malloc",
        "crate::memory::source::Mmap",
        "self::i::J",
        "super::a",
        "super::a::B",
        "super::d::*",
        "super::h",
        "super::outer",
    ];
    assert_eq!(paths, expected);
    assert!(
        source.names.iter().any(|(name, path)| name == "C" && path.join("::") == "super::a::B")
    );
}
