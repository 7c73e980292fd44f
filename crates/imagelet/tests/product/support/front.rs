//! A proxy before a registry which notes every request *before* it passes it on, so that what a program has asked is
//! known when the program has ended. Understands as much HTTP/1.1 as a reader of registries speaks: heads without
//! bodies. A connection on which something is written is passed through from then on.

use base::lock::Mutex;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// The proxy. Its threads end with their connections; the listener lives as long as the test's process.
pub(crate) struct Front {
    host: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Front {
    /// Starts one before `target`.
    #[track_caller]
    pub(crate) fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
        let host = listener.local_addr().expect("it listens").to_string();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (notes, target) = (Arc::clone(&seen), target.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (notes, target) = (Arc::clone(&notes), target.clone());
                thread::spawn(move || drop(carry(client, &target, &notes)));
            }
        });
        Self { host, seen }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// `METHOD path` of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

/// Carries a connection, in both directions.
fn carry(mut client: TcpStream, target: &str, notes: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        let _ = io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut head = Vec::new();
    let mut buffer = [0; 1 << 14];
    let mut noting = true;
    loop {
        let n = client.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        if noting {
            head.extend_from_slice(&buffer[..n]);
            noting = note(&mut head, notes);
        }
        server.write_all(&buffer[..n])?;
    }
    server.shutdown(Shutdown::Write)?;
    let _ = back.join();
    Ok(())
}

/// Notes every whole head. Returns false after a request with a body, which cannot be separated from the heads that follow.
fn note(head: &mut Vec<u8>, notes: &Mutex<Vec<String>>) -> bool {
    while let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
        let text = String::from_utf8_lossy(&head[..end]).into_owned();
        head.drain(..end + 4);
        let line = text.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
        let reads = line.starts_with("GET ") || line.starts_with("HEAD ");
        notes.lock().push(line);
        if !reads {
            return false;
        }
    }
    true
}
