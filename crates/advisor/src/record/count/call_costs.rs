//! Measures what system calls cost on this machine. The costs are stored in the recording, so that
//! it can be analysed on another machine.
//!
//! Invariant: each call gets memory that outlives it, and that no other thread uses.

use super::SystemCallCounter;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;
use trace_format::container::SystemCallCosts;

/// The number of timed batches, and of calls in each. The shortest batch counts, because
/// disturbances only add time.
const BATCHES: usize = 24;
const CALLS: usize = 100;
/// Pages that a batch touches.
const PAGES: usize = 128;
const PAGE: usize = 4096;
/// The number of waits for another thread in a batch, and of such batches.
const WAITS: u32 = 60;
const WAIT_BATCHES: usize = 5;

/// Measures all costs, in some ten milliseconds. Must run before calls are counted, or that would
/// be measured too.
pub fn measure() -> io::Result<SystemCallCosts> {
    let (map, fault) = memory()?;
    let (read, write) = transfers()?;
    Ok(SystemCallCosts {
        call: empty_call(),
        read,
        write,
        map,
        fault,
        wait: waiting(),
        counting: 0.0,
    })
}

/// The nanoseconds that counting adds to a call, which takes `call` without. Discards the counts so
/// far.
pub fn counting(counter: &mut SystemCallCounter, call: f64) -> io::Result<f64> {
    let entry = counter.entry();
    // On a thread of its own, because a thread is counted until it ends.
    let counted = thread::scope(|scope| {
        let measured = scope.spawn(|| {
            entry.enter();
            empty_call()
        });
        measured.join().unwrap_or(call)
    });
    counter.start_over()?;
    Ok((counted - call).max(0.0))
}

/// The nanoseconds of one of the `count` operations of a batch.
fn each(count: usize, mut batch: impl FnMut()) -> f64 {
    batch();
    let times = (0..BATCHES).map(|_| {
        let begun = Instant::now();
        batch();
        begun.elapsed()
    });
    times.min().unwrap_or_default().as_nanos() as f64 / count as f64
}

fn empty_call() -> f64 {
    each(CALLS, || {
        for _ in 0..CALLS {
            // SAFETY: it touches no memory. The C library's `getppid` may cache the result.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    })
}

/// Reading and writing a byte of a file in memory.
fn transfers() -> io::Result<(f64, f64)> {
    // SAFETY: the name ends with a zero, and nothing else owns the descriptor.
    let file = unsafe {
        match libc::memfd_create(c"allot".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(io::Error::last_os_error()),
            number => File::from_raw_fd(number),
        }
    };
    file.set_len(PAGE as u64)?;
    let mut byte = 0_u8;
    let write = each(CALLS, || {
        for at in 0..CALLS {
            // SAFETY: it reads the byte.
            unsafe { libc::pwrite(file.as_raw_fd(), (&raw const byte).cast(), 1, at as i64) };
        }
    });
    let read = each(CALLS, || {
        for at in 0..CALLS {
            // SAFETY: it writes to the byte.
            unsafe { libc::pread(file.as_raw_fd(), (&raw mut byte).cast(), 1, at as i64) };
        }
    });
    Ok((read, write))
}

/// Mapping or unmapping, and the first touch of a page without the cost of returning it.
fn memory() -> io::Result<(f64, f64)> {
    let (readable, private) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let (mut mapping, mut touching) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..=BATCHES {
        // SAFETY: the kernel chooses the address, and only pages of the mapping are touched.
        unsafe {
            let begun = Instant::now();
            let at = libc::mmap(std::ptr::null_mut(), PAGE, readable, private, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::munmap(at, PAGE);
            mapping = mapping.min(begun.elapsed().as_nanos() as f64 / 2.0);
            let at = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, readable, private, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let begun = Instant::now();
            for page in 0..PAGES {
                at.cast::<u8>().add(page * PAGE).write_volatile(1);
            }
            touching = touching.min(begun.elapsed().as_nanos() as f64 / PAGES as f64);
            libc::munmap(at, PAGES * PAGE);
        }
    }
    Ok((mapping, touching))
}

/// The CPU time of a wait for another thread, with its waking. The cheapest batch counts, because
/// the cost depends on the processors on which the threads run.
fn waiting() -> f64 {
    (0..WAIT_BATCHES).map(|_| wait_batch()).fold(f64::INFINITY, f64::min)
}

fn wait_batch() -> f64 {
    let pack_full_chunks = AtomicU32::new(0);
    let wait_for = |parity: u32| {
        loop {
            let now = pack_full_chunks.load(Ordering::Acquire);
            if now >= WAITS || now % 2 == parity {
                return now;
            }
            // SAFETY: the word lives as long as the threads.
            unsafe {
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                let forever = std::ptr::null::<libc::timespec>();
                libc::syscall(libc::SYS_futex, pack_full_chunks.as_ptr(), operation, now, forever);
            }
        }
    };
    let take_turns = |parity: u32| {
        let begun = thread_cpu_ns();
        while wait_for(parity) < WAITS {
            pack_full_chunks.fetch_add(1, Ordering::Release);
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_futex, pack_full_chunks.as_ptr(), operation, 1) };
        }
        thread_cpu_ns() - begun
    };
    let spent = thread::scope(|scope| {
        let other = scope.spawn(|| take_turns(1));
        take_turns(0) + other.join().unwrap_or(0)
    });
    spent as f64 / f64::from(WAITS)
}

fn thread_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_is_plausible() {
        let costs = measure().unwrap();
        for (what, ns) in [
            ("call", costs.call),
            ("read", costs.read),
            ("write", costs.write),
            ("map", costs.map),
            ("fault", costs.fault),
            ("wait", costs.wait),
        ] {
            assert!(ns > 1.0 && ns < 1e7, "{what}: {ns}");
        }
        assert_eq!(costs.counting, 0.0);
    }
}
