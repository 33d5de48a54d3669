//! The variants: a program of the service, and where it uses pools.

use std::path::{Path, PathBuf};

/// The limit of a request's pool in the variants that have one, in bytes. No request needs as much.
pub const LIMIT: usize = 8 << 20;

/// The programs of the service, one for each global allocator. Those with mimalloc are missing if
/// the package was built without it.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The C library's malloc, without pools.
    pub glibc: PathBuf,
    /// mimalloc, without pools.
    pub mimalloc: Option<PathBuf>,
    /// Pools over the C library's malloc.
    pub pools: PathBuf,
    /// Pools over mimalloc.
    pub pools_mimalloc: Option<PathBuf>,
}

/// Returns the [`Programs`] that cargo built with the test or benchmark that calls this. Only their
/// environment has the paths, also of the programs that the features leave out.
#[macro_export]
macro_rules! built_programs {
    () => {{
        let with_mimalloc = |path: Option<&'static str>| {
            path.filter(|_| cfg!(feature = "mimalloc")).map(Into::into)
        };
        $crate::driver::variant::Programs {
            glibc: env!("CARGO_BIN_EXE_service-glibc").into(),
            mimalloc: with_mimalloc(option_env!("CARGO_BIN_EXE_service-mimalloc")),
            pools: env!("CARGO_BIN_EXE_service-pools").into(),
            pools_mimalloc: with_mimalloc(option_env!("CARGO_BIN_EXE_service-pools-mimalloc")),
        }
    }};
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Glibc,
    Mimalloc,
    Pools,
    PoolsMimalloc,
}

/// A way to allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Its name, in tables and on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub description: &'static str,
    program: Program,
    /// The value of `--pools`.
    pub pools: &'static str,
    /// The value of `--limit`.
    pub limit: Option<usize>,
    /// Whether it runs if no variants are named.
    pub by_default: bool,
}

/// The variant that ratios compare with.
pub const BASE: &str = "mimalloc";

const fn variant(
    name: &'static str,
    program: Program,
    pools: &'static str,
    description: &'static str,
) -> Variant {
    let by_default = !matches!(program, Program::PoolsMimalloc);
    Variant { name, description, program, pools, limit: None, by_default }
}

/// All variants.
pub const VARIANTS: [Variant; 12] = [
    variant("glibc", Program::Glibc, "none", "the C library's malloc"),
    variant(BASE, Program::Mimalloc, "none", "mimalloc"),
    Variant {
        by_default: false,
        ..variant("outside", Program::Pools, "none", "PoolGlobalAlloc over malloc, and no pools")
    },
    variant("connection", Program::Pools, "connection", "thread pools around connection polls"),
    variant("handler", Program::Pools, "handler", "thread pools around handler polls"),
    variant("request", Program::Pools, "request", "a pool for each request"),
    Variant {
        limit: Some(LIMIT),
        ..variant("request-limit", Program::Pools, "request", "a pool for each request, limited")
    },
    variant("outside+mimalloc", Program::PoolsMimalloc, "none", "as outside, over mimalloc"),
    variant(
        "connection+mimalloc",
        Program::PoolsMimalloc,
        "connection",
        "as connection, over mimalloc",
    ),
    variant("handler+mimalloc", Program::PoolsMimalloc, "handler", "as handler, over mimalloc"),
    variant("request+mimalloc", Program::PoolsMimalloc, "request", "as request, over mimalloc"),
    Variant {
        limit: Some(LIMIT),
        ..variant(
            "request-limit+mimalloc",
            Program::PoolsMimalloc,
            "request",
            "as request-limit, over mimalloc",
        )
    },
];

impl Variant {
    /// Returns the variant with this name.
    pub fn named(name: &str) -> Option<Self> {
        VARIANTS.into_iter().find(|variant| variant.name == name)
    }

    /// Returns its program, if it was built.
    pub fn program(self, programs: &Programs) -> Option<&Path> {
        match self.program {
            Program::Glibc => Some(&programs.glibc),
            Program::Mimalloc => programs.mimalloc.as_deref(),
            Program::Pools => Some(&programs.pools),
            Program::PoolsMimalloc => programs.pools_mimalloc.as_deref(),
        }
    }

    /// Returns all variants whose programs were built.
    pub fn built(programs: &Programs) -> impl Iterator<Item = Self> {
        VARIANTS.into_iter().filter(|variant| variant.program(programs).is_some())
    }

    /// Returns the name of the allocator outside every pool.
    pub fn allocator(self) -> &'static str {
        match self.program {
            Program::Glibc | Program::Pools => "glibc",
            Program::Mimalloc | Program::PoolsMimalloc => "mimalloc",
        }
    }

    /// Returns the options of the program.
    pub fn options(self) -> Vec<String> {
        let mut options = vec!["--pools".to_owned(), self.pools.to_owned()];
        if let Some(limit) = self.limit {
            options.extend(["--limit".to_owned(), limit.to_string()]);
        }
        options
    }
}
