//! The socket in the file system: created for its owner and group, or its owner alone. Replaces the socket of a dead process but
//! never that of a living one, and removes its own at the end if it is still the same and no server follows.
//!
//! Two processes that start at the same moment take turns by a lock on the directory. This module never creates a directory, never
//! removes anything but a socket on which no process answers, and never changes the mode of anything but the socket that it made:
//! if another user may write to the directory, the path can lead elsewhere at any moment.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::FileLock;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::Endpoint;

/// Owner and group may connect.
const SHARED: Mode = Mode::from_raw_mode(0o660);
/// The owner alone may connect.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);
/// Connections that wait to be accepted.
pub(super) const BACKLOG: usize = 1024;
/// How long another process may hold the directory's lock; it needs it for a few system calls.
const LOCK_TIME: Duration = Duration::from_secs(5);

/// Why the socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("another process answers on {endpoint}: {who}")]
    InUse {
        /// The endpoint of both.
        endpoint: Endpoint,
        /// Process id and name, as far as they can be seen.
        who: String,
    },
    /// The path is something other than a socket, which is left alone.
    #[error("{} is {what}, not a socket: remove it or choose another path", path.display())]
    NotASocket {
        /// The path of the endpoint.
        path: PathBuf,
        /// Type of the file.
        what: &'static str,
    },
    /// The new socket was removed and replaced by another file, which is left alone.
    #[error("{} was replaced after it was created: check who may write to its directory", .0.display())]
    Replaced(PathBuf),
    /// The directory of the socket is not there.
    #[error("directory {} of the socket does not exist", .0.display())]
    NoDirectory(PathBuf),
    /// Another process holds the lock of the directory.
    #[error("directory {} is locked by another process", .0.display())]
    Locked(PathBuf),
    /// A system call failed.
    #[error("{operation} {}", path.display())]
    Io {
        /// The system call, in words.
        operation: &'static str,
        /// The file or directory that it was made for.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// A socket that listens. Dropping it removes the socket from the file system if it made that and it is still the same one.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    endpoint: Endpoint,
    /// Device and inode of the socket's file. The open socket keeps the inode, so the number is not used again. `None`: the file
    /// is that of the process which passed the socket on.
    identity: Option<(u64, u64)>,
    remains: SocketRemains,
}

/// Keeps the file of a socket at the end, for the next process: clients are refused until that process
/// listens.
#[derive(Clone, Debug, Default)]
pub struct SocketRemains(Arc<AtomicBool>);

impl SocketRemains {
    /// The file stays from now on.
    pub fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes the socket of `endpoint`, to which owner and group may connect, and listens on it.
///
/// # Errors
/// See [`BindError`].
pub fn bind(endpoint: &Endpoint) -> Result<Listener, BindError> {
    bind_with(endpoint, SHARED)
}

/// Makes the socket of `endpoint`, to which its owner alone may connect, and listens on it: for what is not CRI.
///
/// # Errors
/// See [`BindError`].
pub fn bind_private(endpoint: &Endpoint) -> Result<Listener, BindError> {
    bind_with(endpoint, PRIVATE)
}

fn bind_with(endpoint: &Endpoint, mode: Mode) -> Result<Listener, BindError> {
    let path = endpoint.path();
    let _lock = lock_directory(path.parent().unwrap_or(Path::new("/")))?;
    clear(endpoint)?;
    let failed = |operation| move |e: Errno| io_error(operation, path, e.into());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed("make a socket for"))?;
    // The file that bind makes has this mode, less the umask of the process: at no moment may another user connect.
    rustix::fs::fchmod(&socket, mode).map_err(failed("set the mode of"))?;
    let address = SocketAddrUnix::new(path).map_err(failed("use socket path"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    let identity = set_mode(path, mode)?;
    let (socket, endpoint) = (socket.into(), endpoint.clone());
    let listener = Listener { socket, endpoint, identity: Some(identity), remains: SocketRemains::default() };
    rustix::net::listen(&listener.socket, i32::try_from(BACKLOG).unwrap_or(i32::MAX)).map_err(failed("listen on"))?;
    Ok(listener)
}

impl Listener {
    /// A socket of another process that listens on `endpoint`. Its file is left alone.
    pub(super) fn of_another(socket: UnixListener, endpoint: Endpoint) -> Self {
        Self { socket, endpoint, identity: None, remains: SocketRemains::default() }
    }

    /// Returns true if another process made the socket and keeps it open: clients that connect wait for the next server to accept.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.identity.is_none()
    }

    /// To say before the end that the file is to stay.
    #[must_use]
    pub fn remains(&self) -> SocketRemains {
        self.remains.clone()
    }

    /// A connection that waits already.
    pub(super) fn accept_waiting(&self) -> Option<UnixStream> {
        self.socket.accept().ok().map(|(stream, _)| stream)
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The same open socket, for the reactor. It does not block.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<UnixListener> {
        self.socket.try_clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(identity) = self.identity else { return };
        if self.remains.0.load(Ordering::Relaxed) {
            return tracing::debug!(endpoint = %self.endpoint, "keeping the socket for the next process");
        }
        // No lock: while this socket is open, another server sees it answer and leaves the path alone.
        let path = self.endpoint.path();
        match remove(path, identity) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(endpoint = %self.endpoint, "socket was replaced, not removing it"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::debug!(endpoint = %self.endpoint, "socket is already removed");
            }
            Err(error) => tracing::warn!(endpoint = %self.endpoint, %error, "cannot remove the socket"),
        }
    }
}

/// Makes sure that the path is free: a socket on which no process answers is removed.
fn clear(endpoint: &Endpoint) -> Result<(), BindError> {
    let path = endpoint.path();
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("inspect", path, e)),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned(), what: name_of(&found.file_type()) });
    }
    match probe(path) {
        Ok(Some(who)) => return Err(BindError::InUse { endpoint: endpoint.clone(), who }),
        Ok(None) => {}
        Err(e) => return Err(io_error("ask who answers on", path, e)),
    }
    tracing::info!(%endpoint, "removing the socket of a process that has exited");
    match remove(path, (found.dev(), found.ino())) {
        Ok(true) => Ok(()),
        Ok(false) => Err(BindError::Replaced(path.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io_error("remove the stale socket", path, e)),
    }
}

