//! Files that serve as memory, and files of the kernel that are read.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::refused;
use crate::error::AllocError;

/// Creates a file without a name in `directory`. It vanishes with its last descriptor and mapping.
pub fn create_unlinked(directory: &Path) -> std::io::Result<fs::File> {
    // With O_EXCL, the file can't be given a name later.
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // A filesystem without O_TMPFILE: create a named file, and remove the name. Without
        // permissions, no user but root can open it in between.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let unique = format!(".allotment-{}-{}", std::process::id(), next_number());
            let path = directory.join(unique);
            let file = create_file(&path, Mode::empty())?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a file that must not exist yet, readable and writable by its owner.
pub fn create_named(path: &Path) -> std::io::Result<fs::File> {
    create_file(path, Mode::RUSR | Mode::WUSR)
}

fn create_file(path: &Path, mode: Mode) -> std::io::Result<fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, mode)?.into())
}

fn next_number() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns an error if the process may not have files of this length (`ulimit -f`). The kernel
/// reports that by a signal, too, which ends the process by default.
pub fn check_file_length(len: u64) -> Result<(), AllocError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| len > limit) {
        return Err(refused(Errno::FBIG, len as usize));
    }
    Ok(())
}

/// Sets a file's length to `len` bytes. Bytes beyond its former length are sparse.
pub fn extend_file(file: BorrowedFd<'_>, len: u64) -> Result<(), AllocError> {
    rustix::fs::ftruncate(file, len).map_err(|errno| refused(errno, len as usize))
}

/// Reserves the blocks of a range of a file, and extends the file, so that no later write can fail
/// for lack of space. If the filesystem can't reserve, zeros are written instead.
pub fn reserve_blocks(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len as u64) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, offset, len),
            Err(errno) => return Err(refused(errno, len)),
        }
    }
}

fn write_zeros(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    check_file_length(offset + len as u64)?;
    let zeros = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let count = zeros.len().min(len - done);
        match rustix::io::pwrite(file, &zeros[..count], offset + done as u64) {
            Ok(0) => return Err(refused(Errno::NOSPC, len)),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno, len)),
        }
    }
    Ok(())
}

/// Gives the blocks of a range of a file back. The range then reads zeros.
pub fn punch_hole(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), AllocError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len as u64).map_err(|errno| refused(errno, len))
}

/// Reads the beginning of a file. Returns the number of bytes read, 0 if the file can't be read.
pub fn read_start(path: &core::ffi::CStr, buffer: &mut [u8]) -> usize {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return 0 };
    rustix::io::read(file, buffer).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::{map_file, page_size, unmap};
    use super::*;

    #[test]
    fn a_file_without_a_name_can_not_be_given_one() {
        use std::os::fd::AsRawFd;
        let directory = std::env::temp_dir();
        let file = create_unlinked(&directory).unwrap();
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = directory.join(format!("allotment-named-{}", std::process::id()));
        let (cwd, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
        let linked = rustix::fs::linkat(cwd, open, cwd, &name, follow);
        let _ = fs::remove_file(name);
        assert!(linked.is_err());
    }

    #[test]
    fn a_file_without_permissions_is_memory_for_its_creator_alone() {
        let path = std::env::temp_dir().join(format!("allotment-closed-{}", std::process::id()));
        let file = create_file(&path, Mode::empty()).unwrap();
        let other = fs::File::open(&path);
        fs::remove_file(&path).unwrap();
        // SAFETY: a system call without arguments.
        assert!(other.is_err() || unsafe { libc::geteuid() } == 0);
        let len = page_size();
        reserve_blocks(file.as_fd(), 0, len).unwrap();
        let start = map_file(file.as_fd(), 0, len, 1).unwrap();
        // SAFETY: our own mapping, within its bounds, unmapped once.
        unsafe {
            start.write(7);
            assert_eq!(start.read(), 7);
            unmap(start, len).unwrap();
        }
    }
}
