//! The findings in a compact form for the page: each name and frame once, sites as columns, the
//! flame graph as a list.
//!
//! The stacks of ten thousand sites repeat the same names, and a C++ name can have 5,000
//! characters.

use crate::analyse::findings::{Findings, FlameNode, ReplayFindings, StackFrame};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Digits of a fraction after the first.
const DIGITS: usize = 4;

/// All findings as one value.
pub fn data(findings: &Findings) -> serde_json::Result<Value> {
    let mut names = NameTable::default();
    let mut frames = FrameTable::default();
    let sites = findings
        .sites
        .iter()
        .map(|site| {
            let list = frames.list(&site.frames, &mut names);
            without_frames(serde_json::to_value(site)?, list)
        })
        .collect::<serde_json::Result<Vec<_>>>()?;
    let locks = findings
        .locks
        .iter()
        .map(|lock| {
            let list = frames.list(&lock.frames, &mut names);
            without_frames(serde_json::to_value(lock)?, list)
        })
        .collect::<serde_json::Result<Vec<_>>>()?;
    let timeline: Vec<[u64; 4]> = findings
        .timeline
        .iter()
        .map(|point| [point.time_ns, point.bytes, point.objects, point.most_bytes])
        .collect();
    let flame = flame(&findings.flame, &mut names);
    let mut data = json!({
        "allot": env!("CARGO_PKG_VERSION"),
        "program": findings.program,
        "timeline": timeline,
        "sites": columns(sites),
        "groups": findings.groups,
        "flame": flame,
        "overlaps": findings.overlaps,
        "locks": locks,
        "system": findings.system,
        "measured": findings.measured,
        "replay": findings.replay,
        "replay_is_too_high": findings.replay.as_ref().is_some_and(ReplayFindings::is_too_high) && !all_tried(findings),
        "notes": findings.notes,
        "frames": frames.rows,
        "names": names.list,
    });
    round(&mut data);
    Ok(data)
}

fn without_frames(mut value: Value, frames: Vec<usize>) -> serde_json::Result<Value> {
    value["frames"] = json!(frames);
    Ok(value)
}

/// Strings, each once.
#[derive(Default)]
struct NameTable {
    list: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl NameTable {
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.list.len();
        self.list.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// Frames, each once: function, file or null, line or null, module, whether inlined, whether a
/// wrapper.
#[derive(Default)]
struct FrameTable {
    rows: Vec<Value>,
    numbers: HashMap<StackFrame, usize>,
}

impl FrameTable {
    fn list(&mut self, frames: &[StackFrame], names: &mut NameTable) -> Vec<usize> {
        frames.iter().map(|frame| self.number(frame, names)).collect()
    }

    fn number(&mut self, frame: &StackFrame, names: &mut NameTable) -> usize {
        if let Some(number) = self.numbers.get(frame) {
            return *number;
        }
        let number = self.rows.len();
        self.rows.push(json!([
            names.number(&frame.function),
            frame.file.as_ref().map(|file| names.number(file)),
            frame.line,
            names.number(&frame.module),
            u8::from(frame.inlined),
            u8::from(frame.wrapper),
        ]));
        self.numbers.insert(frame.clone(), number);
        number
    }
}

/// Objects with the same keys as one list of keys and a list of values each.
fn columns(objects: Vec<Value>) -> Value {
    let fields: Vec<String> = match objects.first() {
        Some(Value::Object(first)) => first.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let row = |object: Value| -> Vec<Value> {
        let mut object = match object {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        fields.iter().map(|field| object.remove(field).unwrap_or(Value::Null)).collect()
    };
    let rows: Vec<Vec<Value>> = objects.into_iter().map(row).collect();
    json!({ "fields": fields, "rows": rows })
}

/// The tree as lists of depths, names, counts and bytes; each function stands before its callees.
fn flame(root: &FlameNode, names: &mut NameTable) -> Value {
    let (mut depths, mut named, mut counts, mut bytes) = (vec![], vec![], vec![], vec![]);
    let mut left = vec![(0, root)];
    while let Some((depth, node)) = left.pop() {
        depths.push(depth);
        named.push(names.number(&node.name));
        counts.push(node.count);
        bytes.push(node.bytes);
        left.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
    }
    json!({ "depth": depths, "name": named, "count": counts, "bytes": bytes, "least_share": root.least_share })
}

fn round(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(round),
        Value::Object(object) => object.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let rounded =
                number.as_f64().and_then(|exact| format!("{exact:.DIGITS$e}").parse().ok());
            if let Some(rounded) = rounded.filter(|rounded: &f64| rounded.is_finite()) {
                *value = json!(rounded);
            }
        }
        _ => {}
    }
}

/// Whether all changes that are advised were tried in the program itself.
fn all_tried(findings: &Findings) -> bool {
    let mut confirmed = findings
        .groups
        .iter()
        .filter(|group| group.verdict.replayed.as_ref().is_some_and(|outcome| outcome.confirmed));
    confirmed.all(|group| group.verdict.gain.is_some_and(|gain| gain.tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_keep_five_digits() {
        let mut value = json!([0.123456789, 123456.789, 1e-7, 0.0, 7, -2.5, 1e300, 5e-324]);
        round(&mut value);
        assert_eq!(value, json!([0.12346, 123460.0, 1e-7, 0.0, 7, -2.5, 1e300, 5e-324]));
    }

    #[test]
    fn a_name_and_a_frame_are_kept_once() {
        let frame = |function: &str| StackFrame {
            function: function.to_owned(),
            file: None,
            line: Some(3),
            module: "main".to_owned(),
            inlined: true,
            wrapper: false,
        };
        let (mut names, mut frames) = (NameTable::default(), FrameTable::default());
        assert_eq!(
            frames.list(&[frame("main"), frame("other"), frame("main")], &mut names),
            [0, 1, 0]
        );
        assert_eq!(names.list, ["main", "other"]);
        assert_eq!(frames.rows, [json!([0, null, 3, 0, 1, 0]), json!([1, null, 3, 0, 1, 0])]);
    }

    #[test]
    fn a_flame_graph_is_listed_callers_first() {
        let leaf =
            |name: &str| FlameNode { name: name.to_owned(), count: 1, ..FlameNode::default() };
        let mut root = FlameNode { children: vec![leaf("a"), leaf("c")], ..leaf("root") };
        root.children[0].children.push(leaf("b"));
        let mut names = NameTable::default();
        let listed = flame(&root, &mut names);
        assert_eq!(listed["depth"], json!([0, 1, 2, 1]));
        assert_eq!(names.list, ["root", "a", "b", "c"]);
    }

    #[test]
    fn sites_become_columns() {
        let columned = columns(vec![json!({"a": 1, "b": [2]}), json!({"a": 3, "b": null})]);
        assert_eq!(columned, json!({ "fields": ["a", "b"], "rows": [[1, [2]], [3, null]] }));
        assert_eq!(columns(vec![]), json!({ "fields": [], "rows": [] }));
    }
}
