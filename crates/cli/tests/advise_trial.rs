//! `allot advise --repeat`: the advised changes are tried on the program itself.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The findings on the program, which checks its own blocks; `None`, and a message, without a C
/// compiler.
fn findings() -> Option<Value> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advise-trial");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("tried");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/tried.c");
    let flags = ["-O1", "-g", "-pthread", "-o"];
    let Ok(output) = Command::new("cc").args(flags).arg(&program).arg(source).output() else {
        eprintln!("skipped: there is no C compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(["advise", "--json", "--no-report", "--rounds", "2", "--repeat", "6", "--"]);
    command.arg(&program).current_dir(&folder).stdin(Stdio::null());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // Before the findings comes nothing: the program's output goes to standard error.
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The program runs correctly with an arena's memory, with lists, and with both: it exits with 1 if a
/// block was overwritten.
#[test]
fn changes_are_tried_on_the_program_and_what_they_save_is_measured() {
    let Some(findings) = findings() else { return };
    let rows = findings["measured"]["rows"].as_array().unwrap();
    let allocator = |group: &Value| {
        let group = &findings["groups"][group.as_u64().unwrap() as usize];
        group["verdict"]["allocator"].as_str().unwrap().to_owned()
    };
    let mut tried = Vec::new();
    for row in rows {
        assert_eq!(row["failure"], Value::Null, "{row:#}");
        let groups = row["groups"].as_array().unwrap();
        if groups.is_empty() {
            continue;
        }
        let (cpu, parts) = (&row["cpu"], &row["parts"]);
        let part = |name: &str| parts[name].as_f64().unwrap();
        let sum = part("allocation") + part("calls") + part("walks");
        assert!((1.0 - cpu["median"].as_f64().unwrap() - sum).abs() < 1e-6, "{row:#}");
        assert!(cpu["low"].as_f64() <= cpu["high"].as_f64(), "{row:#}");
        tried.push(groups.iter().map(allocator).collect::<Vec<_>>());
        if let [group] = &groups[..] {
            let gain = &findings["groups"][group.as_u64().unwrap() as usize]["verdict"]["gain"];
            assert_eq!(gain["tried"], true, "{gain:#}");
        }
    }
    let one = |is: fn(&str) -> bool| tried.iter().any(|row| row.len() == 1 && is(&row[0]));
    assert!(one(|name| name == "arena"), "{tried:?}");
    assert!(one(|name| ["pool", "slab", "free_list", "reap"].contains(&name)), "{tried:?}");
    assert!(tried.iter().any(|row| row.len() > 1), "{tried:?}");
}
