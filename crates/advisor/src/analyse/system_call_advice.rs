//! Which system calls are worth avoiding, and what that would save.
//!
//! Every rule estimates how many calls are avoidable, multiplies that by a lower bound of their
//! cost, and is silent below [`LEAST`] of the program's CPU time. A call that has to wait never
//! counts as a saving, and neither does a reply: a request and its reply are not something to
//! buffer.

use super::findings::SystemCallAdvice;
use super::formatting;
use trace_format::container::{
    ResourceUsage, SMALL, SmallTransfers, SystemCallCosts, SystemCallCounts,
};

/// The least share of the CPU time that is worth advice.
const LEAST: f64 = 0.01;
/// Bytes of a buffer: one call per this many bytes remains.
const BUFFER: f64 = 8192.0;
/// Nanoseconds to take something out of a buffer.
const BUFFERED: f64 = 3.0;
/// Calls for memory that every process makes at its start, and every thread.
const CALLS_OF_PROCESS: u64 = 40;
const CALLS_OF_THREAD: u64 = 4;
/// Fewer calls for memory than this are not advised on.
const LEAST_MEMORY_CALLS: u64 = 100;
/// Page faults of a process besides those for its peak memory.
const FAULTS_OF_PROCESS: u64 = 1000;
const PAGE: u64 = 4096;

const READS: [&str; 7] = ["read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg"];
const WRITES: [&str; 7] =
    ["write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg"];
const POLLS: [&str; 7] =
    ["poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"];
const CLOCKS: [&str; 3] = ["clock_gettime", "gettimeofday", "time"];
/// Waits for a futex among the [`SystemCallCounts`]s.
pub const FUTEX_WAIT: &str = "futex (wait)";
const ANONYMOUS: &str = "mmap (anonymous)";
/// Calls that get, return and resize memory, without `munmap`, which also unmaps files.
const MEMORY: [&str; 4] = [ANONYMOUS, "brk", "madvise", "mremap"];

/// What the kernel counted in a run, for all processes together.
#[derive(Debug, Clone)]
pub struct KernelCounts<'k> {
    pub calls: &'k [SystemCallCounts],
    pub small: &'k [SmallTransfers],
    pub usage: &'k ResourceUsage,
    pub page_faults: Option<u64>,
    pub costs: Option<SystemCallCosts>,
    /// Without the recorder.
    pub cpu_ns: Option<f64>,
    pub processes: u64,
    pub threads: u64,
}

/// Some kinds of calls together.
#[derive(Debug, Clone, Copy, Default)]
struct CallSum {
    calls: u64,
    ns: u64,
    small: u64,
    small_bytes: u64,
}

impl KernelCounts<'_> {
    fn sum(&self, names: &[&str]) -> CallSum {
        let calls = self.calls.iter().filter(|call| names.contains(&&*call.name));
        calls.fold(CallSum::default(), |sum, call| CallSum {
            calls: sum.calls + call.calls,
            ns: sum.ns + call.ns,
            small: sum.small + call.small.unwrap_or(0),
            small_bytes: sum.small_bytes + call.small_bytes.unwrap_or(0),
        })
    }

    /// Transfers that had to wait: a buffer saves none of these.
    fn waited(&self) -> u64 {
        let blocked = self.usage.voluntary_switches.saturating_sub(self.sum(&[FUTEX_WAIT]).calls);
        self.sum(&POLLS).calls.max(blocked)
    }
}

/// A lower bound of the mean CPU time of a call, in nanoseconds: the cheapest call of its kind, as
/// measured, or the time in the kernel if that is less. That time may include waiting.
pub fn cost(costs: &SystemCallCosts, call: &SystemCallCounts) -> f64 {
    let inside = call.ns as f64 / call.calls.max(1) as f64;
    let name = &&*call.name;
    let measured = if READS.contains(name) {
        costs.read
    } else if WRITES.contains(name) {
        costs.write
    } else if *name == FUTEX_WAIT {
        costs.wait
    } else if MEMORY.contains(name) || *name == "munmap" {
        // These never wait.
        return inside + costs.call / 2.0;
    } else {
        costs.call
    };
    measured.min(inside + costs.call)
}

