//! Reads the imports of a crate's source files.
//!
//! An import is a path that begins with `crate`, `self`, `super` or a child module, in a `use`
//! declaration or in the code. A path through a re-export leads to the file that has the item.
//! Comments, strings and `#[cfg(test)]` modules don't count, nor does a `main.rs` beside a
//! `lib.rs`.
//!
//! [`imports_go_downward`] makes the tests of one crate from the order of its folders. An ignored
//! test prints them:
//!
//! ```text
//! cargo test -p allotment --test imports -- --ignored --nocapture
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

pub type Module = Vec<String>;

/// The tests of the imports of the crate that is being tested. `$order` has its folders and the
/// files beside them, lowest first; the crate has more than `$files` source files.
#[macro_export]
macro_rules! imports_go_downward {
    ($order:expr, $files:expr) => {
        fn library() -> $crate::import_graph::Library {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let library = $crate::import_graph::Library::read(&root);
            assert!(library.sources.len() > $files, "the sources were found");
            library
        }

        #[test]
        fn a_folder_imports_only_from_the_folders_below_it() {
            let wrong = library().upward_imports(&$order);
            assert!(wrong.is_empty(), "imports that lead upward:\n{}", wrong.join("\n"));
        }

        #[test]
        fn no_files_of_a_folder_import_each_other_in_a_circle() {
            let wrong = library().all_circles(&$order);
            assert!(wrong.is_empty(), "circles of files:\n{}", wrong.join("\n"));
        }

        #[test]
        #[ignore = "prints the folders in their order, with their imports"]
        fn the_order_of_the_folders_is_printed() {
            println!("{}:\n{}", env!("CARGO_PKG_NAME"), library().picture(&$order));
        }
    };
}

/// A source file, by the path of its module.
pub struct Source {
    /// Whether the module may have child modules: `mod.rs`, the root, and `a.rs` beside a folder
    /// `a`.
    is_parent: bool,
    /// For each imported name, the path that it stands for. `*` imports have the name `*`.
    pub names: Vec<(String, Module)>,
    /// All paths in the code, as they are written.
    pub paths: Vec<Module>,
}

/// The source files of a crate, by module.
pub struct Library {
    pub sources: BTreeMap<Module, Source>,
}

impl Library {
    /// Reads all source files below `root`.
    pub fn read(root: &Path) -> Self {
        let mut library = Self { sources: BTreeMap::new() };
        library.read_folder(root, &[]);
        library
    }

