//! The frames of SPDY/3.1, as far as streams of runtimes need them. Headers are written uncompressed, in stored blocks of deflate, and
//! never read: a reply needs no content to be understood. Reads and writes frames; knows no stream.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Flag of the last frame of its direction.
const FIN: u8 = 1;
/// Maximum length of a control frame; a longer one is invalid.
const MAX_CONTROL: usize = 1 << 20;
/// Maximum number of bytes of a data frame that are read at a time.
const PIECE: usize = 32 << 10;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// A frame of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Bytes of a stream; `last` marks the end of the stream.
    Data { stream: u32, bytes: Bytes, last: bool },
    /// The peer accepts a stream; `last`: it will send nothing on it.
    Reply { stream: u32, last: bool },
    /// The peer resets a stream.
    Reset { stream: u32, status: u32 },
    /// The peer expects this number to be sent back.
    Ping(u32),
    /// The peer will take no more streams.
    GoAway,
    /// A frame that is ignored.
    Other,
}

/// Reads frames. The length of a frame is only claimed by the peer, so memory is allocated for received bytes, a piece at a time. A data
/// frame longer than a piece is passed on in several.
#[derive(Debug)]
pub(super) struct Reader<R> {
    inner: R,
    /// The data frame that is being read.
    data: Option<Data>,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    last: bool,
    /// Number of bytes that remain to be read.
    left: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, data: None }
    }

    /// Reads the next frame, or the next piece of a data frame; `None` if the peer has closed the connection between two frames.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        if let Some(data) = self.data {
            return self.piece(data).await.map(Some);
        }
        let mut head = [0; 8];
        let begun = self.inner.read(&mut head).await?;
        if begun == 0 {
            return Ok(None);
        }
        self.inner.read_exact(&mut head[begun..]).await?;
        let (first, flags, length) = (word(&head, 0)?, head[4], (word(&head, 4)? & 0x00ff_ffff) as usize);
        let last = flags & FIN != 0;
        if first & 0x8000_0000 == 0 {
            return self.piece(Data { stream: first, last, left: length }).await.map(Some);
        }
        if length > MAX_CONTROL {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too long"));
        }
        // Only the first two words of a control frame are used.
        let mut body = [0; 8];
        let used = length.min(body.len());
        self.inner.read_exact(&mut body[..used]).await?;
        self.skip(length - used).await?;
        let field = |at| word(&body[..used], at);
        let stream = || field(0).map(|stream| stream & 0x7fff_ffff);
        // The low half of the first word.
        Ok(Some(match u16::from_be_bytes([head[2], head[3]]) {
            SYN_REPLY => Frame::Reply { stream: stream()?, last },
            RST_STREAM => Frame::Reset { stream: stream()?, status: field(4)? },
            PING => Frame::Ping(field(0)?),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        }))
    }

    /// Reads the available bytes of a data frame, up to a piece.
    async fn piece(&mut self, data: Data) -> io::Result<Frame> {
        let mut bytes = BytesMut::with_capacity(data.left.min(PIECE));
        if data.left > 0 && (&mut self.inner).take(data.left.min(PIECE) as u64).read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = data.left - bytes.len();
        self.data = (left > 0).then_some(Data { left, ..data });
        Ok(Frame::Data { stream: data.stream, bytes: bytes.freeze(), last: data.last && left == 0 })
    }

    async fn skip(&mut self, mut left: usize) -> io::Result<()> {
        let mut bytes = [0; 1 << 10];
        while left > 0 {
            let most = left.min(bytes.len());
            left -= self.inner.read_exact(&mut bytes[..most]).await?;
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too short")),
    }
}

fn control(kind: u16, flags: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + body.len());
    frame.put_u16(0x8003);
    frame.put_u16(kind);
    frame.put_u8(flags);
    frame.put_uint(body.len() as u64, 3);
    frame.put_slice(body);
    frame.freeze()
}

/// Returns a data frame of a stream.
pub(super) fn data(stream: u32, bytes: &[u8], last: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + bytes.len());
    frame.put_u32(stream);
    frame.put_u8(if last { FIN } else { 0 });
    frame.put_uint(bytes.len() as u64, 3);
    frame.put_slice(bytes);
    frame.freeze()
}

/// Returns the reply to a ping.
pub(super) fn ping(number: u32) -> Bytes {
    control(PING, 0, &number.to_be_bytes())
}

/// Opens streams: the headers of all of them are one compressed text, so a single writer writes them in their order.
#[derive(Debug, Default)]
pub(super) struct Opener {
    begun: bool,
}

impl Opener {
    /// Opens a stream with headers, whose names are in lower case and whose values are short.
    pub(super) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        let mut text = BytesMut::new();
        let count = |text: &mut BytesMut, count: usize| text.put_u32(u32::try_from(count).expect("headers are short"));
        count(&mut text, headers.len());
        for part in headers.iter().flat_map(|(name, value)| [name, value]) {
            count(&mut text, part.len());
            text.put_slice(part.as_bytes());
        }
        let mut body = BytesMut::new();
        body.put_u32(stream);
        // No associated stream, no priority, no slot.
        body.put_slice(&[0; 6]);
        if !std::mem::replace(&mut self.begun, true) {
            // zlib, 32 KiB window, no compression, no dictionary.
            body.put_u16(0x7801);
        }
        let length = u16::try_from(text.len()).expect("headers are short");
        // A stored block that is not the last one, followed by an empty one, so that the peer can decode the data at once.
        body.put_u8(0);
        body.put_u16_le(length);
        body.put_u16_le(!length);
        body.put_slice(&text);
        body.put_slice(&[0, 0, 0, 0xff, 0xff]);
        control(SYN_STREAM, 0, &body)
    }
}

#[cfg(test)]
#[path = "spdy_tests.rs"]
mod tests;
