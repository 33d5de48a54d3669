//! The advisor's files import downward: a folder imports only from the folders below it, and no files
//! of a folder import each other in a circle.

#[path = "../../allotment/tests/support/import_graph.rs"]
mod import_graph;

use import_graph::Library;
use std::path::Path;

/// The folders, lowest first. Each imports only from those before it.
const ORDER: [&str; 4] = ["record", "analyse", "replay", "advise"];

fn library() -> Library {
    Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn a_folder_imports_only_from_the_folders_below_it() {
    let library = library();
    assert!(library.sources.len() > 50, "the sources were found");
    let wrong = library.upward_imports(&ORDER);
    assert!(wrong.is_empty(), "imports that lead upward:\n{}", wrong.join("\n"));
}

#[test]
fn no_files_of_a_folder_import_each_other_in_a_circle() {
    let library = library();
    let wrong: Vec<String> = ORDER.iter().flat_map(|folder| library.circles(folder)).collect();
    assert!(wrong.is_empty(), "circles of files:\n{}", wrong.join("\n"));
}
