//! Volumes with files from documents. All files of a volume change at the same moment, as the kubelet does it: they
//! are in a directory with a time in its name, `..data` is a link to that directory, and containers see links
//! through `..data`. A program that has the old directory open can use it until it closes it.
//!
//! Nothing is flushed to disk: after a power cut the files are compared again, and made again.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::place::VOLUMES;
use super::place::{OpenDirectory, is_hidden};
use super::remove::remove_tree;
use super::walk::{SymlinkPolicy, WalkError, attributes, find, kind, place};
use crate::volume_files::VolumeFiles;

/// The link to the files.
const DATA: &str = "..data";
/// The same before it has its name.
const DATA_NEW: &str = "..data_tmp";
/// Files that are not complete.
const UNFINISHED: &str = "..unfinished";
/// Mode of directories.
const DIRECTORY: u32 = 0o755;
/// Directories on the way to a file.
const MOST_DEEP: usize = 100;
/// Bits of the mode that a volume with a group gains: containers cannot write there.
const OF_GROUP: u32 = 0o440;
const OF_GROUP_DIRECTORY: u32 = 0o2550;

/// Mode of the root of such a volume.
pub(super) fn root_mode(group: Option<Gid>) -> u32 {
    if group.is_some() { DIRECTORY | OF_GROUP_DIRECTORY } else { DIRECTORY }
}

/// Returns true if a volume of a pod has its files.
pub(super) fn stands(pod: &OpenDirectory, sort: &str, name: &str) -> bool {
    let volume = pod.child(VOLUMES).and_then(|volumes| volumes.child(sort)?.child(name));
    volume.is_ok_and(|volume| matches!(current(&volume), Ok(Some(data)) if volume.child(&data).is_ok()))
}

/// Replaces the content of the volume by exactly these files. Returns true if anything changed.
pub(super) fn write(volume: &OpenDirectory, files: &VolumeFiles, group: Option<Gid>) -> Result<bool, String> {
    let old = current(volume)?;
    let same = match &old {
        Some(name) => is_same(volume, name, files, group).map_err(|error| format!("compare its files: {error}"))?,
        None => false,
    };
    let current = match old {
        Some(name) if same => name,
        _ => switch(volume, files, group)?,
    };
    let links = show(volume, files)?;
    clear(volume, &current, files).map_err(|error| format!("remove old files: {error}"))?;
    Ok(!same || links)
}

/// Returns the name of the current directory.
fn current(volume: &OpenDirectory) -> Result<Option<String>, String> {
    match rustix::fs::readlinkat(volume, DATA, Vec::new()) {
        Ok(name) => Ok(name.to_str().ok().map(str::to_owned).filter(|name| !name.contains('/') && name != DATA)),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(error) => Err(format!("read {DATA}: {}", io::Error::from(error))),
    }
}

fn is_same(volume: &OpenDirectory, name: &str, files: &VolumeFiles, group: Option<Gid>) -> io::Result<bool> {
    let directory = match volume.child(name) {
        Ok(directory) => directory,
        Err(_) => return Ok(false),
    };
    for (path, file) in files {
        let found = match find(directory.as_fd(), Path::new(path), SymlinkPolicy::Refuse, None) {
            Ok(found) => found,
            Err(WalkError::Other(error)) if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => {
                return Err(error.into());
            }
            Err(_) => return Ok(false),
        };
        let stat = rustix::fs::fstat(&found)?;
        let as_wanted = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_mode & 0o7777 == file_mode(file.mode, group)
            && group.is_none_or(|group| group.as_raw() == stat.st_gid)
            && u64::try_from(stat.st_size).ok() == u64::try_from(file.content.bytes().len()).ok();
        if !as_wanted || !holds(&found, file.content.bytes())? {
            return Ok(false);
        }
    }
    Ok(count(&directory, files.len() + 1)? == files.len())
}

/// Returns true if a file of the same length holds these bytes.
fn holds(found: &std::os::fd::OwnedFd, bytes: &[u8]) -> io::Result<bool> {
    let path = super::walk::by_descriptor(found.as_fd());
    let file = std::fs::File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let mut read = zeroize::Zeroizing::new(Vec::with_capacity(bytes.len() + 1));
    file.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut read)?;
    Ok(*read == bytes)
}

/// Counts the files below a directory, up to `most`.
fn count(directory: &OpenDirectory, most: usize) -> io::Result<usize> {
    let mut files = 0;
    for name in directory.names()? {
        files += match directory.child(&name) {
            Ok(below) => count(&below, most - files.min(most))?,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => 1,
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => 1,
            Err(error) => return Err(error),
        };
        if files >= most {
            break;
        }
    }
    Ok(files)
}

fn file_mode(mode: u32, group: Option<Gid>) -> u32 {
    if group.is_some() { mode | OF_GROUP } else { mode }
}