/// The advice, the largest saving first.
pub fn advice(kernel: &KernelCounts<'_>) -> Vec<SystemCallAdvice> {
    let (Some(costs), Some(cpu)) = (kernel.costs, kernel.cpu_ns) else { return Vec::new() };
    let rules = [reads, writes, memory, waits, clock, seeks, yields];
    let mut advice: Vec<SystemCallAdvice> = rules
        .iter()
        .filter_map(|rule| rule(kernel, &costs))
        .filter(|saving| saving.ns >= LEAST * cpu)
        .map(|saving| {
            // Estimates may come to more than there is.
            let gain = (saving.ns / cpu).min(1.0);
            SystemCallAdvice {
                kind: saving.kind.to_owned(),
                title: saving.title.to_owned(),
                advice: format!(
                    "{} That is {} of its CPU time. {}",
                    saving.facts,
                    formatting::percent(gain),
                    saving.remedy
                ),
                remedy: saving.remedy.to_owned(),
                calls: saving.calls,
                saved_ns: saving.ns as u64,
                gain: Some(gain),
            }
        })
        .collect();
    advice.sort_by_key(|advice| std::cmp::Reverse(advice.saved_ns));
    advice
}

/// What a rule found.
struct CallSaving {
    kind: &'static str,
    title: &'static str,
    /// Sentences.
    facts: String,
    remedy: &'static str,
    calls: u64,
    ns: f64,
}

/// Small transfers, and what avoiding the avoidable ones saves.
struct TransferSaving {
    small: u64,
    bytes: u64,
    saved: u64,
    /// Nanoseconds of each.
    each: f64,
    ns: f64,
    /// The file that most of them read or write.
    file: Option<String>,
}

fn transfers(
    kernel: &KernelCounts<'_>,
    writes: bool,
    account: (Option<u64>, Option<u64>),
    opposite_calls: Option<u64>,
    mut each: f64,
) -> Option<TransferSaving> {
    let (names, opposite) = if writes { (&WRITES, &READS) } else { (&READS, &WRITES) };
    let mut sum = kernel.sum(names);
    let mut messages = kernel.sum(opposite).calls;
    if kernel.calls.is_empty() {
        // Not counted: if their mean size is small, all of them count as small, otherwise none.
        let (calls, bytes) = (account.0?, account.1?);
        if bytes == 0 || bytes / calls.max(1) >= SMALL {
            return None;
        }
        sum = CallSum { calls, small: calls.min(bytes), small_bytes: bytes, ..sum };
        messages = opposite_calls.unwrap_or(0);
    } else {
        let costs = kernel.costs?;
        each = each.min(sum.ns as f64 / sum.calls.max(1) as f64 + costs.call);
    }
    // Reading a file never waits. A transfer of a pipe or a connection may be small because there was
    // no more data yet, or because it is a whole message. A buffer saves it only if another transfer
    // in the same direction came right before it.
    let of = |writes: bool| kernel.small.iter().filter(move |small| small.writes == writes);
    let saved = if kernel.small.is_empty() {
        // Files aren't told from connections: as many as there were waits, or calls in the other
        // direction, count as messages.
        sum.small.saturating_sub(kernel.waited().max(messages))
    } else {
        let of_files: u64 = of(writes).filter(|small| !small.waits).map(|small| small.calls).sum();
        let waiting = of(writes).filter(|small| small.waits);
        let mut joined: u64 = waiting.map(|small| small.consecutive).sum();
        if !writes {
            joined = joined.saturating_sub(kernel.waited());
        }
        of_files.saturating_add(joined).min(sum.small)
    };
    let left = sum.small_bytes as f64 / BUFFER;
    let ns = saved as f64 * (each - BUFFERED) - left * each;
    let most = of(writes).max_by_key(|small| small.calls);
    let most = most.filter(|most| most.calls * 2 > sum.small);
    let file = most.and_then(|most| Some((most.name.as_deref()?, most.descriptor)));
    let file = file.map(|(name, descriptor)| format!("{name} (descriptor {descriptor})"));
    (saved > 0 && ns > 0.0).then_some(TransferSaving {
        small: sum.small,
        bytes: sum.small_bytes,
        saved,
        each,
        ns,
        file,
    })
}

