//! [`Filtered`]: the connection of a client as the transport sees it: read through [`AuthorityFilter`], and written as it is. Logs
//! every request and connection that is refused, which the transport itself does not report.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::authority::AuthorityFilter;

/// Bytes that are read at once.
const CHUNK: usize = 8 * 1024;

/// A connection whose requests pass the filter.
pub(super) struct Filtered<T> {
    stream: T,
    filter: AuthorityFilter,
    chunk: Box<[u8; CHUNK]>,
    /// The part of the chunk that the filter has not read.
    unread: std::ops::Range<usize>,
    refusals: Refusals,
}

impl<T> Filtered<T> {
    /// `pid` is the process of the client, for the log.
    pub(super) fn new(stream: T, pid: Option<i32>) -> Self {
        Self {
            stream,
            filter: AuthorityFilter::new(),
            chunk: Box::new([0; CHUNK]),
            unread: 0..0,
            refusals: Refusals::new(pid),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Filtered<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let ready_bytes = this.filter.ready();
            if !ready_bytes.is_empty() || buf.remaining() == 0 {
                let count = ready_bytes.len().min(buf.remaining());
                buf.put_slice(&ready_bytes[..count]);
                this.filter.take(count);
                return Poll::Ready(Ok(()));
            }
            if this.unread.is_empty() {
                let mut chunk = ReadBuf::new(&mut this.chunk[..]);
                ready!(Pin::new(&mut this.stream).poll_read(cx, &mut chunk))?;
                this.unread = 0..chunk.filled().len();
                if this.unread.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            this.unread.start += this.filter.read(&this.chunk[this.unread.clone()]);
            if let Some(violation) = this.filter.take_violation() {
                this.refusals.log(&violation.to_string());
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Filtered<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.refusals.watch(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        let mut rest = count;
        for buf in bufs {
            let now = rest.min(buf.len());
            self.refusals.watch(&buf[..now]);
            rest -= now;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Length of a frame's header.
const HEADER: usize = 9;
const RST_STREAM: u8 = 0x3;
const GOAWAY: u8 = 0x7;
/// Length of the header, a stream and an error code.
const LONGEST: usize = HEADER + 8;

/// Watches for frames of the server that refuse a stream or the connection.
struct Refusals {
    pid: Option<i32>,
    /// A client that is refused again and again writes one warning to the log.
    is_warned: bool,
    /// Start of the present frame.
    frame: [u8; LONGEST],
    length: usize,
    /// Bytes of the present frame that are of no interest.
    skip: usize,
}

impl Refusals {
    fn new(pid: Option<i32>) -> Self {
        Self { pid, is_warned: false, frame: [0; LONGEST], length: 0, skip: 0 }
    }

    fn log(&mut self, reason: &str) {
        let pid = self.pid;
        if std::mem::replace(&mut self.is_warned, true) {
            tracing::debug!(pid, reason, "refused a request of a CRI client");
        } else {
            tracing::warn!(pid, reason, "refused a request of a CRI client");
        }
    }

    /// Reads bytes that were sent to the client.
    fn watch(&mut self, mut sent: &[u8]) {
        while !sent.is_empty() {
            let now = self.skip.min(sent.len());
            self.skip -= now;
            sent = &sent[now..];
            let wanted = match (self.length, self.frame[3]) {
                (0..HEADER, _) => HEADER,
                (_, RST_STREAM) => HEADER + 4,
                _ => HEADER + 8,
            };
            let now = (wanted - self.length).min(sent.len());
            self.frame[self.length..][..now].copy_from_slice(&sent[..now]);
            self.length += now;
            sent = &sent[now..];
            let payload = u32::from_be_bytes([0, self.frame[0], self.frame[1], self.frame[2]]) as usize;
            if self.length == HEADER && !matches!(self.frame[3], RST_STREAM | GOAWAY) {
                (self.length, self.skip) = (0, payload);
            } else if self.length == wanted && wanted > HEADER {
                let mut code = [0; 4];
                code.copy_from_slice(&self.frame[wanted - 4..wanted]);
                self.report(u32::from_be_bytes(code));
                (self.length, self.skip) = (0, (HEADER + payload).saturating_sub(wanted));
            }
        }
    }

    fn report(&mut self, code: u32) {
        let code = h2::Reason::from(code);
        // The ordinary ends of calls and connections.
        if matches!(code, h2::Reason::NO_ERROR | h2::Reason::CANCEL | h2::Reason::STREAM_CLOSED) {
            return;
        }
        let what = if self.frame[3] == RST_STREAM { "a stream is reset" } else { "the connection is closed" };
        if code == h2::Reason::REFUSED_STREAM {
            // The client sends such a call again; ends of a server, which cause it, have lines of their own.
            return tracing::debug!(pid = self.pid, "{what}: {code:?}");
        }
        self.log(&format!("{what}: {code:?}"));
    }
}

#[cfg(test)]
#[path = "filtered_tests.rs"]
mod tests;
