//! `allot record`, with small C programs whose calls are known.

/// A program of this name, or the test's end where there is no compiler.
macro_rules! program {
    ($name:literal, $source:expr) => {
        match crate::programs::compiled($name, $source, &["-O1", "-g", "-pthread"]) {
            Some(program) => program,
            None => return,
        }
    };
}

#[path = "record/events.rs"]
mod events;
#[path = "record/obstacles.rs"]
mod obstacles;
#[path = "record/operator_new.rs"]
mod operator_new;
#[path = "record/own_malloc.rs"]
mod own_malloc;
#[path = "record/processes.rs"]
mod processes;
#[path = "record/programs.rs"]
mod programs;
#[path = "record/stacks.rs"]
mod stacks;
#[path = "record/threads.rs"]
mod threads;
