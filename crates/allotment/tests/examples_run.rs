//! Every example runs to its end.
#![cfg(system_memory)]

use std::path::Path;
use std::process::Command;

/// An example as `cargo test` has built it, beside the folder that this test lies in.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    Command::new(test.ancestors().nth(2).unwrap().join("examples").join(name))
}

#[test]
fn three_programs_count_the_same_letters_in_the_users_file() {
    let file = std::env::temp_dir().join(format!("allotment-three-{}", std::process::id()));
    let text = "An A is no a.\n".repeat(1000);
    std::fs::write(&file, &text).unwrap();
    let output = example("letters").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let lines: Vec<&str> = printed.lines().skip(2).collect();
    for (line, name, reads) in [
        (lines[0], "one read a byte", text.len()),
        (lines[1], "buffered", text.len().div_ceil(4096)),
        (lines[2], "mapped", 0),
    ] {
        let figures: Vec<&str> = line.strip_prefix(name).unwrap().split_whitespace().collect();
        assert_eq!(figures[0], "2000", "{line}");
        assert!(figures[1] == reads.to_string() || figures[1] == "-", "{line}");
    }
}

#[test]
fn a_file_that_can_not_be_searched_is_named() {
    for (arguments, code, text) in [
        (&["/no/such/file"][..], 1, "letters: '/no/such/file': No such file"),
        (&["/dev/null"], 1, "letters: '/dev/null': not a regular file"),
        (&["one", "two"], 2, "letters: one file, or none"),
    ] {
        let output = example("letters").args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.starts_with(text), "{errors}");
    }
}

#[test]
fn every_example_runs_and_succeeds() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap();
        let output = example(name.to_str().unwrap()).output().unwrap_or_else(|error| {
            panic!(
                "{}: {error}; `cargo test` builds it, `--test` alone may not",
                name.to_string_lossy()
            )
        });
        assert!(
            output.status.success(),
            "{}: {}",
            name.to_string_lossy(),
            String::from_utf8_lossy(&output.stderr)
        );
        count += 1;
    }
    assert!(count >= 5, "the examples were found");
}
