//! System calls, made without the C library: it may be not ready yet, it sets `errno`, and a program may stand before it.
//!
//! Invariants: no function here touches memory that isn't the caller's own; those that change mappings are `unsafe`.

use core::arch::asm;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A negative number of an error.
pub type Failed = isize;

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

/// The upper half of the fifth argument of every call from here, by which who counts a program's calls leaves them out.
///
/// None of them has a fifth argument but `mmap`, where it's a file's number, of which the kernel takes the lower half.
pub const MARK: usize = 0x616c_6c6f;

#[inline(always)]
fn marked(mut a: [usize; 6]) -> [usize; 6] {
    a[4] = a[4] & 0xffff_ffff | MARK << 32;
    a
}

/// # Safety
///
/// The call with these arguments touches memory of the caller alone.
#[inline]
unsafe fn call(number: usize, mut a: [usize; 6]) -> isize {
    a = marked(a);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promised; the kernel changes rcx and r11 besides the result.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller promised; the kernel changes the result alone.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// Asks about each kind of call from here, with arguments such as it has, up to the first that is answered with false.
pub fn each_kind_of_call(mut ask: impl FnMut(usize, [usize; 6]) -> bool) -> Result<(), usize> {
    const ANY: usize = 0;
    const LENGTH: usize = 4096;
    const FILE: usize = 1000;
    let apart = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let write = O_CLOEXEC | O_RDWR;
    let calls: [(usize, [usize; 6]); 27] = [
        (READ, [FILE, ANY, LENGTH, 0, 0, 0]),
        (CLOSE, [FILE, 0, 0, 0, 0, 0]),
        (FSTAT, [FILE, ANY, 0, 0, 0, 0]),
        (MMAP, [0, LENGTH, PROT_READ_WRITE, apart, usize::MAX, 0]),
        (MMAP, [0, LENGTH, PROT_READ_WRITE, MAP_SHARED, FILE, LENGTH]),
        (MUNMAP, [ANY, LENGTH, 0, 0, 0, 0]),
        (SIGPROCMASK, [NO_SUCH_HOW, ANY, 0, 8, 0, 0]),
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
        (MMAP, [0, 1 << 20, PROT_READ_WRITE, apart, usize::MAX, 0]),
    ];
    for (number, arguments) in calls {
        if !ask(number, marked(arguments)) {
            return Err(number);
        }
    }
    Ok(())
}

fn checked(result: isize) -> Result<usize, Failed> {
    if (-4095..0).contains(&result) { Err(result) } else { Ok(result as usize) }
}

/// A way to change signals that there isn't.
const NO_SUCH_HOW: usize = 1_000;
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

/// That there are too many files.
const EMFILE: Failed = -24;
/// That it isn't permitted.
pub const EPERM: Failed = -1;
/// That there is no such file.
pub const ENOENT: Failed = -2;
/// That a file is already there.
pub const EEXIST: Failed = -17;
/// That a file is too large.
pub const EFBIG: Failed = -27;
const EINTR: Failed = -4;
const EOPNOTSUPP: Failed = -95;

/// A file; closed when it is dropped.
#[derive(Debug)]
pub struct File(usize);

/// What tells a file from all others: its device and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// For writing, and it must not be there yet.
    New,
    /// To open files in it.
    Directory,
}

impl File {
    /// Opens a file by a path that ends with a zero.
    pub fn open(path: &[u8], how: How) -> Result<Self, Failed> {
        Self::open_from(AT_FDCWD, path, how)
    }

    /// Opens a file in this directory, by a name that ends with a zero.
    pub fn open_in(&self, name: &[u8], how: How) -> Result<Self, Failed> {
        Self::open_from(self.0, name, how)
    }

    fn open_from(directory: usize, path: &[u8], how: How) -> Result<Self, Failed> {
        debug_assert!(path.last() == Some(&0));
        let flags = O_CLOEXEC
            | match how {
                How::Read => 0,
                How::Write => O_RDWR,
                How::New => O_RDWR | O_CREAT | O_EXCL,
                How::Directory => O_DIRECTORY,
            };
        // SAFETY: it reads the path.
        let result =
            unsafe { call(OPENAT, [directory, path.as_ptr() as usize, flags, 0o600, 0, 0]) };
        checked(result).map(Self)
    }

