//! The mallocs that this machine has as shared libraries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A malloc that can be preloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledMalloc {
    pub name: &'static str,
    pub library: PathBuf,
}

/// Each malloc and the names of its library, the preferred one first. `tcmalloc_minimal` is
/// tcmalloc without its profiler.
const LIBRARIES: [(&str, &[&str]); 5] = [
    ("jemalloc", &["libjemalloc.so.2"]),
    ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"]),
    ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"]),
    ("snmalloc", &["libsnmallocshim.so"]),
    ("rpmalloc", &["librpmalloc.so"]),
];

/// All that are installed in the places where the dynamic loader looks by default, or in
/// `LD_LIBRARY_PATH`.
pub fn installed() -> Vec<InstalledMalloc> {
    found_in(&folders(std::env::var_os("LD_LIBRARY_PATH")))
}

fn folders(library_path: Option<OsString>) -> Vec<PathBuf> {
    let named = library_path.map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/usr/local/lib", &triple, "/usr/lib64", "/usr/lib"];
    named.unwrap_or_default().into_iter().chain(usual.map(PathBuf::from)).collect()
}

fn found_in(folders: &[PathBuf]) -> Vec<InstalledMalloc> {
    let library = |files: &[&str]| {
        let paths = folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file)));
        paths.into_iter().find(|path| path.is_file() && can_be_preloaded(path))
    };
    LIBRARIES
        .into_iter()
        .filter_map(|(name, files)| Some(InstalledMalloc { name, library: library(files)? }))
        .collect()
}

/// `LD_PRELOAD` has no way to escape its separators in a path. A path that isn't text can't be part
/// of a job, which is JSON.
fn can_be_preloaded(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains([' ', ':']))
}

/// The value of `LD_PRELOAD` that loads a library before those that this process was started with.
pub fn preload_list(library: &Path) -> String {
    let own = library.to_string_lossy();
    match std::env::var("LD_PRELOAD") {
        Ok(others) if !others.is_empty() => format!("{own}:{others}"),
        _ => own.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_the_order_of_folders_and_names() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["first", "second", "with space"].map(|name| place.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(folders[1].join("libmimalloc.so"), "").unwrap();
        std::fs::write(folders[0].join("libmimalloc.so.2"), "").unwrap();
        std::fs::write(folders[2].join("libjemalloc.so.2"), "").unwrap();
        std::fs::create_dir(folders[0].join("libtcmalloc.so.4")).unwrap();
        let library = folders[0].join("libmimalloc.so.2");
        assert_eq!(found_in(&folders), [InstalledMalloc { name: "mimalloc", library }]);
    }

    #[test]
    fn folders_that_the_environment_names_come_first() {
        let all = folders(Some("/opt/a:/opt/b".into()));
        assert_eq!(all[..2], ["/opt/a", "/opt/b"].map(PathBuf::from));
        assert!(all.contains(&PathBuf::from("/usr/lib")));
    }
}
