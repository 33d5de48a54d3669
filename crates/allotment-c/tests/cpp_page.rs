//! The code on the page about C++ compiles without warnings and runs; so does the example in
//! `examples/cpp`.

mod support;

use std::path::{Path, PathBuf};

use support::{Compiler, installation, package, report_of, scratch, skip, skip_long, with_limits};

/// The headers that the code on the page uses without including them.
const INCLUDED: &str = "#include <allotment.hpp>\n#include <cstdio>\n#include <cstdlib>\n#include <list>\n#include <map>\n\
    #include <memory>\n#include <memory_resource>\n#include <string>\n#include <string_view>\n#include <thread>\n\
    #include <unordered_map>\n#include <vector>\n";

/// A block of C++ on the page.
struct Block {
    program: String,
    /// What the block of text directly below says that the program prints.
    output: Option<String>,
}

/// The blocks of C++ on the page. One that includes nothing is the body of a function.
fn blocks() -> Vec<Block> {
    let page = package().join("../../docs/src/cpp.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    page.split("```cpp\n")
        .skip(1)
        .map(|rest| {
            let (code, below) = rest.split_once("```\n").expect("the block ends");
            let program = if code.contains("#include") {
                code.to_owned()
            } else {
                format!("{INCLUDED}int main()\n{{\n{code}\n}}\n")
            };
            let output = below.trim_start().strip_prefix("```text\n");
            let output = output.and_then(|text| text.split("```").next()).map(str::to_owned);
            Block { program, output }
        })
        .collect()
}

fn built(compiler: Compiler, source: &Path, name: &str) -> PathBuf {
    let program = scratch().join(format!("{compiler:?}-{name}"));
    let mut flags = installation().cflags();
    flags.extend(installation().static_flags());
    // The code on the page declares variables without using them.
    flags.extend(["-Wno-unused-variable", "-Wno-unused-but-set-variable"].map(str::to_owned));
    if let Err(error) = compiler.build(source, &program, &flags) {
        panic!("{}: {error}", source.display());
    }
    program
}

fn compilers() -> impl Iterator<Item = Compiler> {
    [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| {
        if matches!(compiler, Compiler::Clang) && skip_long("C++ with Clang") {
            return false;
        }
        let is_installed = compiler.is_installed();
        if !is_installed {
            skip(&format!("C++ with {compiler:?}"), "it is not installed");
        }
        is_installed
    })
}

#[test]
fn every_block_of_the_page_compiles_and_prints_the_text_below_it() {
    let blocks = blocks();
    assert!(blocks.len() >= 8, "the page has blocks of C++");
    assert!(blocks.iter().any(|block| block.output.is_some()), "the page shows an output");
    for compiler in compilers() {
        for (number, Block { program, output: shown }) in blocks.iter().enumerate() {
            let source = scratch().join(format!("piece_{number}.cpp"));
            std::fs::write(&source, program).expect("the target directory can be written");
            let output = with_limits(built(compiler, &source, &format!("piece-{number}"))).output();
            let output = output.expect("there is a shell");
            assert!(output.status.success(), "{program}\n{}", report_of(&output));
            if let Some(shown) = shown {
                assert_eq!(String::from_utf8_lossy(&output.stdout), *shown, "{program}");
            }
        }
    }
}

#[test]
fn the_example_does_the_same_work_on_both_allocators_and_reports_its_cost() {
    for compiler in compilers() {
        let program = built(compiler, &package().join("examples/cpp/pmr.cpp"), "pmr");
        let output =
            with_limits(&program).args(["--rounds", "1", "--times", "2", "--json"]).output();
        let output = output.expect("there is a shell");
        // The program compares the results.
        assert!(output.status.success(), "{}", report_of(&output));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        for allocator in ["malloc", "allotment"] {
            let line = lines.lines().find(|line| line.contains(&format!("\"{allocator}\"")));
            let line = line.expect("a line for each allocator");
            for key in ["\"operations\":4000,", "\"user_seconds\":", "\"peak_bytes\":"] {
                assert!(line.contains(key), "{line}");
            }
        }
        let refused = with_limits(&program).args(["--allocator", "none"]).output();
        let refused = refused.expect("there is a shell");
        assert!(report_of(&refused).contains("see --help"), "{}", report_of(&refused));
        assert_eq!(refused.status.code(), Some(2));
    }
}

#[test]
fn the_order_book_makes_the_same_trades_with_each_allocator() {
    for compiler in compilers() {
        let source = package().join("examples/cpp/order_book.cpp");
        let program = built(compiler, &source, "order-book");
        let output = with_limits(&program).arg("--quick").output();
        let output = output.expect("there is a shell");
        // The program compares the trades.
        assert!(output.status.success(), "{}", report_of(&output));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        for allocator in ["malloc", "std::pmr", "Allotment"] {
            let line = lines.lines().find(|line| line.starts_with(allocator));
            assert!(line.is_some_and(|line| line.contains(" ns per message, ")), "{lines}");
        }
        let refused = with_limits(&program).arg("--slow").output().expect("there is a shell");
        assert!(report_of(&refused).contains("usage: order_book"), "{}", report_of(&refused));
        assert_eq!(refused.status.code(), Some(2));
    }
}
