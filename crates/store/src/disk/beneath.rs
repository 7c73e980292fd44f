//! Opening what lies below a directory, and nothing else: `openat2` with every resolve flag that confines, or, where
//! the kernel or a seccomp filter refuses that call, one `O_NOFOLLOW` step per component.
//!
//! The paths passed in are made of names that the caller knows to be no symbolic links; when one is, because another process
//! writes into the store, the open fails. The unpacker, the recipe and the reader of layers call it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Longest path of one system call, the NUL not counted.
const PATH_MOST: usize = 4095;
/// How often the kernel may ask to try again (a rename somewhere raced with the look-up).
const TRIES: usize = 64;

/// Opens things; remembers when `openat2` is not to be had.
#[derive(Debug, Default)]
pub(crate) struct Beneath {
    /// Threads that open layers together may each find it out; the answer is the same.
    stepwise: AtomicBool,
}

impl Beneath {
    /// A resolver that never uses `openat2`.
    #[cfg(test)]
    pub(crate) fn stepwise() -> Self {
        Self { stepwise: AtomicBool::new(true) }
    }

    /// Opens the directory `path` below `dir`, for reading.
    pub(crate) fn directory(&self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(dir, path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens `path` below `dir` with these flags, `O_NOFOLLOW` and `O_CLOEXEC`. Creates nothing.
    pub(crate) fn open(&self, dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if path.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
            return Err(Errno::INVAL);
        }
        if self.stepwise.load(Ordering::Relaxed) || path.len() > PATH_MOST {
            return steps(dir, path, flags);
        }
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        for _ in 0..TRIES {
            match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => {
                    self.stepwise.store(true, Ordering::Relaxed);
                    return steps(dir, path, flags);
                }
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

fn steps(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    let mut parts = path.split(|b| *b == b'/').peekable();
    while let Some(part) = parts.next() {
        let here = at.as_ref().map_or(dir, AsFd::as_fd);
        let flags = if parts.peek().is_some() { through } else { flags };
        at = Some(rustix::fs::openat(here, part, flags, Mode::empty())?);
    }
    at.ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out_by_either_way() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("canary"), "x").unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::fs::write(root.path().join("a/b/file"), "x").unwrap();
        symlink(outside.path(), root.path().join("a/out")).unwrap();
        symlink("b", root.path().join("a/in")).unwrap();
        symlink("/proc/self/cwd", root.path().join("magic")).unwrap();
        let dir = std::fs::File::open(root.path()).unwrap();
        for beneath in [Beneath::default(), Beneath::stepwise()] {
            let open = |path: &[u8]| beneath.open(dir.as_fd(), path, OFlags::RDONLY);
            assert!(open(b"a/b/file").is_ok());
            assert!(beneath.directory(dir.as_fd(), b"a/b").is_ok());
            for path in [&b"a/out"[..], b"a/out/canary", b"a/in", b"a/in/file", b"magic/x"] {
                let got = open(path).expect_err("a symbolic link");
                assert!(matches!(got, Errno::LOOP | Errno::NOTDIR), "{}: {got}", String::from_utf8_lossy(path));
            }
            for path in [&b".."[..], b"a/../a/b", b"/etc", b"", b"a//b", b"./a", b"a/"] {
                assert_eq!(open(path).expect_err("not clean"), Errno::INVAL, "{}", String::from_utf8_lossy(path));
            }
        }
    }

    #[test]
    fn paths_longer_than_one_call_takes() {
        let root = tempfile::tempdir().unwrap();
        let dir = std::fs::File::open(root.path()).unwrap();
        let name = [b'n'; 250];
        let mut at: OwnedFd = dir.as_fd().try_clone_to_owned().unwrap();
        let mut path: Vec<u8> = Vec::new();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
            at = Beneath::default().directory(at.as_fd(), &name).unwrap();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
        }
        assert!(path.len() > PATH_MOST);
        assert!(Beneath::default().directory(dir.as_fd(), &path).is_ok());
    }
}
