//! Every mutant of a protocol between threads (`mutant` and `order` in `src/sync.rs`) has a model
//! that must fail on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The Rust files below a folder whose path has these words in it.
fn files(folder: &Path, words: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let below = paths.flat_map(|path| if path.is_dir() { files(&path, words) } else { vec![path] });
    below.filter(|path| path.display().to_string().contains(words)).collect()
}

fn text(files: &[PathBuf]) -> String {
    files.iter().map(|path| std::fs::read_to_string(path).expect("it can be read")).collect()
}

/// The first string in the arguments of each call of a function.
fn strings_in_calls(text: &str, function: &str) -> BTreeSet<String> {
    let call = format!("{function}(");
    let calls = text.split(&call).skip(1);
    let arguments = calls.filter_map(|rest| rest.split(')').next());
    arguments.filter_map(|text| Some(text.split('"').nth(1)?.to_owned())).collect()
}

#[test]
fn each_mutant_has_a_model_that_must_fail_on_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = text(&files(&root.join("src"), ".rs"));
    let models = text(&files(&root.join("tests"), "loom_"));
    let mut mutants = strings_in_calls(&library, "mutant");
    mutants.extend(strings_in_calls(&library, "order"));
    mutants.extend(strings_in_calls(&models, "mutant"));
    assert!(mutants.len() > 50, "they are found: {mutants:?}");
    let without_model: Vec<_> = mutants
        .iter()
        .filter(|mutant| {
            let named = models.matches(&format!("\"{mutant}\"")).count();
            named == models.matches(&format!("mutant(\"{mutant}\")")).count()
        })
        .collect();
    assert!(without_model.is_empty(), "no model fails on {without_model:?}");
}
