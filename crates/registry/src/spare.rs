//! [`SpareConnection`]: a second connection for a stretch whose first one delivers next to nothing. It asks for the
//! bytes that are missing when it is opened, and replaces the first connection as soon as it has a byte that the first
//! one has not delivered. `part` holds it, `blob` decides when there is one and for how long.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::error::Cause;
use crate::http_client::HttpResponse;
use crate::range_request::{OpenFuture, ReadFuture, read};

/// A second connection for a stretch of a blob.
pub(crate) struct SpareConnection {
    pub(crate) state: SpareState,
    pub(crate) since: Instant,
    /// The right to a connection.
    pub(crate) connection: Option<OwnedSemaphorePermit>,
}

pub(crate) enum SpareState {
    /// The missing bytes begin at `need`.
    Opening { open: OpenFuture, need: u64 },
    /// The next byte is `at`.
    Reading { read: ReadFuture, at: u64, until: u64 },
}

/// The first bytes that the other connection has not delivered.
pub(crate) struct Overtake {
    pub(crate) response: HttpResponse,
    pub(crate) bytes: Bytes,
    /// End in the blob of the bytes that it delivers.
    pub(crate) until: u64,
}

impl SpareConnection {
    pub(crate) fn new(open: OpenFuture, need: u64, connection: OwnedSemaphorePermit) -> Self {
        Self { state: SpareState::Opening { open, need }, since: Instant::now(), connection: Some(connection) }
    }

    /// Polls it. Ready when it has overtaken the first connection, which is at `from`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, from: u64, idle: Duration) -> Poll<Result<Overtake, Cause>> {
        loop {
            match &mut self.state {
                SpareState::Opening { open, need } => match std::task::ready!(Pin::new(open).poll(cx)) {
                    Ok(body) => {
                        let at = *need - body.skip;
                        self.state = SpareState::Reading { read: read(body.response, idle), at, until: body.until };
                    }
                    Err(cause) => return Poll::Ready(Err(cause)),
                },
                SpareState::Reading { read: reading, at, until } => {
                    let (response, came) = std::task::ready!(Pin::new(&mut *reading).poll(cx));
                    let mut bytes = match came {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => return Poll::Ready(Err(Cause::Truncated { got: *at, size: *until })),
                        Err(cause) => return Poll::Ready(Err(cause)),
                    };
                    let behind = from.saturating_sub(*at);
                    if bytes.len() as u64 > behind {
                        bytes.advance(usize::try_from(behind).expect("less than the piece's length"));
                        return Poll::Ready(Ok(Overtake { response, bytes, until: *until }));
                    }
                    *at += bytes.len() as u64;
                    *reading = read(response, idle);
                }
            }
        }
    }
}
