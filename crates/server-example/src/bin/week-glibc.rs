//! The simulated week, with the C library's malloc: `cargo bench -p allotment-server-example --bench week`.

use server_example::service::GlobalAllocator;
use server_example::week::counting::Counting;
use server_example::week::simulation;
use std::alloc::System;
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: Counting<System> = Counting::new(System);

fn main() -> ExitCode {
    simulation::main(GlobalAllocator::Plain, || GLOBAL.bytes_in_use())
}
