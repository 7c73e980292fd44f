//! A TCP proxy with a gate: data from clients waits while the gate is shut, and answers can be held back after a number of bytes,
//! or slowed down. So a test knows that a pull is under way, and when its client has disconnected. Independent of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Number of pieces per second of a slow answer.
const PIECES_PER_SECOND: u32 = 50;

/// State of the gate: shut or open, and how many connections wait.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    shut: bool,
    /// Limit of the answer of each connection, in bytes.
    answered: Option<u64>,
    /// Limit of the answer of each connection, in bytes per second.
    rate: Option<usize>,
    waiting: usize,
    ever_waited: bool,
}

/// The proxy. It lives as long as the runtime that it was started on.
#[derive(Clone)]
pub(crate) struct Gate {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
}

impl Gate {
    /// Starts one before `target`.
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen on loopback");
        let address = listener.local_addr().expect("it listens");
        let state = Arc::new(watch::Sender::new(State::default()));
        let gate = Self { address, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target.clone(), Arc::clone(&state)));
            }
        });
        gate
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Shuts the gate: later data waits.
    pub(crate) fn shut(&self) {
        self.state.send_modify(|s| {
            s.shut = true;
            s.ever_waited = false;
        });
    }

    /// Limits the answers of each connection to this many bytes in all; later bytes wait.
    pub(crate) fn hold_answers_after(&self, bytes: u64) {
        self.state.send_modify(|s| {
            s.answered = Some(bytes);
            s.ever_waited = false;
        });
    }

    /// Limits the answers of each connection to this many bytes in a second.
    pub(crate) fn slow_answers(&self, bytes_per_second: usize) {
        self.state.send_modify(|s| s.rate = Some(bytes_per_second));
    }

    /// Opens it again, in both directions, wide.
    pub(crate) fn open(&self) {
        self.state.send_modify(|s| {
            s.shut = false;
            s.answered = None;
            s.rate = None;
        });
    }

    /// Ends when something waits before the gate, or has waited since it was shut.
    pub(crate) fn reached(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = self.state.subscribe();
        async move {
            let _ = changes.wait_for(|s| s.ever_waited).await;
        }
    }

    /// Returns a future that completes when no connection waits any more, because the clients have closed them.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = self.state.subscribe();
        async move {
            let _ = changes.wait_for(|s| s.ever_waited && s.waiting == 0).await;
        }
    }
}

/// Carries a connection, in both directions.
async fn carry(client: TcpStream, target: String, state: Arc<watch::Sender<State>>) {
    let Ok(server) = TcpStream::connect(&target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = Arc::clone(&state);
    let back = tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        let mut passed = 0;
        loop {
            let rate = answers.borrow().rate;
            let piece = rate.map_or(buffer.len(), |rate| (rate / PIECES_PER_SECOND as usize).clamp(1, buffer.len()));
            let Ok(n @ 1..) = from_server.read(&mut buffer[..piece]).await else { break };
            if rate.is_some() {
                tokio::time::sleep(Duration::from_secs(1) / PIECES_PER_SECOND).await;
            }
            if answers.borrow().answered.is_some_and(|limit| passed + n as u64 > limit) {
                let _waiting = Waiting::begin(&answers);
                let _ = answers.subscribe().wait_for(|s| s.answered.is_none()).await;
            }
            if to_client.write_all(&buffer[..n]).await.is_err() {
                break;
            }
            passed += n as u64;
        }
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from_client.read(&mut buffer).await {
        if !pass(&mut from_client, &state).await || to_server.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    drop(to_server);
    back.abort();
}

/// Waits until the gate is open. Returns false if the client disconnected meanwhile.
async fn pass(client: &mut tokio::net::tcp::OwnedReadHalf, state: &watch::Sender<State>) -> bool {
    let mut changes = state.subscribe();
    if !changes.borrow_and_update().shut {
        return true;
    }
    let _waiting = Waiting::begin(state);
    let mut one = [0; 1];
    let mut opened = std::pin::pin!(async move { changes.wait_for(|s| !s.shut).await.is_ok() });
    tokio::select! {
        opened = &mut opened => opened,
        // Bytes that arrive while it waits stay in the socket; an end of file is an end.
        n = client.peek(&mut one) => matches!(n, Ok(1..)) && opened.await,
    }
}

/// Something waits before the gate while this lives.
struct Waiting<'a>(&'a watch::Sender<State>);

impl<'a> Waiting<'a> {
    fn begin(state: &'a watch::Sender<State>) -> Self {
        state.send_modify(|s| {
            s.waiting += 1;
            s.ever_waited = true;
        });
        Self(state)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|s| s.waiting -= 1);
    }
}
