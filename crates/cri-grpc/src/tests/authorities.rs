//! Clients as gRPC's libraries make them: every authority, by frames that the test writes itself, because the transport's own client
//! writes no other authority than that of a URL.

use std::io;

use cri_api::testing::FakeImageService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::support::{Running, soon};

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A connection whose requests are written by hand.
struct Client {
    stream: UnixStream,
    next: u32,
}

/// The end of a call, as far as frames show it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The server ended the stream with trailers.
    Trailers,
    Reset(u32),
    Closed(u32),
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that enters the dynamic table, with a literal name, as C-core writes it.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let length = |length: usize| u8::try_from(length).ok().filter(|length| *length < 0x7f).unwrap();
    [&[0x40, length(name.len())], name.as_bytes(), &[length(value.len())], value].concat()
}

fn request(authority: &[u8]) -> Vec<u8> {
    [
        &[0x86][..],
        &field(":method", b"POST"),
        &field(":path", b"/runtime.v1.ImageService/ListImages"),
        &field(":authority", authority),
        &field("te", b"trailers"),
        &field("content-type", b"application/grpc"),
    ]
    .concat()
}

impl Client {
    async fn connect(server: &Running) -> Self {
        let mut stream = UnixStream::connect(server.endpoint.path()).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self { stream, next: 1 }
    }

    /// Makes a call with this header block, in parts of `part` bytes, and waits for its end.
    async fn call(&mut self, block: &[u8], part: usize) -> io::Result<End> {
        let stream = self.next;
        self.next += 2;
        let count = block.chunks(part).count();
        let mut frames = Vec::new();
        for (index, fragment) in block.chunks(part).enumerate() {
            let kind = if index == 0 { HEADERS } else { CONTINUATION };
            frames.extend(frame(kind, if index + 1 == count { END_HEADERS } else { 0 }, stream, fragment));
        }
        frames.extend(frame(DATA, END_STREAM, stream, &[0; 5]));
        self.stream.write_all(&frames).await?;
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).await?;
            let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
            self.stream.read_exact(&mut payload).await?;
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            match header[3] {
                GOAWAY => return Ok(End::Closed(number(4))),
                _ if header[5..] != stream.to_be_bytes() => {}
                RST_STREAM => return Ok(End::Reset(number(0))),
                HEADERS if header[4] & END_STREAM != 0 => return Ok(End::Trailers),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn calls_with_any_authority_are_answered() {
    let server = Running::fake(&FakeImageService::new());
    for authority in [
        &b"/run/imagelet/cri.sock"[..],
        b"%2Frun%2Fcri.sock",
        b"",
        b"localhost",
        b"unix:///x",
        b"a b",
        b"\xff\xfe",
        b"[",
    ] {
        for part in [usize::MAX, 3] {
            let mut client = Client::connect(&server).await;
            let end = soon(client.call(&request(authority), part)).await.unwrap();
            assert_eq!(end, End::Trailers, "{authority:?} in parts of {part}");
            // The table's entries, newest first: content-type, te, :authority, :path, :method.
            let again = [0x86, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];
            for _ in 0..3 {
                let end = soon(client.call(&again, part)).await.unwrap();
                assert_eq!(end, End::Trailers, "{authority:?}: a call that refers to those before it");
            }
        }
    }
}

#[tokio::test]
async fn other_protocol_rules_are_enforced() {
    let server = Running::fake(&FakeImageService::new());
    let protocol_error = 1;
    let twice = [request(b"localhost"), request(b"/x")].concat();
    let late = [request(b"localhost"), field(":authority", b"/x")].concat();
    let path =
        [&[0x86][..], &field(":method", b"POST"), &field(":path", b"no path"), &field(":authority", b"/x")].concat();
    let cases = [
        ("two of each field", twice, End::Reset(protocol_error)),
        ("an authority behind other fields", late, End::Reset(protocol_error)),
        ("a path with a space", path, End::Reset(protocol_error)),
        ("an entry that no table has", vec![0xff], End::Closed(protocol_error)),
    ];
    for (name, block, want) in cases {
        let mut client = Client::connect(&server).await;
        assert_eq!(soon(client.call(&block, usize::MAX)).await.unwrap(), want, "{name}");
    }
    // Other connections are not affected.
    let mut client = Client::connect(&server).await;
    assert_eq!(soon(client.call(&request(b""), usize::MAX)).await.unwrap(), End::Trailers);
}
