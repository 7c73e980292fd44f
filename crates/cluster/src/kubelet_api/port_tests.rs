//! A port without authentication, over real connections.

use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::*;

struct Rig {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Rig {
    async fn start(address: &str) -> Self {
        let port = Port::listen("a test", address, None, Clients::Anonymous).await.expect("it listens");
        let port = port.with_grace(Duration::from_secs(30));
        let (address, stop, tasks) = (port.address(), CancellationToken::new(), TaskTracker::new());
        let until = stop.clone();
        let service = |_| {
            service_fn(|_: Request<Incoming>| async { Ok(Response::new(Full::from(Bytes::from_static(b"answered")))) })
        };
        tasks.spawn(async move { port.run(&until, service).await });
        Self { address, stop, tasks }
    }

    async fn connect(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).expect("bound");
        let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.address.port());
        socket.connect(to).await.expect("connect")
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Sends a request, and reads a short answer.
async fn ask(stream: &mut TcpStream, host: &str) -> String {
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.expect("written");
    let mut text = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let length = stream.read(&mut chunk).await.expect("an answer");
        text.extend_from_slice(&chunk[..length]);
        let answer = String::from_utf8(text.clone()).expect("text");
        if length == 0 || answer.ends_with("answered") {
            return answer;
        }
    }
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_on_loopback() {
    let rig = Rig::start("127.0.0.1:0").await;
    let mut stream = rig.connect(1).await;
    for host in ["127.0.0.1", "localhost:1", "[::1]"] {
        assert!(ask(&mut stream, host).await.starts_with("HTTP/1.1 200 "), "{host}");
    }
    // The connection ends: the answer is read to its end.
    let answer = ask(&mut stream, "evil.example").await;
    assert!(answer.starts_with("HTTP/1.1 421 ") && answer.ends_with(MISDIRECTED), "{answer}");
    rig.end().await;
}

#[tokio::test]
async fn elsewhere_every_name_is_answered() {
    let rig = Rig::start("0.0.0.0:0").await;
    assert!(ask(&mut rig.connect(1).await, "node.example:9095").await.starts_with("HTTP/1.1 200 "));
    rig.end().await;
}

#[tokio::test]
async fn idle_clients_do_not_keep_others_out() {
    let rig = Rig::start("127.0.0.1:0").await;
    let mut idle = Vec::new();
    for number in 0..600_usize {
        idle.push(rig.connect(u8::try_from(2 + number % 8).expect("small")).await);
    }
    let mut byte = [0];
    let oldest = tokio::time::timeout(Duration::from_secs(30), idle[0].read(&mut byte)).await;
    assert!(matches!(oldest.expect("the oldest is evicted"), Ok(0) | Err(_)));
    let mut newcomer = rig.connect(1).await;
    for _ in 0..2 {
        assert!(ask(&mut newcomer, "127.0.0.1").await.starts_with("HTTP/1.1 200 "), "the connection is used again");
    }
    drop(idle);
    rig.end().await;
}