impl TransferSaving {
    /// A sentence with their number, size, cost and file, and how many of them can't be avoided.
    fn sentence(&self, verb: &str, preposition: &str) -> String {
        let mean = self.bytes as f64 / self.small.max(1) as f64;
        let size = if mean < 1.05 {
            "1 byte".to_owned()
        } else {
            format!("{} bytes on average", formatting::number(mean))
        };
        let mut text = format!(
            "{} {verb} of {size}, at least {} each",
            formatting::count(self.small),
            formatting::time(self.each as u64)
        );
        if let Some(file) = &self.file {
            text += &format!(", most of them {preposition} {file}");
        }
        text.push('.');
        let waiting = self.small - self.saved;
        if waiting * 20 > self.small {
            text += &format!(
                " {} of them wait for data or answer a message, and are not counted as savings.",
                formatting::count(waiting)
            );
        }
        text
    }
}

fn reads(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let account = (kernel.usage.read_calls, kernel.usage.read_bytes);
    let found = transfers(kernel, false, account, kernel.usage.write_calls, costs.read)?;
    Some(CallSaving {
        kind: "reads",
        title: "buffer the reads",
        facts: found.sentence("reads", "of"),
        remedy: "Read blocks of 8 KiB or more: in Rust `BufReader::new(file)`, in C `fopen` with `getc_unlocked` or `fread`; for a whole file, `fs::read` or `mmap`.",
        calls: found.saved,
        ns: found.ns,
    })
}

fn writes(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let account = (kernel.usage.write_calls, kernel.usage.written_bytes);
    let found = transfers(kernel, true, account, kernel.usage.read_calls, costs.write)?;
    Some(CallSaving {
        kind: "writes",
        title: "buffer the writes",
        facts: found.sentence("writes", "to"),
        remedy: "Collect them: in Rust `BufWriter::new(file)` (also around `stdout().lock()`), in C `setvbuf(file, NULL, _IOFBF, 65536)`. Call `flush` where a reader waits for the data; a crash loses what is in the buffer. `writev` sends the parts of one message together.",
        calls: found.saved,
        ns: found.ns,
    })
}

fn memory(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let files = kernel.sum(&["mmap"]).calls;
    let (get, unmap) = (kernel.sum(&MEMORY), kernel.sum(&["munmap"]));
    let all = get.calls + unmap.calls.saturating_sub(files);
    let usual = CALLS_OF_PROCESS * kernel.processes + CALLS_OF_THREAD * kernel.threads;
    let calls = all.saturating_sub(usual);
    if calls < LEAST_MEMORY_CALLS {
        return None;
    }
    let mean = (get.ns + unmap.ns) as f64 / (get.calls + unmap.calls) as f64;
    let held = kernel.usage.peak_resident / PAGE + FAULTS_OF_PROCESS;
    let again =
        kernel.page_faults.map_or(0, |faults| faults.saturating_sub(held * kernel.processes));
    let in_faults = again as f64 * costs.fault;
    let ns = calls as f64 * (mean + costs.call / 2.0) + in_faults;
    let mut facts = format!(
        "{} calls that get memory from the kernel, return it or resize it, which take {}",
        formatting::count(calls),
        formatting::time((ns - in_faults) as u64)
    );
    if again > 0 {
        facts += &format!(
            "; {} page faults beyond its peak memory, because it touches pages again that it had returned, which take about {}",
            formatting::count(again),
            formatting::time(in_faults as u64)
        );
    }
    facts.push('.');
    Some(CallSaving {
        kind: "memory",
        title: "keep memory instead of returning it",
        facts,
        remedy: "To try it without changing the code: `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456`, or another malloc. In the code: an arena or a reap, whose chunks are reused without the kernel; buffers that are used again; a thread pool instead of new threads.",
        calls,
        ns,
    })
}

