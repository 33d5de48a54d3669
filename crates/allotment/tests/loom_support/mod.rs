//! What the models share.

use loom::sync::atomic::{AtomicUsize, Ordering};

#[allow(dead_code, reason = "the models of other things need no publication")]
pub mod publications;
#[allow(dead_code, reason = "the models of other things need no slab")]
pub mod slab;

/// Explores every schedule with at most this many preemptions.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A place where loom tries each order of the threads.
///
/// Loom looks for other orders where two threads touch one atomic, but remembers only the last
/// access to it: one thread's load followed by its own exchange hides another thread's load before
/// them, and with it the order in which that one would have come later. A thread that passes a gate
/// before each operation of its own makes the order known. Relaxed: it hands nothing over.
pub struct Gate(AtomicUsize);

impl Gate {
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub fn pass(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
