//! [`open_within`]: opens what a name leads to in an untrusted directory, following links only while they stay in it.
//! The kernel enforces that. Code that reads a layout's directory opens its files with it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Opens a file for reading, following links that stay within the directory. The result may be something other than a
/// regular file, and the call does not wait for a writer.
///
/// # Errors
/// The file cannot be opened, or a link leads out of the directory.
pub fn open_within(directory: &File, name: &str) -> io::Result<File> {
    open_at_once(directory.as_fd(), name).map_err(|errno| match errno {
        Errno::XDEV | Errno::LOOP => io::Error::new(errno.kind(), LeadsOut),
        errno => errno.into(),
    })
}

/// Returns true if the path was not opened because it leads out.
pub(super) fn leads_out(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LeadsOut>())
}

#[derive(Debug, thiserror::Error)]
#[error(
    "a link leads out of the directory, or to no end, and is not followed: a copy by `cp -rL` has the files themselves"
)]
struct LeadsOut;

/// How often the kernel may ask to try again (a rename somewhere raced with the look-up).
const TRIES: usize = 64;

fn open_at_once(directory: BorrowedFd<'_>, name: &str) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(directory, name, flags, Mode::empty(), within) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_stepwise(directory, name, flags),
            opened => return opened.map(File::from),
        }
    }
    Err(Errno::AGAIN)
}

/// The same where the kernel has no such call: no link is followed at all.
fn open_stepwise(directory: BorrowedFd<'_>, name: &str, flags: OFlags) -> std::result::Result<File, Errno> {
    let mut at: Option<OwnedFd> = None;
    let (parents, leaf) = name.rsplit_once('/').unwrap_or(("", name));
    for parent in parents.split('/').filter(|part| !part.is_empty()) {
        let from = at.as_ref().map_or(directory, AsFd::as_fd);
        let way = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        at = Some(openat(from, parent, way, Mode::empty()).map_err(|error| match error {
            // As the kernel has it for a link that must be a directory.
            Errno::NOTDIR => Errno::LOOP,
            error => error,
        })?);
    }
    let from = at.as_ref().map_or(directory, AsFd::as_fd);
    openat(from, leaf, flags | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// A directory with a file in it, a file next to it, and links to both.
    #[test]
    fn links_stay_within_and_without_the_call_there_are_none() {
        let top = tempfile::tempdir().expect("a directory");
        let place = top.path().join("place");
        std::fs::create_dir_all(place.join("d/e")).expect("creates");
        std::fs::write(place.join("d/file"), "within").expect("writes");
        std::fs::write(top.path().join("canary"), "outside").expect("writes");
        let canary = top.path().join("canary");
        symlink("../d/file", place.join("d/around")).expect("links");
        symlink("d", place.join("way")).expect("links");
        for (name, to) in [("up", Path::new("../canary")), ("away", &canary), ("proc", Path::new("/proc/self/environ"))]
        {
            symlink(to, place.join(name)).expect("links");
        }
        symlink("..", place.join("d/e/top")).expect("links");
        symlink("../../..", place.join("d/e/out")).expect("links");
        symlink("ring", place.join("ring")).expect("links");
        let directory = OwnedFd::from(File::open(&place).expect("opens"));
        let read = |opened: std::result::Result<File, Errno>| {
            let mut text = String::new();
            opened.map(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        for (name, want) in [
            ("d/file", Ok("within")),
            ("d/around", Ok("within")),
            ("way/file", Ok("within")),
            ("d/e/top/file", Ok("within")),
            ("up", Err(Errno::XDEV)),
            ("away", Err(Errno::XDEV)),
            ("proc", Err(Errno::XDEV)),
            ("d/e/out/canary", Err(Errno::XDEV)),
            ("ring", Err(Errno::LOOP)),
            ("nothing", Err(Errno::NOENT)),
        ] {
            let got = read(open_at_once(directory.as_fd(), name));
            assert_eq!(got.as_deref().map_err(|error| *error), want, "{name}");
            let stepwise = read(open_stepwise(directory.as_fd(), name, OFlags::RDONLY | OFlags::NONBLOCK));
            match (name, want) {
                ("d/file", _) | (_, Err(Errno::NOENT)) => assert_eq!(stepwise, got, "{name}"),
                _ => assert_eq!(stepwise, Err(Errno::LOOP), "{name}: no link is followed"),
            }
        }
    }
}
