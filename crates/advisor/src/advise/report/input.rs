//! Reads findings from JSON.

use crate::analyse::findings::{Findings, VERSION};
use bench::console::failure::Failure;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

/// The deepest nesting of brackets: two for each function of a stack of at most 512 frames, with
/// the functions inlined in each.
const DEEPEST: usize = 16_384;
/// Bytes of stack; enough for that depth, even without optimisation.
const STACK: usize = 256 << 20;

/// Reads findings from a file, or from standard input for `-`.
pub fn read(path: &Path) -> Result<Findings, Failure> {
    let failed = |why: String| Failure::Failed(format!("can't read '{}': {why}", path.display()));
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| failed(error.to_string()))?;
    parse(text).map_err(failed)
}

/// Parses findings, in a thread with a large stack: the flame graph is as deep as the deepest
/// stack.
pub fn parse(text: String) -> Result<Findings, String> {
    let depth = depth(&text);
    if depth > DEEPEST {
        return Err(format!("its brackets are {depth} deep, and the limit is {DEEPEST}"));
    }
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let mut reader = serde_json::Deserializer::from_str(&text);
            reader.disable_recursion_limit();
            let findings = Findings::deserialize(&mut reader)
                .and_then(|findings| reader.end().map(|()| findings))
                .map_err(|error| format!("it has no findings of `allot analyse --json`: {error}"))?;
            match findings.version {
                VERSION => Ok(findings),
                other => Err(format!(
                    "the findings have version {other}, and this allot reads version {VERSION}; run `allot analyse --json` again"
                )),
            }
        })
        .map_err(|error| error.to_string())?
        .join()
        .unwrap_or_else(|_| Err("it could not be parsed".to_owned()))
}

/// The most brackets that are open at once, not counting those in strings.
fn depth(text: &str) -> usize {
    let (mut open, mut most) = (0usize, 0);
    let (mut string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            _ if string => {}
            b'[' | b'{' => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(depth(r#"{"a[[[\"[[": [1, {"b": "]"}]}"#), 3);
        assert_eq!(depth("]]]["), 1);
    }

    #[test]
    fn what_is_too_deep_is_an_error_and_not_a_crash() {
        let error = parse("[".repeat(5_000_000)).unwrap_err();
        assert!(error.contains("5000000 deep"), "{error}");
        let error = parse("[".repeat(DEEPEST)).unwrap_err();
        assert!(error.contains("no findings"), "{error}");
    }
}
