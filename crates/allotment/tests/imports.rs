//! The library's files import downward: a folder imports only from the folders below it, and no
//! files of a folder import each other in a circle.

#[path = "support/import_graph.rs"]
mod import_graph;

use import_graph::{Library, parse, plain_code};
use std::path::Path;

/// The folders and the files beside them, lowest first. Each imports only from those before it.
const ORDER: [&str; 14] = [
    "sync",
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

/// Folders that still have circles of files.
const WITH_CIRCLES: [&str; 0] = [];

fn library() -> Library {
    Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn a_folder_imports_only_from_the_folders_below_it() {
    let wrong = library().upward_imports(&ORDER);
    assert!(wrong.is_empty(), "imports that lead upward:\n{}", wrong.join("\n"));
}

#[test]
fn no_files_of_a_folder_import_each_other_in_a_circle() {
    let library = library();
    let mut wrong = Vec::new();
    for folder in ORDER {
        let circles = library.circles(folder);
        match (circles.is_empty(), WITH_CIRCLES.contains(&folder)) {
            (false, false) => wrong.extend(circles),
            (true, true) => {
                wrong.push(format!("{folder} has no circle: remove it from WITH_CIRCLES"))
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "circles of files:\n{}", wrong.join("\n"));
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
    assert!(library().sources.len() > 50, "the sources were found");
}
