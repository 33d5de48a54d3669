//! The example service, with pools over the C library's malloc: `service-pools --help`.

use allotment::PoolGlobalAlloc;
use server_example::service::{self, GlobalAllocator};
use std::alloc::System;
use std::process::ExitCode;

/// Inside a pool, each `Box`, `Vec` and `String` comes from the pool; outside, from malloc.
#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

fn main() -> ExitCode {
    service::main(GlobalAllocator::PrefersPools)
}
