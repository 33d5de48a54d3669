//! Wrappers: functions that only pass on their callers' requests, known by their names.
//!
//! [`sites`](super::sites) also finds wrappers, by the behaviour of their callers' blocks.

/// Parts of the names of wrappers.
const PARTS: [&str; 12] = [
    "malloc",
    "calloc",
    "realloc",
    "strdup",
    "strndup",
    "memdup",
    "strcat",
    "asprintf",
    "_alloc",
    "alloc_",
    "operator new",
    "xalloc",
];

/// Prefixes of the names of functions in containers and allocators of libraries.
const PREFIXES: [&str; 19] = [
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "<std::",
    "hashbrown::",
    "<hashbrown::",
    "__rust_",
    "__rustc",
    "__rdl_",
    "__rg_",
    "_Znwm",
    "boost::",
    "absl::",
    "void std::",
    "<T as alloc::",
    "<T as core::",
];

/// Names of wrappers.
const NAMES: [&str; 25] = [
    "memalign",
    "valloc",
    "pvalloc",
    "aligned_alloc",
    "posix_memalign",
    "reallocarray",
    "getline",
    "getdelim",
    "alloc",
    "Alloc",
    "palloc",
    "palloc0",
    "repalloc",
    "MemoryContextAlloc",
    "MemoryContextAllocZero",
    "MemoryContextAllocExtended",
    "AllocSetAlloc",
    "g_new",
    "g_slice_new",
    "PyObject_New",
    "_PyObject_New",
    "xmlStrndup",
    "sqlite3Malloc",
    "g_string_sized_new",
    "mem_get",
];

/// Whether a function is a wrapper, by its name.
pub fn by_name(function: &str) -> bool {
    // Without the parameters of a C++ function.
    let name = function.split('(').next().unwrap_or(function);
    PREFIXES.iter().any(|prefix| function.starts_with(prefix))
        || NAMES.contains(&name)
        || has_part(name)
}

fn has_part(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let freeing = lower.contains("dealloc");
    !freeing && (PARTS.iter().any(|part| lower.contains(part)) || lower.ends_with("alloc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocating_functions_of_many_projects_are_known() {
        for name in [
            "malloc",
            "xmalloc",
            "g_malloc0",
            "g_strdup",
            "operator new(unsigned long)",
            "sqlite3DbMallocRaw",
            "jv_mem_alloc",
            "jv_mem_realloc",
            "CRYPTO_zalloc",
            "strndup",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "std::vector<int>::push_back(int const&)",
            "__rust_alloc",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "PyMem_RawMalloc",
            "xmlStrdup",
            "ngx_palloc",
            "_PyObject_GC_Alloc",
        ] {
            assert!(by_name(name), "{name}");
        }
    }

    #[test]
    fn functions_that_build_objects_are_no_wrappers() {
        for name in [
            "main",
            "xmlNewNode",
            "parse_line",
            "jvp_string_new",
            "json::parse",
            "tuple_dealloc",
            "libxml2.so.2+0x1234",
            "PyList_Append",
            "insert(std::string const&)",
        ] {
            assert!(!by_name(name), "{name}");
        }
    }
}
