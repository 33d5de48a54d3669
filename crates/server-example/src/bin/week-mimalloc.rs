//! The simulated week, with mimalloc: `cargo bench -p allotment-server-example --bench week`.

use server_example::mimalloc::Mimalloc;
use server_example::service::GlobalAllocator;
use server_example::week::counting::Counting;
use server_example::week::simulation;
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: Counting<Mimalloc> = Counting::new(Mimalloc);

fn main() -> ExitCode {
    simulation::main(GlobalAllocator::Plain, || GLOBAL.bytes_in_use())
}