/// Gives the socket that was just made at `path` its mode whatever the umask is, and answers which one it is (device and inode).
/// Opens the path without following a link; the mode is changed through that descriptor, and only of a socket of this
/// process' user.
fn set_mode(path: &Path, mode: Mode) -> Result<(u64, u64), BindError> {
    let failed = |operation| move |e: Errno| io_error(operation, path, e.into());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("inspect"))?;
    let stat = rustix::fs::fstat(&fd).map_err(failed("inspect"))?;
    let is_socket = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket;
    if !is_socket || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(BindError::Replaced(path.to_owned()));
    }
    if Mode::from_raw_mode(stat.st_mode) != mode {
        // chmod of a descriptor that only names a file is in kernels from 6.6 on.
        rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), mode).map_err(failed("set the mode of"))?;
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// Removes a socket if it is still the same one; returns whether it was. Only a name is removed: a user who can replace the file
/// between the check and the removal could remove it as well.
fn remove(path: &Path, identity: (u64, u64)) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let is_same = found.file_type().is_socket() && (found.dev(), found.ino()) == identity;
    if is_same {
        fs::remove_file(path)?;
    }
    Ok(is_same)
}

/// The process that answers on the socket; `None` if no process does.
fn probe(path: &Path) -> io::Result<Option<String>> {
    let address = SocketAddrUnix::new(path)?;
    // Without blocking: the queue of a living process may be full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(Some(peer(socket))),
        // Another type of socket lives there, or its queue is full.
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(Some("it does not take connections now".into())),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn peer(socket: OwnedFd) -> String {
    let stream = UnixStream::from(socket);
    let Ok(credentials) = rustix::net::sockopt::socket_peercred(stream.as_fd()) else {
        return "its process cannot be seen".into();
    };
    let pid = credentials.pid.as_raw_nonzero();
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// Takes an exclusive lock on the directory.
fn lock_directory(directory: &Path) -> Result<FileLock<OwnedFd>, BindError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Err(BindError::NoDirectory(directory.to_owned())),
        Err(e) => return Err(io_error("open directory", directory, e.into())),
    };
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(FileLock::new(fd)),
            Err(Errno::AGAIN | Errno::INTR) if start.elapsed() < LOCK_TIME => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::AGAIN) => return Err(BindError::Locked(directory.to_owned())),
            Err(e) => return Err(io_error("lock directory", directory, e.into())),
        }
    }
}

fn name_of(kind: &fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_file() {
        "a regular file"
    } else {
        "a special file"
    }
}

fn io_error(operation: &'static str, path: &Path, source: io::Error) -> BindError {
    BindError::Io { operation, path: path.to_owned(), source }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
