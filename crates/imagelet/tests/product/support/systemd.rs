//! The service manager as a service sees it: the socket of `$NOTIFY_SOCKET`, the messages on it, and a socket that is passed on.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Imagelet, Scratch};

/// The service manager, with the socket of `$NOTIFY_SOCKET`.
pub(crate) struct Systemd {
    socket: UnixDatagram,
    path: PathBuf,
    /// Further variables of what it starts.
    variables: Vec<String>,
    unit: Option<SocketUnit>,
}

/// A socket that this process keeps and passes on, as systemd does for a socket unit.
pub(crate) struct SocketUnit {
    socket: UnixListener,
    pub(crate) path: PathBuf,
}

impl SocketUnit {
    pub(crate) fn new(path: &Path) -> Self {
        let socket = UnixListener::bind(path).expect("a socket");
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).expect("a socket for children");
        Self { socket, path: path.to_owned() }
    }

    /// The words that start a program with the socket.
    fn words(&self) -> [String; 3] {
        // Not sh: Debian's knows descriptors of one digit alone.
        let pass = format!("export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3<&{}", self.socket.as_raw_fd());
        ["/bin/bash".to_owned(), "-c".to_owned(), pass]
    }

    /// imagelet as this unit starts it.
    pub(crate) fn starts(&self, imagelet: &Imagelet) -> Imagelet {
        imagelet.clone().through(&self.words().each_ref().map(String::as_str))
    }
}

impl Systemd {
    pub(crate) fn new(scratch: &Scratch) -> Self {
        let path = scratch.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        Self { socket, path, variables: Vec::new(), unit: None }
    }

    /// The same with a watchdog that expects a message within this many microseconds.
    pub(crate) fn with_watchdog(mut self, micros: u32) -> Self {
        self.variables.push(format!("WATCHDOG_USEC={micros}"));
        self
    }

    /// The same with a socket unit, whose socket is passed to what it starts.
    pub(crate) fn with_socket(mut self, path: &Path) -> Self {
        self.unit = Some(SocketUnit::new(path));
        self
    }

    /// The next word.
    #[track_caller]
    pub(crate) fn hears(&self) -> String {
        let mut bytes = [0; 1024];
        let length = self.socket.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// imagelet as this service manager starts it.
    pub(crate) fn tells(&self, imagelet: &Imagelet) -> Imagelet {
        let socket = format!("NOTIFY_SOCKET={}", self.path.display());
        let variables = self.variables.iter().map(String::as_str);
        let passing = self.unit.iter().flat_map(SocketUnit::words).collect::<Vec<_>>();
        let passing = passing.iter().map(String::as_str);
        imagelet
            .clone()
            .through(&["/usr/bin/env", &socket].into_iter().chain(variables).chain(passing).collect::<Vec<_>>())
    }
}
