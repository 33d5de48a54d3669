//! The example service, with mimalloc and no pools.

use server_example::mimalloc::Mimalloc;
use server_example::service::{self, GlobalAllocator};
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: Mimalloc = Mimalloc;

fn main() -> ExitCode {
    service::main(GlobalAllocator::Plain)
}
