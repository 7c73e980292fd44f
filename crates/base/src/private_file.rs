//! [`write_private`]: writes a file of this program that no other user may read; after a crash it is the old file or the new one.
//! Follows no link and keeps no earlier mode. Called by code that keeps keys and state in a directory of the node.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes `content` to `path`, for its owner alone (0600), and makes its directory where it is missing (0700). After a crash the file is
/// the old one or the new one. Blocks on the disk.
///
/// # Errors
/// The directory or the file cannot be made or written.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut draft = name.to_owned();
    draft.push(".new");
    let draft = directory.join(draft);
    // A leftover of an earlier crash, with any mode.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn file_is_replaced_atomically_with_owner_only_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path();
        let path = top.join("deep/key.pem");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        write_private(&path, b"one").expect("written");
        assert_eq!((mode(&top.join("deep")), mode(&path)), (0o700, 0o600));
        // A draft that other users could read, or a link, is not written through.
        let other = top.join("other");
        fs::write(&other, "stays").expect("written");
        symlink(&other, top.join("deep/key.pem.new")).expect("a link");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        write_private(&path, b"two").expect("written");
        assert_eq!((fs::read(&path).expect("read"), mode(&path)), (b"two".to_vec(), 0o600));
        assert_eq!(fs::read(&other).expect("read"), b"stays");
        assert_eq!(fs::read_dir(top.join("deep")).expect("read").count(), 1, "no draft is left");
        assert!(write_private(Path::new("/"), b"").is_err());
    }
}
