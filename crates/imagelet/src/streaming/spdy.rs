//! The frames of SPDY/3.1, as far as streams of runtimes need them. Headers are written without compression, in the blocks
//! that deflate has for that, and never read: a reply says all by being there. Reads and writes frames; knows no stream.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A frame with this flag is the last one of its direction.
const FIN: u8 = 1;
/// Control frames that are longer than this are nobody's.
const MAX_CONTROL: usize = 1 << 20;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// What the peer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Bytes of a stream; the last ones of it.
    Data { stream: u32, bytes: Bytes, last: bool },
    /// It takes a stream; and it has nothing to say on it.
    Reply { stream: u32, last: bool },
    /// It ends a stream in the middle.
    Reset { stream: u32, status: u32 },
    /// It wants this number back.
    Ping(u32),
    /// It will take no more streams.
    GoAway,
    /// Something that does not matter here.
    Other,
}

/// The next frame; `None`: the peer has closed the connection between two.
pub(super) async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; 8];
    let begun = reader.read(&mut head).await?;
    if begun == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut head[begun..]).await?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (first, flags, length) = (word(0), head[4], (word(4) & 0x00ff_ffff) as usize);
    if first & 0x8000_0000 != 0 && length > MAX_CONTROL {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too long"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let last = flags & FIN != 0;
    if first & 0x8000_0000 == 0 {
        return Ok(Some(Frame::Data { stream: first, bytes: body.into(), last }));
    }
    let field = |at: usize| match body.get(at..at + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too short")),
    };
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

fn control(kind: u16, flags: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + body.len());
    frame.put_u16(0x8003);
    frame.put_u16(kind);
    frame.put_u8(flags);
    frame.put_uint(body.len() as u64, 3);
    frame.put_slice(body);
    frame.freeze()
}

/// Bytes of a stream.
pub(super) fn data(stream: u32, bytes: &[u8], last: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + bytes.len());
    frame.put_u32(stream);
    frame.put_u8(if last { FIN } else { 0 });
    frame.put_uint(bytes.len() as u64, 3);
    frame.put_slice(bytes);
    frame.freeze()
}

/// The answer to a ping.
pub(super) fn ping(number: u32) -> Bytes {
    control(PING, 0, &number.to_be_bytes())
}

/// Opens streams: the headers of all of them are one compressed text, so they are written in their order by one.
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
        // No other stream that it belongs to, no priority, no slot.
        body.put_slice(&[0; 6]);
        if !std::mem::replace(&mut self.begun, true) {
            // zlib, 32 KiB window, no compression, no dictionary.
            body.put_u16(0x7801);
        }
        let length = u16::try_from(text.len()).expect("headers are short");
        // A stored block that is not the last one, and an empty one behind it: what is there is to be read now.
        body.put_u8(0);
        body.put_u16_le(length);
        body.put_u16_le(!length);
        body.put_slice(&text);
        body.put_slice(&[0, 0, 0, 0xff, 0xff]);
        control(SYN_STREAM, 0, &body)
    }
}
