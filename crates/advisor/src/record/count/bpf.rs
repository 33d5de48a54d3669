//! The kernel's interfaces for counting: eBPF maps and programs, and trace points.
//!
//! Invariants:
//!
//! - Each structure has the layout of the kernel's headers, and its unused parts are zero.
//! - Every pointer in a structure is to memory that outlives the call, and has the length beside
//!   it.
//! - Every descriptor that the kernel returns is owned at once.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eBPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct BpfInstruction {
    pub code: u8,
    /// Destination in the lower half, source in the upper.
    pub registers: u8,
    pub offset: i16,
    pub value: i32,
}

/// The kind of a map.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub enum BpfMapKind {
    Hash = 1,
    ArrayOfEachProcessor = 6,
}

const MAP_CREATE: i64 = 0;
const MAP_LOOKUP: i64 = 1;
const MAP_NEXT_KEY: i64 = 4;
const PROGRAM_LOAD: i64 = 5;
const KIND_TRACEPOINT: u32 = 5;

#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct LookupAttributes {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
}

/// # Safety
///
/// The attributes are those of the command, and fulfil the invariants.
unsafe fn bpf<T>(command: i64, attributes: &T) -> io::Result<i64> {
    // SAFETY: the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    checked(result)
}

fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(number: i64) -> OwnedFd {
    // SAFETY: the kernel has just returned it to this process.
    unsafe { OwnedFd::from_raw_fd(number as RawFd) }
}

const NAME: [u8; 16] = *b"allot_record\0\0\0\0";

/// A type of keys. Every bit pattern is valid.
pub trait BpfMapKey: Copy + Default {}

impl BpfMapKey for u32 {}
impl BpfMapKey for u64 {}

/// A map whose values are `N` times `u64`.
#[derive(Debug)]
pub struct BpfMap<K, const N: usize>(OwnedFd, PhantomData<K>);

impl<K: BpfMapKey, const N: usize> BpfMap<K, N> {
    pub fn new(kind: BpfMapKind, entries: u32) -> io::Result<Self> {
        let attributes = MapAttributes {
            kind: kind as u32,
            key_size: size_of::<K>() as u32,
            value_size: 8 * N as u32,
            entries,
            name: NAME,
            ..MapAttributes::default()
        };
        // SAFETY: there are no pointers.
        unsafe { bpf(MAP_CREATE, &attributes) }.map(|number| Self(owned(number), PhantomData))
    }

    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// The `count` values of a key: one, or one for each possible processor.
    fn values(&self, key: K, count: usize) -> io::Result<Vec<[u64; N]>> {
        let mut values = vec![[0; N]; count];
        let attributes = LookupAttributes {
            map: self.0.as_raw_fd() as u32,
            key: (&raw const key) as u64,
            value: values.as_mut_ptr() as u64,
            ..LookupAttributes::default()
        };
        // SAFETY: `values` has the size of all values.
        unsafe { bpf(MAP_LOOKUP, &attributes)? };
        Ok(values)
    }

    /// The key that follows `after`, or the first key.
    fn next_key(&self, after: Option<K>) -> Option<K> {
        let mut next = K::default();
        let attributes = LookupAttributes {
            map: self.0.as_raw_fd() as u32,
            key: after.as_ref().map_or(0, |after| std::ptr::from_ref(after) as u64),
            value: (&raw mut next) as u64,
            ..LookupAttributes::default()
        };
        // SAFETY: `next` has the size of a key, and every bit pattern is a key.
        unsafe { bpf(MAP_NEXT_KEY, &attributes) }.ok().map(|_| next)
    }

    /// All keys with their values. The map is a [`BpfMapKind::Hash`].
    pub fn entries(&self) -> Vec<(K, [u64; N])> {
        let mut entries = Vec::new();
        let mut key = self.next_key(None);
        while let Some(now) = key {
            if let Ok(values) = self.values(now, 1) {
                entries.push((now, values[0]));
            }
            key = self.next_key(Some(now));
        }
        entries
    }

    /// The sum of all processors' values. The map is one of [`BpfMapKind::ArrayOfEachProcessor`].
    pub fn sum(&self, key: K, processors: usize) -> io::Result<[u64; N]> {
        let values = self.values(key, processors)?;
        Ok(values.iter().fold([0; N], |sum, value| {
            std::array::from_fn(|field| sum[field].wrapping_add(value[field]))
        }))
    }
}

/// The number of possible processors, which is the number of values for each key of a per-processor
/// map.
pub fn possible_processors() -> io::Result<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("no list of processors"))
}

/// A program that the kernel has checked.
#[derive(Debug)]
pub struct BpfProgram(OwnedFd);

