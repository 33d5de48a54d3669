//! What the page on C++ shows compiles without a warning and runs; so does the example in `examples/cpp`.

mod support;

use std::path::{Path, PathBuf};

use support::{Compiler, installation, limited, package, scratch, skip, text, too_long};

/// What the page's pieces use without including it.
const INCLUDED: &str = "#include <allotment.hpp>\n#include <cstdio>\n#include <cstdlib>\n#include <list>\n#include <map>\n\
    #include <memory>\n#include <memory_resource>\n#include <string>\n#include <string_view>\n#include <thread>\n\
    #include <unordered_map>\n#include <vector>\n";

/// The C++ pieces of the page. One that includes nothing is the body of a function.
fn programs() -> Vec<String> {
    let page = package().join("../../docs/src/cpp.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let pieces = page.split("```cpp\n").skip(1);
    let pieces = pieces.map(|rest| rest.split("```").next().expect("split gives one piece"));
    pieces
        .map(|piece| {
            if piece.contains("#include") {
                return piece.to_owned();
            }
            format!("{INCLUDED}int main()\n{{\n{piece}\n}}\n")
        })
        .collect()
}

fn built(compiler: Compiler, source: &Path, name: &str) -> PathBuf {
    let program = scratch().join(format!("{compiler:?}-{name}"));
    let mut flags = installation().cflags();
    flags.extend(installation().static_flags());
    // Pieces of a page name more than they use.
    flags.extend(["-Wno-unused-variable", "-Wno-unused-but-set-variable"].map(str::to_owned));
    if let Err(error) = compiler.build(source, &program, &flags) {
        panic!("{}: {error}", source.display());
    }
    program
}

fn compilers() -> impl Iterator<Item = Compiler> {
    [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| {
        if matches!(compiler, Compiler::Clang) && too_long("C++ by Clang") {
            return false;
        }
        let there = compiler.is_there();
        if !there {
            skip(&format!("C++ by {compiler:?}"), "it is not installed");
        }
        there
    })
}

#[test]
fn every_piece_of_the_page_compiles_and_runs() {
    let programs = programs();
    assert!(programs.len() >= 8, "the page has pieces of C++");
    for compiler in compilers() {
        for (number, program) in programs.iter().enumerate() {
            let source = scratch().join(format!("piece_{number}.cpp"));
            std::fs::write(&source, program).expect("the target directory can be written");
            let output = limited(built(compiler, &source, &format!("piece-{number}"))).output();
            let output = output.expect("there is a shell");
            assert!(output.status.success(), "{program}\n{}", text(&output));
        }
    }
}

#[test]
fn the_example_does_the_same_work_on_both_allocators_and_says_what_it_took() {
    for compiler in compilers() {
        let program = built(compiler, &package().join("examples/cpp/pmr.cpp"), "pmr");
        let output = limited(&program).args(["--rounds", "1", "--times", "2", "--json"]).output();
        let output = output.expect("there is a shell");
        // It compares the results itself.
        assert!(output.status.success(), "{}", text(&output));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        for allocator in ["malloc", "allotment"] {
            let line = lines.lines().find(|line| line.contains(&format!("\"{allocator}\"")));
            let line = line.expect("a line for each allocator");
            for key in ["\"operations\":4000,", "\"user_seconds\":", "\"peak_bytes\":"] {
                assert!(line.contains(key), "{line}");
            }
        }
        let refused = limited(&program).args(["--allocator", "none"]).output();
        let refused = refused.expect("there is a shell");
        assert!(text(&refused).contains("see --help"), "{}", text(&refused));
        assert_eq!(refused.status.code(), Some(2));
    }
}