/// Writes the files into a directory of their own and makes it the one that is in force.
fn switch(volume: &OpenDirectory, files: &VolumeFiles, group: Option<Gid>) -> Result<String, String> {
    let cannot = |what: &str, error: io::Error| format!("{what}: {error}");
    remove_tree(volume.as_fd(), UNFINISHED).map_err(|error| cannot("remove unfinished files", error))?;
    let new = volume.made(UNFINISHED, DIRECTORY).map_err(|error| cannot("make a directory", error))?;
    for (path, file) in files {
        put(&new, path, file.content.bytes(), file_mode(file.mode, group), group)
            .map_err(|error| cannot(&format!("write {path:?}"), error))?;
    }
    give(&new, group).map_err(|error| cannot("set the group of a directory", error))?;
    let name = name(&new).map_err(|error| cannot("name a directory", error))?;
    volume.rename_new(UNFINISHED, &name).map_err(|error| cannot("name a directory", error))?;
    link(volume, DATA, &name).map_err(|error| cannot(&format!("set {DATA}"), error))?;
    Ok(name)
}

/// `..2026_11_21_18_55_37.123456789`: the time at which the file system made it.
fn name(new: &OpenDirectory) -> io::Result<String> {
    let made = attributes(new.as_fd(), StatxFlags::MTIME)?.stx_mtime;
    let time = i32::try_from(made.tv_nsec).ok().and_then(|nanos| jiff::Timestamp::new(made.tv_sec, nanos).ok());
    let time = time.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Ok(format!("..{}", time.strftime("%Y_%m_%d_%H_%M_%S.%9f")))
}

fn put(top: &OpenDirectory, path: &str, bytes: &[u8], mode: u32, group: Option<Gid>) -> io::Result<()> {
    let mut parts: Vec<&str> = parts(path).collect();
    let Some(name) = parts.pop() else { return Err(io::ErrorKind::InvalidInput.into()) };
    if parts.len() > MOST_DEEP {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many directories"));
    }
    let mut at = None;
    for part in parts {
        let next = at.as_ref().unwrap_or(top).made(part, DIRECTORY)?;
        give(&next, group)?;
        at = Some(next);
    }
    // Readable by others only when all of it is there, and its group is right.
    let mut file = at.as_ref().unwrap_or(top).new_file(name, 0o600)?;
    file.write_all(bytes)?;
    if group.is_some() {
        rustix::fs::fchown(&file, None, group)?;
    }
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
}

fn give(directory: &OpenDirectory, group: Option<Gid>) -> io::Result<()> {
    if group.is_some() {
        rustix::fs::fchown(directory, None, group)?;
        rustix::fs::fchmod(directory, Mode::from_raw_mode(DIRECTORY | OF_GROUP_DIRECTORY))?;
    }
    Ok(())
}

/// Returns the names on the path of a file.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// Creates a link atomically.
fn link(volume: &OpenDirectory, name: &str, to: &str) -> io::Result<()> {
    volume.unlink(DATA_NEW)?;
    rustix::fs::symlinkat(to, volume, DATA_NEW)?;
    Ok(rustix::fs::renameat(volume, DATA_NEW, volume, name)?)
}

/// Returns the names that a volume shows: the first component of each file's path.
fn shown(files: &VolumeFiles) -> Result<Vec<&str>, String> {
    let mut names: Vec<&str> = files.keys().filter_map(|path| parts(path).next()).collect();
    names.dedup();
    match names.iter().find(|name| is_hidden(OsStr::new(name))) {
        Some(name) => Err(format!("{name:?}: names of files must not start with \"..\"")),
        None => Ok(names),
    }
}

/// Makes the links that containers see, where they are missing.
fn show(volume: &OpenDirectory, files: &VolumeFiles) -> Result<bool, String> {
    let mut changed = false;
    for name in shown(files)? {
        let to = format!("{DATA}/{name}");
        match rustix::fs::readlinkat(volume, name, Vec::new()) {
            Ok(found) if found.as_bytes() == to.as_bytes() => continue,
            // A container that was started before the file existed asked for a part of the volume, and got an empty
            // directory. Only an empty one is removed.
            Err(Errno::INVAL) => remove_empty(volume, name),
            Ok(_) | Err(_) => {}
        }
        link(volume, name, &to).map_err(|error| format!("show {name:?}: {error}"))?;
        changed = true;
    }
    Ok(changed)
}

fn remove_empty(parent: &OpenDirectory, name: &str) {
    if let Ok(directory) = parent.child(name) {
        for below in directory.names().unwrap_or_default() {
            remove_empty(&directory, &below);
        }
        if let Err(error) = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            tracing::debug!(%error, name, "cannot remove a directory in place of a file of a volume");
        }
    }
}

/// Removes what is not in force any more.
fn clear(volume: &OpenDirectory, current: &str, files: &VolumeFiles) -> io::Result<()> {
    let shown = shown(files).map_err(io::Error::other)?;
    for name in volume.names()? {
        if name == DATA || name == current || shown.contains(&name.as_str()) {
            continue;
        }
        if is_hidden(OsStr::new(&name)) {
            remove_tree(volume.as_fd(), &name)?;
        } else if let Ok(found) = place(volume.as_fd(), OsStr::new(&name))
            && kind(&attributes(found.as_fd(), StatxFlags::TYPE)?) == FileType::Symlink
        {
            volume.unlink(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
