//! The simulated week, with pools over the C library's malloc: `cargo bench -p allotment-server-example --bench week`.

use allotment::PoolGlobalAlloc;
use server_example::service::GlobalAllocator;
use server_example::week::counting::Counting;
use server_example::week::simulation;
use std::alloc::System;
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: Counting<PoolGlobalAlloc<System>> = Counting::new(PoolGlobalAlloc::new(System));

fn main() -> ExitCode {
    simulation::main(GlobalAllocator::PrefersPools, || GLOBAL.bytes_in_use())
}
