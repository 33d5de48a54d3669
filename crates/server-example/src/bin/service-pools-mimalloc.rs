//! The example service, with pools over mimalloc.

use allotment::PoolGlobalAlloc;
use server_example::mimalloc::Mimalloc;
use server_example::service::{self, GlobalAllocator};
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<Mimalloc> = PoolGlobalAlloc::new(Mimalloc);

fn main() -> ExitCode {
    service::main(GlobalAllocator::PrefersPools)
}
