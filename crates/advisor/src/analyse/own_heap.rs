//! Programs whose objects malloc doesn't allocate one by one, because they have a heap of their own.
//!
//! Some are known by the names of their executables or libraries. Others are found by their memory:
//! most of it isn't malloc's.

use super::findings::OwnHeap;
use super::formatting;
use trace_format::Module;

/// From this many bytes of anonymous memory on, it counts where they come from.
const LEAST_ANONYMOUS: u64 = 32 << 20;
/// A program that is not known by its name has a heap of its own if the blocks of malloc had less
/// than this share of its anonymous memory at their peak. Small blocks need up to three times the
/// memory that was asked for.
const MOST_OF_UNKNOWN: f64 = 0.25;
/// The same for a program that is known by its name: it may have been told to use malloc.
const MOST_OF_KNOWN: f64 = 0.5;

/// A heap that is known by a name.
struct KnownHeap {
    /// How the names of executables begin that have it, and of libraries.
    executables: &'static [&'static str],
    libraries: &'static [&'static str],
    name: &'static str,
    /// The heap's chunks come from malloc, so its memory doesn't show it.
    in_malloc: bool,
    remedy: &'static str,
}

const KNOWN: [KnownHeap; 7] = [
    KnownHeap {
        executables: &["php"],
        libraries: &["libphp"],
        name: "Zend's memory manager",
        in_malloc: false,
        remedy: "Set USE_ZEND_ALLOC=0 to have them allocated by malloc and recorded.",
    },
    KnownHeap {
        executables: &["node"],
        libraries: &["libnode.so", "libv8.so"],
        name: "V8's heap",
        in_malloc: false,
        remedy: "Use `node --heap-prof` for them.",
    },
    KnownHeap {
        executables: &["python"],
        libraries: &["libpython"],
        name: "Python's pools",
        in_malloc: false,
        remedy: "Set PYTHONMALLOC=malloc to have them allocated by malloc and recorded.",
    },
    KnownHeap {
        executables: &["java"],
        libraries: &["libjvm.so"],
        name: "the Java heap",
        in_malloc: false,
        remedy: "Use the Java Flight Recorder for them.",
    },
    KnownHeap {
        executables: &["ruby"],
        libraries: &["libruby"],
        name: "Ruby's heap",
        in_malloc: false,
        remedy: "Use `ObjectSpace` for them.",
    },
    KnownHeap {
        executables: &[],
        libraries: &["libgc.so"],
        name: "the heap of the Boehm collector",
        in_malloc: false,
        remedy: "No preloaded library can record them.",
    },
    KnownHeap {
        executables: &["gs"],
        libraries: &["libgs.so"],
        name: "chunks of Ghostscript's own allocator",
        in_malloc: true,
        remedy: "What is recorded are these chunks.",
    },
];

/// The heap that a program has of its own. `anonymous`: the most anonymous memory that it had, if
/// that was measured; `live`: the most bytes of malloc's blocks that were live at once.
pub fn own_heap(
    executable: &str,
    modules: &[Module],
    anonymous: Option<u64>,
    live: u64,
) -> Option<OwnHeap> {
    let anonymous = anonymous.filter(|&bytes| bytes >= LEAST_ANONYMOUS);
    let is_below = |most: f64, bytes: u64| (live as f64) < most * bytes as f64;
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let program = file(executable);
    let known = KNOWN.iter().find(|heap| {
        // `php8.2`, `python3.11`, and not `phpunit`.
        let is_version = |rest: &str| !rest.contains(|c: char| !c.is_ascii_digit() && c != '.');
        let is_named = |name: &&str| program.strip_prefix(*name).is_some_and(is_version);
        let is_loaded = |module: &Module| {
            let file = file(&module.path);
            heap.libraries.iter().any(|library| file.starts_with(library))
        };
        heap.executables.iter().any(is_named) || modules.iter().any(is_loaded)
    });
    if let Some(heap) = known
        && (heap.in_malloc || anonymous.is_some_and(|bytes| is_below(MOST_OF_KNOWN, bytes)))
    {
        return Some(OwnHeap {
            reason: format!("most of its objects are in {}", heap.name),
            remedy: heap.remedy.to_owned(),
        });
    }
    let bytes = anonymous.filter(|&bytes| is_below(MOST_OF_UNKNOWN, bytes))?;
    Some(OwnHeap {
        reason: format!(
            "of its {} of memory, malloc's blocks had at most {}; the rest is a heap of its own, or mapped buffers and tables",
            formatting::bytes(bytes),
            formatting::bytes(live)
        ),
        remedy: "What is recorded is malloc's part.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn module(path: &str) -> Module {
        Module {
            path: path.to_owned(),
            bias: 0,
            start: 0,
            end: 1,
            build_id: Vec::new(),
            loaded_ns: 0,
            unloaded_ns: None,
        }
    }

    fn reason(executable: &str, module_path: &str, anonymous: u64, live: u64) -> Option<String> {
        let modules = [module(module_path)];
        own_heap(executable, &modules, Some(anonymous), live).map(|heap| heap.reason)
    }

    #[test]
    fn a_known_heap_is_named_unless_malloc_has_most_of_the_memory() {
        let libc = "/lib/libc.so.6";
        let php = reason("/usr/bin/php8.2", libc, 100 * MIB, 3 * MIB).unwrap();
        assert!(php.contains("Zend"), "{php}");
        // USE_ZEND_ALLOC=0.
        assert_eq!(reason("/usr/bin/php8.2", libc, 100 * MIB, 80 * MIB), None);
        let server = reason("/usr/sbin/apache2", "/usr/lib/libphp8.2.so", 100 * MIB, MIB);
        assert!(server.unwrap().contains("Zend"));
        assert!(reason("/usr/bin/node", libc, 100 * MIB, MIB).unwrap().contains("V8"));
        assert_eq!(reason("/usr/bin/phpunit", libc, 10 * MIB, MIB), None);
        // Its chunks are malloc's.
        let gs = reason("/usr/bin/gs", libc, 100 * MIB, 90 * MIB).unwrap();
        assert!(gs.contains("Ghostscript"), "{gs}");
    }

    #[test]
    fn an_unknown_heap_is_found_by_its_memory() {
        let libc = "/lib/libc.so.6";
        let told = reason("/usr/bin/other", libc, 100 * MIB, 10 * MIB).unwrap();
        assert!(told.contains("100 MiB") && told.contains("10.0 MiB"), "{told}");
        assert_eq!(reason("/usr/bin/other", libc, 100 * MIB, 30 * MIB), None);
        assert_eq!(reason("/usr/bin/other", libc, 20 * MIB, 0), None);
        assert_eq!(own_heap("/usr/bin/other", &[], None, 0), None);
    }
}
