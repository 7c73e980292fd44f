//! The reader against a peer that claims wrong lengths.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use tokio::io::ReadBuf;

use super::*;

/// A peer that sends this data and no more; records the largest buffer that was allocated for it.
struct Meter<'a> {
    said: &'a [u8],
    closes: bool,
    greatest: usize,
}

impl AsyncRead for Meter<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.greatest = self.greatest.max(buffer.remaining());
        let (now, later) = self.said.split_at(buffer.remaining().min(self.said.len()));
        buffer.put_slice(now);
        self.said = later;
        if now.is_empty() && !self.closes { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

/// Returns heads of a data frame of stream 5, and of a ping, that claim this length.
fn heads(length: u32) -> [Vec<u8>; 2] {
    let [_, a, b, c] = length.to_be_bytes();
    [vec![0, 0, 0, 5, FIN, a, b, c], vec![0x80, 3, 0, 6, 0, a, b, c]]
}

#[test]
fn a_length_is_no_reason_to_give_memory() {
    for head in [&heads(0x00ff_ffff)[0], &heads(1 << 20)[1]] {
        let mut peer = Meter { said: head, closes: false, greatest: 0 };
        let mut reader = Reader::new(&mut peer);
        assert!(reader.next().now_or_never().is_none(), "no frame is complete");
        assert!(peer.greatest <= PIECE, "{} bytes for a promise", peer.greatest);
    }
}

#[test]
fn a_long_frame_is_read_in_pieces() {
    let content: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let said = [heads(200_000)[0].clone(), content.clone(), data(7, b"next", false).to_vec()].concat();
    let mut peer = Meter { said: &said, closes: true, greatest: 0 };
    let mut reader = Reader::new(&mut peer);
    let mut next = || reader.next().now_or_never().expect("a complete frame").expect("frames");
    let mut heard = Vec::new();
    loop {
        let Some(Frame::Data { stream: 5, bytes, last }) = next() else { panic!("of this frame") };
        assert!(!bytes.is_empty() && bytes.len() <= PIECE);
        heard.extend_from_slice(&bytes);
        if last {
            break;
        }
        assert!(heard.len() < content.len());
    }
    assert!(heard == content);
    assert_eq!(next(), Some(Frame::Data { stream: 7, bytes: Bytes::from_static(b"next"), last: false }));
    assert_eq!(next(), None);
    assert!(peer.greatest <= PIECE);
}

#[test]
fn what_ends_within_a_frame_is_an_error() {
    let [data, ping] = heads(2000);
    for (said, most) in [(&data[..5], 0), (&data, 0), (&[&data[..], b"some"].concat(), 1), (&ping, 0)] {
        let mut peer = Meter { said, closes: true, greatest: 0 };
        let mut reader = Reader::new(&mut peer);
        let mut pieces = 0;
        let error = loop {
            match reader.next().now_or_never().expect("it is closed") {
                Ok(Some(Frame::Data { last: false, .. })) => pieces += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), pieces), (io::ErrorKind::UnexpectedEof, most));
    }
    let long = heads((1 << 20) + 1)[1].clone();
    let mut peer = Meter { said: &long, closes: true, greatest: 0 };
    let error = Reader::new(&mut peer).next().now_or_never().expect("at once").expect_err("too long");
    assert_eq!(error.to_string(), "a control frame is too long");
}
