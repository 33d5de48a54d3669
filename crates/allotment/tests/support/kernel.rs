//! What the kernel says of this process: threads that sleep, mappings, resident pages.

use std::time::Duration;

/// The calling thread's number.
pub fn thread_number() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.expect("a thread of this process");
    // The name before it may hold anything, a bracket too.
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    rest.trim_start().starts_with('S')
}

/// Waits until a thread sleeps, and stays asleep for a while.
pub fn wait_until_asleep(thread: i32) {
    let mut seen = 0;
    while seen < 20 {
        seen = if sleeps(thread) { seen + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The number of this process's mappings.
pub fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count()
}

pub fn page_size() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Whether the hardware page at this address has memory; `None` where nothing is mapped.
pub fn is_resident(address: usize) -> Option<bool> {
    let mut resident = 0u8;
    let start = address & !(page_size() - 1);
    // SAFETY: asks about one page, whatever is there, and writes one byte.
    let told = unsafe {
        libc::mincore(core::ptr::without_provenance_mut(start), page_size(), &raw mut resident)
    };
    (told == 0).then_some(resident & 1 == 1)
}

/// The flags of the mapping that holds an address, in two letters each.
pub fn mapping_flags(address: usize) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let holds = |line: &str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parse = |text| usize::from_str_radix(text, 16).ok();
        range
            .and_then(|(from, to)| Some(parse(from)?..parse(to)?))
            .is_some_and(|range| range.contains(&address))
    };
    let mut lines = text.lines().skip_while(|line| !holds(line));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("a mapping has flags");
    flags.split_whitespace().map(String::from).collect()
}
