//! The events of a running workload, for the harness.

/// Receives the events of a run, so that memory, page faults and system calls are counted between
/// the right points. Each method does nothing unless it is overridden.
pub trait Observer: Sync {
    /// The harness's own arrays exist and are touched; no allocator has been started.
    fn ready(&self) {}

    /// The measured part begins. All threads wait.
    fn begin(&self) {}

    /// The calling worker has done its first [`WARM_UP`](crate::workloads::WARM_UP) tasks.
    fn steady(&self) {}

    /// The calling worker has done its last task.
    fn finished(&self) {}

    /// The measured part has ended: all tasks are over, all workers still live.
    fn end(&self) {}

    /// A step of the work is done, after which resident memory is of interest. All workers wait.
    fn step(&self, name: &'static str) {
        let _ = name;
    }
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