    fn read_folder(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let at_root = module.is_empty();
            if at_root && stem == "main" && folder.join("lib.rs").exists() {
                continue;
            }
            let is_folders = stem == "mod" || at_root && (stem == "lib" || stem == "main");
            let is_parent = is_folders || path.with_extension("").is_dir();
            let mut inner = module.to_vec();
            if !is_folders {
                inner.push(stem);
            }
            if path.is_dir() {
                self.read_folder(&path, &inner);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = without_tests(&plain_code(&fs::read_to_string(&path).unwrap()));
                self.sources.insert(inner, parse(&code, is_parent));
            }
        }
    }

    /// The files that a file imports from.
    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let paths = self.sources[module].paths.iter();
        let mut found: BTreeSet<_> = paths.filter_map(|path| self.resolve(module, path)).collect();
        found.remove(module);
        found
    }

    /// The file that a path in `module` leads to, if it is one of the library's.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Module> {
        let mut at = match path[0].as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            child => {
                let at = [module, &[child.to_owned()]].concat();
                (self.sources[module].is_parent && self.sources.contains_key(&at)).then_some(at)?
            }
        };
        let mut rest = &path[1..];
        while let Some((name, others)) = rest.split_first() {
            let inner = [&at[..], core::slice::from_ref(name)].concat();
            if name == "super" {
                at.pop()?;
            } else if self.sources.contains_key(&inner) {
                at = inner;
            } else {
                // An item of `at`, or one that `at` imports from elsewhere.
                return self.imported(&at, name).or(Some(at));
            }
            rest = others;
        }
        Some(at)
    }

    fn imported(&self, module: &[String], name: &str) -> Option<Module> {
        let source = self.sources.get(module).filter(|source| source.is_parent)?;
        let (_, path) = source.names.iter().find(|(imported, _)| imported == name)?;
        self.resolve(module, path)
    }

    /// The imports that lead upward, each as one line. `order` has the folders of the crate and the
    /// files beside them, lowest first.
    pub fn upward_imports(&self, order: &[&str]) -> Vec<String> {
        let floor = |module: &Module| {
            module.first().map(|first| order.iter().position(|name| name == first))
        };
        for name in order {
            let exists =
                self.sources.keys().any(|module| module.first().is_some_and(|f| f == name));
            assert!(exists, "{name} is in the order of tests/imports.rs, but not in the crate");
        }
        let mut wrong = Vec::new();
        for module in self.sources.keys() {
            // The root declares and re-exports everything.
            let Some(own) = floor(module) else { continue };
            let own = own.unwrap_or_else(|| {
                panic!("{} has no position in the order of tests/imports.rs", module[0])
            });
            for imported in self.imports(module) {
                if floor(&imported).is_none_or(|floor| floor.is_none_or(|floor| floor > own)) {
                    let target =
                        if imported.is_empty() { "lib".into() } else { imported.join("/") };
                    wrong.push(format!("{} imports from {target}", module.join("/")));
                }
            }
        }
        wrong
    }

    /// The imports of files in one of `folders` from another of them, each as one line.
    #[allow(dead_code, reason = "most crates have no folders that stand beside each other")]
    pub fn imports_between(&self, folders: &[&str]) -> Vec<String> {
        let folder = |module: &Module| {
            folders.iter().position(|name| module.first().is_some_and(|first| first == name))
        };
        let mut wrong = Vec::new();
        for module in self.sources.keys().filter(|module| folder(module).is_some()) {
            for imported in self.imports(module) {
                if folder(&imported).is_some_and(|other| Some(other) != folder(module)) {
                    let (from, to) = (module.join("/"), imported.join("/"));
                    wrong.push(format!("{from} imports from {to}"));
                }
            }
        }
        wrong
    }

    /// The circles of files in all folders, each as one line.
    pub fn all_circles(&self, order: &[&str]) -> Vec<String> {
        order.iter().flat_map(|folder| self.circles(folder)).collect()
    }

    /// The folders and the files beside them, the highest first: how many files each has, and from
    /// which of the others it imports. Ends with the number of upward imports and of circles.
    pub fn picture(&self, order: &[&str]) -> String {
        let width = order.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for name in order.iter().rev() {
            let modules: Vec<&Module> = self
                .sources
                .keys()
                .filter(|module| module.first().is_some_and(|first| first == name))
                .collect();
            let imported: BTreeSet<Module> =
                modules.iter().flat_map(|module| self.imports(module)).collect();
            let is_imported = |other: &&&str| {
                *other != name
                    && imported
                        .iter()
                        .any(|module| module.first().is_some_and(|first| first == **other))
            };
            let others: Vec<&str> = order.iter().filter(is_imported).copied().collect();
            let files = if modules.len() == 1 { "file" } else { "files" };
            let line =
                format!("  {name:width$} {:3} {files:5}  {}", modules.len(), others.join(", "));
            text += line.trim_end();
            text.push('\n');
        }
        let (upward, circles) = (self.upward_imports(order).len(), self.all_circles(order).len());
        text + &format!("  {upward} upward imports, {circles} circles\n")
    }

    /// The circles of files in one folder, `mod.rs` apart, each as one line.
    pub fn circles(&self, folder: &str) -> Vec<String> {
        let files: Vec<&Module> = self
            .sources
            .iter()
            .filter(|(module, source)| {
                module.first().is_some_and(|first| first == folder) && !source.is_parent
            })
            .map(|(module, _)| module)
            .collect();
        let imports: Vec<BTreeSet<Module>> = files.iter().map(|file| self.imports(file)).collect();
        let is_edge = |from: usize, to: usize| {
            let imported = |from: usize, to: usize| imports[from].contains(files[to]);
            let to_builder = files[to].last().is_some_and(|name| name.ends_with("builder"));
            // A builder and its type import each other.
            imported(from, to) && !(to_builder && imported(to, from))
        };
        let count = files.len();
        let mut reaches: Vec<Vec<bool>> =
            (0..count).map(|from| (0..count).map(|to| is_edge(from, to)).collect()).collect();
        for middle in 0..count {
            let onward = reaches[middle].clone();
            for row in &mut reaches {
                if row[middle] {
                    row.iter_mut().zip(&onward).for_each(|(cell, on)| *cell |= on);
                }
            }
        }
        let circle_of = |from: usize| -> Vec<String> {
            let both = (0..count).filter(|to| reaches[from][*to] && reaches[*to][from]);
            both.map(|to| files[to].join("/")).collect()
        };
        let circles: BTreeSet<String> = (0..count).map(|file| circle_of(file).join(", ")).collect();
        circles.into_iter().filter(|circle| !circle.is_empty()).collect()
    }
}

/// The code without comments, and with empty strings.
pub fn plain_code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            at += text[at..].find("*/").expect("a comment ends") + 2;
        } else if rest[0] == b'"' {
            at += 1;
            while bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
        } else if rest.starts_with(b"r#\"") {
            at += text[at..].find("\"#").expect("a raw string ends") + 2;
        } else if rest.starts_with(b"'\"'") {
            at += 3;
        } else {
            let character = text[at..].chars().next().expect("the rest is not empty");
            code.push(character);
            at += character.len_utf8();
        }
    }
    code
}

