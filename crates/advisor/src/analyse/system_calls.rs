//! Makes findings of what the kernel counted.

use super::block_statistics::share;
use super::findings::{RecordedProgram, SystemCallFigures, SystemFindings};
use super::system_call_advice::{self, FUTEX_WAIT, KernelCounts};
use trace_format::RecordingReader;
use trace_format::container::{RecordingEnd, SystemCallCounts};

/// Nanoseconds of CPU time that counting the program's system calls took in the kernel.
pub fn counting_ns(reader: &RecordingReader) -> u64 {
    reader.end().map_or(0, |end| {
        let each = end.costs.map_or(0.0, |costs| costs.counting);
        (calls(end) as f64 * each) as u64
    })
}

fn calls(end: &RecordingEnd) -> u64 {
    end.system_calls.iter().map(|call| call.calls).sum()
}

/// The findings on system calls, page faults and context switches.
pub fn system(reader: &RecordingReader, program: &RecordedProgram) -> SystemFindings {
    let Some(end) = reader.end() else { return SystemFindings::default() };
    let usage = &end.usage;
    let row = |call: &SystemCallCounts| SystemCallFigures {
        name: call.name.clone(),
        calls: call.calls,
        failed: call.failed,
        bytes: call.bytes,
        small: call.small,
        small_bytes: call.small_bytes,
        ns: Some(call.ns),
        cost_ns: end
            .costs
            .as_ref()
            .map(|costs| (system_call_advice::cost(costs, call) * call.calls as f64) as u64),
    };
    let mut rows: Vec<SystemCallFigures> = end.system_calls.iter().map(row).collect();
    rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
    let waits = end.system_calls.iter().find(|call| call.name == FUTEX_WAIT);
    let counted = end.not_counted.is_none() && !rows.is_empty();
    let all_cpu = usage.user_ns + usage.system_ns;
    // Assumes that the program's own share of the CPU time is the same in all processes.
    let own = program.cpu_ns.zip(program.bare_cpu_ns).and_then(|(cpu, bare)| share(bare, cpu));
    let kernel = KernelCounts {
        calls: &end.system_calls,
        small: &end.small_transfers,
        usage,
        page_faults: end.page_faults,
        costs: end.costs,
        cpu_ns: own.map(|own| own * all_cpu as f64).filter(|&ns| ns > 0.0),
        processes: u64::from(program.processes),
        threads: reader
            .processes()
            .iter()
            .filter_map(|process| process.end.as_ref())
            .fold(0, |threads, end| threads + u64::from(end.threads)),
    };
    SystemFindings {
        total_calls: counted.then(|| calls(end)),
        calls: rows,
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
        kernel_share: share(usage.system_ns, all_cpu),
        costs: end.costs,
        small_transfers: end.small_transfers.clone(),
        advice: system_call_advice::advice(&kernel),
    }
}
