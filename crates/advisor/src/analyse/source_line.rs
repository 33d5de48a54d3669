//! The line of the program's source that allocates, and what it becomes with an allocator.

use super::findings::{AdvisedAllocator, CodeChange, StackFrame};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The longest line that is shown.
const MOST_CHARACTERS: usize = 200;
/// The last line that is looked up: reading so far takes a few milliseconds.
const LAST_LINE: u32 = 200_000;

/// Puts the program's own line into the advised change, before and after, if its source is on this
/// machine and the line calls an allocation function.
pub fn show_in(change: &mut CodeChange, allocator: AdvisedAllocator, frames: &[StackFrame]) {
    let wrappers = frames.iter().take_while(|frame| frame.wrapper);
    let wrappers: Vec<&str> = wrappers.map(|frame| &*frame.function).collect();
    let Some(frame) = frames.iter().find(|frame| !frame.wrapper) else { return };
    let (Some(file), Some(number)) = (&frame.file, frame.line) else { return };
    let Some(line) = read_line(Path::new(file), number) else { return };
    let is_rust = file.ends_with(".rs");
    let Some(after) = changed(&line, is_rust, &wrappers, allocator) else { return };
    let text = if is_rust { &mut change.rust } else { &mut change.c };
    // The first line names the function, the second one makes the allocator, the third allocates.
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.len() > 2 {
        lines.splice(2..3, [format!("- {line}"), format!("+ {after}")]);
        *text = lines.join("\n");
    }
}

/// A line of a file, without its indentation. `None` if it can't be shown.
fn read_line(file: &Path, number: u32) -> Option<String> {
    if number > LAST_LINE || !file.is_file() {
        return None;
    }
    let mut lines = BufReader::new(File::open(file).ok()?).lines();
    let line = lines.nth(number.checked_sub(1)? as usize)?.ok()?;
    let line = line.trim().to_owned();
    let is_shown = line.chars().count() <= MOST_CHARACTERS && !line.chars().any(char::is_control);
    is_shown.then_some(line)
}

/// The line with its allocation by the allocator. `None` if it calls none of the functions that are
/// known, or several.
fn changed(
    line: &str,
    is_rust: bool,
    wrappers: &[&str],
    allocator: AdvisedAllocator,
) -> Option<String> {
    if is_rust {
        let variable = match allocator {
            AdvisedAllocator::Arena => "arena",
            AdvisedAllocator::FreeList => "list",
            AdvisedAllocator::Slab => "slab",
            _ => return None,
        };
        let call = only_call(line, &["Box::new"])?;
        return Some(call.replaced(line, &format!("{variable}.alloc({})", call.arguments)));
    }
    let names: Vec<&str> = ["malloc", "calloc", "strdup"].iter().chain(wrappers).copied().collect();
    let call = only_call(line, &names)?;
    let (size, is_plain) = match (call.name, &*split(call.arguments)) {
        ("calloc", [_, _]) | ("strdup", [_]) => ("", false),
        ("calloc" | "strdup", _) => return None,
        // A wrapper with one argument is called as malloc is.
        (_, [size]) => (*size, true),
        _ => return None,
    };
    let with = match allocator {
        AdvisedAllocator::Arena if is_plain => format!("allot_arena_alloc(arena, {size})"),
        AdvisedAllocator::Arena => {
            format!("allot_arena_{}(arena, {})", call.name, call.arguments)
        }
        _ if !is_plain => return None,
        AdvisedAllocator::Reap => format!("allot_reap_alloc(reap, {size}, 16)"),
        AdvisedAllocator::Pool => format!("allot_pool_alloc(pool, {size}, 16)"),
        AdvisedAllocator::FreeList => "allot_free_list_alloc(list)".to_owned(),
        AdvisedAllocator::Slab => "allot_slab_alloc(slab)".to_owned(),
        AdvisedAllocator::Sealed | AdvisedAllocator::None => return None,
    };
    Some(call.replaced(line, &with))
}

/// A call in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call<'l> {
    name: &'l str,
    arguments: &'l str,
    from: usize,
    to: usize,
}

impl Call<'_> {
    fn replaced(&self, line: &str, with: &str) -> String {
        format!("{}{with}{}", &line[..self.from], &line[self.to..])
    }
}

