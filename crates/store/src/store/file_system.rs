//! Checks a file system before a store is opened on it: the features that layers need, directories that lie on one file system,
//! and a database that belongs to the layers. Repairs nothing. [`crate::store::open`] calls it.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::disk::layer::Shape;
use crate::disk::layout::{self, Layout};
use crate::disk::remove_tree;
use crate::error::OpenError;

/// The directories of a store must be of one file system: layers move from one to the other.
pub(crate) fn check_parts(layout: &Layout) -> Result<(), OpenError> {
    let device = |directory, name: &str| {
        let stat = rustix::fs::fstat(directory);
        stat.map(|stat| stat.st_dev).map_err(|source| OpenError::io("look at", &layout.path.join(name), source))
    };
    let root = device(&layout.root, "")?;
    for (directory, name) in [(&layout.ingest, layout::INGEST), (&layout.layers, layout::LAYERS)] {
        if device(directory, name)? != root {
            return Err(OpenError::Lacks {
                root: layout.path.clone(),
                kind: kind(layout),
                what: format!("{name}/ is on another file system, where something is mounted"),
            });
        }
    }
    Ok(())
}

/// A version without a database is a store whose records were taken away.
pub(crate) fn check_database(layout: &Layout) -> Result<(), OpenError> {
    let length = match rustix::fs::statat(&layout.root, layout::DATABASE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat.st_size,
        Err(Errno::NOENT) => 0,
        Err(source) => return Err(OpenError::io("look at", &layout.path.join(layout::DATABASE), source)),
    };
    let layers = layout.path.join(layout::LAYERS);
    let names = layout::names(&layers).map_err(|source| OpenError::io("list", &layers, source))?;
    if length == 0 && !names.is_empty() {
        return Err(OpenError::NoRecords { root: layout.path.clone() });
    }
    Ok(())
}

/// The directory below `ingest/` in which the features are tried.
const TRIAL: &str = "trial";
const MOVED: &str = "trial-moved";

/// Checks that the file system has the features that layers of this shape need. On a full disk nothing can be concluded.
pub(crate) fn try_file_system(layout: &Layout, shape: Shape, privileged: bool) -> Result<(), OpenError> {
    let clear = || {
        let names = [TRIAL, MOVED].map(|name| std::ffi::CString::new(name).expect("no zero byte in it"));
        remove_tree::remove_trees(layout.ingest.as_fd(), &names)
    };
    // An attempt before this one may have been cut off.
    clear().map_err(|source| OpenError::io("clear up in", &layout.path.join(layout::INGEST), source))?;
    let lacks = attempt(layout, shape, privileged);
    if let Err(error) = clear() {
        tracing::warn!(%error, "the files of the file system check stay until the next start");
    }
    verdict(&layout.path, lacks, || kind(layout))
}

/// Turns a failed attempt into the answer of an open.
fn verdict(
    root: &Path,
    lacks: Result<(), (&'static str, Errno)>,
    kind: impl FnOnce() -> String,
) -> Result<(), OpenError> {
    match lacks {
        Ok(()) | Err((_, Errno::NOSPC | Errno::DQUOT)) => Ok(()),
        // These errors do not mean that the file system lacks something.
        Err((what, source @ (Errno::IO | Errno::ROFS | Errno::MFILE | Errno::NFILE | Errno::NOMEM))) => {
            tracing::debug!(operation = what, "tried the file system");
            Err(OpenError::io("try the file system of", root, source))
        }
        Err((what, source)) => {
            Err(OpenError::Lacks { root: root.to_owned(), kind: kind(), what: format!("it has no {what} ({source})") })
        }
    }
}

fn attempt(layout: &Layout, shape: Shape, privileged: bool) -> Result<(), (&'static str, Errno)> {
    let no = |what| move |source| (what, source);
    let ingest = &layout.ingest;
    rustix::fs::mkdirat(ingest, TRIAL, Mode::RWXU).map_err(no("directories"))?;
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let trial = rustix::fs::openat(ingest, TRIAL, open, Mode::empty()).map_err(no("directories"))?;
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&trial, "File", create, Mode::RUSR | Mode::WUSR).map_err(no("files"))?;
    rustix::io::pwrite(&file, b"text", 4096).map_err(no("files that can be written anywhere"))?;
    rustix::fs::linkat(&trial, "File", &trial, "link", AtFlags::empty()).map_err(no("hard links"))?;
    match rustix::fs::openat(&trial, "file", create, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => return Err(("names that differ in case alone", Errno::EXIST)),
        made => drop(made.map_err(no("files"))?),
    }
    if shape.is_dir() {
        try_tree(&trial, &file, privileged)?;
    }
    // As a commit does it: the name changes at once, and nothing existing is replaced.
    rustix::fs::renameat_with(ingest, TRIAL, ingest, MOVED, RenameFlags::NOREPLACE)
        .or_else(|error| match error {
            Errno::INVAL | Errno::NOSYS => rustix::fs::renameat(ingest, TRIAL, ingest, MOVED),
            error => Err(error),
        })
        .map_err(no("directories that can be renamed"))
}