/// The code without the modules that only tests have.
fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::new();
    while let Some(start) = rest.find("#[cfg(test)]").or_else(|| rest.find("#[cfg(all(test")) {
        kept.push_str(&rest[..start]);
        let item = start + rest[start..].find(['{', ';']).expect("an item ends");
        if rest[item..].starts_with(';') {
            rest = &rest[item + 1..];
            continue;
        }
        let body = item;
        let mut depth = 0;
        let end = rest[body..].find(|character| {
            depth += i32::from(character == '{') - i32::from(character == '}');
            depth == 0
        });
        rest = &rest[body + end.expect("a body ends") + 1..];
    }
    kept + rest
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Reads the `use` declarations and the qualified paths of a file. Paths in an inline module are
/// turned into paths of the file.
pub fn parse(code: &str, is_parent: bool) -> Source {
    let mut names = Vec::new();
    let mut paths = Vec::new();
    let mut depth = 0;
    // The depth at which the body of each open inline module began.
    let mut inline: Vec<i32> = Vec::new();
    let mut last_words = ["", ""];
    let mut rest = code;
    while let Some(character) = rest.chars().next() {
        let len = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        let word = &rest[..len];
        if word == "use" && rest[len..].starts_with(' ') {
            let end = rest.find(';').expect("a declaration ends");
            let mut found = Vec::new();
            expand(&rest[len..end], &[], &mut found);
            let found = found.into_iter().filter_map(|(name, path)| {
                Some((name, outside_inline_modules(path, inline.len())?))
            });
            if inline.is_empty() {
                names.extend(found);
            } else {
                paths.extend(found.map(|(_, path)| path));
            }
            rest = &rest[end..];
            continue;
        }
        if word.is_empty() {
            match character {
                '{' => {
                    depth += 1;
                    if last_words[0] == "mod" {
                        inline.push(depth);
                    }
                }
                '}' => {
                    if inline.last() == Some(&depth) {
                        inline.pop();
                    }
                    depth -= 1;
                }
                _ => {}
            }
            if !character.is_whitespace() {
                last_words = ["", ""];
            }
            rest = &rest[character.len_utf8()..];
            continue;
        }
        let path = leading_path(rest);
        let whole = path.join("::").len();
        // `pub(in PATH)` imports nothing.
        if ["crate", "self", "super"].contains(&word) && path.len() > 1 && last_words[1] != "in" {
            paths.extend(outside_inline_modules(path, inline.len()));
        }
        last_words = [last_words[1], word];
        rest = &rest[whole..];
    }
    paths.extend(names.iter().map(|(_, path)| path.clone()));
    Source { is_parent, names, paths }
}

/// A path that is written inside `depth` inline modules, as the file itself would write it. `None`
/// if it leads to nothing outside these modules.
fn outside_inline_modules(mut path: Module, depth: usize) -> Option<Module> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match path[0].as_str() {
        "super" if supers > depth => path.drain(..depth).for_each(drop),
        "super" => return None,
        "crate" => {}
        _ if depth > 0 => return None,
        _ => {}
    }
    Some(path)
}

/// The path that a text begins with.
fn leading_path(text: &str) -> Module {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let len = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        path.push(rest[..len].to_owned());
        match rest[len..].strip_prefix("::") {
            Some(more) if more.starts_with(is_name) => rest = more,
            _ => return path,
        }
    }
}

/// Lists the names that a `use` tree imports, with their paths.
fn expand(tree: &str, prefix: &[String], names: &mut Vec<(String, Module)>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return;
    }
    if let Some(inner) = tree.strip_prefix('{') {
        let inner = inner.trim_end().strip_suffix('}').expect("a brace is closed");
        let mut depth = 0;
        for part in inner.split(|character| {
            depth += i32::from(character == '{') - i32::from(character == '}');
            character == ',' && depth == 0
        }) {
            expand(part, prefix, names);
        }
        return;
    }
    match tree.split_once("::") {
        Some((first, rest)) if !first.contains('{') => {
            let prefix = [prefix, &[first.trim().to_owned()]].concat();
            expand(rest, &prefix, names);
        }
        _ => {
            let (name, alias) = tree.split_once(" as ").unwrap_or((tree, tree));
            let mut path = prefix.to_vec();
            if name != "self" || path.is_empty() {
                path.push(name.to_owned());
            }
            let own = path.last().expect("not empty").clone();
            let alias = if alias == "self" { own } else { alias.trim().to_owned() };
            names.push((alias, path));
        }
    }
}