fn waits(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let waits = kernel.sum(&[FUTEX_WAIT]);
    let each = costs.wait.min(waits.ns as f64 / waits.calls.max(1) as f64 + costs.call);
    let ns = waits.calls as f64 * each;
    (waits.calls > 0).then(|| CallSaving {
        kind: "waits",
        title: "wait less often",
        facts: format!(
            "{} waits for other threads in the kernel (futex); each costs {} of CPU time, the waking included; all threads waited for {} in all.",
            formatting::count(waits.calls),
            formatting::time(each as u64),
            formatting::time(waits.ns)
        ),
        remedy: "Hand over many things at once, give each thread its own part, or hold locks for a shorter time; the section on locks names those that threads waited for. Other waits are for conditions, for the end of threads, or for locks that aren't pthread's.",
        calls: waits.calls,
        ns,
    })
}

/// Calls that always cost about the same: their number, their cost in all, and a sentence.
fn constant_cost(
    kernel: &KernelCounts<'_>,
    costs: &SystemCallCosts,
    names: &[&str],
    what: &str,
) -> Option<(u64, f64, String)> {
    let calls = kernel.sum(names).calls;
    let ns = calls as f64 * costs.call;
    let each = formatting::time(costs.call as u64);
    (calls > 0)
        .then(|| (calls, ns, format!("{} {what}, at least {each} each.", formatting::count(calls))))
}

fn clock(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let (calls, ns, facts) =
        constant_cost(kernel, costs, &CLOCKS, "calls for the time that enter the kernel")?;
    Some(CallSaving {
        kind: "clock",
        title: "read the time without the kernel",
        facts,
        remedy: "The monotonic and the wall clock need no system call where `/sys/devices/system/clocksource/clocksource0/current_clocksource` is `tsc` or `kvm-clock`; clocks of CPU time always need one. Read the time less often, or pass it along.",
        calls,
        ns,
    })
}

fn seeks(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let (calls, ns, facts) =
        constant_cost(kernel, costs, &["lseek"], "calls that set a file's position")?;
    Some(CallSaving {
        kind: "seeks",
        title: "give the position with the read",
        facts,
        remedy: "`pread` and `pwrite` (in Rust `FileExt::read_at`, `write_at`) take the position as an argument. A buffered reader discards its buffer when it seeks (in Rust, `seek_relative` doesn't).",
        calls,
        ns,
    })
}