/// Tries what a layer needs that is a tree of files.
fn try_tree(trial: &impl AsFd, file: &impl AsFd, privileged: bool) -> Result<(), (&'static str, Errno)> {
    let no = |what| move |source| (what, source);
    let mode = Mode::from_raw_mode(0o1751);
    rustix::fs::symlinkat("File", trial, "symlink").map_err(no("symbolic links"))?;
    rustix::fs::fchmod(file, mode).map_err(no("modes of files"))?;
    let stat = rustix::fs::fstat(file).map_err(no("modes of files"))?;
    if stat.st_mode & 0o7777 != mode.as_raw_mode() {
        return Err(("modes of files", Errno::OPNOTSUPP));
    }
    let name: &CStr = if privileged { c"trusted.overlay.opaque" } else { c"user.overlay.opaque" };
    rustix::fs::fsetxattr(file, name, b"y", XattrFlags::empty()).map_err(no(if privileged {
        "trusted extended attributes"
    } else {
        "extended attributes of users"
    }))?;
    if privileged {
        rustix::fs::mknodat(trial, "whiteout", FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(no("devices, which overlayfs needs for whiteouts"))?;
    }
    Ok(())
}

/// The name of the file system under a store.
fn kind(layout: &Layout) -> String {
    let Ok(stat) = rustix::fs::fstatfs(&layout.root) else { return "unknown".to_owned() };
    name_of(u64::try_from(stat.f_type).unwrap_or_default() & 0xffff_ffff)
}

/// The name for what `statfs` calls a type.
fn name_of(magic: u64) -> String {
    let known = [
        (0xef53, "ext4"),
        (0x5846_5342, "XFS"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x794c_7630, "overlayfs"),
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x6573_5546, "FUSE"),
        (0x4d44, "FAT"),
        (0x2011_bab0, "exFAT"),
        (0x7366_746e, "NTFS"),
        (0x2fc1_2fc1, "ZFS"),
        (0xf2f5_2010, "F2FS"),
        (0xca45_1a4e, "bcachefs"),
        (0x00c3_6400, "Ceph"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x0102_1997, "9p"),
        (0x786f_4256, "vboxsf"),
        (0xf15f, "eCryptfs"),
        (0x8584_58f6, "ramfs"),
        (0x9584_58f6, "hugetlbfs"),
    ];
    let name = known.iter().find(|(number, _)| *number == magic);
    name.map_or_else(|| format!("of type {magic:#x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File systems that no test machine has, by what they answer.
    #[test]
    fn missing_feature_is_reported_with_the_name_of_the_file_system() {
        for (magic, what, errno, expected) in [
            (0x4d44, "hard links", Errno::PERM, "on the file system FAT: it has no hard links ("),
            (
                0x2011_bab0,
                "names that differ in case alone",
                Errno::EXIST,
                "exFAT: it has no names that differ in case",
            ),
            (0x6969, "trusted extended attributes", Errno::OPNOTSUPP, "NFS: it has no trusted extended attributes ("),
            (0xff53_4d42, "symbolic links", Errno::OPNOTSUPP, "CIFS: it has no symbolic links ("),
            (0x0102_1997, "devices, which overlayfs needs for whiteouts", Errno::PERM, "9p: it has no devices"),
            (
                0x1234,
                "modes of files",
                Errno::OPNOTSUPP,
                "on the file system of type 0x1234: it has no modes of files (",
            ),
        ] {
            let error = verdict(Path::new("/s"), Err((what, errno)), || name_of(magic)).expect_err("refused");
            let text = error.to_string();
            assert!(text.starts_with("no store can be in /s ") && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn full_disk_or_failing_disk_is_not_a_missing_feature() {
        let asked = || panic!("the file system lacks nothing");
        for full in [Errno::NOSPC, Errno::DQUOT] {
            verdict(Path::new("/s"), Err(("files", full)), asked).expect("a full disk shows nothing");
        }
        verdict(Path::new("/s"), Ok(()), asked).expect("nothing is missing");
        for trouble in [Errno::IO, Errno::ROFS, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let error = verdict(Path::new("/s"), Err(("files", trouble)), asked).expect_err("it failed");
            assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
        }
    }
}
