//! Reports the state of the agent to systemd, if systemd started it and asked for that: messages on the socket that
//! `$NOTIFY_SOCKET` names. A message that cannot be sent is ignored. Called by `imagelet run` and `imagelet serve`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// The socket of systemd, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Notify(Option<SocketAddr>);

impl Notify {
    /// Opens the socket of this name, if systemd has passed one.
    pub fn new(name: Option<&OsStr>) -> Self {
        let address = name.and_then(|name| match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            [b'/', ..] => SocketAddr::from_pathname(Path::new(name)).ok(),
            _ => None,
        });
        Self(address)
    }

    /// Reports that the agent is ready, with a status text.
    pub fn ready(&self, text: &str) {
        self.send(&format!("READY=1\n{}", status(text)));
    }

    /// Reports that the agent reloads its configuration; [`Notify::ready`] follows.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Reports that the agent is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the agent is ending, with a status text.
    pub fn stopping(&self, text: &str) {
        self.send(&format!("STOPPING=1\n{}", status(text)));
    }

    /// Reports the state of the agent as text.
    pub fn status(&self, text: &str) {
        self.send(&status(text));
    }

    fn send(&self, words: &str) {
        let Some(address) = &self.0 else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(words.as_bytes(), address)
        });
        if let Err(error) = sent {
            tracing::debug!(%error, "systemd was not notified");
        }
    }
}

fn status(text: &str) -> String {
    format!("STATUS={}", text.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        let notify = Notify::new(Some(path.as_os_str()));
        notify.status("waits\nfor it");
        notify.ready("running pods");
        notify.stopping("ending\nnow");
        let mut heard = Vec::new();
        for _ in 0..3 {
            let mut bytes = vec![0; 256];
            let length = socket.recv(&mut bytes).expect("heard");
            bytes.truncate(length);
            heard.push(String::from_utf8(bytes).expect("text"));
        }
        assert_eq!(heard[0], "STATUS=waits for it");
        assert_eq!(heard[1..], ["READY=1\nSTATUS=running pods", "STOPPING=1\nSTATUS=ending now"]);
        // Without a socket, and with a socket that is closed, nothing fails.
        Notify::new(None).ready("");
        drop((socket, directory));
        notify.ready("");
    }
}
