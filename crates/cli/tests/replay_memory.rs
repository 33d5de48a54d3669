//! A replay's memory doesn't grow with the recording. A file of its own: the kernel tells the
//! largest of all children.

#[path = "../../trace/tests/common/mod.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod common;

use common::{Stream, container};
use nix::sys::resource::{UsageWho, getrusage};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use trace_format::raw::{AllocationFlags, AllocationFunction};

/// Replays this number of pairs of an allocation and its free. Returns the largest peak memory of
/// any child process so far.
fn most_after(pairs: u64) -> u64 {
    let mut stream = Stream::new(1_000);
    let mut tick = 2_000;
    // SAFETY: `at` leaves room for any event.
    unsafe {
        stream.encoder(1_000).thread(1_000, 0, 7);
        stream.encoder(1_000).node(0, 0x5000);
        stream.encoder(1_000).kind(2, 64, AllocationFlags::new(AllocationFunction::Malloc));
        for pair in 0..pairs {
            tick += 40;
            let address = 0x10_0000 + pair % 100 * 64;
            stream.encoder(tick).allocated(tick, address, 0);
            stream.encoder(tick + 20).freed(tick + 20, address);
        }
    }
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replay-memory.rec");
    std::fs::write(&file, container(&[stream.finish()])).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_allot"))
        .arg("replay")
        .arg(&file)
        .args(["--rounds", "1", "--allocators", "null"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let kib = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    u64::try_from(kib).unwrap() << 10
}

#[test]
fn a_long_recording_is_replayed_in_as_little_memory_as_a_short_one() {
    let short = most_after(100_000);
    // The steps of these take 24 MB.
    let long = most_after(1_500_000);
    assert!(long < short + (8 << 20), "{short} bytes grew to {long}");
}
