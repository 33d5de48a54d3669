//! What the kernel counted, and what sidestepping some of it would save.

use super::findings::{System, SystemCalls};
use super::tally::share;
use allot_trace::Reader;

/// Everything that is known of the program and the kernel.
pub fn system(reader: &Reader) -> System {
    let Some(end) = reader.end() else { return System::default() };
    let usage = &end.usage;
    let mut calls: Vec<SystemCalls> = end
        .system_calls
        .iter()
        .map(|call| SystemCalls {
            name: call.name.clone(),
            calls: call.calls,
            failed: call.failed,
            bytes: call.bytes,
            small: call.small,
            small_bytes: call.small_bytes,
            ns: Some(call.ns),
            cost_ns: None,
        })
        .collect();
    calls.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
    let waits = end.system_calls.iter().find(|call| call.name == "futex (wait)");
    let counted = !calls.is_empty();
    System {
        total_calls: counted.then(|| calls.iter().map(|call| call.calls).sum()),
        calls,
        not_counted: end.not_counted.clone(),
        read_calls: usage.read_calls,
        read_bytes: usage.read_bytes,
        write_calls: usage.write_calls,
        written_bytes: usage.written_bytes,
        minor_faults: Some(usage.minor_faults),
        major_faults: Some(usage.major_faults),
        page_faults: end.page_faults,
        voluntary_switches: Some(usage.voluntary_switches),
        involuntary_switches: Some(usage.involuntary_switches),
        futex_waits: counted.then(|| waits.map_or(0, |waits| waits.calls)),
        futex_wait_ns: counted.then(|| waits.map_or(0, |waits| waits.ns)),
        kernel_share: share(usage.system_ns, usage.user_ns + usage.system_ns),
        costs: end.costs,
        advice: Vec::new(),
    }
}
