//! The benchmark `server`: `cargo bench -p allotment-server-example --bench server -- --help`.

use server_example::{built_programs, driver};
use std::process::ExitCode;

fn main() -> ExitCode {
    driver::main(&built_programs!())
}
