//! The Markdown pages of the repository.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let folders = ["docs/src", "docs/src/decisions"];
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(root().join(folder)).expect("the folder is there"));
    let paths = files.map(|file| file.expect("it can be read").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_page_with_rust_code_is_a_doc_test() {
    let libraries = ["allotment", "allotment-server"].map(|name| {
        let path = root().join("crates").join(name).join("src/lib.rs");
        std::fs::read_to_string(path).expect("it is there")
    });
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("it can be read");
        if text.lines().any(|line| line.starts_with("```rust")) {
            let page = page.strip_prefix(root()).expect("below the root").display().to_string();
            let include = format!("../../../{page}\"");
            let included = libraries.iter().filter(|library| library.contains(&include)).count();
            assert_eq!(included, 1, "{page} is in the `mod pages` of one library's lib.rs");
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let docs = root().join("docs/src");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("it is there");
    for page in pages() {
        let page = page.strip_prefix(&docs).expect("below docs").display().to_string();
        assert!(
            page == "SUMMARY.md" || summary.contains(&format!("({page})")),
            "{page} is not in the summary"
        );
    }
}

#[test]
fn links_between_pages_lead_to_files() {
    let tops = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    for page in pages().into_iter().chain(tops.map(|top| root().join(top))) {
        let text = std::fs::read_to_string(&page).expect("it can be read");
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            let folder = page.parent().expect("a page lies in a folder");
            assert!(folder.join(target).exists(), "{}: no {target}", page.display());
        }
    }
}

#[test]
fn the_readme_fits_in_150_lines() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    assert!(readme.lines().count() <= 150);
}