    /// Which file it is.
    pub fn identity(&self) -> Result<Identity, Failed> {
        // Both processors' kernels begin their answer with the two numbers, and none has more than 144 bytes.
        let mut answer = [0_u64; 32];
        // SAFETY: it writes to the answer.
        checked(unsafe { call(FSTAT, [self.0, answer.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
        Ok(Identity(answer[0], answer[1]))
    }

    /// Keeps the file open under a number that programs don't come to by counting, and gives that. A program that may have
    /// few files keeps them for itself.
    pub fn keep(self) -> Result<u32, Failed> {
        const HIGH: u64 = 1000;
        const FEW: u64 = 256;
        let most = limit(RLIMIT_NOFILE);
        if most < FEW {
            return Err(EMFILE);
        }
        let lowest = HIGH.min(most - 24) as usize;
        // SAFETY: it touches no memory.
        let kept = unsafe { call(FCNTL, [self.0, F_DUPFD_CLOEXEC, lowest, 0, 0, 0]) };
        checked(kept).map(|kept| kept as u32)
    }

    /// The file that was kept under a number, if it's still the same: the program may have closed it, and have got the number
    /// for a file of its own.
    pub fn kept(number: u32, identity: Identity) -> Option<Kept> {
        let file = ManuallyDrop::new(Self(number as usize));
        (file.identity() == Ok(identity)).then_some(Kept(file))
    }

    /// Reads what comes next.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Failed> {
        // SAFETY: it writes to the slice.
        checked(unsafe { call(READ, [self.0, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) })
    }

    /// Gives blocks of the disk to a range behind its end, so that writing there can't fail.
    pub fn allocate(&self, offset: usize, length: usize) -> Result<(), Failed> {
        if longest_file() < (offset + length) as u64 {
            // The kernel would send a signal, which ends programs.
            return Err(EFBIG);
        }
        loop {
            // SAFETY: it touches no memory.
            let result = checked(unsafe { call(FALLOCATE, [self.0, 0, offset, length, 0, 0]) });
            match result {
                Err(EINTR) => {}
                Err(EOPNOTSUPP) => return self.write_zeros(offset, length),
                result => return result.map(drop),
            }
        }
    }

    fn write_zeros(&self, mut offset: usize, length: usize) -> Result<(), Failed> {
        let zeros = [0_u8; 4096];
        let end = offset + length;
        while offset < end {
            let most = zeros.len().min(end - offset);
            let from = zeros.as_ptr() as usize;
            // SAFETY: it reads the zeros.
            match checked(unsafe { call(PWRITE, [self.0, from, most, offset, 0, 0]) }) {
                Err(EINTR) => {}
                result => offset += result?,
            }
        }
        Ok(())
    }

    /// Maps a range of it, shared.
    pub fn map(&self, offset: usize, length: usize) -> Result<*mut u8, Failed> {
        // SAFETY: the kernel finds a place that nobody has.
        let result =
            unsafe { call(MMAP, [0, length, PROT_READ_WRITE, MAP_SHARED, self.0, offset]) };
        checked(result).map(|at| at as *mut u8)
    }
}

/// A file under the number that it is kept by; it stays open.
#[derive(Debug)]
pub struct Kept(ManuallyDrop<File>);

impl Kept {
    /// Closes it after all.
    pub fn close(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl Deref for Kept {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the number is ours.
        unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Zeroed memory that is there once it is touched.
pub fn map(length: usize) -> Result<*mut u8, Failed> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the kernel finds a place that nobody has.
    let at = checked(unsafe { call(MMAP, [0, length, PROT_READ_WRITE, flags, usize::MAX, 0]) })?;
    // Tables that are sparsely used must not become megabytes of resident memory in the program that is measured.
    // SAFETY: an advice for memory that is ours.
    unsafe { call(MADVISE, [at, length, MADV_NOHUGEPAGE, 0, 0, 0]) };
    Ok(at as *mut u8)
}

/// # Safety
///
/// The range was mapped by this module, and nobody uses it any more.
pub unsafe fn unmap(at: *mut u8, length: usize) {
    // SAFETY: as the caller promised.
    unsafe { call(MUNMAP, [at as usize, length, 0, 0, 0, 0]) };
}

/// Puts zeroed memory of this process alone where a mapping is.
///
/// # Safety
///
/// The range was mapped by this module, and nobody needs what is in it.
pub unsafe fn map_instead(at: *mut u8, length: usize) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: as the caller promised.
    unsafe { call(MMAP, [at as usize, length, PROT_READ_WRITE, flags, usize::MAX, 0]) };
}

/// Brings the pages of a mapping in, so that none is missing later; where the kernel can't, they come when touched.
pub fn populate(at: *mut u8, length: usize) {
    // SAFETY: it changes nothing that is there.
    unsafe { call(MADVISE, [at as usize, length, MADV_POPULATE_WRITE, 0, 0, 0]) };
}

/// Makes whole pages zero in the child of any fork.
///
/// # Safety
///
/// The pages are the caller's.
pub unsafe fn wipe_on_fork(at: *const u8, length: usize) -> Result<(), Failed> {
    // SAFETY: as the caller promised.
    checked(unsafe { call(MADVISE, [at as usize, length, MADV_WIPEONFORK, 0, 0, 0]) }).map(drop)
}

/// Whether eight bytes can be read at an address.
pub fn is_readable(address: u64) -> bool {
    const EINVAL: Failed = -22;
    // The kernel copies the new mask before it looks at what to do with it. Any other answer says nothing: a filter may have given it.
    // No address is no mask to the kernel, and no error.
    // SAFETY: it writes nothing and changes nothing, whatever the address is.
    address != 0
        && unsafe { call(SIGPROCMASK, [NO_SUCH_HOW, address as usize, 0, 8, 0, 0]) == EINVAL }
}

/// The monotonic clock.
pub fn monotonic_ns() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: it writes to `time`.
    unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// This process.
pub fn pid() -> u32 {
    // SAFETY: it touches nothing.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// This process's parent.
pub fn parent() -> u32 {
    // SAFETY: it touches nothing.
    unsafe { call(GETPPID, [0; 6]) as u32 }
}

/// This thread.
pub fn thread() -> u32 {
    // SAFETY: it touches nothing.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

/// Lets others run.
pub fn give_way() {
    // SAFETY: it touches nothing.
    unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// Where a symbolic link, whose path ends with a zero, points to.
pub fn read_link<'a>(path: &[u8], into: &'a mut [u8]) -> &'a [u8] {
    debug_assert!(path.last() == Some(&0));
    let (from, to) = (path.as_ptr() as usize, into.as_mut_ptr() as usize);
    // SAFETY: it reads the path and writes to the slice.
    let result = unsafe { call(READLINKAT, [AT_FDCWD, from, to, into.len(), 0, 0]) };
    &into[..checked(result).unwrap_or(0)]
}

/// The longest file that the process may write; beyond it the kernel sends a signal.
pub fn longest_file() -> u64 {
    limit(RLIMIT_FSIZE)
}

fn limit(of: usize) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: it writes to `limit`.
    unsafe { call(PRLIMIT, [0, of, 0, limit.as_mut_ptr() as usize, 0, 0]) };
    limit[0]
}

/// Ends the process.
pub fn abort() -> ! {
    loop {
        // SAFETY: it ends the process, at the latest by the trap that follows.
        unsafe { call(KILL, [pid() as usize, SIGABRT, 0, 0, 0, 0]) };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it traps.
        unsafe {
            asm!("ud2")
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: it traps.
        unsafe {
            asm!("brk #1")
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_kept_is_known_and_another_with_its_number_is_not() {
        let path = c"/proc/self/exe".to_bytes_with_nul();
        let file = File::open(path, How::Read).unwrap();
        let identity = file.identity().unwrap();
        let number = file.keep().unwrap();
        assert!(number >= 100, "{number} is a number that programs come to");
        assert_eq!(File::kept(number, identity).unwrap().identity(), Ok(identity));
        File::kept(number, identity).unwrap().close();
        assert!(File::kept(number, identity).is_none(), "it's closed");
        let other = File::open(c"/dev/null".to_bytes_with_nul(), How::Read).unwrap();
        let taken = other.keep().unwrap();
        assert!(File::kept(taken, identity).is_none(), "it's another file");
        let identity = File::open(c"/dev/null".to_bytes_with_nul(), How::Read).unwrap().identity();
        File::kept(taken, identity.unwrap()).unwrap().close();
    }

    #[test]
    fn a_file_is_opened_in_a_directory_that_is_kept() {
        let directory = File::open(c"/proc/self".to_bytes_with_nul(), How::Directory).unwrap();
        assert!(directory.open_in(c"maps".to_bytes_with_nul(), How::Read).is_ok());
        assert!(directory.open_in(c"no such".to_bytes_with_nul(), How::Read).is_err());
        let file = File::open(c"/proc/self/maps".to_bytes_with_nul(), How::Directory);
        assert!(file.is_err(), "it's no directory");
    }
}
