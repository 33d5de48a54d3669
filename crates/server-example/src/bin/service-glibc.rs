//! The example service, with the C library's malloc and no pools.

use server_example::service::{self, GlobalAllocator};
use std::alloc::System;
use std::process::ExitCode;

#[global_allocator]
static GLOBAL: System = System;

fn main() -> ExitCode {
    service::main(GlobalAllocator::Plain)
}
