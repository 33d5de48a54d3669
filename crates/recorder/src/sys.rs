//! System calls, made without the C library: it may not be ready yet, it sets `errno`, and the
//! program may replace its functions.
//!
//! Invariant: no function here accesses memory of anything but the caller. Those that change
//! mappings are `unsafe`.

use core::arch::asm;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A negated `errno`.
pub type SysError = isize;

macro_rules! numbers {
    ($($name:ident = $x86:literal, $arm:literal;)*) => {
        $(#[cfg(target_arch = "x86_64")] pub(crate) const $name: usize = $x86;
          #[cfg(target_arch = "aarch64")] pub(crate) const $name: usize = $arm;)*
    };
}

numbers! {
    READ = 0, 63;
    CLOSE = 3, 57;
    FSTAT = 5, 80;
    MMAP = 9, 222;
    MUNMAP = 11, 215;
    SIGPROCMASK = 14, 135;
    PWRITE = 18, 68;
    SCHED_YIELD = 24, 124;
    MADVISE = 28, 233;
    MPROTECT = 10, 226;
    GETPID = 39, 172;
    KILL = 62, 129;
    FCNTL = 72, 25;
    GETPPID = 110, 173;
    GETTID = 186, 178;
    CLOCK_GETTIME = 228, 113;
    OPENAT = 257, 56;
    READLINKAT = 267, 78;
    FALLOCATE = 285, 47;
    PRLIMIT = 302, 261;
}

/// The upper half of the fifth argument of every call from here. Tools that count a program's
/// system calls leave such calls out.
///
/// Only `mmap` has a fifth argument: a file descriptor, of which the kernel uses the lower half.
pub const MARK: usize = 0x616c_6c6f;

#[inline(always)]
fn with_mark(mut arguments: [usize; 6]) -> [usize; 6] {
    arguments[4] = arguments[4] & 0xffff_ffff | MARK << 32;
    arguments
}

/// # Safety
///
/// The call with these arguments accesses only memory of the caller.
#[inline]
unsafe fn call(number: usize, mut a: [usize; 6]) -> isize {
    a = with_mark(a);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promised; besides the result, the kernel changes rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller promised; the kernel changes only the result.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// Passes the number of each system call that this library makes to `accepts`, with typical
/// arguments. Returns the number of the first call that is not accepted.
pub fn check_each_call(mut accepts: impl FnMut(usize, [usize; 6]) -> bool) -> Result<(), usize> {
    const ANY: usize = 0;
    const LENGTH: usize = 4096;
    const FILE: usize = 1000;
    let private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let write = O_CLOEXEC | O_RDWR;
    let calls: [(usize, [usize; 6]); 27] = [
        (READ, [FILE, ANY, LENGTH, 0, 0, 0]),
        (CLOSE, [FILE, 0, 0, 0, 0, 0]),
        (FSTAT, [FILE, ANY, 0, 0, 0, 0]),
        (MMAP, [0, LENGTH, PROT_READ_WRITE, private, usize::MAX, 0]),
        (MMAP, [0, LENGTH, PROT_READ_WRITE, MAP_SHARED, FILE, LENGTH]),
        (MUNMAP, [ANY, LENGTH, 0, 0, 0, 0]),
        (SIGPROCMASK, [INVALID_HOW, ANY, 0, 8, 0, 0]),
        (PWRITE, [FILE, ANY, LENGTH, LENGTH, 0, 0]),
        (SCHED_YIELD, [0; 6]),
        (MADVISE, [ANY, LENGTH, MADV_NOHUGEPAGE, 0, 0, 0]),
        (MADVISE, [ANY, LENGTH, MADV_POPULATE_WRITE, 0, 0, 0]),
        (MADVISE, [ANY, LENGTH, MADV_WIPEONFORK, 0, 0, 0]),
        (GETPID, [0; 6]),
        (GETPPID, [0; 6]),
        (GETTID, [0; 6]),
        (FCNTL, [FILE, F_DUPFD_CLOEXEC, FILE, 0, 0, 0]),
        (CLOCK_GETTIME, [CLOCK_MONOTONIC, ANY, 0, 0, 0, 0]),
        (OPENAT, [AT_FDCWD, ANY, O_CLOEXEC, 0o600, 0, 0]),
        (OPENAT, [AT_FDCWD, ANY, O_CLOEXEC | O_DIRECTORY, 0o600, 0, 0]),
        (OPENAT, [AT_FDCWD, ANY, write, 0o600, 0, 0]),
        (OPENAT, [AT_FDCWD, ANY, write | O_CREAT | O_EXCL, 0o600, 0, 0]),
        (OPENAT, [FILE, ANY, write | O_CREAT | O_EXCL, 0o600, 0, 0]),
        (READLINKAT, [AT_FDCWD, ANY, ANY, LENGTH, 0, 0]),
        (FALLOCATE, [FILE, 0, LENGTH, LENGTH, 0, 0]),
        (PRLIMIT, [0, RLIMIT_FSIZE, 0, ANY, 0, 0]),
        (PRLIMIT, [0, RLIMIT_NOFILE, 0, ANY, 0, 0]),
        (MMAP, [0, 1 << 20, PROT_READ_WRITE, private, usize::MAX, 0]),
    ];
    for (number, arguments) in calls {
        if !accepts(number, with_mark(arguments)) {
            return Err(number);
        }
    }
    Ok(())
}

fn checked(result: isize) -> Result<usize, SysError> {
    if (-4095..0).contains(&result) { Err(result) } else { Ok(result as usize) }
}

/// A value of `how` that `sigprocmask` refuses.
const INVALID_HOW: usize = 1_000;
const AT_FDCWD: usize = -100_isize as usize;
const O_CLOEXEC: usize = 0o2_000_000;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
#[cfg(target_arch = "x86_64")]
const O_DIRECTORY: usize = 0o200_000;
#[cfg(target_arch = "aarch64")]
const O_DIRECTORY: usize = 0o40_000;
const F_DUPFD_CLOEXEC: usize = 1030;
const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_POPULATE_WRITE: usize = 23;
const MADV_WIPEONFORK: usize = 18;
const MADV_NOHUGEPAGE: usize = 15;
const CLOCK_MONOTONIC: usize = 1;
const RLIMIT_FSIZE: usize = 1;
const RLIMIT_NOFILE: usize = 7;
const SIGABRT: usize = 6;

/// Too many open files.
const EMFILE: SysError = -24;
/// Not permitted.
pub const EPERM: SysError = -1;
/// No such file.
pub const ENOENT: SysError = -2;
/// The file exists.
pub const EEXIST: SysError = -17;
/// The file is too large.
pub const EFBIG: SysError = -27;
const EINTR: SysError = -4;
const EOPNOTSUPP: SysError = -95;

/// An open file. Closed when it is dropped.
#[derive(Debug)]
pub struct FileDescriptor(usize);

/// The device and the inode number of a file, which no other file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity(u64, u64);

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// For writing; the file must not exist.
    New,
    /// A directory, to open files in.
    Directory,
}

impl FileDescriptor {
    /// Opens a file by a path that ends with a zero.
    pub fn open(path: &[u8], mode: OpenMode) -> Result<Self, SysError> {
        Self::open_from(AT_FDCWD, path, mode)
    }

    /// Opens a file in this directory, by a name that ends with a zero.
    pub fn open_in(&self, name: &[u8], mode: OpenMode) -> Result<Self, SysError> {
        Self::open_from(self.0, name, mode)
    }

    fn open_from(directory: usize, path: &[u8], mode: OpenMode) -> Result<Self, SysError> {
        debug_assert!(path.last() == Some(&0));
        let flags = O_CLOEXEC
            | match mode {
                OpenMode::Read => 0,
                OpenMode::Write => O_RDWR,
                OpenMode::New => O_RDWR | O_CREAT | O_EXCL,
                OpenMode::Directory => O_DIRECTORY,
            };
        // SAFETY: the call reads the path.
        let result =
            unsafe { call(OPENAT, [directory, path.as_ptr() as usize, flags, 0o600, 0, 0]) };
        checked(result).map(Self)
    }

    /// The identity of the file.
    pub fn identity(&self) -> Result<FileIdentity, SysError> {
        // On both processors, the structure begins with the two numbers and has at most 144 bytes.
        let mut answer = [0_u64; 32];
        // SAFETY: the call writes to the answer.
        checked(unsafe { call(FSTAT, [self.0, answer.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
        Ok(FileIdentity(answer[0], answer[1]))
    }

    /// Moves the file to a descriptor that programs do not reach by counting up, and returns it.
    /// The file stays open. Fails if the program may open few files only.
    pub fn keep_open(self) -> Result<u32, SysError> {
        const PREFERRED: u64 = 1000;
        const MIN_LIMIT: u64 = 256;
        let limit = limit(RLIMIT_NOFILE);
        if limit < MIN_LIMIT {
            return Err(EMFILE);
        }
        let lowest = PREFERRED.min(limit - 24) as usize;
        // SAFETY: the call accesses no memory.
        let descriptor = unsafe { call(FCNTL, [self.0, F_DUPFD_CLOEXEC, lowest, 0, 0, 0]) };
        checked(descriptor).map(|descriptor| descriptor as u32)
    }

    /// The file that was kept open at a descriptor, if it still is. The program may have closed it,
    /// and may have opened a file of its own at that descriptor.
    pub fn kept_open(descriptor: u32, identity: FileIdentity) -> Option<KeptDescriptor> {
        let file = ManuallyDrop::new(Self(descriptor as usize));
        (file.identity() == Ok(identity)).then_some(KeptDescriptor(file))
    }

    /// Reads from the current position.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, SysError> {
        // SAFETY: the call writes to the slice.
        checked(unsafe { call(READ, [self.0, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) })
    }

    /// Allocates disk blocks for a range after the end of the file, so that writing there cannot
    /// fail.
    pub fn allocate(&self, offset: usize, length: usize) -> Result<(), SysError> {
        if max_file_size() < (offset + length) as u64 {
            // The kernel would send a signal, which ends most programs.
            return Err(EFBIG);
        }
        loop {
            // SAFETY: the call accesses no memory.
            let result = checked(unsafe { call(FALLOCATE, [self.0, 0, offset, length, 0, 0]) });
            match result {
                Err(EINTR) => {}
                Err(EOPNOTSUPP) => return self.write_zeros(offset, length),
                result => return result.map(drop),
            }
        }
    }

    fn write_zeros(&self, mut offset: usize, length: usize) -> Result<(), SysError> {
        let zeros = [0_u8; 4096];
        let end = offset + length;
        while offset < end {
            let count = zeros.len().min(end - offset);
            let from = zeros.as_ptr() as usize;
            // SAFETY: the call reads the zeros.
            match checked(unsafe { call(PWRITE, [self.0, from, count, offset, 0, 0]) }) {
                Err(EINTR) => {}
                result => offset += result?,
            }
        }
        Ok(())
    }

    /// Maps a range of the file, shared.
    pub fn map(&self, offset: usize, length: usize) -> Result<*mut u8, SysError> {
        // SAFETY: the kernel chooses unused addresses.
        let result =
            unsafe { call(MMAP, [0, length, PROT_READ_WRITE, MAP_SHARED, self.0, offset]) };
        checked(result).map(|address| address as *mut u8)
    }
}

/// A file that is kept open. It stays open when this is dropped.
#[derive(Debug)]
pub struct KeptDescriptor(ManuallyDrop<FileDescriptor>);

impl KeptDescriptor {
    /// Closes the file.
    pub fn close(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl Deref for KeptDescriptor {
    type Target = FileDescriptor;

    fn deref(&self) -> &FileDescriptor {
        &self.0
    }
}

impl Drop for FileDescriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this file's.
        unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Zeroed memory, whose pages the kernel provides when they are accessed.
pub fn map(length: usize) -> Result<*mut u8, SysError> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the kernel chooses unused addresses.
    let address =
        checked(unsafe { call(MMAP, [0, length, PROT_READ_WRITE, flags, usize::MAX, 0]) })?;
    // With huge pages, sparsely used tables would make megabytes of memory resident in the program.
    // SAFETY: advice for memory of the caller.
    unsafe { call(MADVISE, [address, length, MADV_NOHUGEPAGE, 0, 0, 0]) };
    Ok(address as *mut u8)
}

/// A range of addresses without memory.
pub fn reserve(length: usize) -> Result<*mut u8, SysError> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the kernel chooses unused addresses.
    let address = checked(unsafe { call(MMAP, [0, length, PROT_NONE, flags, usize::MAX, 0]) })?;
    Ok(address as *mut u8)
}

/// Gives zeroed memory to a part of a range of [`reserve`].
///
/// # Safety
///
/// It is such a part, of whole pages.
pub unsafe fn provide(start: *mut u8, length: usize) -> Result<(), SysError> {
    // SAFETY: as the caller promised.
    let result = unsafe { call(MPROTECT, [start as usize, length, PROT_READ_WRITE, 0, 0, 0]) };
    checked(result).map(drop)
}

/// Unmaps memory.
///
/// # Safety
///
/// This module mapped the range, and it is not used any more.
pub unsafe fn unmap(start: *mut u8, length: usize) {
    // SAFETY: as the caller promised.
    unsafe { call(MUNMAP, [start as usize, length, 0, 0, 0, 0]) };
}

/// Replaces a mapping by zeroed memory, which no other process shares.
///
/// # Safety
///
/// This module mapped the range, and its contents are not needed any more.
pub unsafe fn map_over(start: *mut u8, length: usize) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: as the caller promised.
    unsafe { call(MMAP, [start as usize, length, PROT_READ_WRITE, flags, usize::MAX, 0]) };
}

/// Provides the pages of a mapping, so that no page fault follows. If the kernel does not support
/// that, it provides each page when it is accessed.
pub fn populate(start: *mut u8, length: usize) {
    // SAFETY: the call does not change the contents.
    unsafe { call(MADVISE, [start as usize, length, MADV_POPULATE_WRITE, 0, 0, 0]) };
}

/// Asks the kernel to zero whole pages in the child of every fork.
///
/// # Safety
///
/// The pages belong to the caller.
pub unsafe fn wipe_on_fork(start: *const u8, length: usize) -> Result<(), SysError> {
    // SAFETY: as the caller promised.
    checked(unsafe { call(MADVISE, [start as usize, length, MADV_WIPEONFORK, 0, 0, 0]) }).map(drop)
}

/// Whether the eight bytes at an address are readable.
pub fn is_readable(address: u64) -> bool {
    const EINVAL: SysError = -22;
    // The kernel copies the new mask before it checks `how`. Any other error proves nothing: a
    // seccomp filter may have returned it. A null address means no mask to the kernel, and is no
    // error.
    // SAFETY: the call changes nothing, whatever the address is.
    address != 0
        && unsafe { call(SIGPROCMASK, [INVALID_HOW, address as usize, 0, 8, 0, 0]) == EINVAL }
}

/// The monotonic clock, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the call writes to `time`.
    unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// The id of this process.
pub fn process_id() -> u32 {
    // SAFETY: the call accesses no memory.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// The id of this process's parent.
pub fn parent_id() -> u32 {
    // SAFETY: the call accesses no memory.
    unsafe { call(GETPPID, [0; 6]) as u32 }
}

/// The id of this thread.
pub fn thread_id() -> u32 {
    // SAFETY: the call accesses no memory.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

/// Lets other threads run.
pub fn yield_now() {
    // SAFETY: the call accesses no memory.
    unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// The target of a symbolic link, whose path ends with a zero. Empty on failure.
pub fn read_link<'a>(path: &[u8], into: &'a mut [u8]) -> &'a [u8] {
    debug_assert!(path.last() == Some(&0));
    let (from, to) = (path.as_ptr() as usize, into.as_mut_ptr() as usize);
    // SAFETY: the call reads the path and writes to the slice.
    let result = unsafe { call(READLINKAT, [AT_FDCWD, from, to, into.len(), 0, 0]) };
    &into[..checked(result).unwrap_or(0)]
}

/// The size in bytes of the largest file that the process may write. Beyond it, the kernel sends a
/// signal.
pub fn max_file_size() -> u64 {
    limit(RLIMIT_FSIZE)
}

fn limit(resource: usize) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the call writes to `limit`.
    unsafe { call(PRLIMIT, [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0]) };
    limit[0]
}

/// Aborts the process.
pub fn abort() -> ! {
    loop {
        // SAFETY: the signal ends the process, or else the trap that follows.
        unsafe { call(KILL, [process_id() as usize, SIGABRT, 0, 0, 0, 0]) };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction traps.
        unsafe {
            asm!("ud2")
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the instruction traps.
        unsafe {
            asm!("brk #1")
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_is_recognised_and_another_at_its_descriptor_is_not() {
        let path = c"/proc/self/exe".to_bytes_with_nul();
        let file = FileDescriptor::open(path, OpenMode::Read).unwrap();
        let identity = file.identity().unwrap();
        let number = file.keep_open().unwrap();
        assert!(number >= 100, "programs reach {number} by counting up");
        assert_eq!(FileDescriptor::kept_open(number, identity).unwrap().identity(), Ok(identity));
        FileDescriptor::kept_open(number, identity).unwrap().close();
        assert!(FileDescriptor::kept_open(number, identity).is_none(), "it is closed");
        let other = FileDescriptor::open(c"/dev/null".to_bytes_with_nul(), OpenMode::Read).unwrap();
        let taken = other.keep_open().unwrap();
        assert!(FileDescriptor::kept_open(taken, identity).is_none(), "it is another file");
        let identity = FileDescriptor::open(c"/dev/null".to_bytes_with_nul(), OpenMode::Read)
            .unwrap()
            .identity();
        FileDescriptor::kept_open(taken, identity.unwrap()).unwrap().close();
    }

    #[test]
    fn a_file_is_opened_in_an_open_directory() {
        let directory =
            FileDescriptor::open(c"/proc/self".to_bytes_with_nul(), OpenMode::Directory).unwrap();
        assert!(directory.open_in(c"maps".to_bytes_with_nul(), OpenMode::Read).is_ok());
        assert!(directory.open_in(c"no such".to_bytes_with_nul(), OpenMode::Read).is_err());
        let file =
            FileDescriptor::open(c"/proc/self/maps".to_bytes_with_nul(), OpenMode::Directory);
        assert!(file.is_err(), "it is not a directory");
    }
}