impl BpfProgram {
    pub fn load(instructions: &[BpfInstruction]) -> io::Result<Self> {
        // None of the called functions requires another license.
        const LICENSE: &CStr = c"MIT OR Apache-2.0";
        let mut attributes = ProgramAttributes {
            kind: KIND_TRACEPOINT,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            name: NAME,
            ..ProgramAttributes::default()
        };
        // SAFETY: the instructions and the license live through the call.
        let error = match unsafe { bpf(PROGRAM_LOAD, &attributes) } {
            Ok(number) => return Ok(Self(owned(number))),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(error) => error,
        };
        let mut log = vec![0_u8; 1 << 16];
        attributes.log_level = 1;
        attributes.log_size = log.len() as u32;
        attributes.log = log.as_mut_ptr() as u64;
        // SAFETY: as above; the log lives through the call too.
        let _ = unsafe { bpf(PROGRAM_LOAD, &attributes) };
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let text = String::from_utf8_lossy(&log[..end]);
        let why = text.lines().rev().find(|line| !line.starts_with("processed ")).unwrap_or("");
        Err(io::Error::other(format!("the kernel refuses an eBPF program: {error}: {why}")))
    }

    /// Runs it each time that a trace point is reached, until the returned descriptor is dropped.
    pub fn attach(&self, trace_point: u64) -> io::Result<OwnedFd> {
        const KIND_TRACEPOINT: u32 = 2;
        const DISABLED: u64 = 1;
        const CLOSE_ON_EXEC: u64 = 8;
        const SET_PROGRAM: u64 = 0x4004_2408;
        #[repr(C)]
        #[derive(Default)]
        struct EventAttributes {
            kind: u32,
            size: u32,
            config: u64,
            period: u64,
            sample: u64,
            read: u64,
            flags: u64,
            wakeup: u32,
            breakpoint: u32,
            address: u64,
        }
        let attributes = EventAttributes {
            kind: KIND_TRACEPOINT,
            size: size_of::<EventAttributes>() as u32,
            config: trace_point,
            // The program runs whether or not the event itself is counted.
            flags: DISABLED,
            ..EventAttributes::default()
        };
        // SAFETY: the attributes have the layout of their first version, and contain its size.
        let event = checked(unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0_i64,
                -1_i64,
                -1_i64,
                CLOSE_ON_EXEC,
            )
        })?;
        let event = owned(event);
        // SAFETY: it touches no memory.
        let set = unsafe { libc::ioctl(event.as_raw_fd(), SET_PROGRAM as _, self.0.as_raw_fd()) };
        checked(i64::from(set)).map(|_| event)
    }
}

/// The kernel's file system of trace points, in a mount without a path.
#[derive(Debug)]
pub struct TracePoints(OwnedFd);

/// A trace point.
#[derive(Debug)]
pub struct TracePoint {
    pub number: u64,
    format: String,
}

impl TracePoints {
    pub fn open() -> io::Result<Self> {
        const CLOSE_ON_EXEC: i64 = 1;
        const CREATE: i64 = 6;
        // SAFETY: the name ends with a zero. The mount ends with its descriptor.
        unsafe {
            let system = libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOSE_ON_EXEC);
            let system = owned(checked(system)?);
            let null = std::ptr::null::<u8>();
            checked(libc::syscall(
                libc::SYS_fsconfig,
                system.as_raw_fd(),
                CREATE,
                null,
                null,
                0_i64,
            ))?;
            let mount = libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), CLOSE_ON_EXEC, 0_i64);
            checked(mount).map(|mount| Self(owned(mount)))
        }
    }

    /// A trace point by its group and name: `sched/sched_process_exit`.
    pub fn find(&self, name: &str) -> io::Result<TracePoint> {
        let number = self.read(&format!("events/{name}/id\0"))?;
        let number = number.trim().parse().map_err(io::Error::other)?;
        Ok(TracePoint { number, format: self.read(&format!("events/{name}/format\0"))? })
    }

    fn read(&self, path: &str) -> io::Result<String> {
        debug_assert!(path.ends_with('\0'));
        // SAFETY: the path ends with a zero.
        let file = unsafe {
            libc::openat(self.0.as_raw_fd(), path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC)
        };
        let mut file = File::from(owned(checked(i64::from(file))?));
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl TracePoint {
    /// The offset of a field in the trace point's data.
    pub fn offset(&self, field: &str) -> io::Result<i16> {
        offset(&self.format, field)
            .ok_or_else(|| io::Error::other(format!("the trace point has no {field}")))
    }
}

/// The offset of a field in the text that describes a trace point.
fn offset(format: &str, field: &str) -> Option<i16> {
    format.lines().find_map(|line| {
        let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declared.rsplit(' ').next()?.split('[').next()?;
        let offset = rest.trim().strip_prefix("offset:")?.split_once(';')?.0;
        if name == field { offset.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let format = "name: fork\nID: 366\nformat:\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned long args[6];\toffset:32;\tsize:48;\tsigned:0;\n";
        assert_eq!(offset(format, "child_pid"), Some(20));
        assert_eq!(offset(format, "args"), Some(32));
        assert_eq!(offset(format, "pid"), None);
        assert_eq!(offset("", "pid"), None);
    }
}