fn yields(kernel: &KernelCounts<'_>, costs: &SystemCallCosts) -> Option<CallSaving> {
    let (calls, ns, facts) =
        constant_cost(kernel, costs, &["sched_yield"], "calls of `sched_yield`")?;
    Some(CallSaving {
        kind: "yields",
        title: "block instead of yielding",
        facts,
        remedy: "A loop that yields uses a processor while it waits: spin for a microsecond at most, then block (a futex, a condition variable, `thread::park`).",
        calls,
        ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: SystemCallCosts = SystemCallCosts {
        call: 100.0,
        read: 300.0,
        write: 400.0,
        map: 1000.0,
        fault: 500.0,
        wait: 2000.0,
        counting: 0.0,
    };

    fn call(name: &str, calls: u64, small: Option<u64>) -> SystemCallCounts {
        // Long enough in the kernel that what was measured outside is the bound.
        SystemCallCounts {
            name: name.to_owned(),
            calls,
            ns: calls * 1000,
            small,
            small_bytes: small,
            ..SystemCallCounts::default()
        }
    }

    /// The advice for these calls in ten milliseconds of CPU time.
    fn advised(calls: &[SystemCallCounts], usage: &ResourceUsage) -> Vec<(String, u64)> {
        let kernel = KernelCounts {
            calls,
            small: &[],
            usage,
            page_faults: Some(0),
            costs: Some(COSTS),
            cpu_ns: Some(1e7),
            processes: 1,
            threads: 1,
        };
        advice(&kernel).into_iter().map(|advice| (advice.kind, advice.calls)).collect()
    }

    #[test]
    fn every_kind_is_advised_from_a_hundredth_of_the_time_on() {
        let usage = ResourceUsage::default();
        for (name, kind) in
            [("clock_gettime", "clock"), ("lseek", "seeks"), ("sched_yield", "yields")]
        {
            assert_eq!(advised(&[call(name, 999, None)], &usage), []);
            assert_eq!(advised(&[call(name, 1000, None)], &usage), [(kind.to_owned(), 1000)]);
        }
        assert_eq!(advised(&[call(FUTEX_WAIT, 49, None)], &usage), []);
        let waits = call(FUTEX_WAIT, 1000, None);
        assert_eq!(advised(&[waits], &usage), [("waits".to_owned(), 1000)]);
        // 40 calls of the process and 4 of its thread are usual, and so is what is mapped for
        // files.
        let memory = [call("brk", 1044, None), call("munmap", 50, None), call("mmap", 50, None)];
        assert_eq!(advised(&memory, &usage), [("memory".to_owned(), 1000)]);
    }

    #[test]
    fn transfers_that_had_to_wait_are_no_savings() {
        let reads = call("read", 2000, Some(2000));
        let found = advised(std::slice::from_ref(&reads), &ResourceUsage::default());
        assert_eq!(found, [("reads".to_owned(), 2000)]);
        let polls = [reads.clone(), call("epoll_wait", 1500, None)];
        assert_eq!(advised(&polls, &ResourceUsage::default()), [("reads".to_owned(), 500)]);
        // A switch for a futex is not one for a read.
        let usage = ResourceUsage { voluntary_switches: 2000, ..ResourceUsage::default() };
        assert_eq!(advised(std::slice::from_ref(&reads), &usage), []);
        let waits = [reads, call(FUTEX_WAIT, 1990, None)];
        let kinds: Vec<_> = advised(&waits, &usage).into_iter().map(|found| found.0).collect();
        assert_eq!(kinds, ["waits", "reads"]);
    }

    #[test]
    fn a_reply_is_no_saving_and_the_parts_of_a_message_are() {
        let calls = [call("read", 2000, Some(0)), call("write", 3000, Some(3000))];
        let of_writes = |waits: bool, consecutive: u64| {
            let small = SmallTransfers {
                waits,
                writes: true,
                calls: 3000,
                bytes: 3000,
                consecutive,
                ..SmallTransfers::default()
            };
            let kernel = KernelCounts {
                calls: &calls,
                small: std::slice::from_ref(&small),
                usage: &ResourceUsage::default(),
                page_faults: Some(0),
                costs: Some(COSTS),
                cpu_ns: Some(1e7),
                processes: 1,
                threads: 1,
            };
            advice(&kernel).into_iter().map(|advice| advice.calls).collect::<Vec<_>>()
        };
        assert!(of_writes(true, 0).is_empty());
        assert_eq!(of_writes(true, 1000), [1000]);
        // A file has no one who waits for a reply.
        assert_eq!(of_writes(false, 0), [3000]);
        // Where connections aren't told from files, as many are replies as there were reads.
        assert_eq!(advised(&calls, &ResourceUsage::default()), [("writes".to_owned(), 1000)]);
        let usage = ResourceUsage {
            read_calls: Some(9_000),
            read_bytes: Some(9_000 * SMALL),
            write_calls: Some(10_000),
            written_bytes: Some(60_000),
            ..ResourceUsage::default()
        };
        assert_eq!(advised(&[], &usage), [("writes".to_owned(), 1_000)]);
    }

    #[test]
    fn without_counts_the_kernel_s_account_speaks_by_its_mean() {
        let usage = |bytes| ResourceUsage {
            read_calls: Some(10_000),
            read_bytes: Some(bytes),
            ..ResourceUsage::default()
        };
        assert_eq!(advised(&[], &usage(20_000)), [("reads".to_owned(), 10_000)]);
        assert_eq!(advised(&[], &usage(10_000 * SMALL)), []);
        assert_eq!(advised(&[], &usage(0)), []);
        assert_eq!(advised(&[], &ResourceUsage::default()), []);
    }
}
