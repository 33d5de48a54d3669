//! Findings that were kept as JSON.

use crate::analyse::findings::{Findings, VERSION};
use crate::failure::Failure;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

/// How deep brackets may lie in each other: two for each function of a stack, of which there are 512 with what is inlined in each.
const DEEPEST: usize = 16_384;
/// Enough for so many, even without optimisation.
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

/// The flame graph is as deep as the deepest stack, so this takes a thread with a stack of its own.
pub fn parse(text: String) -> Result<Findings, String> {
    let depth = depth(&text);
    if depth > DEEPEST {
        return Err(format!("brackets lie {depth} deep in each other; at most {DEEPEST} may"));
    }
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let mut reader = serde_json::Deserializer::from_str(&text);
            reader.disable_recursion_limit();
            let findings = Findings::deserialize(&mut reader)
                .and_then(|findings| reader.end().map(|()| findings))
                .map_err(|error| format!("these are no findings of `allot analyse --json`: {error}"))?;
            match findings.version {
                VERSION => Ok(findings),
                other => Err(format!(
                    "findings of version {other}; this allot knows version {VERSION}: analyse the recording anew"
                )),
            }
        })
        .map_err(|error| error.to_string())?
        .join()
        .unwrap_or_else(|_| Err("it could not be parsed".to_owned()))
}

/// The most brackets that are open at once, those in strings left out.
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
