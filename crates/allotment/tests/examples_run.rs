//! Every example runs to its end.

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_runs_and_succeeds() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    // `cargo test` builds the examples beside the folder that this test lies in.
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap();
        let output = Command::new(built.join(name)).output().unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo test` builds it, `--test` alone may not", name.display())
        });
        assert!(
            output.status.success(),
            "{}: {}",
            name.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        count += 1;
    }
    assert!(count >= 5, "the examples were found");
}
