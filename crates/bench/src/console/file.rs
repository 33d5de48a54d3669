//! Files that are written whole or not at all.

use std::io::{self, Write};
use std::path::Path;

/// Writes a whole file. If that fails, or the process is killed, the old file is unchanged.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A symbolic link stays, and its target is written.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = match std::fs::metadata(&target) {
        Ok(metadata) if metadata.is_file() => {
            // Fails if the file is not writable; otherwise the rename below would replace it.
            std::fs::OpenOptions::new().append(true).open(&target)?;
            Some(metadata.permissions())
        }
        // A pipe or a device.
        Ok(_) => return std::fs::write(path, bytes),
        Err(_) => None,
    };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    std::fs::metadata(parent)?;
    let usual = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    let new = tempfile::Builder::new().prefix(".allot-").permissions(usual).tempfile_in(parent);
    let mut new = match new {
        Ok(new) => new,
        // The file is writable, but its directory is not.
        Err(_) if there.is_some() => return std::fs::write(&target, bytes),
        // The error would name the temporary file.
        Err(error) => return Err(error.kind().into()),
    };
    // The error of `new` itself would name the temporary file.
    new.as_file_mut().write_all(bytes)?;
    if let Some(permissions) = there {
        new.as_file().set_permissions(permissions)?;
    }
    new.persist(&target).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all_and_keeps_its_mode_and_its_links() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        write_whole(&file, b"one").unwrap();
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode() & 0o600, 0o600);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let before = std::fs::File::open(&file).unwrap();
        write_whole(&link, b"two").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((std::fs::read(&file).unwrap(), mode()), (b"two".to_vec(), 0o640));
        // A reader that had the old file open still reads it whole.
        assert_eq!(io::read_to_string(before).unwrap(), "one");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        write_whole(Path::new("/dev/null"), b"three").unwrap();
        let error = write_whole(Path::new("/dev/full"), b"three").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        let error = write_whole(&directory.path().join("no/such"), b"three").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(2), "{error}");
        assert!(write_whole(directory.path(), b"three").is_err());
    }
}
