//! The benchmark `week`: `cargo bench -p allotment-server-example --bench week -- --help`.

use server_example::{built_week_programs, week};
use std::process::ExitCode;

fn main() -> ExitCode {
    week::main(&built_week_programs!())
}
