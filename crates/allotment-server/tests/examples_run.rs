//! Every example runs to its end.

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_runs_and_succeeds() {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap().to_str().unwrap();
        let output = Command::new(built.join(name)).output().unwrap_or_else(|error| {
            panic!("{name}: {error}; `cargo test` builds it, `--test` alone may not")
        });
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert!(count >= 1, "the examples were found");
}
