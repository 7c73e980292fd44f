//! The service manager as a service knows it: the socket of `$NOTIFY_SOCKET`, and what is told there.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use super::{Imagelet, Scratch};

/// The service manager, with the socket of `$NOTIFY_SOCKET`.
pub(crate) struct Systemd {
    socket: UnixDatagram,
    path: PathBuf,
    /// Further variables of what it starts.
    variables: Vec<String>,
}

impl Systemd {
    pub(crate) fn new(scratch: &Scratch) -> Self {
        let path = scratch.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        Self { socket, path, variables: Vec::new() }
    }

    /// The same with a watchdog that wants to hear something within so many microseconds.
    pub(crate) fn with_watchdog(mut self, micros: u32) -> Self {
        self.variables.push(format!("WATCHDOG_USEC={micros}"));
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
        imagelet.clone().through(&["/usr/bin/env", &socket].into_iter().chain(variables).collect::<Vec<_>>())
    }
}