/// The call of one of the functions; `None` if there is none, more than one, or one that does not
/// end in this line.
fn only_call<'l>(line: &'l str, names: &[&'l str]) -> Option<Call<'l>> {
    let mut calls = names.iter().flat_map(|name| line.match_indices(name));
    let mut found = None;
    for (from, name) in calls.by_ref() {
        let is_part = line[..from].ends_with(|c: char| c.is_alphanumeric() || "_:.>".contains(c));
        let rest = &line[from + name.len()..];
        let open = rest.len() - rest.trim_start().len();
        if is_part || !rest[open..].starts_with('(') {
            continue;
        }
        let begin = from + name.len() + open + 1;
        let length = closing(&line[begin..])?;
        let call = Call {
            name,
            arguments: line[begin..begin + length].trim(),
            from,
            to: begin + length + 1,
        };
        if found.is_some_and(|found| found != call) {
            return None;
        }
        found = Some(call);
    }
    found
}

/// Bytes up to the parenthesis that closes one opened before the text.
fn closing(text: &str) -> Option<usize> {
    let (mut open, mut quote) = (0, None);
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(end), character) if character == end => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(') => open += 1,
            (None, ')') if open == 0 => return Some(at),
            (None, ')') => open -= 1,
            _ => {}
        }
    }
    None
}

/// Arguments, divided at the commas outside of parentheses and texts.
fn split(arguments: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut open, mut from, mut is_text) = (0_i32, 0, false);
    for (at, character) in arguments.char_indices() {
        match character {
            '"' => is_text = !is_text,
            _ if is_text => {}
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open -= 1,
            ',' if open == 0 => {
                parts.push(arguments[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[from..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(line: &str, allocator: AdvisedAllocator) -> Option<String> {
        changed(line, false, &["xmalloc"], allocator)
    }

    #[test]
    fn a_line_of_c_keeps_its_own_names() {
        use AdvisedAllocator::{Arena, FreeList, Pool, Reap, Slab};
        let line = "struct node *n = malloc(sizeof(*n) + strlen(name));";
        let size = "sizeof(*n) + strlen(name)";
        for (allocator, call) in [
            (Arena, format!("allot_arena_alloc(arena, {size})")),
            (Reap, format!("allot_reap_alloc(reap, {size}, 16)")),
            (Pool, format!("allot_pool_alloc(pool, {size}, 16)")),
            (FreeList, "allot_free_list_alloc(list)".to_owned()),
            (Slab, "allot_slab_alloc(slab)".to_owned()),
        ] {
            assert_eq!(c(line, allocator), Some(format!("struct node *n = {call};")));
        }
        assert_eq!(
            c("return (T *) calloc (n, sizeof(T));", Arena).unwrap(),
            "return (T *) allot_arena_calloc(arena, n, sizeof(T));"
        );
        assert_eq!(c("v = calloc(n, 8);", Pool), None);
        assert_eq!(
            c("s = strdup(\"a)b\");", Arena).unwrap(),
            "s = allot_arena_strdup(arena, \"a)b\");"
        );
        assert_eq!(c("p = xmalloc(9);", Arena).unwrap(), "p = allot_arena_alloc(arena, 9);");
    }

    #[test]
    fn what_is_not_one_whole_call_is_left_alone() {
        use AdvisedAllocator::{Arena, Sealed};
        for line in [
            "n = my_malloc(8);",
            "n = heap->malloc(8);",
            "n = malloc(8), m = malloc(9);",
            "n = malloc(sizeof(struct node) +",
            "n = xmalloc(heap, 8);",
            "n = realloc(n, 8);",
            "n = malloc;",
            "std::vector<int> v(8);",
        ] {
            assert_eq!(c(line, Arena), None, "{line}");
        }
        assert_eq!(c("n = malloc(8);", Sealed), None);
    }

    #[test]
    fn a_line_of_rust_keeps_its_own_names() {
        use AdvisedAllocator::{Arena, FreeList, Pool};
        let line = "left: Some(Box::new(Node::new(depth - 1))),";
        let rust = |allocator| changed(line, true, &[], allocator);
        assert_eq!(rust(Arena).unwrap(), "left: Some(arena.alloc(Node::new(depth - 1))),");
        assert_eq!(rust(FreeList).unwrap(), "left: Some(list.alloc(Node::new(depth - 1))),");
        assert_eq!(rust(Pool), None);
    }

    #[test]
    fn the_change_has_the_line_before_and_after() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tree.c");
        std::fs::write(&file, "first\n    n = malloc(sizeof *n);\n").unwrap();
        let frame = |function: &str, line, wrapper| StackFrame {
            function: function.to_owned(),
            file: Some(file.display().to_string()),
            line: Some(line),
            module: String::new(),
            inlined: false,
            wrapper,
        };
        let change =
            || CodeChange { rust: String::new(), c: "/* f */\nmake\nalloc\nreset".to_owned() };
        let mut with = change();
        show_in(&mut with, AdvisedAllocator::Arena, &[frame("x", 1, true), frame("f", 2, false)]);
        assert_eq!(
            with.c,
            "/* f */\nmake\n- n = malloc(sizeof *n);\n+ n = allot_arena_alloc(arena, sizeof *n);\nreset"
        );
        // Another line, and none.
        for line in [1, 3] {
            let mut without = change();
            show_in(&mut without, AdvisedAllocator::Arena, &[frame("f", line, false)]);
            assert_eq!(without, change());
        }
    }
}
