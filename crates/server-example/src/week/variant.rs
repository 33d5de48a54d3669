//! The variants: a program that plays the week, and where it uses pools.

use crate::driver::variant::LIMIT;
use std::path::{Path, PathBuf};

/// The programs, one for each global allocator. The one with mimalloc is missing if the package was
/// built without it.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The C library's malloc, without pools.
    pub glibc: PathBuf,
    /// mimalloc, without pools.
    pub mimalloc: Option<PathBuf>,
    /// Pools over the C library's malloc.
    pub pools: PathBuf,
}

/// Returns the [`Programs`] that cargo built with the test or benchmark that calls this.
#[macro_export]
macro_rules! built_week_programs {
    () => {{
        let mimalloc: Option<&'static str> = option_env!("CARGO_BIN_EXE_week-mimalloc");
        $crate::week::variant::Programs {
            glibc: env!("CARGO_BIN_EXE_week-glibc").into(),
            mimalloc: mimalloc.filter(|_| cfg!(feature = "mimalloc")).map(Into::into),
            pools: env!("CARGO_BIN_EXE_week-pools").into(),
        }
    }};
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Glibc,
    Mimalloc,
    Pools,
}

/// A way to allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Its name, in the table, the plot and on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub description: &'static str,
    program: Program,
    pools: &'static str,
    limit: Option<usize>,
}

/// All variants.
pub const VARIANTS: [Variant; 5] = [
    variant("glibc", Program::Glibc, "none", None, "the C library's malloc"),
    variant("mimalloc", Program::Mimalloc, "none", None, "mimalloc"),
    variant("connection", Program::Pools, "connection", None, "thread pools around polls"),
    variant("request", Program::Pools, "request", None, "a pool for each request"),
    variant(
        "request-limit",
        Program::Pools,
        "request",
        Some(LIMIT),
        "a limited pool for each request",
    ),
];

const fn variant(
    name: &'static str,
    program: Program,
    pools: &'static str,
    limit: Option<usize>,
    description: &'static str,
) -> Variant {
    Variant { name, description, program, pools, limit }
}

impl Variant {
    /// Returns its program, if it was built.
    pub fn program(self, programs: &Programs) -> Option<&Path> {
        match self.program {
            Program::Glibc => Some(&programs.glibc),
            Program::Mimalloc => programs.mimalloc.as_deref(),
            Program::Pools => Some(&programs.pools),
        }
    }

    /// Whether requests allocate from pools.
    pub fn has_pools(self) -> bool {
        self.program == Program::Pools
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
